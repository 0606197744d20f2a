"""Constants of devices and software stacks fitted to measured steps."""

"""What people write: specifications, networks, names of plug-ins, plain values."""

"""YAML files and flags as specifications: every fault at once, with its line."""

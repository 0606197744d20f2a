"""Files of a search: written, read, and what made them."""

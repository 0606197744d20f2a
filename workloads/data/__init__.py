"""Tables that ship with the product, a row a thing with its source."""

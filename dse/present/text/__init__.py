"""Reports and tables as text."""

"""What every floor stands on: errors, units, files."""

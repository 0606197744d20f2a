"""Tables of measurements, and the design that each row ran."""

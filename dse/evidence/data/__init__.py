"""Tables that the product ships; measured_runs.csv cites the papers its rows come from."""

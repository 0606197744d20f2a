"""What follows from an evaluation: accounts, sensitivities, intervals, floor plans, plans of a given chip."""

"""What a search is asked for: space, objectives, limits, and what it found."""

"""Population members, their fronts and selection."""

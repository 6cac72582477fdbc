"""Tables as values, independent of their rendering; pandas frames for notebooks."""

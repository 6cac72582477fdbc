"""Numbers from a store: one reading of it, statistics, scores, comparisons and tables as values."""

"""Numbers from a store: one snapshot of it, statistics, scores, comparisons and tables as values."""

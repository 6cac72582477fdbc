"""Drawing of given numbers: HTML tables for notebooks, curves on matplotlib's axes."""

"""Comparisons: what is said of several subjects together, and the gates."""

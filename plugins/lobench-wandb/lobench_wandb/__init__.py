"""Weights & Biases as a sink of lobench's results."""

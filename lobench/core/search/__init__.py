"""Hyperparameter search: spaces, strategies, seeded draws."""

"""Experiments, from file to store: `lobench run`, `tune` and `baseline`; methods x cases x sessions."""

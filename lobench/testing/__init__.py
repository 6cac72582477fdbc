"""Contracts of plugins as test classes: subclass one for each kind of thing that you make."""

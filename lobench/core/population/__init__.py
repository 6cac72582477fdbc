"""Populations: members, fronts and selection strategies."""

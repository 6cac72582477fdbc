"""Searches: one setting of a method is a trial."""

"""Snapshots of a store: its subjects, methods and searches."""

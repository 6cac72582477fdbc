"""One snapshot of a store: its subjects, methods, searches."""

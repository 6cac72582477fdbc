"""One reading of a store: its snapshot, its subjects, methods and histories."""

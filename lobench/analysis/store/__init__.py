"""One reading of a store: its snapshot, subjects, methods, searches."""

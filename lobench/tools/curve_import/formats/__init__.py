"""File formats of curves, a reader each. A new one is a file `builtin_NAME.py` here, which is found by itself."""

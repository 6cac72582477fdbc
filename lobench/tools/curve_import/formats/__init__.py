"""File formats of curves, with one reader each. `builtin.py` declares them."""

"""File formats of curves, with one reader each.

Files named `builtin_NAME.py` in this folder are found automatically.
"""

"""Checkpoint input: readers of file formats; sources that find files; the spool of copies."""

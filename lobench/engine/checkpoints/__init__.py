"""Where checkpoints come from: readers, sources, the spool, and what the chief takes in."""

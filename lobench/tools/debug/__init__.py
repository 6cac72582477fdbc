"""`lobench debug`: diagnosis of one replayed training."""

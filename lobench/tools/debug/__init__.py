"""`lobench debug`: one training, replayed and diagnosed."""

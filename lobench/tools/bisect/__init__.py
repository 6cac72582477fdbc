"""`lobench bisect`: the change point of a case along a run's checkpoints."""

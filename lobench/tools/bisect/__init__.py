"""`lobench bisect`: change-point search for a case along a run's checkpoints."""

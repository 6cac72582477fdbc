"""`lobench best`: the best checkpoint of a run, on fresh seeds."""

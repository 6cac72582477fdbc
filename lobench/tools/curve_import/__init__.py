"""`lobench import`: curves of other loggers as evaluations."""

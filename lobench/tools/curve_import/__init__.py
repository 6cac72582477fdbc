"""`lobench import`: curves from other loggers and file formats as evaluations."""

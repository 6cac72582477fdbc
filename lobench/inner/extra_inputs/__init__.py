"""Extra inputs of an optimizer: what a task can give, what an update asks for."""

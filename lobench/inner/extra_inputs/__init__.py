"""Extra inputs of an optimizer beyond the gradient: what an update asks for, what a task can give."""

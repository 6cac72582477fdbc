"""Extra inputs of optimizers besides the gradient: requests of optimizers, and values of tasks."""

"""The inner program, the only room with jax: tasks, optimizers, schedules and the training loop."""

"""Inner program in jax: tasks, optimizers, schedules and the training loop."""

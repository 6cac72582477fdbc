"""torch optimizers for lobench: jax computes the gradients, torch makes the steps."""

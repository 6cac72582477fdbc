"""torch's optimizers as optimizers of lobench: jax computes the gradients, torch takes the step."""

"""Input and output without jax: checkpoints, the store, workers, gin, and the chief that drives them."""

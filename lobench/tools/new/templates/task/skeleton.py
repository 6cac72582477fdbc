"""A task: initial parameters, batches, and the loss of parameters on a batch. Edit all three."""

import jax
import jax.numpy as jnp

from lobench import Datasets, SampledDataset, Task, configurable


@configurable  # makes @Skeleton() available in gin files
class Skeleton(Task):
    """Linear regression with noise.

    Args:
      dim: Length of an input; gin: `Skeleton.dim = 8`.
    """

    def __init__(self, *, dim=8):
        self.dim = dim
        self.datasets = Datasets(train=SampledDataset(self.sample), test=SampledDataset(self.sample))

    def sample(self, key):
        """Returns a batch; the same one for the same key."""
        inputs_key, noise_key = jax.random.split(key)
        inputs = jax.random.normal(inputs_key, (32, self.dim))
        targets = inputs.sum(axis=1) + 0.1 * jax.random.normal(noise_key, (32,))
        return inputs, targets

    def init(self, key):
        """Returns initial parameters: any tree of arrays."""
        return {"weights": 0.1 * jax.random.normal(key, (self.dim,))}

    def loss(self, params, key, data):
        """Returns a float32[]; `key` is for dropout and the like."""
        inputs, targets = data
        return jnp.mean((inputs @ params["weights"] - targets) ** 2)

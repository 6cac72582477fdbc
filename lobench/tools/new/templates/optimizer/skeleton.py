"""A learned optimizer: an initial theta, and the optimizer for a theta. Edit both.

`python skeleton.py` writes an initial theta, a checkpoint to begin with, to theta_0.npz.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench import LearnedOptimizer, configurable


@configurable  # makes @Skeleton() available in gin files
class Skeleton(LearnedOptimizer):
    """Momentum whose rate and decay are learned.

    Args:
      initial_rate: The rate that theta begins with; gin: `Skeleton.initial_rate = 0.01`.
    """

    def __init__(self, *, initial_rate=0.05):
        self.initial_rate = initial_rate

    def init(self, key):
        """Returns an initial theta: any tree of arrays. Checkpoints hold theta, with these names and shapes."""
        del key  # a network would draw its weights from it
        return {"log_rate": jnp.log(jnp.float32(self.initial_rate)), "decay_logit": jnp.float32(2.0)}

    def opt_fn(self, theta, num_steps=None):
        """Returns the optimizer of a theta: an optax transformation, in which theta may be traced."""
        return optax.sgd(jnp.exp(theta["log_rate"]), momentum=jax.nn.sigmoid(theta["decay_logit"]))


if __name__ == "__main__":
    theta = Skeleton().init(jax.random.key(0))
    np.savez(Path(__file__).with_name("theta_0.npz"), **theta)

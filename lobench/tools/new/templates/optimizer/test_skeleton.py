"""What every optimizer must keep, as tests of lobench's; and what you know of this one."""

import jax
import jax.numpy as jnp
import numpy as np
from skeleton import Skeleton

from lobench.testing.optimizers import OptimizerContract


class TestSkeleton(OptimizerContract):
    def optimizer(self):
        return Skeleton(initial_rate=0.01)


def test_the_first_step_goes_down_the_gradient_by_the_rate():
    rule = Skeleton(initial_rate=0.1)
    optimizer = rule.opt_fn(rule.init(jax.random.key(0)))
    params = {"x": jnp.asarray([1.0, -2.0])}
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    np.testing.assert_allclose(updates["x"], [-0.1, 0.2], rtol=1e-5)

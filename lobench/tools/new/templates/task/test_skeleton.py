"""What every task must keep, as tests of lobench's; and what you know of this one."""

import jax
import jax.numpy as jnp
from skeleton import Skeleton

from lobench.testing.tasks import TaskContract


class TestSkeleton(TaskContract):
    def task(self):
        return Skeleton(dim=4)


def test_the_right_weights_leave_the_noise_alone():
    task = Skeleton(dim=4)
    loss = task.loss({"weights": jnp.ones(4)}, jax.random.key(0), task.sample(jax.random.key(1)))
    assert loss < 0.05

"""A suite with a race in it: two noisy bowls, and a task that diverges where the noise is wide."""

from __future__ import annotations

from pathlib import Path

from tiny import make_suite

__all__ = ["noisy_suite"]

NOISY = """
@configurable
class Noisy(Bowl):
    def loss(self, params, key, data):
        return jnp.sum((params - 0.5 * jax.random.normal(key, params.shape)) ** 2)
"""
SUITE = """
import tiny_tasks
Case.num_inner_steps = 20
Case.eval_every = 10
Case.num_seeds = 1
a/Case.task = @Noisy()
b/Case.task = @Noisy()
b/Noisy.dim = 5
"""
CLIFF = """
@configurable
class Cliff(Noisy):
    def init(self, key):
        return 0.1 * super().init(key)
    def loss(self, params, key, data):
        return jnp.where(jnp.sum(params**2) > 0.9, jnp.nan, super().loss(params, key, data))
"""


# A task that gives no result while there is a file "stop" where it runs.
_STOPPED = """
import os
@configurable
class Stopped(Noisy):
    def eval_loss_with_aux(self, params, model_state, key, data):
        def value(x):
            if os.path.exists("stop"):
                raise ValueError("stopped")
            return (x**2).sum()
        of = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(value, of, params, vmap_method="sequential"), {}
"""


def noisy_suite(folder: Path) -> Path:
    suite = make_suite(folder, gin=SUITE)
    with (suite / "tiny_tasks.py").open("a") as file:
        file.write(NOISY + CLIFF + _STOPPED)
    return suite

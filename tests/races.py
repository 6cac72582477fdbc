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


def noisy_suite(folder: Path) -> Path:
    suite = make_suite(folder, gin=SUITE)
    with (suite / "tiny_tasks.py").open("a") as file:
        file.write(NOISY + CLIFF)
    return suite

"""Perturbed training: the same compiled program, with parameters changed by one unit in the last place between steps.

It measures the effect of rounding, which differs between machines. A training that converges forgets a perturbation; a
chaotic one amplifies it up to the size of the loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lobench.core.case import SeedBlock
from lobench.core.result import Curves
from lobench.inner.optimizer import PyTree, Theta
from lobench.inner.training.compile_cache import Found
from lobench.inner.training.loop import RunOptions, TrainingLoop
from lobench.inner.training.seed_block import Carry
from lobench.inner.training.train import TrainingProgram

__all__ = ["PerturbedProgram"]


class _Perturbed(TrainingLoop):
    """Training that perturbs the parameters before each call, with calls of 1, 2, 4, ... steps before each evaluation.

    A training that converges forgets early perturbations, so those shortly before an evaluation matter most. If
    training batches come from an iterator, calls are as long as the chunks that were read ahead.
    """

    def __init__(self, *arguments: Any, number: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._number = number

    def _stop_after(self, start: int, chunk_size: int = 1) -> int:
        if self._feed.feeds_training:
            return super()._stop_after(start, chunk_size)
        until_evaluation = self._case.eval_every - start % self._case.eval_every
        return super()._stop_after(start, max(until_evaluation // 2, 1))

    def _program(self, phase: int) -> Found:
        phase_program = super()._program(phase)
        return phase_program._replace(program=functools.partial(self._run_perturbed, phase_program))

    def _run_perturbed(self, phase_program: Found, *arguments: Any) -> Carry:
        *placed_arguments, batches, carry, start, stop = arguments
        if start > 0:  # the first call makes the initial parameters itself
            key = jax.random.fold_in(jax.random.PRNGKey(self._number), start)
            carry = carry._replace(params=_perturbed_params(carry.params, key))
        new_carry: Carry = phase_program.program(*placed_arguments, batches, carry, start, stop)
        return new_carry


@jax.jit
def _perturbed_params(params: PyTree, key: jax.Array) -> PyTree:
    """Moves each number up or down by one unit in the last place, at random."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, max(len(leaves), 1))
    return jax.tree.unflatten(structure, [_perturbed_leaf(leaf, key) for leaf, key in zip(leaves, keys, strict=False)])


def _perturbed_leaf(leaf: jax.Array, key: jax.Array) -> jax.Array:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    eps = float(jnp.finfo(leaf.dtype).eps)  # type: ignore[no-untyped-call]
    relative_change: jax.Array = eps * jax.random.rademacher(key, leaf.shape, leaf.dtype)
    return (leaf * (1 + relative_change)).astype(leaf.dtype)


class PerturbedProgram(TrainingProgram):
    """Program of perturbed trainings, with the arguments of `TrainingProgram`."""

    def run_perturbed(
        self,
        theta: Theta,
        block: SeedBlock,
        number: int,
        *,
        settings: Sequence[float] = (),
        end: int | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Curves | None:
        """Trains the block with perturbed parameters.

        Args:
          theta, block, settings, end, should_stop: As for `run`.
          number: Number of the perturbation; each has different random signs.
        """
        options = RunOptions(end=end, should_stop=should_stop)
        make_loop = functools.partial(_Perturbed, number=number)
        block_result = self._train(theta, settings, 0, block, options, make_loop)
        return (
            self._curves(block_result.carry, block_result, block, theta, settings) if block_result is not None else None
        )

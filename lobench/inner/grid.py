"""Many settings of one optimizer on one case as a single compiled program: the theta axis around the seeds' axis."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import SeedBlock
from lobench.core.result import Curves
from lobench.inner.feed import ITERATOR_CHUNK, Feed
from lobench.inner.optimizer import Theta
from lobench.inner.train import Program

__all__ = ["GridProgram"]

_FIRST_CHUNK = 25
_CHUNK_SECONDS = 0.5


class GridProgram(Program):
    """Trains one seed block for every theta of a grid at once.

    Seeds, batches and initial parameters are common to all thetas and are computed once; what one theta does changes
    nothing of another. The width changes bits in the last place, as the width of a seed block does.

    Args:
      case, task, make_stepper, num_seeds: As `Program`; `make_stepper` gets one theta.
    """

    def run_grid(
        self, thetas: Sequence[Theta], block: SeedBlock, *, on_progress: Callable[[int], None] | None = None
    ) -> list[Curves]:
        """Trains the block once for each theta.

        Args:
          thetas: All of one structure, their leaves of equal shapes.
          block: As many seeds as the program is wide.
          on_progress: Told the inner steps done, after each chunk.
        Returns:
          Curves of each theta, in order; the seconds of each are its share of the program's.
        """
        stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *thetas)
        lanes = self._lanes(block)
        feed = Feed(self._datasets, block, self._tasks_per_seed, self._case)
        started = time.perf_counter()
        program, carry = self._compile_grid(stacked, lanes, feed)
        compile_seconds = time.perf_counter() - started
        started, step, chunk, last = time.perf_counter(), 0, _FIRST_CHUNK, self._case.num_inner_steps
        while step < last:
            chunk_started = time.perf_counter()
            stop = min(step + (ITERATOR_CHUNK if feed.feeds_training else chunk), last)
            carry = program(stacked, lanes, self._arrays, feed.eval_batches, feed.next_chunk(), carry, step, stop)
            carry.step.block_until_ready()
            step = stop
            if time.perf_counter() - chunk_started < _CHUNK_SECONDS / 2:
                chunk *= 2
            if on_progress is not None:
                on_progress(step)
        seconds = (time.perf_counter() - started) / len(thetas)
        rows = jax.tree.map(np.asarray, carry)
        return [
            self._curves(_row(rows, index), block, compile_seconds / len(thetas), seconds)
            for index in range(len(thetas))
        ]

    def _compile_grid(self, thetas: Theta, lanes: Any, feed: Feed) -> tuple[Any, Any]:
        """Returns the compiled program and a carry to start from."""
        # Step and evaluation counters have no theta axis: with one, each branch of a `cond` would run every time.
        axes = self._carry_axes(thetas, lanes, feed)
        initial = jax.vmap(self._initial, in_axes=(0, None, None, None), out_axes=axes)
        shape = jax.eval_shape(initial, thetas, lanes, self._arrays, feed.eval_batches)
        advance = jax.vmap(self._advance, in_axes=(0, None, None, None, None, axes, None, None), out_axes=axes)
        arguments = (thetas, lanes, self._arrays, feed.eval_batches, feed.example_chunk)
        program = jax.jit(advance, donate_argnums=5).lower(*arguments, shape, 0, 1).compile()
        return program, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)

    def _carry_axes(self, thetas: Theta, lanes: Any, feed: Feed) -> Any:
        one = jax.tree.map(lambda leaf: leaf[0], thetas)
        carry = jax.eval_shape(self._initial, one, lanes, self._arrays, feed.eval_batches)
        return jax.tree.map(lambda _: 0, carry)._replace(step=None, num_evals=None)


def _row(carry: Any, index: int) -> Any:
    shared = {"step": carry.step, "num_evals": carry.num_evals}
    rest = carry._replace(step=None, num_evals=None)
    return jax.tree.map(lambda leaf: leaf[index], rest)._replace(**shared)

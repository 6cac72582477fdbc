"""Replay of a training: the same compiled program, one step at a time, with its state inspected between steps.

The lengths of calls change no bit, so the states between steps and the final curves equal those of the evaluation. The
width of a block does affect the bits. Therefore the whole block is replayed, and one replica is inspected.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import SeedBlock
from lobench.core.errors import UsageError
from lobench.core.result import Curves
from lobench.inner.optimizer import PyTree, Theta
from lobench.inner.training.compile_cache import Found
from lobench.inner.training.loop import RunOptions, TrainingLoop
from lobench.inner.training.prefetch import Feed
from lobench.inner.training.seed_block import Carry, Trained
from lobench.inner.training.train import TrainingProgram

__all__ = ["ReplayState", "ReplayedProgram", "ReplayedStep"]


class ReplayState(NamedTuple):
    """State of one replica between two steps, with numpy leaves."""

    opt_state: PyTree
    params: PyTree
    model_state: PyTree


class ReplayedStep(NamedTuple):
    """One inner step of a replayed training.

    Attributes:
      step: Number of the step, from 0.
      before, after: States before and after the step, as in the evaluation.
      observed: `batch`, `loss`, `gradient` and `inputs`, recomputed from `before` by a separate program. Empty if
        several replicas train one set of parameters.
    """

    step: int
    before: ReplayState
    after: ReplayState
    observed: dict[str, Any]


class _WatchedSteps(TrainingLoop):
    """Training loop that runs single steps as long as `watch` returns True, and chunks of steps afterwards."""

    watch: Callable[[int, Found, Any, ReplayState, ReplayState, int], bool]
    state_of: Callable[[Carry], ReplayState]
    is_watched = True

    def _stop_after(self, start: int, chunk_size: int = 1) -> int:
        # If an iterator feeds the training, its batches were read ahead for single steps.
        is_single = self.is_watched or self._feed.feeds_training
        return start + 1 if is_single else super()._stop_after(start, chunk_size)

    def _program(self, phase: int) -> Found:
        phase_program = super()._program(phase)
        return phase_program._replace(program=functools.partial(self._run_watched, phase, phase_program))

    def _run_watched(self, phase: int, phase_program: Found, *arguments: Any) -> Carry:
        if not self.is_watched:
            new_carry: Carry = phase_program.program(*arguments)
            return new_carry
        *placed_arguments, batches, carry, start, stop = arguments
        if start == 0:
            carry = phase_program.program(*placed_arguments, batches, carry, 0, 0)
        state_before = self.state_of(carry)  # a copy, because the program reuses the buffers of the carry
        carry_after: Carry = phase_program.program(*placed_arguments, batches, carry, start, stop)
        self.is_watched = self.watch(phase, phase_program, batches, state_before, self.state_of(carry_after), start)
        return carry_after


class ReplayedProgram(TrainingProgram):
    """Program whose trainings can be replayed, with the arguments of `TrainingProgram`."""

    def replay(
        self,
        theta: Theta,
        block: SeedBlock,
        seed: int,
        on_step: Callable[[ReplayedStep], bool],
        *,
        settings: Sequence[float] = (),
        task_index: int = 0,
        end: int | None = None,
    ) -> Curves:
        """Trains the block, and passes each step of one seed's training to a function.

        Args:
          theta, block, settings, end: As for `run`.
          seed: Seed of the block to replay.
          on_step: Function called with each step. Returns whether to continue.
          task_index: Index of the seed's task, for a task family.
        Raises:
          UsageError: The case has no task with this number.
        """
        if not 0 <= task_index < self._tasks_per_seed:
            expected = f"less than {self._tasks_per_seed}, counted from 0"
            raise UsageError("no such task of the case", got=str(task_index), expected=expected)
        theta = jax.tree.map(jnp.asarray, theta)
        replicas = self._replicas(block)
        replica_index = (seed - block.start) * self._tasks_per_seed + task_index
        is_single = np.ndim(replicas.seed) == 0

        def replica_leaf(leaf: Any, axis: int = 0) -> Any:
            if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):  # keys, which NumPy cannot hold
                return leaf.copy() if is_single else leaf[replica_index]
            return np.array(leaf) if is_single else np.asarray(leaf).take(replica_index, axis)

        def state_of(carry: Carry) -> ReplayState:
            return ReplayState(*jax.tree.map(replica_leaf, (carry.opt_state, carry.params, carry.model_state)))

        single_replica = replicas if is_single else jax.tree.map(lambda leaf: leaf[replica_index], replicas)
        observe_functions = [jax.jit(phase.observe) for phase in self._phases]

        def watch(
            phase: int,
            phase_program: Found,
            batches: Any,
            state_before: ReplayState,
            state_after: ReplayState,
            step: int,
        ) -> bool:
            chunk = None if batches is None else jax.tree.map(lambda leaf: replica_leaf(leaf, 1)[0], batches)
            step_values = observe_functions[phase](
                phase_program.given, single_replica, self._arrays, chunk, jnp.int32(step), tuple(state_before)
            )
            return on_step(ReplayedStep(step, state_before, state_after, jax.tree.map(np.asarray, step_values)))

        feed = Feed(self._datasets, block, self._tasks_per_seed, self._case)
        with contextlib.closing(feed):
            loop = self._training_loop(theta, settings, 0, replicas, feed, RunOptions(end=end), _WatchedSteps)
            assert isinstance(loop, _WatchedSteps)
            loop.watch, loop.state_of = watch, state_of
            loop.run()
        assert loop.carry is not None
        block_result = Trained(loop.carry, 0.0, 0.0, 0.0, 0, loop.end, at_once=loop.at_once)
        return self._curves(loop.carry, block_result, block, theta, settings)

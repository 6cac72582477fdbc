"""Gradient steps: time of an inner step whose optimizer only adds the gradient to the parameters."""

from __future__ import annotations

import contextlib
import dataclasses
import time

import jax
import jax.numpy as jnp
import optax

from lobench.core.case import Case, SeedBlock
from lobench.core.step_cost import StepCost
from lobench.inner.adapters.stepper import Stepper, as_stepper
from lobench.inner.optimizer import Theta
from lobench.inner.task import Task, TaskFamily
from lobench.inner.training.compile_cache import Found
from lobench.inner.training.devices import place
from lobench.inner.training.loop import RunOptions, TrainingLoop
from lobench.inner.training.prefetch import Feed, empty
from lobench.inner.training.train import TrainingProgram

__all__ = ["GradientSteps"]

_MAX_SAMPLES = 9
_CHUNK_SECONDS = 0.03  # intended duration of a chunk
# If chunks take longer than `_LONG_SECONDS`, three samples are enough.
_MIN_STEPS, _LONG_SECONDS = (2, 4 * _CHUNK_SECONDS)


class _TimedSteps(TrainingLoop):
    """Loop that repeats the first inner steps, without evaluations and without the end of the training."""

    def _run_phase(self, phase: int, program: Found) -> bool:
        self.layout = layout = program.layout
        first_stop = self._stop_after(0)
        batches = self._feed.next_chunk(first_stop)
        # Only one chunk of an iterator is read, for all calls. The very last step is followed by an evaluation.
        max_steps = (first_stop if self._feed.feeds_training else self.end - 1) - 1
        placed_arguments = (*place((program.given, *self._arguments), layout.parts, layout.axes), batches)
        carry = program.program(*placed_arguments, jax.tree.map(empty, layout.carry_shape), 0, 1)
        num_steps = min(max_steps, 25)
        while num_steps >= _MIN_STEPS and len(self.clock.samples) < _MAX_SAMPLES:
            seconds = []
            for steps in (num_steps, 0):
                carry = carry._replace(step=jnp.int32(1))
                carry.step.block_until_ready()
                wall = time.perf_counter()
                cpu = time.process_time()
                carry = program.program(*placed_arguments, carry, 1, 1 + steps)
                carry.step.block_until_ready()
                seconds.append((time.perf_counter() - wall, time.process_time() - cpu))
            (wall, cpu), (call_seconds, _) = seconds
            longer_count = min(max_steps, max(int(num_steps * _CHUNK_SECONDS / wall), _MIN_STEPS))
            if longer_count > 2 * num_steps:  # the chunk was too short for a sample
                num_steps = longer_count
                continue
            self.clock.record_chunk(1, 1 + num_steps, wall, cpu, evaluates_end=False)
            self.clock.record_call(call_seconds)
            if wall > _LONG_SECONDS and len(self.clock.samples) >= 3:
                break
        return True


class GradientSteps(TrainingProgram):
    """Program of a case with the simplest possible optimizer in place of its own.

    Args:
      case: Case with its task (or family).
      task: `case.task` as a `Task` or `TaskFamily`.
      num_seeds: Number of seeds of a block.
    """

    def __init__(self, case: Case, task: Task | TaskFamily, num_seeds: int) -> None:
        num_steps = case.num_inner_steps
        bare_case = dataclasses.replace(case, eval_every=num_steps, phases=(), keep_state=False, stop_after=None)
        super().__init__(bare_case, task, self._stepper, num_seeds)
        self._bare_case = bare_case

    def _stepper(self, theta: Theta) -> Stepper:
        return as_stepper(optax.sgd(theta["learning_rate"]), self._bare_case.num_inner_steps)

    def cost(self, block: SeedBlock, num_thetas: int = 0) -> StepCost | None:
        """Measures the time of gradient steps of a block, for several thetas at once.

        Returns None if the case has too few steps. The learning rate is 0, so that the parameters do not change, and an
        argument of the program, so that the compiler cannot remove the steps.
        """
        learning_rate = jnp.zeros(num_thetas or (), jnp.float32)
        feed = Feed(self._datasets, block, self._tasks_per_seed, self._bare_case)
        with contextlib.closing(feed):
            replicas = self._replicas(block)
            theta = {"learning_rate": learning_rate}
            loop = self._training_loop(theta, (), num_thetas, replicas, feed, RunOptions(), _TimedSteps)
            loop.run()
        cost = self._cost(loop, max(num_thetas, 1) * self._num_seeds)
        return cost if cost is not None and cost.samples else None

"""The inner-training program: a seed block of one case, compiled once, theta an argument.

One program does everything: its first call makes initial parameters, then it runs inner steps and evaluations
between, up to a step that is an argument too. A long run is a few calls of that program, so that progress shows and a
deadline can end it, and the calls' lengths change no bit: the loop body is compiled once. A training of several phases
has a program for each. What `traced.py` has is compiled, and this file calls it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case, SeedBlock
from lobench.core.result import Curves
from lobench.inner.adapters.stepper import Stepper
from lobench.inner.backend import compiler_options
from lobench.inner.block import OF_LANES, OF_THETAS, Carry, Trained, curves_of, of_theta
from lobench.inner.course import Compiled, Course
from lobench.inner.data import Lane, present_splits
from lobench.inner.feed import Feed
from lobench.inner.optimizer import Theta
from lobench.inner.parallel_sessions import num_lanes
from lobench.inner.phases import LaterPhase
from lobench.inner.recorder import Recorder
from lobench.inner.saved import ProgramText, Saves
from lobench.inner.spread import num_parts, spread
from lobench.inner.task import ArrayDataset, Task, TaskFamily
from lobench.inner.traced import Traced

__all__ = ["Program"]


class Program:
    """Trains one seed block of a case, again and again, for any theta.

    Args:
      case: With task (or family) built.
      task: `case.task` as a Task or TaskFamily.
      make_stepper: theta -> Stepper, of the first phase; theta may be traced.
      num_seeds: Seeds of the block; the width is part of what fixes the bits.
      later: The phases after the first one; the case's inner steps are those of all.
    """

    def __init__(
        self,
        case: Case,
        task: Task | TaskFamily,
        make_stepper: Callable[[Theta], Stepper],
        num_seeds: int,
        later: Sequence[LaterPhase] = (),
    ) -> None:
        self._case, self._num_seeds = case, num_seeds
        self._tasks_per_seed = case.num_tasks if isinstance(task, TaskFamily) else 1
        self._recorder = recorder = Recorder(case)
        # Without evaluations nothing reads the other splits.
        self._datasets = datasets = {
            split: dataset for split, dataset in present_splits(task).items() if case.eval_batches or split == "train"
        }
        self._arrays = {
            split: dataset.arrays for split, dataset in datasets.items() if isinstance(dataset, ArrayDataset)
        }
        start = case.num_inner_steps - sum(phase.num_inner_steps for phase in later)
        self._spans = [range(start)]
        self._phases = [Traced(case, task, datasets, recorder, make_stepper, self._spans[0])]
        for phase in later:
            self._spans.append(range(start, start := start + phase.num_inner_steps))
            self._phases.append(
                Traced(case, task, datasets, recorder, phase.make_stepper, self._spans[-1], phase.handover)
            )
        self._compiled: dict[tuple[int, int], Compiled] = {}  # by the number of thetas, and the phase

    def run(
        self,
        theta: Theta,
        block: SeedBlock,
        *,
        on_progress: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        saves: Saves | None = None,
    ) -> Curves | None:
        """Trains the block.

        Args:
          theta: In the optimizer's own structure and dtypes.
          block: As many seeds as the program is wide.
          on_progress: Told the inner steps done, after each chunk.
          should_stop: Asked after each chunk; True ends the run.
          saves: Where its state is saved as it goes, and from where it goes on; None: neither.
        Returns:
          Curves, metrics float32[num_seeds, num_evals]; None where it was stopped.
        """
        trained = self._train(theta, 0, block, on_progress, should_stop, saves)
        return self._curves(trained.carry, trained, block) if trained is not None else None

    def run_many(
        self,
        thetas: Sequence[Theta],
        block: SeedBlock,
        *,
        on_progress: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[Curves] | None:
        """Trains the block once for each theta, all in one program.

        Seeds, batches and initial parameters are common to all thetas and are computed once; what one theta does
        changes nothing of another. The number of thetas changes bits in the last place, as the width of a block does.

        Args:
          thetas: All of one structure, their leaves of equal shapes.
          block, on_progress, should_stop: As for `run`.
        Returns:
          Curves of each theta, in order, its seconds a share of the program's; None where it was stopped.
        """
        stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *thetas)
        trained = self._train(stacked, len(thetas), block, on_progress, should_stop, None)
        if trained is None:
            return None
        carry = jax.tree.map(np.asarray, trained.carry)
        return [self._curves(of_theta(carry, index), trained, block) for index in range(len(thetas))]

    def _train(
        self,
        theta: Theta,
        num_thetas: int,
        block: SeedBlock,
        on_progress: Callable[[int], None] | None,
        should_stop: Callable[[], bool] | None,
        saves: Saves | None,
    ) -> Trained | None:
        assert block.size == self._num_seeds, (block, self._num_seeds)
        lanes = self._lanes(block)
        theta = jax.tree.map(jnp.asarray, theta)
        feed = Feed(self._datasets, block, self._tasks_per_seed, self._case)
        arguments = (theta, lanes, self._arrays, feed.eval_batches)
        course = Course(
            self._case,
            self._recorder,
            feed,
            self._spans,
            arguments,
            compiled=lambda phase: self._compile(phase, num_thetas, arguments, feed),
            shape=lambda phase: self._shape(phase, num_thetas, (*arguments, feed.example_chunk)),
            saves=saves,
        )
        course.resume()
        if not course.run(on_progress, should_stop):
            return None
        assert course.carry is not None
        share = max(num_thetas, 1)
        compiled, wall, used = course.compile_seconds, course.wall_seconds, course.cpu_seconds
        return Trained(course.carry, compiled / share, wall / share, used / share, course.resumed_at)

    def _curves(self, carry: Carry, trained: Trained, block: SeedBlock) -> Curves:
        return curves_of(
            carry,
            trained,
            block,
            tasks_per_seed=self._tasks_per_seed,
            eval_steps=self._recorder.eval_steps,
            log_steps=self._recorder.log_steps,
        )

    def _lanes(self, block: SeedBlock) -> Lane:
        seeds = np.repeat(np.asarray(block.seeds, np.uint32) * num_lanes(self._case), self._tasks_per_seed)
        tasks = np.tile(np.arange(self._tasks_per_seed, dtype=np.uint32), self._num_seeds)
        return Lane(seeds, tasks) if seeds.size > 1 else Lane(seeds[0], tasks[0])

    def _compile(self, phase: int, num_thetas: int, arguments: tuple[Any, ...], feed: Feed) -> Compiled:
        """Returns a phase's program for so many thetas (0: one, without an axis), compiled at the first call."""
        known = self._compiled.get((num_thetas, phase))
        if known is not None:
            return known._replace(seconds=0.0)
        started = time.perf_counter()
        program = self._lower(phase, num_thetas, (*arguments, feed.example_chunk))
        program = program._replace(advance=program.advance.compile(compiler_options()))
        self._compiled[num_thetas, phase] = program
        return program._replace(seconds=time.perf_counter() - started)

    def _lower(self, phase: int, num_thetas: int, arguments: tuple[Any, ...]) -> Compiled:
        """Returns a phase's program before XLA has it."""
        axes, lanes = _axes(num_thetas), arguments[1]
        parts = num_parts(self._case, num_thetas or lanes.seed.size)
        traced, carry_shape = self._phases[phase], self._shape(phase, num_thetas, arguments)
        advance = _mapped(traced.advance, num_thetas, axes)
        jitted = jax.jit(spread(advance, parts, axes, axes[5]), donate_argnums=5)
        lowered = jitted.lower(*arguments, carry_shape, 0, 1)
        enter_axes = (axes[0], axes[1], axes[5])
        enter = _mapped(traced.enter, num_thetas, enter_axes)
        return Compiled(
            advance=lowered,
            enter=jax.jit(spread(enter, parts, enter_axes, axes[5])) if phase else None,
            carry_shape=carry_shape,
            parts=parts,
            axes=axes[:4],
            text=ProgramText(lowered),
            seconds=0.0,
        )

    def _shape(self, phase: int, num_thetas: int, arguments: tuple[Any, ...]) -> Carry:
        """Returns the shapes of what a phase computes on."""
        axes = _axes(num_thetas)
        carry: Carry = jax.eval_shape(_mapped(self._phases[0].initial, num_thetas, axes[:5]), *arguments)
        for traced in self._phases[1 : phase + 1]:
            enter = _mapped(traced.enter, num_thetas, (axes[0], axes[1], axes[5]))
            carry = jax.eval_shape(enter, *arguments[:2], carry)
        return carry


def _axes(num_thetas: int) -> tuple[Any, ...]:
    """Returns the axes of lanes, or of thetas, of the arguments of `Traced.advance`."""
    return (
        (0, None, None, None, None, OF_THETAS, None, None)
        if num_thetas
        else (None, 0, None, 0, 1, OF_LANES, None, None)
    )


def _mapped(function: Callable[..., Carry], num_thetas: int, axes: tuple[Any, ...]) -> Callable[..., Carry]:
    """Maps over thetas, where there are several."""
    return jax.vmap(function, in_axes=axes, out_axes=OF_THETAS) if num_thetas else function

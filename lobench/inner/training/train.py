"""Training program of one case's seed block, compiled once; theta and real-valued settings are arguments.

The first call creates initial parameters. Each call runs inner steps, and evaluations between them, up to a step that
is an argument too. A long run is divided into calls, for progress reports and deadlines. Their lengths change no bit,
because the loop body is compiled once. A training of several phases has a program per phase. `traced.py` defines the
compiled functions; this file calls them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case, SeedBlock
from lobench.core.result import Curves
from lobench.core.step_cost import StepCost
from lobench.inner.adapters.stepper import Stepper
from lobench.inner.backend import machine_class
from lobench.inner.executables.kept import KeptExecutables
from lobench.inner.optimizer import Theta
from lobench.inner.task import ArrayDataset, Task, TaskFamily
from lobench.inner.training.checkpointing import Saves
from lobench.inner.training.compile_cache import Compiled, Found, ProgramLayout
from lobench.inner.training.devices import jitted, num_parts, shard
from lobench.inner.training.loop import RunOptions, TrainingLoop
from lobench.inner.training.parallel_sessions import num_replicas, with_copies
from lobench.inner.training.phase_transitions import LaterPhase, PhasePlace
from lobench.inner.training.prefetch import Feed
from lobench.inner.training.program_arguments import Given, SettingValues
from lobench.inner.training.recorder import Recorder
from lobench.inner.training.rollout_film import Camera
from lobench.inner.training.seed_block import OF_REPLICAS, OF_THETAS, Carry, Trained, curves_of, of_theta, rows_of
from lobench.inner.training.slices import in_slices, num_at_once, widest
from lobench.inner.training.streams import Replica, present_splits
from lobench.inner.training.traced import Traced

__all__ = ["TrainingProgram"]

_NUM_PLACED = 4  # arguments of `Traced.advance` that are the same in all calls


class TrainingProgram:
    """Program that trains a seed block of a case, for any theta and any values of the optimizer's settings.

    Args:
      case: Case with its task (or family).
      task: `case.task` as a `Task` or `TaskFamily`.
      make_stepper: Function of (theta, *settings) that returns the `Stepper` of the first phase. Theta and settings may
        be traced.
      num_seeds: Number of seeds of the block. The width affects the bits.
      usual: Placeholder values of the settings.
      later: Phases after the first one. The case's inner steps include theirs.
      are_alike: Whether phases differ only in their positions and in values of settings: equal lengths, each with a new
        state of the same optimizer. They then share one program.
      kept: Executables kept by other processes, for a case of one phase. None: executables are neither loaded nor kept.
    """

    def __init__(
        self,
        case: Case,
        task: Task | TaskFamily,
        make_stepper: Callable[..., Stepper],
        num_seeds: int,
        usual: Sequence[float] = (),
        later: Sequence[LaterPhase] = (),
        *,
        are_alike: bool = False,
        kept: KeptExecutables | None = None,
    ) -> None:
        self._case, self._num_seeds = case, num_seeds
        self._metrics_over_phases = (
            None if isinstance(task, TaskFamily) or not task.num_phases else task.metrics_over_phases
        )
        self._tasks_per_seed = case.num_tasks if isinstance(task, TaskFamily) else 1
        lengths = [phase.num_inner_steps for phase in later]
        self._phase_ends = phase_ends = list(itertools.accumulate([case.num_inner_steps - sum(lengths), *lengths]))
        self._spans = [range(start, stop) for start, stop in itertools.pairwise((0, *phase_ends))]
        self._recorder = recorder = Recorder(case, phase_ends if self._metrics_over_phases is not None else ())
        # Without evaluations nothing reads the other splits.
        self._datasets = datasets = {
            split: dataset for split, dataset in present_splits(task).items() if case.eval_batches or split == "train"
        }
        self._arrays = {
            split: dataset.arrays for split, dataset in datasets.items() if isinstance(dataset, ArrayDataset)
        }
        self._phase_places = [
            PhasePlace(index, span.start, span.stop, sum(step <= span.stop for step in recorder.eval_steps))
            for index, span in enumerate(self._spans)
        ]
        make_phase_program = functools.partial(Traced, case, task, datasets, recorder)
        self._are_alike = are_alike
        if are_alike:
            self._phases = [
                make_phase_program(make_stepper, self._phase_places[0], later[0].handover, is_any=True)
            ] * len(self._spans)
            self._compile_caches = [Compiled(usual)] * len(self._spans)
        else:
            later_phases = zip(later, self._phase_places[1:], strict=True)
            self._phases = [make_phase_program(make_stepper, self._phase_places[0])]
            self._phases += [
                make_phase_program(phase.make_stepper, phase_place, phase.handover)
                for phase, phase_place in later_phases
            ]
            self._compile_caches = [
                Compiled(usual, None if later else kept),
                *(Compiled(phase.usual) for phase in later),
            ]
        self._num_settings = [len(usual), *(len(phase.usual) for phase in later)]
        self._enter_functions: dict[tuple[int, int], Any] = {}  # by the number of thetas, and the phase
        self._camera = Camera(task)
        self._make_last_stepper = later[-1].make_stepper if later else make_stepper

    def run(
        self,
        theta: Theta,
        block: SeedBlock,
        *,
        settings: Sequence[float] = (),
        end: int | None = None,
        on_progress: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        saves: Saves | None = None,
    ) -> Curves | None:
        """Trains the block.

        Args:
          theta: Theta in the optimizer's structure and dtypes.
          block: Seed block with the number of seeds of the program.
          settings: Values of all settings, phase by phase.
          end, on_progress, should_stop, saves: As in `RunOptions`.
        Returns:
          Curves with metrics float32[num_seeds, num_evals]; None if the run was stopped.
        """
        options = RunOptions(end=end, on_progress=on_progress, should_stop=should_stop, saves=saves)
        block_result = self._train(theta, settings, 0, block, options)
        return (
            self._curves(block_result.carry, block_result, block, theta, settings) if block_result is not None else None
        )

    def run_many(
        self,
        thetas: Sequence[Theta],
        block: SeedBlock,
        *,
        settings: Sequence[float] = (),
        end: int | None = None,
        on_progress: Callable[[int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[Curves] | None:
        """Trains the block once for each theta, in one program.

        Seeds, batches and initial parameters are shared by all thetas and computed once. Thetas do not affect each
        other. The number of thetas changes the last bits, as the width of a block does.

        Args:
          thetas: Thetas with equal structure and shapes.
          block, settings, end, on_progress, should_stop: As for `run`; all thetas are trained with the same settings.
        Returns:
          Curves of each theta, in order, each with its share of the seconds; None if the run was stopped.
        """
        stacked_thetas = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *thetas)
        options = RunOptions(end=end, on_progress=on_progress, should_stop=should_stop)
        block_result = self._train(stacked_thetas, settings, len(thetas), block, options)
        if block_result is None:
            return None
        carry = jax.tree.map(np.asarray, block_result.carry)
        return [
            self._curves(of_theta(carry, index), block_result, block, theta, settings)
            for index, theta in enumerate(thetas)
        ]

    def trace(self, theta: Theta, block: SeedBlock, *, settings: Sequence[float] = ()) -> frozenset[str]:
        """Traces all phases of a run, with the settings as constants. Nothing is compiled or computed.

        Args:
          theta: As for `run`, or its shapes.
          block, settings: As for `run`.
        Returns:
          Names of the metrics that the run would give.
        Raises:
          Anything that the task or the optimizer raises.
        """
        with contextlib.closing(Feed(self._datasets, block, self._tasks_per_seed, self._case)) as feed:
            arguments = (self._replicas(block), self._arrays, feed.eval_batches, feed.example_chunk)
            constants = self._constants(theta, self._settings_by_phase(settings))
            for phase in range(1 if self._are_alike else len(self._phases)):
                _, layout = self._trace(phase, constants[phase], constants, arguments, 0)
        carry, steps = layout.carry_shape, self._recorder.eval_steps
        metrics = {name: np.zeros((1, len(steps)), np.float32) for name in carry.metrics}
        phase_metrics = (
            self._metrics_over_phases(metrics, steps, self._phase_ends) if self._metrics_over_phases is not None else {}
        )
        return frozenset((*metrics, *phase_metrics, *(f"batch/{name}" for name in carry.log)))

    def _train(
        self,
        theta: Theta,
        settings: Sequence[float],
        num_thetas: int,
        block: SeedBlock,
        options: RunOptions,
        make_loop: Callable[..., TrainingLoop] = TrainingLoop,
    ) -> Trained | None:
        assert block.size == self._num_seeds, (block, self._num_seeds)
        theta = jax.tree.map(jnp.asarray, theta)
        feed = Feed(self._datasets, block, self._tasks_per_seed, self._case, keeps_positions=options.saves is not None)
        with contextlib.closing(feed):
            loop = self._training_loop(theta, settings, num_thetas, self._replicas(block), feed, options, make_loop)
            loop.resume()
            if not loop.run():
                return None
        assert loop.carry is not None
        num_together = max(num_thetas, 1)
        return Trained(
            carry=loop.carry,
            compile_seconds=loop.compile_seconds / num_together,
            wall_seconds=loop.wall_seconds / num_together,
            cpu_seconds=loop.cpu_seconds / num_together,
            resumed_at=loop.resumed_at,
            end=loop.end,
            cost=self._cost(loop, num_together * self._num_seeds),
            at_once=loop.at_once,
        )

    def _cost(self, loop: TrainingLoop, num_together: int) -> StepCost | None:
        """Returns the cost of the steps of a program that computed `num_together` trainings at once."""
        if loop.layout is None:
            return None
        state_leaves = jax.tree.leaves(loop.layout.carry_shape.opt_state)
        is_on_cpu = jax.default_backend() == "cpu"
        busy = loop.clock.busy if is_on_cpu else math.nan
        return StepCost(
            machine=machine_class(loop.layout.parts),
            num_together=num_together,
            samples=loop.clock.samples,
            busy=busy,
            state_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in state_leaves) // num_together,
            peak_bytes=loop.peak_bytes,
        )

    def _training_loop(
        self,
        theta: Theta,
        settings: Sequence[float],
        num_thetas: int,
        replicas: Replica,
        feed: Feed,
        options: RunOptions,
        make_loop: Callable[..., TrainingLoop] = TrainingLoop,
    ) -> TrainingLoop:
        arguments = (replicas, self._arrays, feed.eval_batches)
        traced_arguments = (*arguments, feed.example_chunk)
        values = self._settings_by_phase(settings)
        constants = self._constants(theta, values)
        return make_loop(
            self._recorder,
            feed,
            self._spans,
            arguments,
            find=lambda phase: self._bind_place(
                phase,
                self._compile_caches[phase].find(
                    theta,
                    values[phase],
                    num_thetas,
                    lambda arguments_of_phase: self._trace(
                        phase, arguments_of_phase, constants, traced_arguments, num_thetas
                    ),
                    traced_arguments,
                ),
            ),
            enter=lambda phase, phase_program, carry: self._enter_function(phase, num_thetas, replicas)(
                phase_program.given, replicas, carry, *self._phase_place_arguments(phase)
            ),
            shape=lambda phase: self._carry_shape(phase, constants, traced_arguments, num_thetas),
            options=options,
        )

    def _settings_by_phase(self, settings: Sequence[float]) -> list[Sequence[float]]:
        setting_ends = list(itertools.accumulate(self._num_settings))
        return [settings[end - count : end] for end, count in zip(setting_ends, self._num_settings, strict=True)]

    def _constants(self, theta: Theta, values: Sequence[Sequence[float]]) -> list[Given]:
        return [(theta, SettingValues.of(settings, frozenset())) for settings in values]

    def _phase_place_arguments(self, phase: int) -> tuple[PhasePlace, ...]:
        """Returns the position of a phase as arguments of the shared program; () if each phase has its own program."""
        return (self._phase_places[phase],) if self._are_alike else ()

    def _bind_place(self, phase: int, phase_program: Found) -> Found:
        phase_place = self._phase_place_arguments(phase)
        return (
            phase_program._replace(program=lambda *arguments: phase_program.program(*arguments, *phase_place))
            if phase_place
            else phase_program
        )

    def _curves(
        self, carry: Carry, block_result: Trained, block: SeedBlock, theta: Theta, settings: Sequence[float]
    ) -> Curves:
        eval_steps = self._recorder.eval_steps
        log_steps = self._recorder.log_steps
        is_partial = block_result.end < self._case.num_inner_steps
        if is_partial:
            eval_steps, log_steps = (
                [step for step in steps if step < block_result.end] for steps in (eval_steps, log_steps)
            )
        curves = curves_of(
            carry, block_result, block, tasks_per_seed=self._tasks_per_seed, eval_steps=eval_steps, log_steps=log_steps
        )
        if self._metrics_over_phases is not None:
            arrays = {name: np.asarray(values) for name, values in curves.metrics.items()}
            phase_metrics = self._metrics_over_phases(arrays, eval_steps, self._phase_ends)
            metrics = {**curves.metrics, **{name: rows_of(values) for name, values in phase_metrics.items()}}
            curves = dataclasses.replace(curves, metrics=metrics)
        if not self._camera.is_there or is_partial or block.start != self._case.first_seed:
            return curves
        values = settings[len(settings) - self._num_settings[-1] :]
        stepper = with_copies(self._make_last_stepper(theta, *values), self._case)
        return dataclasses.replace(curves, film=self._camera.film(stepper, block.start, carry))

    def _replicas(self, block: SeedBlock) -> Replica:
        seeds = np.repeat(np.asarray(block.seeds, np.uint32) * num_replicas(self._case), self._tasks_per_seed)
        tasks = np.tile(np.arange(self._tasks_per_seed, dtype=np.uint32), self._num_seeds)
        num_batches = 1 if None in self._datasets.values() else self._case.eval_batches
        replicas = Replica.of(seeds, tasks, len(self._datasets), num_batches)
        return replicas if seeds.size > 1 else replicas.alone()

    def _trace(
        self, phase: int, given: Given, constants: Sequence[Given], arguments: tuple[Any, ...], num_thetas: int
    ) -> tuple[jax.stages.Traced, ProgramLayout]:
        """Returns the traced program of a phase.

        Args:
          phase: Index of the phase.
          given: First argument of the program.
          constants: First arguments of all phases, with all settings as constants; shapes do not depend on which are
            arguments.
          arguments: Replicas, arrays, batches of evaluations, and batches of a chunk.
          num_thetas: Number of thetas. 0: one, without an axis.
        """
        phase_place = self._phase_place_arguments(phase)
        shape = self._carry_shape(phase, [*constants[:phase], given], arguments, num_thetas)
        num_seeds = arguments[0].seed.size
        num_devices = num_parts(self._case, num_thetas or num_seeds)
        num_per_device = (num_thetas or 1) * num_seeds // num_devices

        def trace(max_at_once: int) -> tuple[jax.stages.Traced, int]:
            advance, at_once = self._advance(phase, num_thetas, num_seeds, num_devices, max_at_once)
            return advance.trace(given, *arguments, shape, 0, 1, *phase_place), at_once

        traced_program, at_once = trace(num_per_device)
        if (max_at_once := num_at_once(traced_program.jaxpr.jaxpr, num_per_device)) < num_per_device:
            traced_program, at_once = trace(max_at_once)
        return traced_program, ProgramLayout(
            shape, num_devices, _axes(num_thetas)[:_NUM_PLACED], at_once if at_once < num_per_device else 0
        )

    def _advance(
        self, phase: int, num_thetas: int, num_seeds: int, num_devices: int, max_at_once: int
    ) -> tuple[Any, int]:
        """Returns the compiled function of a phase, and the number of trainings per device at a time.

        Args:
          phase: Index of the phase.
          num_thetas: Number of thetas. 0: one, without an axis.
          num_seeds: Number of seeds.
          num_devices: Number of devices.
          max_at_once: Largest number of trainings that a device computes at the same time.
        """
        advance = self._phases[phase].advance
        axes_of_place = [None] * len(self._phase_place_arguments(phase))
        axes = (*_axes(0), *axes_of_place)
        num_seeds = num_seeds if num_thetas else num_seeds // num_devices
        at_once = widest(num_seeds, max_at_once)
        advance = in_slices(advance, num_seeds, at_once, axes, axes[5])
        if num_thetas:
            axes = (*_axes(num_thetas), *axes_of_place)
            thetas_per_device = num_thetas // num_devices
            width = widest(thetas_per_device, max_at_once // at_once)
            advance = advance if width == 1 < thetas_per_device else _over_thetas(advance, width, axes)
            advance = in_slices(advance, thetas_per_device, width, axes, axes[5])
            at_once *= width
        return jitted(
            shard(advance, num_devices, axes, axes[5]), num_devices, axes, placed=_NUM_PLACED, donated=5
        ), at_once

    def _enter_function(self, phase: int, num_thetas: int, replicas: Replica) -> Any:
        """Returns the function that creates the carry of a phase from the carry of the previous phase."""
        key = (num_thetas, 0 if self._are_alike else phase)
        if key not in self._enter_functions:
            axes = _axes(num_thetas)
            axes_of_arguments = (axes[0], axes[1], axes[5], *(None for _ in self._phase_place_arguments(phase)))
            num_devices = num_parts(self._case, num_thetas or replicas.seed.size)
            enter = _over_thetas(self._phases[phase].enter, num_thetas, axes_of_arguments)
            self._enter_functions[key] = jax.jit(shard(enter, num_devices, axes_of_arguments, axes[5]))
        return self._enter_functions[key]

    def _carry_shape(
        self, phase: int, arguments_of_phases: Sequence[Given], arguments: tuple[Any, ...], num_thetas: int
    ) -> Carry:
        """Returns the shapes of the carry of a phase."""
        axes = _axes(num_thetas)
        carry: Carry = jax.eval_shape(
            _over_thetas(self._phases[0].initial, num_thetas, axes[:5]), arguments_of_phases[0], *arguments
        )
        for index in range(1, 1 if self._are_alike else phase + 1):
            enter = _over_thetas(self._phases[index].enter, num_thetas, (axes[0], axes[1], axes[5]))
            carry = jax.eval_shape(enter, arguments_of_phases[index], arguments[0], carry)
        return carry


def _axes(num_thetas: int) -> tuple[Any, ...]:
    """Returns the axes of replicas, or of thetas, in the arguments of `Traced.advance`."""
    if num_thetas:
        return (0, None), None, None, None, None, OF_THETAS, None, None
    return None, 0, None, 0, 1, OF_REPLICAS, None, None


def _over_thetas(function: Callable[..., Carry], num_thetas: int, axes: tuple[Any, ...]) -> Callable[..., Carry]:
    """Maps a function over thetas, if there are several."""
    return jax.vmap(function, in_axes=axes, out_axes=OF_THETAS) if num_thetas else function

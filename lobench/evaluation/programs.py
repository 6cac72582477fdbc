"""Programs of bound cases: `program_of`, which creates them, and the cache shared by a process's runners."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, overload
from weakref import WeakValueDictionary

from lobench.core.case import CaseSpec, SeedBlock
from lobench.core.checkpoint import OWN_BINDINGS
from lobench.core.step_cost import StepCost, StepSeconds
from lobench.engine.config.arguments import OptimizerSettings
from lobench.engine.config.bound import BoundCase, reduced_to_identity
from lobench.engine.workers.child_python import user_cache_folder
from lobench.evaluation.request import ThetaLeaves
from lobench.inner.adapters import Stepper, as_learned_optimizer, as_stepper, as_task, program_description
from lobench.inner.backend import CompilationCounter, programs_kept_in
from lobench.inner.executables.kept import KeptExecutables
from lobench.inner.optimizer import LearnedOptimizer, Theta
from lobench.inner.theta import match_theta
from lobench.inner.training.gradient_steps import GradientSteps
from lobench.inner.training.parallel_sessions import num_updates
from lobench.inner.training.phase_transitions import later_phases, phase_stepper
from lobench.inner.training.train import TrainingProgram

__all__ = ["Programs", "StepperMaker", "WarmProgram", "matched_theta", "program_of", "programs_kept_for_user"]

P = TypeVar("P", bound=TrainingProgram)


def matched_theta(theta: ThetaLeaves, optimizer: LearnedOptimizer, theta_path: str) -> Theta:
    """Returns the leaves of a checkpoint in the structure of an optimizer's theta.

    Args:
      theta: Checkpoint that was read.
      optimizer: Optimizer that declares the structure.
      theta_path: `Checkpoint.theta`.
    Raises:
      ThetaMismatch: The leaves do not fit.
    """
    leaves = {path: leaf for path, leaf in (theta.leaves or {}).items() if path != OWN_BINDINGS}
    return match_theta(leaves, optimizer, where=theta.where, part=theta_path)


class StepperMaker:
    """Makes steppers for a program, with the optimizer of the case that requested the program last.

    The optimizer receives the case's own number of steps, even if the program trains for longer.
    """

    def __init__(self, bound_case: BoundCase) -> None:
        self.bound_case = bound_case
        self._descriptions_by_phase: dict[int, str] = {}

    @property
    def program_description(self) -> str:
        """Description of the program that runs for a foreign learned optimizer; "" for all others."""
        if not self._descriptions_by_phase and not self.bound_case.phases and self.bound_case.case.optimizer is None:
            self._descriptions_by_phase[0] = program_description(
                self.bound_case.case.learned_optimizer
            )  # nothing was traced here
        return "; ".join(sorted(set(filter(None, self._descriptions_by_phase.values()))))

    def in_phase(self, index: int, theta: Any, *values: Any) -> Stepper:
        settings = self.bound_case.phases[index].settings
        phase = self.bound_case.case.phases[index]
        optimizer = None if _is_as_bound(values, settings) else settings.make_optimizer(values)
        if phase.optimizer is None:
            self._descriptions_by_phase[index] = program_description(
                phase.learned_optimizer if optimizer is None else optimizer
            )
        return phase_stepper(self.bound_case.case, index, theta, optimizer)

    def __call__(self, theta: Any, *values: Any) -> Stepper:
        case, settings = self.bound_case.case, self.bound_case.settings
        num_steps = case.num_inner_steps * num_updates(case)
        is_as_bound = _is_as_bound(values, settings)
        if case.optimizer is not None:
            return as_stepper(case.optimizer if is_as_bound else settings.make_optimizer(values), num_steps)
        learned_optimizer = as_learned_optimizer(
            case.learned_optimizer if is_as_bound else settings.make_optimizer(values)
        )
        self._descriptions_by_phase[0] = program_description(learned_optimizer)
        return as_stepper(learned_optimizer.opt_fn(theta, num_steps), num_steps)


def _is_as_bound(values: Sequence[Any], settings: OptimizerSettings) -> bool:
    return all(
        isinstance(value, float) and value == bound_value
        for value, bound_value in zip(values, settings.values, strict=True)
    )


@dataclass(frozen=True, slots=True, weakref_slot=True)
class WarmProgram:
    """Compiled program of a case, with the function that makes its steppers."""

    stepper_maker: StepperMaker
    program: TrainingProgram


class Programs:
    """Compiled programs shared by the runners of one process, also by variants that differ only in arguments.

    A program is kept as long as a runner uses it.

    Args:
      keeps_executables: Whether programs are kept for other processes, in addition to jax's cache, and loaded from
        there.
    """

    def __init__(self, *, keeps_executables: bool = True) -> None:
        self._keeps_executables = keeps_executables
        self.compilations = CompilationCounter()
        self._shared_programs: WeakValueDictionary[tuple[CaseSpec, str, int, type[TrainingProgram]], WarmProgram] = (
            WeakValueDictionary()
        )
        self._gradient_steps: dict[tuple[CaseSpec, str, int], GradientSteps] = {}
        self._gradient_costs: dict[tuple[CaseSpec, str, int, int], StepCost | None] = {}

    def warm_program(
        self, bound_case: BoundCase, num_seeds: int, program_class: type[TrainingProgram] = TrainingProgram
    ) -> WarmProgram:
        key = (bound_case.spec, bound_case.info.program_key, num_seeds, program_class)
        warm_program = self._shared_programs.get(key)
        if warm_program is None:
            stepper_maker = StepperMaker(bound_case)
            make_program: Callable[..., TrainingProgram] = program_class
            if self._keeps_executables and not bound_case.phases:
                key_parts = (
                    bound_case.info.program_key,
                    str(num_seeds),
                    repr(bound_case.settings.usual),
                    *bound_case.settings.names,
                )
                # A program does not depend on the seeds: the next command evaluates others.
                kept_executables = KeptExecutables(
                    lambda: (reduced_to_identity(stepper_maker.bound_case.case),), *key_parts
                )
                make_program = partial(program_class, kept=kept_executables)
            warm_program = self._shared_programs[key] = WarmProgram(
                stepper_maker,
                program_of(bound_case, num_seeds, program_class=make_program, stepper_maker=stepper_maker),
            )
        return warm_program

    def gradient_cost(self, bound_case: BoundCase, block: SeedBlock, num_thetas: int) -> StepCost | None:
        """Returns the cost of a bare gradient step of a case on this machine. Unsteady times are measured again.

        Args:
          bound_case: Bound case.
          block: Seed block.
          num_thetas: Number of thetas in one program. 0: one, without an axis.
        """
        program_key = (bound_case.spec, bound_case.info.identity, block.size)
        key = (*program_key, num_thetas)
        recorded_cost = self._gradient_costs.get(key)
        if key not in self._gradient_costs or (
            recorded_cost is not None and StepSeconds.of([recorded_cost]).is_unsteady
        ):
            if program_key not in self._gradient_steps:
                self._gradient_steps[program_key] = GradientSteps(
                    bound_case.case, as_task(bound_case.case.task), block.size
                )
            self._gradient_costs[key] = self._gradient_steps[program_key].cost(block, num_thetas)
        return self._gradient_costs[key]


@contextlib.contextmanager
def programs_kept_for_user() -> Iterator[None]:
    """Keeps compiled programs in the user's folder, and loads them from there, while the body runs."""
    folder = user_cache_folder()
    with programs_kept_in(folder) if folder is not None else contextlib.nullcontext():
        yield


@overload
def program_of(
    bound_case: BoundCase,
    num_seeds: int,
    *,
    stepper_maker: StepperMaker | None = ...,
    num_inner_steps: int | None = ...,
) -> TrainingProgram: ...


@overload
def program_of(
    bound_case: BoundCase,
    num_seeds: int,
    *,
    program_class: Callable[..., P],
    stepper_maker: StepperMaker | None = ...,
    num_inner_steps: int | None = ...,
) -> P: ...


def program_of(
    bound_case: BoundCase,
    num_seeds: int,
    *,
    program_class: Callable[..., TrainingProgram] = TrainingProgram,
    stepper_maker: StepperMaker | None = None,
    num_inner_steps: int | None = None,
) -> TrainingProgram:
    """Returns the program of a bound case, including its phases.

    Args:
      bound_case: Bound case.
      num_seeds: Number of seeds of a block.
      program_class: Subclass of `TrainingProgram`.
      stepper_maker: Maker of its steppers. None: steppers of the case's own optimizer.
      num_inner_steps: Length of the training. None: that of the case, which is always the optimizer's horizon.
    Raises:
      ValueError: A case with phases should be trained longer than its phases.
    """
    case = bound_case.case
    task = as_task(bound_case.case.task)
    stepper_maker = stepper_maker or StepperMaker(bound_case)
    if not bound_case.phases:
        if num_inner_steps is not None:
            case = dataclasses.replace(case, num_inner_steps=num_inner_steps)
        return program_class(case, task, stepper_maker, num_seeds, bound_case.settings.usual)
    if num_inner_steps not in (None, case.num_inner_steps):
        raise ValueError(f"{num_inner_steps} steps of phases that have {case.num_inner_steps}")
    usual_settings = [phase.settings.usual for phase in bound_case.phases]
    where = f"{bound_case.spec.path}: case {bound_case.spec.name!r}"
    phases_after_first = later_phases(case, stepper_maker.in_phase, usual_settings=usual_settings, where=where)
    phases_are_alike = (
        bool(phases_after_first) and bool(getattr(task, "num_phases", None)) and _phases_are_alike(bound_case)
    )
    return program_class(
        case,
        task,
        partial(stepper_maker.in_phase, 0),
        num_seeds,
        usual_settings[0],
        phases_after_first,
        are_alike=phases_are_alike,
    )


def _phases_are_alike(bound_case: BoundCase) -> bool:
    """Returns whether the phases differ only in values that are arguments of the program."""
    phases = bound_case.case.phases
    phase_settings = {
        (phase.num_inner_steps, phase.schedule, bound_phase.settings.program_hash, bound_phase.settings.usual)
        for phase, bound_phase in zip(phases, bound_case.phases, strict=True)
    }
    return len(phase_settings) == 1 and all(
        (phase.opt_state, phase.schedule) == ("reset", "new") for phase in phases[1:]
    )

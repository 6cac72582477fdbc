"""Compiled programs of one process, shared by what differs in arguments alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from lobench.core.case import CaseSpec
from lobench.engine.config.arguments import Settings
from lobench.engine.config.bound import BoundCase
from lobench.inner.adapters import Stepper, as_learned_optimizer, as_stepper, as_task, runs_as
from lobench.inner.backend import CompilationCounter
from lobench.inner.parallel_sessions import num_updates
from lobench.inner.phases import later_phases, stepper_in
from lobench.inner.train import Program

__all__ = ["Programs", "Warm", "program_alone"]

P = TypeVar("P", bound=Program)


class _Maker:
    """Makes steppers for a program, with the optimizer of the case that it computes now: that of whoever asked last."""

    def __init__(self, bound: BoundCase) -> None:
        self.bound = bound
        self._ran_as: dict[int, str] = {}  # by phase

    @property
    def ran_as(self) -> str:
        """Returns which program stands for a learned optimizer that both others and lobench have; "" for all others."""
        return "; ".join(sorted(set(filter(None, self._ran_as.values()))))

    def in_phase(self, index: int, theta: Any, *values: Any) -> Stepper:
        settings, phase = self.bound.phases[index].settings, self.bound.case.phases[index]
        made = None if _is_as_bound(values, settings) else settings.make(values)
        if phase.optimizer is None:
            self._ran_as[index] = runs_as(phase.learned_optimizer if made is None else made)
        return stepper_in(self.bound.case, index, theta, made)

    def __call__(self, theta: Any, *values: Any) -> Stepper:
        case, settings = self.bound.case, self.bound.settings
        num_steps = case.num_inner_steps * num_updates(case)
        is_as_bound = _is_as_bound(values, settings)
        if case.optimizer is not None:
            return as_stepper(case.optimizer if is_as_bound else settings.make(values), num_steps)
        learned = as_learned_optimizer(case.learned_optimizer if is_as_bound else settings.make(values))
        self._ran_as[0] = runs_as(learned)
        return as_stepper(learned.opt_fn(theta, num_steps), num_steps)


def _is_as_bound(values: Sequence[Any], settings: Settings) -> bool:
    return all(type(value) is float and value == own for value, own in zip(values, settings.values, strict=True))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Warm:
    """A program, and what makes its steppers."""

    maker: _Maker
    program: Program


class Programs:
    """Compiled programs that runners of one process share: two variants may differ in values that are arguments.

    A program lives as long as one of the runners has it.
    """

    def __init__(self) -> None:
        self.compilations = CompilationCounter()
        self._shared: WeakValueDictionary[tuple[CaseSpec, str, int], Warm] = WeakValueDictionary()

    def of(self, bound: BoundCase, num_seeds: int) -> Warm:
        key = (bound.spec, bound.info.program_key, num_seeds)
        warm = self._shared.get(key)
        if warm is None:
            maker = _Maker(bound)
            warm = self._shared[key] = Warm(maker, _program(bound, maker, num_seeds, Program))
        return warm


def program_alone(bound: BoundCase, num_seeds: int, kind: type[P]) -> P:
    """Returns the same program for one user, of a kind that can do more."""
    return _program(bound, _Maker(bound), num_seeds, kind)


def _program(bound: BoundCase, maker: _Maker, num_seeds: int, kind: type[P]) -> P:
    case, task = bound.case, as_task(bound.case.task)
    if not bound.phases:
        return kind(case, task, maker, num_seeds, bound.settings.usual)
    usual = [phase.settings.usual for phase in bound.phases]
    where = f"{bound.spec.path}: case {bound.spec.name!r}"
    later = later_phases(case, maker.in_phase, usual=usual, where=where)
    are_alike = bool(later) and bool(getattr(task, "num_phases", None)) and _are_alike(bound)
    return kind(case, task, partial(maker.in_phase, 0), num_seeds, usual[0], later, are_alike=are_alike)


def _are_alike(bound: BoundCase) -> bool:
    """Says whether the phases differ in values alone, which are a program's arguments."""
    phases = bound.case.phases
    hangs_on = {
        (phase.num_inner_steps, phase.schedule, each.settings.program_hash, each.settings.usual)
        for phase, each in zip(phases, bound.phases, strict=True)
    }
    return len(hangs_on) == 1 and all((one.opt_state, one.schedule) == ("reset", "new") for one in phases[1:])

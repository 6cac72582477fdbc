"""Compile cache of one block: programs by number of thetas and constant settings."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax

from lobench.inner.backend import compiler_options
from lobench.inner.executables.kept import KeptExecutables, KeptProgram
from lobench.inner.optimizer import PyTree, Theta
from lobench.inner.training.arguments import Arguments, Constants, Given, SettingValues

__all__ = ["Compiled", "Found", "ProgramLayout", "ProgramText"]

_MOST_KEPT = 8  # of different constants


class ProgramLayout(NamedTuple):
    """What a program starts from; over how many devices, and by which axes of its first arguments, it is spread.

    Attributes:
      at_once: How many trainings each device computes at once; 0: all of its own.
    """

    carry_shape: PyTree
    parts: int
    axes: tuple[Any, ...]
    at_once: int = 0


class ProgramText:
    """A program as XLA gets it. What is traced anew from the same code and shapes has the same text.

    Args:
      lowered: jax's.
      known_sha256: Of one that was not lowered here.

    Attributes:
      call_seconds: Of calls of no step, which trainings by it have timed.
    """

    def __init__(self, lowered: Any, known_sha256: str = "") -> None:
        self._lowered, self._known_sha256 = lowered, known_sha256
        self.call_seconds: list[float] = []

    @functools.cached_property
    def sha256(self) -> str:
        return self._known_sha256 or hashlib.sha256(self._lowered.as_text().encode()).hexdigest()


class Found(NamedTuple):
    """A compiled program with its first argument; the seconds that compiling took are 0 where it was there."""

    given: Given
    program: Any
    layout: ProgramLayout
    text: ProgramText
    compile_seconds: float


_Program: TypeAlias = tuple[Any, ProgramLayout, ProgramText]


class Compiled:
    """Compiles each program once.

    Args:
      usual: See `Arguments`.
      kept: Those of other processes; None: there are none.
    """

    def __init__(self, usual: Sequence[float], kept: KeptExecutables | None = None) -> None:
        self._usual, self._kept = tuple(usual), kept
        self._arguments: dict[int, Arguments] = {}
        self._programs: dict[tuple[int, Constants], _Program] = {}

    def find(
        self,
        theta: Theta,
        values: Sequence[float],
        num_thetas: int,
        trace: Callable[[Given], tuple[jax.stages.Traced, ProgramLayout]],
        takes: Any = None,
    ) -> Found:
        """Returns the program for these values; compiles it where there is none.

        Args:
          values: Of the optimizer's settings.
          num_thetas: 0: one, without an axis.
          trace: Traces the program for its first argument.
          takes: Its other arguments, or their shapes.
        Raises:
          What `trace` raises where all settings are constants.
        """
        started = time.perf_counter()
        traced: dict[Constants, tuple[jax.stages.Traced, ProgramLayout]] = {}

        def stage(settings: SettingValues) -> jax.stages.Traced:
            if settings.constants not in traced:
                with asked.trace if asked is not None else contextlib.nullcontext():
                    traced[settings.constants] = trace((theta, settings))
            return traced[settings.constants][0]

        arguments = self._arguments.setdefault(num_thetas, Arguments(self._usual))
        asked = found = None
        if self._kept is not None and not arguments.are_chosen(values):
            asked = self._kept.ask((theta, values), takes, num_thetas)
            found = asked.find() if asked is not None else None
        if asked is not None and found is not None and not asked.is_checked():
            arguments.choose(values, found.places)
            settings = SettingValues.of(values, found.places)
            return self._add(theta, settings, num_thetas, started, _as_here(found))
        settings = arguments.settle(values, theta, stage)
        if (num_thetas, settings.constants) in self._programs:
            return Found((theta, settings), *self._programs[num_thetas, settings.constants], 0.0)
        is_refused = False
        try:
            stage(settings)
        except Exception:
            if not settings.arguments:
                raise
            settings, is_refused = arguments.refuse(settings), True
        lowered, layout = stage(settings).lower(), traced[settings.constants][1]
        text = ProgramText(lowered)
        if asked is not None and found is not None:
            if found.text_sha256 == text.sha256 and found.places == frozenset(settings.places):
                return self._add(theta, settings, num_thetas, started, _as_here(found))
            asked.differs()
        program = asked.compile(lowered) if asked is not None else lowered.compile(compiler_options())
        if asked is not None and not is_refused:
            asked.keep(stage(settings), lowered, program, layout, frozenset(settings.places), text.sha256)
        return self._add(theta, settings, num_thetas, started, (program, layout, text))

    def _add(self, theta: Theta, settings: SettingValues, num_thetas: int, started: float, program: _Program) -> Found:
        self._programs[num_thetas, settings.constants] = program
        if len(self._programs) > _MOST_KEPT:
            del self._programs[next(iter(self._programs))]
        return Found((theta, settings), *program, time.perf_counter() - started)


def _as_here(kept: KeptProgram) -> _Program:
    return kept.program, kept.layout, ProgramText(None, kept.text_sha256)

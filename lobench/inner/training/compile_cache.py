"""Compile cache of one block: programs by number of thetas and constant settings."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from lobench.inner.backend import compiler_options
from lobench.inner.optimizer import PyTree, Theta
from lobench.inner.training.arguments import Arguments, Constants, Given, SettingValues, read_settings

__all__ = ["Compiled", "Found", "ProgramLayout", "ProgramText"]

_MOST_KEPT = 8  # of different constants


class ProgramLayout(NamedTuple):
    """What a program starts from; over how many devices, and by which axes of its first arguments, it is spread."""

    carry_shape: PyTree
    parts: int
    axes: tuple[Any, ...]


class ProgramText:
    """A program as XLA gets it. What is traced anew from the same code and shapes has the same text."""

    def __init__(self, lowered: Any) -> None:
        self._lowered = lowered

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self._lowered.as_text().encode()).hexdigest()


class Found(NamedTuple):
    """A compiled program with its first argument; the seconds that compiling took are 0 where it was there."""

    given: Given
    program: Any
    layout: ProgramLayout
    text: ProgramText
    compile_seconds: float


class Compiled:
    """Compiles each program once.

    Args:
      usual: See `Arguments`.
    """

    def __init__(self, usual: Sequence[float]) -> None:
        self._usual = tuple(usual)
        self._arguments: dict[int, Arguments] = {}
        self._programs: dict[tuple[int, Constants], tuple[Any, ProgramLayout, ProgramText]] = {}

    def find(
        self,
        theta: Theta,
        values: Sequence[float],
        num_thetas: int,
        trace: Callable[[Given], tuple[jax.stages.Traced, ProgramLayout]],
    ) -> Found:
        """Returns the program for these values; compiles it where there is none.

        Args:
          values: Of the optimizer's settings.
          num_thetas: 0: one, without an axis.
          trace: Traces the program for its first argument.
        Raises:
          What `trace` raises where all settings are constants.
        """
        started = time.perf_counter()
        traced: dict[Constants, tuple[jax.stages.Traced, ProgramLayout]] = {}

        def stage(settings: SettingValues) -> jax.stages.Traced:
            if settings.constants not in traced:
                traced[settings.constants] = trace((theta, settings))
            return traced[settings.constants][0]

        arguments = self._arguments.setdefault(num_thetas, Arguments(self._usual))
        settings = arguments.settle(values, lambda settings: read_settings(stage(settings), (theta, settings)))
        if (num_thetas, settings.constants) in self._programs:
            return Found((theta, settings), *self._programs[num_thetas, settings.constants], 0.0)
        try:
            stage(settings)
        except Exception:
            if not settings.arguments:
                raise
            settings = arguments.refuse(settings)
        lowered = stage(settings).lower()
        found = (lowered.compile(compiler_options()), traced[settings.constants][1], ProgramText(lowered))
        self._programs[num_thetas, settings.constants] = found
        if len(self._programs) > _MOST_KEPT:
            del self._programs[next(iter(self._programs))]
        return Found((theta, settings), *found, time.perf_counter() - started)

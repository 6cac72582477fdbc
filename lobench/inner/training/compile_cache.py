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
from lobench.inner.training.program_arguments import Arguments, Constants, Given, SettingValues

__all__ = ["Compiled", "Found", "ProgramLayout", "ProgramText"]

_MAX_PROGRAMS = 8  # programs with different constants


class ProgramLayout(NamedTuple):
    """Initial carry of a program, number of devices, and axes along which arguments are sharded.

    Attributes:
      at_once: Number of trainings that each device computes at the same time. 0: all of its trainings.
    """

    carry_shape: PyTree
    parts: int
    axes: tuple[Any, ...]
    at_once: int = 0


class ProgramText:
    """A program as XLA receives it. Programs traced from the same code and shapes have equal texts.

    Args:
      lowered: Lowered program of jax.
      known_sha256: Hash of a program that was not lowered in this process.

    Attributes:
      call_seconds: Seconds of calls without a step, as measured by trainings.
    """

    def __init__(self, lowered: Any, known_sha256: str = "") -> None:
        self._lowered, self._known_sha256 = lowered, known_sha256
        self.call_seconds: list[float] = []

    @functools.cached_property
    def sha256(self) -> str:
        return self._known_sha256 or hashlib.sha256(self._lowered.as_text().encode()).hexdigest()


class Found(NamedTuple):
    """A compiled program with its first argument, and the seconds of compilation (0 if it was compiled before)."""

    given: Given
    program: Any
    layout: ProgramLayout
    text: ProgramText
    compile_seconds: float


_Program: TypeAlias = tuple[Any, ProgramLayout, ProgramText]


class Compiled:
    """Cache of compiled programs.

    Args:
      usual: Typical values of the settings; see `Arguments`.
      kept: Executables kept by other processes. None: not used.
    """

    def __init__(self, usual: Sequence[float], kept: KeptExecutables | None = None) -> None:
        self._usual_values = tuple(usual)
        self._kept_executables = kept
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
        """Returns the program for these values, after compiling it if necessary.

        Args:
          theta: Theta of the program.
          values: Values of the optimizer's settings.
          num_thetas: Number of thetas with a leading axis. 0: a single theta without that axis.
          trace: Function that traces the program for its first argument.
          takes: Other arguments of the program, or their shapes.
        Raises:
          Exception: Any error of `trace` with all settings as constants.
        """
        with contextlib.ExitStack() as stack:  # holds the lock of a program that is compiled here
            return self._find(theta, values, num_thetas, trace, takes, stack)

    def _find(
        self,
        theta: Theta,
        values: Sequence[float],
        num_thetas: int,
        trace: Callable[[Given], tuple[jax.stages.Traced, ProgramLayout]],
        other_arguments: Any,
        stack: contextlib.ExitStack,
    ) -> Found:
        started_at = time.perf_counter()
        traced_programs: dict[Constants, tuple[jax.stages.Traced, ProgramLayout]] = {}

        def trace_with(settings: SettingValues) -> jax.stages.Traced:
            if settings.constants not in traced_programs:
                with kept_request.trace if kept_request is not None else contextlib.nullcontext():
                    traced_programs[settings.constants] = trace((theta, settings))
            return traced_programs[settings.constants][0]

        arguments = self._arguments.setdefault(num_thetas, Arguments(self._usual_values))
        kept_request = executable = None
        if self._kept_executables is not None and not arguments.are_chosen(values):
            kept_request = self._kept_executables.ask((theta, values), other_arguments, num_thetas)
            executable = kept_request.find_or_lock(stack) if kept_request is not None else None
        if kept_request is not None and executable is not None and not kept_request.is_checked():
            arguments.choose(values, executable.places)
            settings = SettingValues.of(values, executable.places)
            return self._add(theta, settings, num_thetas, started_at, _unpack_program(executable))
        settings = arguments.settle(values, theta, trace_with)
        if (num_thetas, settings.constants) in self._programs:
            return Found((theta, settings), *self._programs[num_thetas, settings.constants], 0.0)
        is_refused = False
        try:
            trace_with(settings)
        except Exception:
            if not settings.arguments:
                raise
            settings = arguments.refuse(settings)
            is_refused = True
        lowered = trace_with(settings).lower()
        layout = traced_programs[settings.constants][1]
        text = ProgramText(lowered)
        if kept_request is not None and executable is not None:
            if executable.text_sha256 == text.sha256 and executable.places == frozenset(settings.places):
                return self._add(theta, settings, num_thetas, started_at, _unpack_program(executable))
            kept_request.differs()
        program = (
            kept_request.compile(lowered, text.sha256)
            if kept_request is not None
            else lowered.compile(compiler_options())
        )
        if kept_request is not None and not is_refused:
            kept_request.keep(trace_with(settings), lowered, program, layout, frozenset(settings.places), text.sha256)
        return self._add(theta, settings, num_thetas, started_at, (program, layout, text))

    def _add(
        self, theta: Theta, settings: SettingValues, num_thetas: int, started_at: float, program: _Program
    ) -> Found:
        self._programs[num_thetas, settings.constants] = program
        if len(self._programs) > _MAX_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        return Found((theta, settings), *program, time.perf_counter() - started_at)


def _unpack_program(kept_program: KeptProgram) -> _Program:
    return kept_program.program, kept_program.layout, ProgramText(None, kept_program.text_sha256)

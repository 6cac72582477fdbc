"""Running evaluations: progress of each, compile time, remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lobench.core.case import CaseInfo
from lobench.core.planner import RemainingWork
from lobench.core.subject import Subject
from lobench.core.wording import counted, duration_text
from lobench.hookspecs import EvaluationFinished
from lobench.report.tables.text import subject_name

__all__ = ["RunningEvaluations"]

_WORTH_SECONDS = 0.5  # compilation times below this are not worth a line
_MOST_NAMES = 3


@dataclass(slots=True, kw_only=True)
class _Lease:
    """Running evaluation.

    Attributes:
      name: Name of subject and case.
      program: Key of its program.
      num_steps: Number of inner steps.
      started_at: Time of its start.
      is_first_run: Whether its program has not run before, so that it is compiled first.
      program_number: Number of its program, in the order of their first runs; 0 for a command.
      step: Current inner step.
      is_command: Whether it is a command, whose steps are unknown.
    """

    name: str
    program: str
    num_steps: int
    started_at: float
    is_first_run: bool
    program_number: int
    step: int = 0
    is_command: bool = False


class RunningEvaluations:
    """Counts and times evaluations. The chief's thread updates it; another thread may read it.

    Args:
      clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._leases: dict[int, _Lease] = {}
        self._core_seconds_by_program: dict[
            str, tuple[float, int]
        ] = {}  # by program: core-seconds without compilation, and runs
        # Since the last printed line: seconds of compiling or loading by case; names of the programs that were
        # compiled or loaded; names of the programs that were compiled.
        self._compile_seconds_by_case: dict[str, float] = {}
        self._compiled_or_loaded_programs: set[str] = set()
        self._compiled_programs: set[str] = set()
        self._planned_programs: set[str] = set()  # including commands
        self._program_numbers: dict[str, int] = {}  # of programs that have begun, but not of commands
        self._command_programs: set[str] = set()
        self._past_compile_seconds: list[float] = []
        self.num_done = 0

    def planned(self, programs: Iterable[str]) -> None:
        """Adds programs of missing evaluations, from which the remaining time is estimated."""
        self._planned_programs.update(programs)

    def leased(self, lease: int, subject: Subject, case: CaseInfo) -> None:
        program = case.program_key
        is_command = bool(case.evaluator)
        if is_command:
            self._command_programs.add(program)
        else:
            self._program_numbers.setdefault(program, len(self._program_numbers) + 1)
        self._leases[lease] = _Lease(
            name=f"{subject_name(subject)}  {case.suite}/{case.name}",
            program=program,
            num_steps=case.num_inner_steps,
            started_at=self._clock(),
            is_first_run=program not in self._core_seconds_by_program,
            program_number=self._program_numbers.get(program, 0),
            is_command=is_command,
        )

    def step(self, lease: int, step: int) -> None:
        if (running := self._leases.get(lease)) is not None:
            running.step = step

    def given_up(self, lease: int) -> None:
        self._leases.pop(lease, None)

    def forget(self) -> None:
        """Forgets all leases. Those of another watch have the same numbers."""
        self._leases.clear()

    def finished(self, event: EvaluationFinished, lease: int | None) -> None:
        self.num_done += 1
        running = self._leases.pop(lease, None) if lease is not None else None
        if running is None or event.curves is None:
            return
        compile_seconds = event.curves.compile_seconds
        total, count = self._core_seconds_by_program.get(running.program, (0.0, 0))
        run_seconds = max(self._clock() - running.started_at - compile_seconds, event.curves.wall_seconds)
        self._core_seconds_by_program[running.program] = (total + run_seconds * max(event.case.num_cpus, 1), count + 1)
        if compile_seconds > 0:
            if compile_seconds >= _WORTH_SECONDS and running.is_first_run:
                self._past_compile_seconds.append(compile_seconds)
            name = f"{event.case.suite}/{event.case.name}"
            self._compile_seconds_by_case[name] = self._compile_seconds_by_case.get(name, 0.0) + compile_seconds
            self._compiled_or_loaded_programs.add(running.program)
            if event.curves.num_compilations:
                self._compiled_programs.add(running.program)

    def compile_times_text(self) -> str:
        """Returns a line on compilation times since the last call, the longest first; "" if they are too short.

        A program that XLA did not compile came from a cache.
        """
        total = sum(self._compile_seconds_by_case.values())
        longest_first = sorted(self._compile_seconds_by_case.items(), key=lambda item: -item[1])
        if total < _WORTH_SECONDS:
            return ""
        self._compile_seconds_by_case = {}
        num_compiled = len(self._compiled_programs)
        num_loaded = len(self._compiled_or_loaded_programs) - num_compiled
        self._compiled_programs.clear()
        self._compiled_or_loaded_programs.clear()
        if len(longest_first) == 1:
            name = longest_first[0][0]
            return f"{f'compiled {name}' if num_compiled else f'loaded {name} from a cache'} in {duration_text(total)}"
        names = [f"{name} {duration_text(seconds)}" for name, seconds in longest_first[:_MOST_NAMES]]
        if unlisted := longest_first[_MOST_NAMES:]:
            names.append(f"{len(unlisted)} more {duration_text(sum(seconds for _, seconds in unlisted))}")
        text_parts = [f"compiled {counted(num_compiled, 'program')}"] * bool(num_compiled)
        text_parts += [f"loaded {counted(num_loaded, 'program')} from a cache"] * bool(num_loaded)
        return f"{' and '.join(text_parts)} in {duration_text(total)}: {', '.join(names)}"

    def remaining_text(self, remaining: RemainingWork) -> str:
        """Returns the remaining work: `2 in work, 4 waiting, 24 evaluations left, about 40 s`; "" if none remains."""
        num_left = sum(remaining.evaluations.values())
        text_parts = [f"{remaining.num_waiting} waiting"] * bool(remaining.num_waiting)
        if num_left:
            text_parts = (
                [f"{remaining.num_admitted} in work", *text_parts] if remaining.num_admitted > 1 or text_parts else []
            )
            text_parts.append(f"{counted(num_left, 'evaluation')} left")
        seconds = self._remaining_seconds(remaining)
        return ", ".join([*text_parts, f"about {duration_text(seconds)}"] if num_left and seconds >= 1 else text_parts)

    def _remaining_seconds(self, remaining: RemainingWork) -> float:
        """Returns the estimated seconds for the remaining work on all cores; 0 if nothing has run yet."""
        means = {program: total / count for program, (total, count) in self._core_seconds_by_program.items()}
        if not means:
            return 0.0
        typical = sum(means.values()) / len(means)
        return (
            sum(means.get(program, typical) * count for program, count in remaining.evaluations.items())
            / remaining.num_cores
        )

    def progress_rows(self, *, is_narrow: bool = False) -> list[tuple[str, str]]:
        """Returns the name and progress of each running evaluation.

        Args:
          is_narrow: Whether the number of the program that is compiled, and the expected time, are left out.
        """
        return [(lease.name, self._progress_text(lease, is_narrow=is_narrow)) for lease in list(self._leases.values())]

    def _progress_text(self, lease: _Lease, *, is_narrow: bool) -> str:
        seconds = self._clock() - lease.started_at
        if lease.is_command:
            return f"runs for {duration_text(seconds)}"
        if lease.step:
            return f"{lease.step}/{lease.num_steps}"
        if not lease.is_first_run:
            return f"0/{lease.num_steps}"
        total = len((self._planned_programs | self._program_numbers.keys()) - self._command_programs)
        if is_narrow or total < 2:
            return f"compiling {duration_text(seconds)}"
        past_seconds = self._past_compile_seconds
        expected = f" of about {duration_text(sum(past_seconds) / len(past_seconds))}" if past_seconds else ""
        return f"compiling {lease.program_number} of {total} programs, {duration_text(seconds)}{expected}"

    def status_text(self) -> str:
        """Returns one line: `12 evaluations done, 1 running: quick/conv compiling 2 of 3 programs, 35 s`."""
        rows = self.progress_rows()
        running_texts = [f"{name} {progress_text}" for name, progress_text in rows[:_MOST_NAMES]]
        running_texts += [f"{len(rows) - _MOST_NAMES} more"] if len(rows) > _MOST_NAMES else []
        running = f", {len(rows)} running: {', '.join(running_texts)}" if rows else ""
        return f"{counted(self.num_done, 'evaluation')} done{running}"

"""What a watch shows while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TextIO

from lobench.core.case import CaseInfo
from lobench.core.result import Outcome, mean_of
from lobench.core.subject import Subject
from lobench.engine.chief.contract import Progress
from lobench.hookspecs import EvaluationFinished
from lobench.report.lines import one_line

__all__ = ["LiveProgress", "PlainProgress", "SilentProgress", "make_progress"]


class SilentProgress(Progress):
    """Shows nothing. A progress is a context too: a live display starts and ends with it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class PlainProgress(SilentProgress):
    """A line for everything that is worth one.

    Args:
      quiet: No line for an evaluation that passed, nor for a checkpoint's admission: a finished checkpoint has its own.
    """

    def __init__(self, file: TextIO, *, quiet: bool = False) -> None:
        self._file, self._quiet = file, quiet

    def say(self, line: str) -> None:
        print(one_line(line), file=self._file, flush=True)

    def cases(self, cases: Sequence[CaseInfo]) -> None:
        names = ", ".join(f"{case.suite}/{case.name}" for case in cases)
        first = "; with the first checkpoint a program is compiled for each" if self._quiet else ""
        self.say(f"{len(cases)} cases: {names}{first}")

    def admitted(self, subject: Subject) -> None:
        if not self._quiet:
            self.say(f"{_name(subject)}: {subject.uri}" if subject.has_theta else _name(subject))

    def finished(self, event: EvaluationFinished, lease: int | None) -> None:
        if not self._quiet or event.outcome is not Outcome.PASSED:
            self.say(describe(event))


class LiveProgress(PlainProgress):
    """Lines as above, and below them what runs now, with its inner step."""

    def __init__(self, file: TextIO, *, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(file, quiet=quiet)
        self._console = Console(file=file)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._running: dict[int, tuple[str, int, int]] = {}

    def say(self, line: str) -> None:
        self._console.print(one_line(line), markup=False, highlight=False)

    def step(self, lease: int, step: int) -> None:
        if lease in self._running:
            name, _, total = self._running[lease]
            self._running[lease] = (name, step, total)
            self._update()

    def leased(self, lease: int, subject: Subject, case: CaseInfo) -> None:
        name = f"{_name(subject)}  {case.suite}/{case.name}"
        self._running[lease] = (name, 0, case.num_inner_steps)
        self._update()

    def finished(self, event: EvaluationFinished, lease: int | None) -> None:
        if lease is not None:
            self._running.pop(lease, None)
        super().finished(event, lease)
        self._update()

    def _update(self) -> None:
        self._live.update(self.shown())

    def shown(self) -> Any:
        """Returns what stands below the lines."""
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for name, step, total in self._running.values():
            table.add_row(Text(name), f"{step}/{total}" if step else "compiling")  # a name may look like markup
        return table

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def make_progress(file: TextIO, *, quiet: bool = False) -> PlainProgress:
    return LiveProgress(file, quiet=quiet) if file.isatty() else PlainProgress(file, quiet=quiet)


def describe(event: EvaluationFinished) -> str:
    """Returns one line on an evaluation."""
    head = f"{_name(event.subject)}  {event.case.suite}/{event.case.name}  {event.outcome}"
    if event.curves is None:
        return f"{head}  {event.message}".rstrip()
    metrics = [name for name in ("train/loss", "test/loss", "test/accuracy") if name in event.curves.metrics]
    shown = "  ".join(f"{name} {mean_of(event.curves.final(name)):.4g}" for name in metrics)
    diverged = f"  {event.curves.num_diverged} diverged" if event.curves.num_diverged else ""
    exploded = event.curves.num_exploded(event.case)
    diverged += f"  {exploded} exploded" if exploded else ""
    message = f"  {event.message}" if event.message else ""
    return f"{head}  {shown}{diverged}{message}"


def _name(subject: Subject) -> str:
    """Returns how a line names a subject; bindings of its own tell it from others at its outer step."""
    if not subject.has_theta or subject.variant.bindings:
        return subject.label
    return f"outer step {subject.outer_step}"

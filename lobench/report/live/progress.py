"""Progress of a watch: a live region on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Self, TextIO

from lobench.core.case import CaseInfo
from lobench.core.errors import LobenchError
from lobench.core.planner import RemainingWork
from lobench.core.result import Outcome, mean_of
from lobench.core.subject import Subject
from lobench.core.wording import cause, counted, one_line, shortened_list
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.checkpoint_lines import BAD, CheckpointLines
from lobench.report.live.running import RunningEvaluations
from lobench.report.tables.text import subject_name

__all__ = [
    "Colour",
    "LiveProgress",
    "PlainProgress",
    "SilentProgress",
    "is_coloured",
    "is_terminal",
    "make_progress",
    "writable_file",
]

Colour = Literal["auto", "yes", "no"]

_BEAT_SECONDS = 30.0  # time without a line, after which a line on running work is logged
_CODES = {"": "", "green": "\x1b[32m", "yellow": "\x1b[33m", "red": "\x1b[31m"}
_RED = "red"
_ERROR_WIDTH = 100  # characters of a repeated error
_MAX_NAMED_CASES = 6  # cases named in a line
_WIDE = 80  # columns from which a row has room for the number of the program that is compiled
_MARGIN = 6  # space for the gap between columns, and for the terminal's `^C`, which must not wrap a row


class SilentProgress(WatchProgress):
    """Shows only warnings. A progress is also a context manager, which starts and ends a live display."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def warn(self, line: str) -> None:
        warnings.warn(line, stacklevel=2)


class PlainProgress(SilentProgress):
    """Logs a line for each finished checkpoint and each failure, and a line on running work after 30 silent seconds.

    Args:
      file: File to write to.
      verbose: Whether to log each evaluation, and each admitted checkpoint, too.
      quiet: Whether to omit lines on running work and on compilation.
      colour: Whether lines are coloured.
      clock: Returns seconds.
    """

    def __init__(
        self,
        file: TextIO,
        *,
        verbose: bool = False,
        quiet: bool = False,
        colour: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._verbose = verbose
        self._quiet = quiet
        self._colour = colour
        self.clock, self._lock = clock, threading.Lock()
        self._running = RunningEvaluations(clock)
        self._lines: CheckpointLines | None = None
        self._logged_at, self._ended = clock(), threading.Event()
        self._errors: Counter[str] = Counter()  # by message without the checkpoint's path

    def log(self, line: str, colour: str = "") -> None:
        text = one_line(line)
        with self._lock:
            self._logged_at = self.clock()
            self._write(f"{_CODES[colour]}{text}\x1b[0m" if self._colour and colour else text)

    def warn(self, line: str) -> None:
        self.log(line)

    def _write(self, text: str) -> None:
        """Prints a line without delay.

        Raises:
          LobenchError: The file cannot be written.
          BrokenPipeError: The reader has closed the pipe.
        """
        try:
            print(text, file=self._file, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise LobenchError(
                "cannot write the output", got=cause(error), next_step="the same command goes on from here"
            ) from error

    def opened(
        self, open_reader: Callable[[], Ledger], suites: Sequence[str], is_of_run: Callable[[Subject], bool]
    ) -> None:
        self._lines = CheckpointLines(open_reader, suites, self.log, is_of_run)
        self.start_status_thread()

    def start_status_thread(self) -> None:
        """Starts a thread that logs running work if there was no line for a while."""
        if not self._quiet:
            self._ended.clear()
            threading.Thread(target=self._beat, name="what runs", daemon=True).start()

    def closed(self) -> None:
        self._ended.set()
        self._running.forget()
        errors = self._errors
        self._errors = Counter()
        for message, count in errors.items() if not self._verbose else ():
            if count > 1:
                self.log(f"{count} evaluations ended with one error, shown once: {message[:_ERROR_WIDTH]}", _RED)
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def cases_known(self, cases: Sequence[CaseInfo]) -> None:
        if cases:  # cases of scripts are known only from their output
            names = shortened_list([f"{case.suite}/{case.name}" for case in cases], _MAX_NAMED_CASES)
            self.log(f"{counted(len(cases), 'case')}: {names}")

    def subject_admitted(self, subject: Subject) -> None:
        if self._verbose:
            name = subject_name(subject)
            self.log(f"{name}: {subject.uri}" if subject.has_theta else name)

    def programs_planned(self, programs: Collection[str]) -> None:
        self._running.planned(programs)

    def evaluation_leased(self, lease: int, subject: Subject, case: CaseInfo) -> None:
        self._running.leased(lease, subject, case)

    def training_progressed(self, lease: int, step: int) -> None:
        self._running.step(lease, step)

    def given_up(self, lease: int) -> None:
        self._running.given_up(lease)

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        self._running.finished(event, lease)
        if event.curves is None and event.message:
            location, _, reason = event.message.partition(": ")
            message = reason if "/" in location else event.message
            self._errors[message] += 1
            if self._errors[message] > 1 and not self._verbose:
                return  # `closed` counts it
        if self._verbose or event.outcome not in (Outcome.PASSED, Outcome.SKIPPED):
            self.log(evaluation_line(event), _colour_of(event))

    def subject_finished(self, subject: Subject, left: RemainingWork) -> None:
        self.log_compile_times()
        if self._lines is not None:
            self._lines.completed(subject, self._running.remaining_text(left))

    def log_compile_times(self) -> None:
        """Logs the compilation times since the last call, if they are long enough."""
        if not self._quiet and (line := self._running.compile_times_text()):
            self.log(line)

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT_SECONDS / 10):
            if self.clock() - self._logged_at >= _BEAT_SECONDS and self._running.progress_rows():
                with contextlib.suppress(OSError, LobenchError):  # the next line of the chief's thread raises
                    self.log(self._running.status_text())


class LiveProgress(PlainProgress):
    """Lines as in `PlainProgress`, above a region with the running evaluations and their inner steps."""

    def __init__(self, file: TextIO, *, verbose: bool = False, quiet: bool = False, colour: bool = True) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(file, verbose=verbose, quiet=quiet, colour=colour)
        self._console = Console(file=file, no_color=not colour, highlight=False)
        self._live = Live(
            console=self._console, refresh_per_second=4, transient=True, get_renderable=self.renderable, screen=False
        )

    def log(self, line: str, colour: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(one_line(line), style=colour))

    def start_status_thread(self) -> None:
        """No-op: the region shows running evaluations itself."""

    def renderable(self) -> Any:
        """Returns what rich draws in the live region of the terminal.

        Long names are shortened, and rows are limited to the terminal's height.
        """
        from rich.cells import cell_len
        from rich.console import Group
        from rich.text import Text

        is_narrow = self._console.width < _WIDE
        rows = [
            (one_line(name), progress_text) for name, progress_text in self._running.progress_rows(is_narrow=is_narrow)
        ]
        max_rows = max(self._console.height - 4, 1)
        progress_width = max((len(progress_text) for _, progress_text in rows), default=0)
        room = self._console.width - progress_width - _MARGIN
        width = min(max((cell_len(name) for name, _ in rows), default=0), max(room, 8))
        lines = []
        for name, progress_text in rows[:max_rows]:
            line = Text(name)  # not a string, because a name may look like markup
            line.truncate(width, overflow="ellipsis", pad=True)
            lines.append(line.append(f"  {progress_text}"))
        if len(rows) > max_rows:
            lines.append(Text(f"and {len(rows) - max_rows} more"))
        return Group(*lines)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def make_progress(file: TextIO, *, verbose: bool = False, quiet: bool = False, color: Colour = "auto") -> PlainProgress:
    """Returns a live display on a terminal, plain lines elsewhere."""
    file = writable_file(file)
    kind = LiveProgress if is_terminal(file) else PlainProgress
    return kind(file, verbose=verbose, quiet=quiet, colour=is_coloured(file, color))


def writable_file(file: TextIO | None) -> TextIO:
    """Returns a file that accepts all characters.

    Characters that its encoding lacks are escaped. A closed output is replaced by the null device.
    """
    if file is None:  # Python's value for a closed standard output
        return open(os.devnull, "w", encoding="utf-8")
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(errors="backslashreplace")
    return file


def is_terminal(file: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether a file is a terminal that supports a live region."""
    return file.isatty() and environ.get("TERM") != "dumb"


def is_coloured(file: TextIO, color: Colour, environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether to use colours, by `--color`, PY_COLORS, NO_COLOR, FORCE_COLOR and the terminal, as in pytest."""
    if color != "auto":
        return color == "yes"
    if environ.get("PY_COLORS") in ("0", "1"):
        return environ["PY_COLORS"] == "1"
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or is_terminal(file, environ)


def evaluation_line(event: EvaluationFinished) -> str:
    """Returns the subject, case, outcome and final values of an evaluation in one line."""
    heading = f"{subject_name(event.subject)}  {event.case.suite}/{event.case.name}  {event.outcome}"
    if event.curves is None:
        return f"{heading}  {event.message}".rstrip()
    metrics = [name for name in ("train/loss", "test/loss", "test/accuracy") if name in event.curves.metrics]
    final_values = "  ".join(f"{name} {mean_of(event.curves.final(name)):.4g}" for name in metrics)
    diverged = f"  {event.curves.num_diverged} diverged" if event.curves.num_diverged else ""
    exploded = event.curves.num_exploded(event.case)
    diverged += f"  {exploded} exploded" if exploded else ""
    message = f"  {event.message}" if event.message else ""
    return f"{heading}  {final_values}{diverged}{message}"


def _colour_of(event: EvaluationFinished) -> str:
    if event.outcome not in (Outcome.PASSED, Outcome.SKIPPED):
        return _RED
    return BAD if event.curves is not None and event.curves.num_diverged else ""

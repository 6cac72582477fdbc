"""Notebook progress: methods or evaluations, and the last lines."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from lobench.core.case import CaseInfo
from lobench.core.planner import RemainingWork
from lobench.core.subject import Subject
from lobench.core.wording import counted
from lobench.drawing.html import paragraph, table
from lobench.engine.chief.interfaces import WatchProgress
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.methods import MethodCounts
from lobench.report.live.progress import PlainProgress, SilentProgress

__all__ = ["NotebookProgress", "default_progress", "in_notebook"]

_LINES = 6
_SECONDS = 0.25  # between two pictures
_MOST_ROWS = 12


def default_progress(methods: MethodCounts | None = None) -> WatchProgress:
    """Returns the default progress of functions: a display in notebooks, nothing elsewhere.

    Args:
      methods: Methods of an experiment, updated while it runs. None: only evaluations are shown.
    """
    return NotebookProgress(_new_display(), methods) if in_notebook() else SilentProgress()


def in_notebook() -> bool:
    """Returns whether this runs in a Jupyter kernel, which can display and update HTML. Imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _new_display() -> Callable[[str], object]:
    """Creates a display in the current cell. Returns a function that sets its HTML."""
    display: Any = sys.modules["IPython"].display
    handle = display.display(display.HTML(""), display_id=True)
    return lambda text: handle.update(display.HTML(text))


class NotebookProgress(PlainProgress):
    """Display that is updated at most four times a second, and stays at the end.

    Args:
      show: Displays HTML in place of the previous one.
      methods: Methods of an experiment. None: only evaluations are shown.
      clock: Returns seconds.
    """

    def __init__(
        self,
        show: Callable[[str], object],
        methods: MethodCounts | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(io.StringIO(), clock=clock)
        self._show, self._methods = show, methods
        self._log_lines: deque[str] = deque(maxlen=_LINES)
        self._drawn_at, self._drawing = -_SECONDS, threading.Lock()

    def start_status_thread(self) -> None:
        """No-op: the display shows running evaluations itself."""

    def log(self, line: str, colour: str = "") -> None:
        self._log_lines.append(line)
        self._draw(force=True)

    def cases_known(self, cases: Sequence[CaseInfo]) -> None:
        if self._methods is not None:
            self._methods.register_cases(cases)
        super().cases_known(cases)

    def evaluation_leased(self, lease: int, subject: Subject, case: CaseInfo) -> None:
        if self._methods is not None:
            self._methods.leased(lease, subject)
        super().evaluation_leased(lease, subject, case)
        self._draw()

    def given_up(self, lease: int) -> None:
        if self._methods is not None:
            self._methods.given_up(lease)
        super().given_up(lease)
        self._draw()

    def training_progressed(self, lease: int, step: int) -> None:
        super().training_progressed(lease, step)
        self._draw()

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        if self._methods is not None:
            self._methods.finished(event, lease)
        super().evaluation_finished(event, lease)
        self._draw(force=not self._running.progress_rows())

    def subject_finished(self, subject: Subject, left: RemainingWork) -> None:
        super().subject_finished(subject, left)
        self._draw(force=True)

    def closed(self) -> None:
        super().closed()
        self._draw(force=True)

    def _draw(self, *, force: bool = False) -> None:
        """Updates the display. Skipped if the last update was a moment ago, unless `force`."""
        with self._drawing:
            now = self.clock()
            if force or now - self._drawn_at >= _SECONDS:
                self._drawn_at = now
                self._show(self.html())

    def html(self) -> str:
        """Returns the display as HTML: log lines, methods and running evaluations."""
        rows = self._running.progress_rows()
        elements: list[str] = [paragraph(line) for line in self._log_lines]
        if self._methods is not None and (states := self._methods.states()):
            method_rows = [
                [
                    state.name,
                    _progress_bar(state.num_done, state.num_planned),
                    state.count_text,
                    state.trials or state.score,
                ]
                for state in states
            ]
            elements.append(table(["method", "", "evaluations", "so far"], method_rows))
            elements.append(paragraph(self._methods.remaining_time_text().removeprefix(", ")))
        else:
            elements.append(paragraph(f"{counted(self._running.num_done, 'evaluation')} done"))
        if rows:
            elements.append(table(["runs now", ""], rows[:_MOST_ROWS]))
        return "".join(elements)


def _progress_bar(num_done: int, num_planned: int) -> Markup:
    return Markup(f'<progress value="{num_done}" max="{num_planned}"></progress>' if num_planned else "")

"""Live display of an experiment: progress of each method, its score, remaining time."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from lobench.analysis.comparisons.event_numbers import evaluation_row_of
from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.scores.mean_scores import MeanScore
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.snapshot import Snapshot
from lobench.core.case import CaseInfo
from lobench.core.planner import RemainingWork
from lobench.core.subject import Subject
from lobench.core.wording import duration_text, one_line
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.checkpoint_lines import BEST, difference_from_best
from lobench.report.live.progress import Colour, LiveProgress, PlainProgress, is_coloured, is_terminal, writable_file
from lobench.report.tables.verdict import score_text

__all__ = ["MethodCounts", "PlainMethods", "make_method_progress"]

_Planned = tuple[Mapping[str, int], Iterable[EvaluationRow]]
_PLAIN_SECONDS = 10.0  # between two lines on one method
_SHARE = 0.05  # largest share of the time that is spent on scores


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodState:
    """Progress of a method.

    Attributes:
      name: Name of the method.
      num_done: Number of finished evaluations.
      num_planned: Number of planned evaluations. 0 if unknown.
      num_running: Number of running evaluations.
      score: Mean score so far, as text. "" before the first.
      trials: Progress and result of its search: `12 of 20 trials, best 1.31`. "" if it has none.
      curve_progress: Progress of the curves of running scripts: `mine-0 at step 300: val/loss 0.41, score 0.62`.
    """

    name: str
    num_done: int
    num_planned: int
    num_running: int
    score: str
    trials: str = ""
    curve_progress: str = ""

    @property
    def count_text(self) -> str:
        return f"{self.num_done} of {self.num_planned}" if self.num_planned else str(self.num_done)

    @property
    def is_finished(self) -> bool:
        return self.num_done == self.num_planned

    def line(self, remaining: str, change: str = "") -> str:
        score = f", score {self.score}{change}" if self.score else ""
        running = f", {self.num_running} running" if self.num_running else ""
        running += f" ({self.curve_progress})" if self.curve_progress else ""
        trials = f"{self.trials}, " if self.trials else ""
        noun = "evaluation" if self.count_text == "1" else "evaluations"
        return f"{self.name}: {trials}{self.count_text} {noun}{score}{running}{remaining}"


class MethodCounts:
    """Counts and scores by method, updated while evaluations finish.

    Args:
      methods_of: Returns the names of a subject's methods. Evaluations without methods are not counted.
      snapshot_of: Returns a snapshot of evaluations by method, as for tables. Methods that are not in it have no score.
        None: no scores.
      plan_of: Returns the arguments of `plan` once the cases are known. None: callers call `plan`.
      trials_of: Returns the progress of searches, by method.
      curve_progress_of: Returns the progress of running scripts' curves, by method.
      clock: Returns seconds.
    """

    def __init__(
        self,
        methods_of: Callable[[Subject], Iterable[str]],
        snapshot_of: Callable[[Sequence[EvaluationRow]], Snapshot] | None = None,
        plan_of: Callable[[Sequence[CaseInfo]], _Planned] | None = None,
        *,
        trials_of: Callable[[], Mapping[str, str]] = dict,
        curve_progress_of: Callable[[], Mapping[str, Sequence[str]]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._methods_of = methods_of
        self._snapshot_of = snapshot_of
        self._clock = clock
        self._plan_of = plan_of
        self._trials_of = trials_of
        self._curve_progress_of = curve_progress_of
        self._num_planned: dict[str, int] = {}
        self._rows: dict[tuple[str, str, Any], EvaluationRow] = {}  # by theta, case and block, so that each counts once
        self._num_done = Counter[str]()  # number of rows by method
        self._running: dict[int, tuple[str, ...]] = {}
        self._scores: dict[str, MeanScore] = {}
        self._finished_methods: list[str] = []
        self._is_over = False
        self._began_at: float | None = None
        self._num_finished_now = 0
        self._scored_until, self._scored_rows = -math.inf, 0

    def forget(self) -> None:
        """Forgets all evaluations and plans, for a run that begins again."""
        self._num_planned, self._rows, self._num_done, self._running = {}, {}, Counter[str](), {}
        self._scores = {}
        self._finished_methods = []
        self._scored_until = -math.inf
        self._scored_rows = 0

    def plan(self, counts: Mapping[str, int], rows: Iterable[EvaluationRow] = ()) -> None:
        """Sets the number of evaluations of each method, in display order, and adds evaluations that exist already."""
        self._num_planned = {**dict.fromkeys(counts, 0), **self._num_planned, **counts}
        for row in rows:
            self._add_row(row)

    def register_cases(self, cases: Sequence[CaseInfo]) -> None:
        if self._plan_of is not None:
            self.plan(*self._plan_of(cases))

    def method_names(self, subject: Subject) -> set[str]:
        """Returns the names of the methods that a subject belongs to."""
        return set(self._methods_of(subject))

    def leased(self, lease: int, subject: Subject) -> None:
        self._began_at = self._clock() if self._began_at is None else self._began_at
        self._running[lease] = tuple(self._methods_of(subject))

    def given_up(self, lease: int) -> None:
        self._running.pop(lease, None)

    def finished(self, event: EvaluationFinished, lease: int | None) -> tuple[str, ...]:
        """Counts an evaluation. Returns its methods."""
        if lease is not None:
            self._running.pop(lease, None)
        self._num_finished_now += self._add_row(evaluation_row_of(event, self._clock()))
        return tuple(self._methods_of(event.subject))

    def _add_row(self, row: EvaluationRow) -> bool:
        key = (row.key.checkpoint_sha256, f"{row.key.optimizer_hash} {row.key.case_identity}", row.key.seed_block)
        old_row = self._rows.get(key)
        # The subjects of several methods.
        subjects = (
            (*old_row.recorded_sightings, *row.recorded_sightings) if old_row is not None else row.recorded_sightings
        )
        stored_row = self._rows[key] = replace(row, recorded_sightings=tuple(dict.fromkeys(subjects)))
        self._num_done.update(self._names(stored_row) - (self._names(old_row) if old_row is not None else set()))
        return old_row is None

    def _names(self, row: EvaluationRow) -> set[str]:
        """Returns the names of the methods that an evaluation belongs to."""
        return {name for subject in row.sightings for name in self._methods_of(subject)}

    def states(self, *, refresh_scores: bool = False) -> list[MethodState]:
        """Returns the progress of each method.

        Args:
          refresh_scores: Whether scores must include all evaluations. If False, they may lag a little.
        """
        self._score(refresh_scores)
        trials = self._trials_of()
        curve_progress = self._curve_progress_of()
        running = Counter({name: len(texts) for name, texts in curve_progress.items()})
        for names in self._running.values():
            running.update(names)
        return [
            MethodState(
                name=name,
                num_done=self._num_done[name],
                num_planned=self._num_planned.get(name, 0),
                num_running=running[name],
                score="" if name in trials else self._score_text(name),
                trials=trials.get(name, ""),
                curve_progress=", ".join(filter(None, curve_progress.get(name, ()))),
            )
            for name in dict.fromkeys([*self._num_planned, *self._num_done, *running])
        ]

    def _score(self, refresh_scores: bool) -> None:
        now = self._clock()
        if len(self._rows) == self._scored_rows or (now < self._scored_until and not refresh_scores):
            return
        if self._snapshot_of is not None:
            snapshot = self._snapshot_of(list(self._rows.values()))
            # Only finished methods decide which cases are common, since others may still evaluate them.
            finished_indices = [index for index, name in enumerate(snapshot.labels) if self._is_through(name)]
            summary = Summary(
                snapshot, Scales.of(snapshot.subjects, None, all_subjects=snapshot.scale_subjects), finished_indices
            )
            self._scores = {name: summary.mean_score(index, "primary") for index, name in enumerate(snapshot.labels)}
        self._scored_rows = len(self._rows)
        self._scored_until = self._clock() + (self._clock() - now) / _SHARE

    def _is_through(self, name: str) -> bool:
        return self._num_done[name] == self._num_planned.get(name, 0) or (
            self._is_over and not self._num_planned.get(name)
        )

    def _score_text(self, name: str) -> str:
        score = self._scores.get(name)
        return "" if score is None or not score.num_cases else score_text(score)

    def end(self) -> None:
        """Called when no more evaluations will come.

        Methods with an unknown number of evaluations are then finished.
        """
        self._is_over, self._scored_rows = True, 0

    def finish_method(self, name: str) -> tuple[str, bool]:
        """Called when a method is finished. Returns its difference from the best one so far, and whether it is best.

        Current scores are compared, because without a baseline a better method changes the scale for earlier ones too.
        """
        score = self._scores.get(name)
        if score is None or not score.num_cases:
            return "", False
        # Means over different cases cannot be compared.
        earlier_scores = [(self._scores[other], other) for other in self._finished_methods if other != name]
        comparable_scores = [
            (earlier_score.interval.mean, other)
            for earlier_score, other in earlier_scores
            if earlier_score.scores.keys() == score.scores.keys()
        ]
        self._finished_methods.append(name)
        if not comparable_scores:
            return "", False
        best = max(comparable_scores)
        return difference_from_best(score.interval.mean, *best), score.interval.mean > best[0]

    def remaining_time_text(self) -> str:
        """Returns the estimated time for the remaining work, from this call's work so far; "" if unknown."""
        num_left = sum(max(planned - self._num_done[name], 0) for name, planned in self._num_planned.items())
        if self._began_at is None or not self._num_finished_now or not num_left:
            return ""
        return f", about {duration_text((self._clock() - self._began_at) / self._num_finished_now * num_left)} left"


class _MethodProgress(PlainProgress):
    """Base of both displays of an experiment: counts evaluations, and reports when a method is finished."""

    _methods: MethodCounts

    def opened(
        self, open_reader: Callable[[], Ledger], suites: Sequence[str], is_of_run: Callable[[Subject], bool]
    ) -> None:
        self.start_status_thread()

    def cases_known(self, cases: Sequence[CaseInfo]) -> None:
        self._methods.register_cases(cases)
        super().cases_known(cases)

    def evaluation_leased(self, lease: int, subject: Subject, case: CaseInfo) -> None:
        self._methods.leased(lease, subject)
        super().evaluation_leased(lease, subject, case)

    def given_up(self, lease: int) -> None:
        self._methods.given_up(lease)
        super().given_up(lease)

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        super().evaluation_finished(event, lease)
        names = self._methods.finished(event, lease)
        for state in self._methods.states():
            if state.name in names and not (state.trials and state.is_finished):
                self.report_state(state)

    def curves_extended(self) -> None:
        for state in self._methods.states():
            if state.curve_progress and not state.is_finished:
                self.report_state(state)

    def subject_finished(self, subject: Subject, left: RemainingWork) -> None:
        """Reports searches that are finished now, because their last trial has its fitness."""
        self.log_compile_times()
        names = self._methods.method_names(subject)
        for state in self._methods.states():
            if state.name in names and state.trials and state.is_finished:
                self.report_state(state)

    def closed(self) -> None:
        """Reports methods with an unknown number of evaluations. They are finished at the end."""
        self._methods.end()
        for state in self._methods.states():
            if state.num_done and not state.num_planned and not state.trials:
                self._report_end(state)
        super().closed()

    def report_state(self, state: MethodState) -> None:
        """Reports a method that has changed."""
        if state.is_finished:
            self._report_end(state)

    def _report_end(self, state: MethodState) -> None:
        state = next(
            fresh_state for fresh_state in self._methods.states(refresh_scores=True) if fresh_state.name == state.name
        )
        change, is_best = self._methods.finish_method(state.name)
        self.log_compile_times()
        self.log(state.line(self._methods.remaining_time_text(), change), BEST if is_best else "")


class PlainMethods(_MethodProgress):
    """Logs a line for each method that has changed, at most every ten seconds, and one when it is finished."""

    def __init__(
        self,
        file: TextIO,
        methods: MethodCounts,
        *,
        verbose: bool = False,
        colour: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(file, verbose=verbose, colour=colour, clock=clock)
        self._methods = methods
        self._reported_at: dict[str, float] = {}

    def report_state(self, state: MethodState) -> None:
        now = self.clock()
        if state.is_finished or now - self._reported_at.get(state.name, -math.inf) >= _PLAIN_SECONDS:
            self._reported_at[state.name] = now
            if not state.is_finished:
                self.log(state.line(self._methods.remaining_time_text()))
        super().report_state(state)


class _LiveMethods(_MethodProgress, LiveProgress):
    """Shows the methods as a table above the running evaluations."""

    def __init__(self, file: TextIO, methods: MethodCounts, *, verbose: bool = False, colour: bool = True) -> None:
        self._states: tuple[Sequence[MethodState], str] = ((), "")  # read by the thread that draws
        super().__init__(file, verbose=verbose, colour=colour)
        self._methods = methods

    def cases_known(self, cases: Sequence[CaseInfo]) -> None:
        super().cases_known(cases)
        self._update()

    def evaluation_leased(self, lease: int, subject: Subject, case: CaseInfo) -> None:
        super().evaluation_leased(lease, subject, case)
        self._update()

    def given_up(self, lease: int) -> None:
        super().given_up(lease)
        self._update()

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        super().evaluation_finished(event, lease)
        self._update()

    def curves_extended(self) -> None:
        super().curves_extended()
        self._update()

    def _update(self) -> None:
        self._states = (self._methods.states(), self._methods.remaining_time_text().removeprefix(", "))

    def renderable(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        states, remaining = self._states
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("method", "evaluations", "so far", "running"):
            table.add_column(title, no_wrap=True, overflow="ellipsis")
        for state in states:
            so_far = ", ".join(filter(None, (state.trials or state.score, state.curve_progress)))
            cells = (one_line(state.name), state.count_text, so_far, str(state.num_running or ""))
            table.add_row(*map(Text, cells))  # a name may look like markup
        return Group(table, *([Text(remaining)] if remaining else []), super().renderable())


def make_method_progress(
    file: TextIO, methods: MethodCounts, *, verbose: bool = False, color: Colour = "auto"
) -> PlainProgress:
    """Returns a live table on a terminal, plain lines elsewhere. `verbose` adds a line for each evaluation."""
    file = writable_file(file)
    kind = _LiveMethods if is_terminal(file) else PlainMethods
    return kind(file, methods, verbose=verbose, colour=is_coloured(file, color))

"""Line of a finished checkpoint: its score compared with tuned Adam's 1 and the best before it.

Scores need the whole store and numpy. They are computed in a thread with its own ledger, so that the chief does not
wait.
"""

from __future__ import annotations

import contextlib
import math
import queue
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lobench.core.case import common_replicate_noun
from lobench.core.errors import LobenchError
from lobench.core.subject import Subject, SubjectKey, is_of_any_run
from lobench.core.wording import counted
from lobench.engine.config.suite import takes_any_checkpoint
from lobench.engine.store.ledger import Ledger
from lobench.report.tables.text import final_mean_text, subject_name

if TYPE_CHECKING:
    from lobench.analysis.scores.live_scores import Fallback, LiveScoredSubject, StoreScores

__all__ = ["BAD", "BEST", "CheckpointLines", "difference_from_best"]

BEST, BAD = "green", "yellow"  # colours of lines, if colours are enabled

_NUM_SPARKS = 12
_NUM_LOSSES = 4  # cases whose losses a line has without a baseline
_MANY = 10  # checkpoints after which a line warns of many looks
_SAME = 5e-4  # differences below this are invisible with three decimals
_CLOSE_SECONDS = 10.0
_SHARE = 0.1  # share of the thread's time for scores; other processes get the core the rest of the time
_LONGEST_REST = 1.0  # seconds between scores at most, because people wait for the lines

LogLine = Callable[[str, str], None]  # a line, and its colour or ""


@dataclass(frozen=True, slots=True)
class _Finished:
    subject: Subject
    remaining_text: str


class CheckpointLines:
    """Logs a line with the score of each finished subject, in the order of completion.

    For example `outer step 60: score 0.710 [0.550, 0.870], 0.050 below the best so far (outer step 30)  scores ▁█▇`.
    Subjects that finish while scores are computed are scored together.

    Args:
      open_reader: Opens a ledger that the thread may read.
      suites: Suites whose tuned baselines are used. The scale of a case without baseline changes with later
        checkpoints. The line then has losses, and compares them with earlier ones on the current scale.
      log: Receives a line and its colour, in the thread.
      is_of_run: Returns whether a stored subject is of the watched run. Others are left out of comparisons.
    """

    def __init__(
        self,
        open_reader: Callable[[], Ledger],
        suites: Sequence[str],
        log: LogLine,
        is_of_run: Callable[[Subject], bool] = is_of_any_run,
    ) -> None:
        self._is_of_run = is_of_run
        self._open_reader, self._suite_paths, self._log = open_reader, [Path(suite) for suite in suites], log
        self._finished_queue: queue.SimpleQueue[_Finished | None] = queue.SimpleQueue()
        self._ledger: Ledger | None = None
        self._scores: StoreScores | None = None
        # A baseline is tuned on tasks, and a command has none.
        is_tunable = not takes_any_checkpoint(*suites)
        self._lines = _Lines(shlex.join(["lobench", "baseline", *suites]) if is_tunable else "")
        self._scale_label = ""
        self._last_logged: tuple[object, int] | None = None
        self._num_logged = 0
        self._subjects_by_name: dict[str, SubjectKey] = {}  # the first subject of each name
        self._end_requested = threading.Event()
        with open_reader() as ledger:
            self._finished_before = ledger.finished_keys()
        self._thread = threading.Thread(target=self._run, name="checkpoint lines", daemon=True)
        self._thread.start()

    def completed(self, subject: Subject, remaining: str) -> None:
        """Called when all evaluations of a subject are finished.

        Args:
          subject: The subject.
          remaining: Text on the remaining work, appended to the line.
        """
        self._finished_queue.put(_Finished(subject, remaining))

    def close(self) -> None:
        """Waits until all lines are logged, at most ten seconds."""
        self._end_requested.set()
        self._finished_queue.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            batch = [self._finished_queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    batch.append(self._finished_queue.get_nowait())
            goes_on = None not in batch
            start_time = time.monotonic()
            self._log_scores([subject for subject in batch if subject is not None])
            self._end_requested.wait(min((time.monotonic() - start_time) * (1 / _SHARE - 1), _LONGEST_REST))
        if self._ledger is not None:
            self._ledger.close()

    def _log_scores(self, finished: Sequence[_Finished]) -> None:
        if not finished:
            return
        try:
            scores = self._compute_scores([finished_subject.subject for finished_subject in finished])
        except LobenchError as error:
            scores, problem = {}, f"no score: {error}"
        else:
            problem = "no score"
        with contextlib.suppress(OSError, LobenchError):  # the next write in the chief's thread raises
            for finished_subject in finished:
                self._log_subject(
                    finished_subject,
                    scores.get((finished_subject.subject.key, finished_subject.subject.outer_step)),
                    problem,
                )

    def _log_subject(self, event: _Finished, subject_score: LiveScoredSubject | None, problem: str) -> None:
        if (event.subject.key, event.subject.outer_step) == self._last_logged:
            return  # the same theta was found at two paths
        self._last_logged = (event.subject.key, event.subject.outer_step)
        text, colour = problem, BAD
        if subject_score is not None:
            text, colour = self._lines.line_of(event.subject, subject_score)
            if subject_score.baseline_label not in ("", self._scale_label) and not subject_score.num_untuned:
                self._scale_label = subject_score.baseline_label
                self._log(
                    f"scores: 0 is the untrained network, 1 {subject_score.baseline_label}; a diverged seed scores -1",
                    "",
                )
        name = subject_name(event.subject)
        if self._subjects_by_name.setdefault(name, event.subject.key) != event.subject.key:
            name = f"{name} ({event.subject.sha256[:6]})"
        self._log(f"{name}: " + "; ".join(filter(None, (text, event.remaining_text))), colour)
        self._num_logged += subject_score is not None
        if self._num_logged == _MANY:
            from lobench.report.tables.verdict import MANY_LOOKS

            self._num_logged += 1  # so that the line is logged only once
            self._log(f"{_MANY} checkpoints: the best of many is the luckiest, too; {MANY_LOOKS}", "")

    def _compute_scores(self, subjects: Sequence[Subject]) -> dict[tuple[object, int], LiveScoredSubject]:
        from lobench.analysis.scores.live_scores import StoreScores  # slow to import, and often not needed

        is_first = self._scores is None
        if self._scores is None:
            self._ledger = self._open_reader()
            self._scores = StoreScores(self._ledger, self._suite_paths, self._is_of_run)
        scores = self._scores.scores_of(subjects)
        self._lines.former_subjects = self._scores.former_subjects
        if is_first:
            requested_keys = {subject.key for subject in subjects}
            for earlier_score in self._scores.all_scores():
                is_finished = earlier_score.subject.subject.key in self._finished_before - requested_keys
                if is_finished and self._is_of_run(earlier_score.subject.subject):
                    self._lines.register(earlier_score.subject.subject, earlier_score)
        return {(score.subject.subject.key, score.subject.subject.outer_step): score for score in scores}


class _Scored(NamedTuple):
    """A subject of an earlier line, with its mean score. A subject that lacks a planned seed is not complete."""

    subject: Subject
    name: str
    mean: float
    cases: frozenset[str]
    is_complete: bool


def _scored(subject: Subject, subject_score: LiveScoredSubject) -> _Scored | None:
    """Returns a subject with its mean score; None if it has none."""
    if subject_score.score is None or math.isnan(mean := subject_score.score.interval.mean):
        return None
    return _Scored(
        subject=subject_score.subject.subject,
        name=subject_name(subject),
        mean=mean,
        cases=frozenset(subject_score.score.scores),
        is_complete=not subject_score.subject.num_missing,
    )


class _Lines:
    """Texts of the lines, with comparisons to earlier ones.

    Attributes:
      former_subjects: Subjects whose results have former bindings, and with which no other is compared.
    """

    def __init__(self, command: str) -> None:
        self.former_subjects = frozenset[Subject]()
        self._command = command  # command that makes a baseline, mentioned once
        self._scored: list[_Scored] = []

    def register(self, subject: Subject, subject_score: LiveScoredSubject) -> None:
        """Registers a subject, with which later ones are compared."""
        if (scored := _scored(subject, subject_score)) is not None:
            self._scored.append(scored)

    def _change(self, subject: Subject, subject_score: LiveScoredSubject) -> str:
        """Returns the difference of a subject from the best so far on the same cases, "" for the first.

        A subject that lacks a planned seed is not the best, as in rankings, and neither is one with former bindings.
        """
        scored = _scored(subject, subject_score)
        if scored is None or scored.subject in self.former_subjects:
            return ""
        rivals = [other for other in self._comparable() if other.is_complete and other.cases == scored.cases]
        if not rivals:
            return ""
        best = max(rivals, key=lambda rival: rival.mean)
        name = f"an earlier {best.name}" if best.name == scored.name else best.name
        return difference_from_best(scored.mean, best.mean, name)

    def _comparable(self) -> list[_Scored]:
        """Returns the registered subjects without those of former bindings."""
        return [scored for scored in self._scored if scored.subject not in self.former_subjects]

    def line_of(self, identity: Subject, subject_score: LiveScoredSubject) -> tuple[str, str]:
        """Returns the line of a finished subject, and its colour."""
        subject = subject_score.subject
        change = self._change(identity, subject_score)
        self.register(identity, subject_score)
        failures = Counter(str(outcome) for cell in subject.cells.values() for outcome, _ in cell.failures)
        num_done = sum(bool(cell.curves_by_seed) for cell in subject.cells.values())
        share_text = "" if num_done == len(subject.cells) else f"{num_done} of "
        replicate = common_replicate_noun(cell.case for cell in subject.cells.values() if cell.curves_by_seed)
        num_diverged = subject.num_diverged
        seeds = counted(subject.num_seeds, replicate)
        num_exploded = subject.num_exploded
        lost_texts = [f"{num_diverged} of {seeds} diverged"] * bool(num_diverged)
        lost_texts += [f"{num_exploded} of {seeds} exploded"] * bool(num_exploded)
        counts = [
            f"{share_text}{counted(len(subject.cells), 'case')}",
            *lost_texts,
            *(
                counted(count, name) if name == "error" else f"{count} {name}"
                for name, count in sorted(failures.items())
            ),
        ]
        text = "  ".join(filter(None, (self._score(subject_score, change), ", ".join(counts))))
        return text, BAD if lost_texts or failures else BEST if " above the best" in change else ""

    def _score(self, subject_score: LiveScoredSubject, change: str) -> str:
        from lobench.drawing.curves import sparkline
        from lobench.report.tables.verdict import interval_text

        num_cases = len(subject_score.subject.cells)
        if not any(cell.curves_by_seed for cell in subject_score.subject.cells.values()):
            return "no score"
        if subject_score.score is None:
            return (
                _losses(subject_score.fallback, subject_score.subject.subject) + self._hint(subject_score, num_cases)
                if subject_score.fallback
                else "no score"
            )
        if not subject_score.score.scores:
            return "no score"
        text = f"score {interval_text(subject_score.score.interval)}"
        if subject_score.score.num_missing:
            text += f" of {subject_score.score.num_cases} of {counted(num_cases, 'case')}"
        return f"{text}{change}  scores {sparkline([scored.mean for scored in self._comparable()[-_NUM_SPARKS:]])}"

    def _hint(self, subject_score: LiveScoredSubject, num_cases: int) -> str:
        """Returns a hint on missing baselines and the command that makes them, in the first call only."""
        command, self._command = self._command, ""
        if not command:
            return ""
        cases_text = (
            ""
            if subject_score.num_untuned == num_cases
            else f" for {subject_score.num_untuned} of {counted(num_cases, 'case')}"
        )
        moves = "scores are relative to the best result so far, and will change"
        return f"  (no baseline{cases_text}: {moves}; `{command}` makes a fixed scale)"


def _losses(fallback: Fallback, subject: Subject) -> str:
    """Returns the final losses of a subject, and its difference from earlier ones on the current scale.

    For example `train/loss 0.312; score 0.710 [0.550, 0.870], 0.050 below the best so far (outer step 30, now 0.760)`,
    and a chart of the scores.
    """
    from lobench.drawing.curves import sparkline
    from lobench.report.tables.verdict import interval_text

    metrics = {metric for _, metric, _ in fallback.final_means}
    metric_prefix = f"{metrics.pop()} " if len(metrics) == 1 else ""
    loss_texts = []
    for name, metric, value in fallback.final_means[:_NUM_LOSSES]:
        case_prefix = f"{name} " if len(fallback.final_means) > 1 else ""
        own_metric_prefix = "" if metric_prefix else f"{metric} "
        loss_texts.append(f"{case_prefix}{own_metric_prefix}{final_mean_text(value)}")
    text = metric_prefix + ", ".join(loss_texts) + ", ..." * (len(fallback.final_means) > _NUM_LOSSES)
    if not fallback.earlier_scores or not fallback.score.scores:
        return text
    mean = fallback.score.interval.mean
    best, best_subject = max(fallback.earlier_scores, key=lambda mean_and_subject: mean_and_subject[1])[::-1]
    trend = sparkline([*(value for _, value in fallback.earlier_scores[1 - _NUM_SPARKS :]), mean])
    name = (
        f"an earlier {subject_name(best_subject)}"
        if subject_name(best_subject) == subject_name(subject)
        else subject_name(best_subject)
    )
    # The best score is repeated, because it may have changed since the best checkpoint's line was logged.
    difference = difference_from_best(mean, best, f"{name}, now {best:.3f}")
    return f"{text}; score {interval_text(fallback.score.interval)}{difference}  scores {trend}"


def difference_from_best(mean: float, best: float, name: str) -> str:
    """Returns the difference of a score from the best before it: `, 0.050 below the best so far (outer step 30)`."""
    if math.isnan(mean) or math.isnan(best):
        return ""
    if abs(mean - best) < _SAME:
        return f", level with the best so far ({name})"
    return f", {abs(mean - best):.3f} {'above' if mean > best else 'below'} the best so far ({name})"

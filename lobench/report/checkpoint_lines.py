"""The line that a watch says of each finished checkpoint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from lobench.analysis.mean_scores import mean_score
from lobench.analysis.scales import Scales
from lobench.analysis.subjects import Subject, subjects_of
from lobench.core.result import Outcome
from lobench.hookspecs import CheckpointFinished, hookimpl
from lobench.report.methods import row_of
from lobench.report.table import sparkline
from lobench.report.verdict import interval_text

__all__ = ["CheckpointLines"]

_NUM_SPARKS = 12


class CheckpointLines:
    """An observer that says how good a checkpoint is, beside those that this watch finished before it.

    For example `outer step 60: score 0.71 [0.55, 0.87], 0.05 below the best so far (outer step 30)  ▁█▇  6 cases`.

    Args:
      suites: Where tuned baselines are looked for. A case without one has no scale that later checkpoints leave as it
        is: the line has no score then, which other pages would contradict.
      say: Takes a line.
    """

    def __init__(self, suites: Sequence[str], say: Callable[[str], None]) -> None:
        self._places, self._say = tuple(Path(suite) for suite in suites), say
        self._means: list[float] = []
        self._best, self._best_step = -math.inf, 0

    @hookimpl
    def lobench_checkpoint_finished(self, event: CheckpointFinished) -> None:
        subject = _subject(event)
        if subject is None:
            return
        scales = Scales.of([subject], self._places)
        parts = [f"outer step {event.checkpoint.outer_step}: " + self._score(event, subject, scales)]
        troubles = Counter(str(one.outcome) for one in event.evaluations if one.outcome is not Outcome.PASSED)
        diverged = [f"{subject.num_diverged} of {subject.num_seeds} seeds diverged"] * bool(subject.num_diverged)
        counts = [f"{len(subject.cells)} cases", *diverged, *(f"{n} {name}" for name, n in sorted(troubles.items()))]
        self._say("  ".join([*parts, ", ".join(counts)]))

    def _score(self, event: CheckpointFinished, subject: Subject, scales: Scales) -> str:
        found = mean_score(subject, None, scales)
        lacking = len(subject.cells) - len(scales.tuned)
        if lacking or math.isnan(found.interval.mean):
            return f"no score: {lacking} of {len(subject.cells)} cases lack a tuned baseline" if lacking else "no score"
        mean, before = found.interval.mean, self._best
        self._means.append(mean)
        where = "above" if mean > before else "below"
        change = f", {abs(mean - before):.3f} {where} the best so far (outer step {self._best_step})"
        change = change if self._means[1:] else ""
        if mean > before:
            self._best, self._best_step = mean, event.checkpoint.outer_step
        return f"score {interval_text(found.interval)}{change}  {sparkline(self._means[-_NUM_SPARKS:])}"


def _subject(event: CheckpointFinished) -> Subject | None:
    rows = [row_of(one, float(place)) for place, one in enumerate(event.evaluations)]
    return next(iter(subjects_of(rows)), None)

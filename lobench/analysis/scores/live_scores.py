"""Live scores of a store's subjects while evaluations arrive. They equal those of a report made at that moment."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.analysis.scores.mean_scores import MeanScore, mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.former_bindings import subjects_with_former_bindings
from lobench.analysis.store.former_code import without_former_code
from lobench.analysis.store.subjects import Cell, StoredSubject, subjects_of
from lobench.core.result import mean_of
from lobench.core.subject import Subject, is_of_any_run
from lobench.engine.store.current import CurrentCases
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.plans import Plans
from lobench.engine.store.series import CheckpointRun, run_of

__all__ = ["Fallback", "LiveScoredSubject", "StoreScores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Scores of a subject that lacks tuned baselines, on the scale that a report would use now.

    Attributes:
      score: Mean score. On cases without a baseline the best stored mean scores 1, so it changes with new results.
      final_means: Name, primary metric and mean over the seeds of each case. The mean is NaN if a seed diverged, and
        None if the case has no result.
      earlier_scores: Earlier subjects with the same cases and all planned seeds, and their mean scores on this scale.
        Subjects with former bindings are left out. Empty for such a subject.
    """

    score: MeanScore
    final_means: tuple[tuple[str, str, float | None], ...]
    earlier_scores: tuple[tuple[Subject, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveScoredSubject:
    """A subject with its mean score.

    Attributes:
      subject: The subject.
      score: Mean score. None if a case has no tuned baseline, because its scale would change with new results.
      num_untuned: Number of the subject's cases without a tuned baseline.
      baseline_label: Name of the baseline that scores 1; "" without a baseline.
      fallback: Substitute for the score, if it is None.
    """

    subject: StoredSubject
    score: MeanScore | None
    num_untuned: int
    baseline_label: str
    fallback: Fallback | None = None


class StoreScores:
    """Live scores of a store. Reads the store once, and later only the requested subjects.

    It reads and keeps summaries of the curves only.

    Args:
      ledger: Ledger of the store.
      suite_paths: Suites whose tuned baselines define the scales.
      is_of_run: Returns whether a subject is compared with those of the watched run. All subjects set the scales.
    Attributes:
      former_subjects: Subjects of the store with former bindings, as of the last call of `scores_of`.
    """

    def __init__(
        self,
        ledger: Ledger,
        suite_paths: Sequence[Path],
        is_of_run: Callable[[Subject], bool] = is_of_any_run,
    ) -> None:
        self._ledger, self._suite_paths = ledger, tuple(suite_paths)
        self._is_of_run = is_of_run
        self._current_cases: CurrentCases | None = None
        self._current_identities: frozenset[str] = frozenset()
        self._last_event = -1
        self._events: Sequence[tuple[str, Mapping[str, object]]] = ()  # up to the last plan
        self._subjects: dict[str, list[StoredSubject]] = {}  # by theta's hash
        self._rows_by_hash: dict[str, list[EvaluationRow]] = {}
        self.former_subjects = frozenset[Subject]()

    def scores_of(self, wanted_subjects: Collection[Subject]) -> list[LiveScoredSubject]:
        """Returns the present scores of subjects, in the order of their outer steps.

        Raises:
          StoreError: The store cannot be read.
          BaselineError: A baseline file cannot be read.
        """
        wanted_checkpoints = {(subject.key, subject.outer_step) for subject in wanted_subjects}
        subjects = self._read_subjects({subject.sha256 for subject in wanted_subjects})
        return self._score_subjects(
            [subject for subject in subjects if (subject.subject.key, subject.subject.outer_step) in wanted_checkpoints]
        )

    def all_scores(self) -> list[LiveScoredSubject]:
        """Returns the scores of all subjects read so far; [] before the first call of `of`."""
        return self._score_subjects(self._known_subjects())

    def _known_subjects(self) -> list[StoredSubject]:
        return [subject for subjects in self._subjects.values() for subject in subjects]

    def _score_subjects(self, subjects: Sequence[StoredSubject]) -> list[LiveScoredSubject]:
        all_subjects = sorted(self._known_subjects(), key=_generation_and_step)
        scales = Scales.of(
            all_subjects, self._suite_paths, all_subjects=without_former_code(all_subjects, self._events)
        )
        scored_subjects = [_score_subject(subject, scales) for subject in sorted(subjects, key=_generation_and_step)]
        if all(entry.score is not None for entry in scored_subjects):
            return scored_subjects
        # The best mean may have changed, and with it all scores.
        means = [
            (subject, mean_score(subject, None, scales).mean)
            for subject in all_subjects
            if self._is_of_run(subject.subject) and subject.subject not in self.former_subjects
        ]
        return [
            entry
            if entry.score is not None
            else _with_fallback(entry, scales, () if entry.subject.subject in self.former_subjects else means)
            for entry in scored_subjects
        ]

    def _read_subjects(self, hashes: Collection[str]) -> list[StoredSubject]:
        """Reads and returns subjects by checkpoint hash.

        Reads all of them on the first call, and after a case was changed.
        """
        is_first = not self._subjects
        plans = self._ledger if isinstance(self._ledger, Plans) else None
        last_event = plans.last_plan_event() if plans is not None else 0
        is_planned = last_event != self._last_event
        self._last_event = last_event
        if is_planned:
            self._events = plans.events() if plans is not None else ()
        rows = [row for sha256 in ([""] if is_first or is_planned else hashes) for row in self._rows(sha256)]
        if self._current_cases is None or is_planned:
            self._current_cases = plans.current_cases(rows) if plans is not None else CurrentCases.of_rows(rows)
        else:
            self._current_cases.add_rows(rows)
            if self._current_cases.identities != self._current_identities:
                rows = list(self._rows())
        self._current_identities = self._current_cases.identities
        if not is_first and self._is_restarted(rows):
            rows = list(self._rows())
        groups: dict[str, list[EvaluationRow]] = {}
        for row in rows:
            groups.setdefault(row.key.checkpoint_sha256, []).append(row)
        subjects_by_hash = {
            sha256: subjects_of(members, current=self._current_cases) for sha256, members in groups.items()
        }
        self._subjects |= subjects_by_hash
        self._rows_by_hash |= groups
        self.former_subjects = self._find_former_subjects(self._current_cases)
        return [member for members in subjects_by_hash.values() for member in members]

    def _find_former_subjects(self, current: CurrentCases) -> frozenset[Subject]:
        # Most runs have the same bindings throughout, and none of their rows has to be looked at.
        bindings_by_run: dict[CheckpointRun, set[frozenset[str]]] = {}
        for stored_subject in self._known_subjects():
            if stored_subject.subject.has_theta:
                run = run_of(stored_subject.subject)
                bindings_by_run.setdefault(run, set()).add(stored_subject.optimizer_hashes)
        hashes = {
            stored_subject.subject.sha256: None
            for stored_subject in self._known_subjects()
            if len(bindings_by_run.get(run_of(stored_subject.subject), ())) > 1
        }
        rows = itertools.chain.from_iterable(self._rows_by_hash[sha256] for sha256 in hashes)
        return frozenset(subjects_with_former_bindings(rows, current))

    def _rows(self, sha256: str = "") -> Iterator[EvaluationRow]:
        return self._ledger.evaluations(sha256, summarized=True)

    def _is_restarted(self, rows: Sequence[EvaluationRow]) -> bool:
        """Returns True if a known path now has another checkpoint, a sign that its run was restarted."""
        hashes_by_path = {
            stored_subject.subject.uri: stored_subject.subject.sha256
            for stored_subject in self._known_subjects()
            if stored_subject.subject.has_theta
        }
        return any(
            hashes_by_path.get(subject.uri, subject.sha256) != subject.sha256
            for row in rows
            for subject in row.present_sightings
        )


def _score_subject(subject: StoredSubject, scales: Scales) -> LiveScoredSubject:
    num_untuned = len(subject.cells.keys() - scales.baselines.baseline_by_case.keys())
    score = None if num_untuned else mean_score(subject, None, scales)
    return LiveScoredSubject(
        subject=subject, score=score, num_untuned=num_untuned, baseline_label=scales.baseline_label
    )


def _with_fallback(
    scored_subject: LiveScoredSubject, scales: Scales, means: Sequence[tuple[StoredSubject, float]]
) -> LiveScoredSubject:
    """Returns a subject without a score with its fallback. `means` are the mean scores of the run, in order."""
    subject = scored_subject.subject
    earlier_means = [
        (stored_subject.subject, mean)
        for stored_subject, mean in means
        if _generation_and_step(stored_subject) < _generation_and_step(subject)
        and stored_subject.cells.keys() == subject.cells.keys()
        and not stored_subject.num_missing
        and math.isfinite(mean)
    ]
    cells = sorted(subject.cells.values(), key=lambda cell: (cell.case.suite, cell.case.name))
    fallback = Fallback(
        score=mean_score(subject, None, scales),
        final_means=tuple((cell.case.name, cell.case.primary_metric, _final_mean(cell)) for cell in cells),
        earlier_scores=tuple(earlier_means),
    )
    return dataclasses.replace(scored_subject, fallback=fallback)


def _final_mean(cell: Cell) -> float | None:
    values = list(cell.finals(cell.case.primary_metric).values())
    return mean_of(values) if values else None


def _generation_and_step(subject: StoredSubject) -> tuple[int, int]:
    return subject.subject.generation, subject.subject.outer_step

"""History of a case: scores by revision and program, and the runs at which they changed."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from lobench.analysis.comparisons.run_history import find_stores
from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import DIVERGED_SCORE
from lobench.analysis.stats.change_point import ChangePointPosterior, Probe, fall_posterior
from lobench.analysis.stats.intervals import Interval, stratified_t_mean, without_equal_pairs
from lobench.analysis.store.names import match_name, subject_index_named
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.analysis.store.subjects import StoredSubject, last_subject
from lobench.api.resolve import snapshot_with_name
from lobench.core.case import canonical_case_name
from lobench.core.errors import UsageError, suggestion
from lobench.core.metric import stored_spelling, unknown_metric
from lobench.core.program import Program
from lobench.core.wording import shortened_list
from lobench.engine.store.ledger import EvaluationRow

__all__ = ["CaseHistory", "CaseRun", "HistoryRecord", "ScoreChange", "history_of"]

_MAX_NAMED_SUBJECTS = 8  # subjects named in an error


class RunRecord(TypedDict):
    """JSON form of a run: one program at one revision, with its mean score."""

    store: str
    at: float
    git_revision: str
    program: str
    subject: str
    score: Interval
    num_seeds: int


class ScoreChangeRecord(TypedDict):
    """Run at which the score changed."""

    run: int
    git_revision: str
    size: float
    standard_deviation: float
    probability: float
    probability_here: float
    is_new_program: bool


class HistoryRecord(TypedDict):
    """`lobench history`: a case over revisions, with the runs at which its score changed."""

    case: str
    metric: str
    scale: str
    seeds: list[int]
    runs: list[RunRecord]
    changes: list[ScoreChangeRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    """Results of one program at one revision, with one version of the user's code.

    Attributes:
      store: Folder of the store.
      at: Time of the first result, in seconds since 1970.
      git_revision: First digits of the revision, with "+" for uncommitted changes.
      program: The program.
      subject: Label of the subject.
      scores: Scores of the common seeds.
      score: Mean of the scores, with its interval.
    """

    store: Path
    at: float
    git_revision: str
    program: Program
    subject: str
    scores: tuple[float, ...]
    score: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """Run from which on the score, or the fraction of seeds that diverge, is different.

    Attributes:
      run_index: Index of the run, from 0.
      size: Increase of the score of converged seeds; negative for a fall.
      standard_deviation: Standard deviation of the size.
      probability: Probability that there is a change among the runs that were compared.
      probability_here: Probability that the change is at this run, given that there is a change.
      is_new_program: Whether the run's program differs from that of the previous run.
      lost: Number of diverged and exploded seeds, and of all seeds, before the run; the same two numbers from it on.
    """

    run_index: int
    size: float
    standard_deviation: float
    probability: float
    probability_here: float
    is_new_program: bool
    lost: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def is_rise(self) -> bool:
        """Whether the score rose or, if it is equal, fewer seeds diverge."""
        lost_before, num_before, lost_after, num_after = self.lost
        return self.size > 0 or (self.size == 0 and lost_after * num_before < lost_before * num_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseHistory:
    """History of a case over revisions.

    Attributes:
      replicate: Noun for a replicate of the case: "seed" or "item".
      other_code: Note on results of the last run that were computed by other code than the user's present code; "" if
        there are none.
    """

    case: str
    metric: str
    scale: str
    replicate: str
    seeds: tuple[int, ...]
    runs: tuple[CaseRun, ...]
    changes: tuple[ScoreChange, ...]
    other_code: str = ""

    @property
    def new_programs(self) -> list[int]:
        """Indices of runs whose program differs from that of the previous run."""
        pairs = enumerate(itertools.pairwise(self.runs), 1)
        return [index for index, (previous, current) in pairs if previous.program != current.program]


def history_of(
    stores: Sequence[Path], case: str, *, subject: str = "", metric: str = "", probability: float = 0.95
) -> CaseHistory:
    """Reads the runs of a case.

    Example:
        found = history_of([Path("nightly")], "relu32", subject="adam(); adam.learning_rate = 0.01")
        [found.runs[change.run_index].git_revision for change in found.changes]

    Args:
      stores: Stores, bundles, or folders with stores below them.
      case: Name of the case; one of `CaseInfo.names`.
      subject: Name of the subject, as in `lobench compare`. "": the only subject of each run, or its last checkpoint.
      metric: The metric. "": the case's primary one.
      probability: Probability of a change above which it is reported.
    Raises:
      StoreError: A folder contains no store.
      UsageError: The case, the subject or the metric is unknown, no seed is common to two runs, or `subject` is needed
        to choose one of several.
    """
    case_runs = list(_grouped_evaluations([store for folder in stores for store in find_stores(folder)], case))
    if not case_runs:
        raise UsageError(f"no evaluation of case {case!r} has curves", where=", ".join(map(str, stores)))
    newest_identity = _newest_identity(case_runs)
    snapshots = [
        Snapshot.of(store_snapshot.store, rows_of_case)
        for store_snapshot, rows in case_runs
        if (
            rows_of_case := [
                row for row in rows if row.case.identity == newest_identity and _has_bindings(store_snapshot, row)
            ]
        )
    ]
    if not subject:
        _refuse_several_subjects(snapshots, case)
    if metric:
        known_metrics = {name for snapshot in snapshots for subject in snapshot.subjects for name in subject.metrics()}
        metric = stored_spelling(metric, known_metrics)
        if metric not in known_metrics:
            raise unknown_metric(metric, known_metrics)
    chosen_subjects = [_named_subject(snapshot, subject) for snapshot in snapshots]
    scales = Scales.of([subject for snapshot in snapshots for subject in snapshot.subjects], None)
    scored_subjects: list[tuple[Snapshot, StoredSubject, Mapping[int, float]]] = []
    for snapshot, chosen_subject in zip(snapshots, chosen_subjects, strict=True):
        if chosen_subject is not None and (
            scores := scales.scores(chosen_subject.cells[snapshot.cases[0].identity], metric or None)
        ):
            scored_subjects.append((snapshot, chosen_subject, scores))
    if not scored_subjects:
        labels = sorted({subject.label for snapshot in snapshots for subject in snapshot.subjects})
        raise UsageError(
            "no results with a score",
            got=repr(subject or metric or case),
            expected=f"one of {', '.join(map(repr, labels))}",
        )
    seeds = sorted(set.intersection(*(set(scores) for *_, scores in scored_subjects)))
    if not seeds:
        raise UsageError("the runs have no seed in common", where=case)
    # Runs of one store are in the order of its ledger, whatever the clocks were; stores are in order of first result.
    runs_by_store: dict[Path, list[CaseRun]] = {}
    for snapshot, chosen_subject, scores_by_seed in scored_subjects:
        least_variance = scales.least_variance(chosen_subject.cells[snapshot.cases[0].identity], metric or None)
        run = _case_run(snapshot, chosen_subject, [scores_by_seed[seed] for seed in seeds], least_variance)
        runs_by_store.setdefault(snapshot.store, []).append(run)
    runs_of_stores = sorted(runs_by_store.values(), key=lambda runs_of_store: min(run.at for run in runs_of_store))
    runs = list(itertools.chain.from_iterable(runs_of_stores))
    case_info = scored_subjects[-1][0].cases[0]
    return CaseHistory(
        case=f"{case_info.suite}/{case_info.name}",
        metric=metric or case_info.primary_metric,
        scale=scales.short_description(),
        replicate=case_info.replicate_noun,
        seeds=tuple(seeds),
        runs=tuple(runs),
        changes=tuple(sorted(_find_changes(runs, 0, len(runs), probability), key=lambda change: change.run_index)),
        other_code=scored_subjects[-1][0].edited_code_line(),
    )


def _newest_identity(case_runs: Sequence[tuple[Snapshot, Sequence[EvaluationRow]]]) -> str:
    """Returns the case's current identity in the store that has the most recent result."""
    latest_snapshot = max(
        (snapshot for snapshot, _ in case_runs), key=lambda snapshot: max(row.recorded_at for row in snapshot.rows)
    )
    rows = [row for snapshot, rows_of_run in case_runs if snapshot is latest_snapshot for row in rows_of_run]
    current_rows = [row for row in rows if latest_snapshot.current.is_current(row)]
    return max(current_rows or rows, key=latest_snapshot.current.plan_order).case.identity


def _has_bindings(snapshot: Snapshot, row: EvaluationRow) -> bool:
    return any(snapshot.current.has_bindings(row, sighting) for sighting in row.sightings)


def _grouped_evaluations(stores: Sequence[Path], case: str) -> Iterator[tuple[Snapshot, list[EvaluationRow]]]:
    """Yields each store with its evaluations, grouped by program, revision and code.

    Evaluations without curves are left out.
    """
    names: set[str] = set()
    for store in stores:
        groups: dict[tuple[str, Program, int], list[EvaluationRow]] = {}
        codes: dict[str, list[str]] = {}
        snapshot = read_store(store, all_codes=True, summarized=True)
        for row in snapshot.rows:
            names.update(row.case.names)
            if (curves := row.curves_or_summary) is not None and row.case.has_name(case):
                codes_of_case = codes.setdefault(row.case.key, [])
                if row.code not in codes_of_case:
                    codes_of_case.append(row.code)
                key = (curves.origin.revision_text, row.program, codes_of_case.index(row.code))
                groups.setdefault(key, []).append(row)
        yield from ((snapshot, rows) for rows in groups.values())
    if case not in names and canonical_case_name(case) not in names:
        raise UsageError(f"no case is called {case!r}", next_step=suggestion(case, names))


def _refuse_several_subjects(snapshots: Sequence[Snapshot], case: str) -> None:
    """Raises UsageError if the runs have several subjects, because one history would mix them.

    Checkpoints of one meta-training count as one subject: the last one.
    """
    optimizers = set[object]()
    labels = dict[str, None]()
    is_ambiguous = False
    for snapshot in snapshots:
        last_subjects: dict[object, StoredSubject] = {}
        for subject in snapshot.subjects:
            sighting = subject.subject
            key = (
                (sighting.run or str(Path(sighting.uri).parent), sighting.variant.key)
                if sighting.has_theta
                else sighting.key
            )
            last_subjects[key] = subject
        optimizers.update(
            key if not subject.subject.has_theta else "checkpoints" for key, subject in last_subjects.items()
        )
        labels.update(dict.fromkeys(subject.label for subject in last_subjects.values()))
        is_ambiguous |= len(last_subjects) > 1
    if is_ambiguous or len(optimizers) > 1:
        raise UsageError(
            "several subjects, and each has a history of its own",
            where=case,
            got=shortened_list(sorted(map(repr, labels)), _MAX_NAMED_SUBJECTS),
            next_step=f"--subject {shlex.quote(min(labels))} shows one of them",
        )


def _named_subject(snapshot: Snapshot, name: str) -> StoredSubject | None:
    """Returns the subject of a run that `lobench compare` finds by the same name; None if the run has none.

    Raises:
      UsageError: The run has several subjects of this name.
    """
    if not name:
        return last_subject(snapshot.subjects)
    named_snapshot = snapshot_with_name(snapshot.store, name)
    if not match_name(named_snapshot, name).indices:
        return None
    key = named_snapshot.subjects[subject_index_named(named_snapshot, name)].subject.key
    return next((subject for subject in snapshot.subjects if subject.subject.key == key), None)


def _case_run(snapshot: Snapshot, subject: StoredSubject, scores: Sequence[float], least_variance: float) -> CaseRun:
    row = snapshot.rows[0]
    curves = row.curves_or_summary
    assert curves is not None, "`_grouped_evaluations` leaves out evaluations without curves"
    return CaseRun(
        store=snapshot.store,
        at=min(row.recorded_at for row in snapshot.rows),
        git_revision=curves.origin.revision_text,
        program=row.program,
        subject=subject.label,
        scores=tuple(scores),
        score=without_equal_pairs(stratified_t_mean([scores], least=[least_variance]), len(scores)),
    )


def _find_changes(runs: Sequence[CaseRun], start: int, stop: int, level: float) -> Iterator[ScoreChange]:
    """Yields the changes among some runs: the most probable one first, then the changes before and after it."""
    change = _surest_change(runs[start:stop], level)
    if change is None:
        return
    posterior, sign = change
    index = start + posterior.break_index
    yield ScoreChange(
        run_index=index,
        size=-sign * max(posterior.fall_size, 0.0),
        standard_deviation=posterior.fall_size_error,
        probability=posterior.fall_probability,
        probability_here=posterior.probability_by_index[posterior.break_index],
        is_new_program=runs[index - 1].program != runs[index].program,
        lost=posterior.lost_counts,
    )
    yield from _find_changes(runs, start, index, level)
    yield from _find_changes(runs, index, stop, level)


def _surest_change(runs: Sequence[CaseRun], level: float) -> tuple[ChangePointPosterior, float] | None:
    """Returns the most probable fall (sign 1) or rise (sign -1); None if its probability is below the level.

    Scores of diverged or exploded seeds are treated separately, because their -1 would hide changes of other seeds in a
    mean.
    """
    values = np.asarray([run.scores for run in runs])
    if len(runs) < 2 or not np.isfinite(values).all() or (values == values[0]).all():
        return None
    is_clipped = not (values < DIVERGED_SCORE).any()  # scores of items are not
    split_values = np.where(values <= DIVERGED_SCORE, -math.inf, values) if is_clipped else values
    candidates = []
    for sign in (1.0, -1.0):
        rows = (sign * split_values).tolist()
        posterior = fall_posterior(
            [Probe(checkpoint_index=index, block=0, scores=tuple(row)) for index, row in enumerate(rows)], len(runs)
        )
        candidates.append((posterior.fall_probability, sign, posterior))
    _, sign, posterior = max(candidates, key=lambda candidate: candidate[0])
    is_sure = posterior.fall_probability >= level and 0 < posterior.break_index < len(runs)
    return (posterior, sign) if is_sure else None

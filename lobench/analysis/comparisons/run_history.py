"""Run history by date: evaluations, git revision and progress of each run and experiment."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.scores.mean_scores import mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import SCORE_VERSION
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.methods import snapshot_of_members, with_race
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.analysis.store.subjects import headline_metrics
from lobench.core.errors import StoreError, UsageError
from lobench.core.json_numbers import Finite
from lobench.core.wording import is_level
from lobench.engine.store.bundle import has_ledger
from lobench.engine.store.experiments import ExperimentRow
from lobench.engine.store.ledger import EvaluationRow, Ledger

__all__ = ["ExperimentSummary", "RunSummary", "experiment_history", "find_stores", "patch_of", "run_history"]

_ADVICE = "`lobench baseline SUITE` makes one"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """Evaluations of one store: of a run or of an experiment.

    Attributes:
      store: Folder of the store.
      first, last: Times of the first and the last evaluation, or call of the experiment, in seconds since 1970.
      git_revision: Revision of the checkout, with `+` if that had changes. Empty outside of a checkout.
      num_evaluations: Number of evaluations.
      scale: Description of 0 and 1 on a scale that is common to all entries of the list.
      score_version: Version of the definition of scores.
    """

    store: Path
    first: Finite
    last: Finite
    git_revision: str
    num_evaluations: int
    scale: str
    score_version: int = SCORE_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary(HistoryEntry):
    """Evaluations of one store at one git revision.

    Attributes:
      kind: Always "run".
      num_checkpoints: Number of checkpoints and optimizers.
      last_checkpoint: Label of the last checkpoint among those with the most cases.
      scores: Mean score of the last checkpoint over its cases, by metric.
      num_diverged, num_exploded, num_seeds: Numbers of seeds of the last checkpoint.
      num_unscored: Number of cases of the last checkpoint without a scale. They are excluded from the means.
      programs: Programs that made the last checkpoint's results.
    """

    kind: Literal["run"] = "run"
    num_checkpoints: int
    last_checkpoint: str
    scores: dict[str, Interval]
    num_diverged: int
    num_exploded: int
    num_seeds: int
    num_unscored: int
    programs: tuple[str, ...] = ()


def find_stores(folder: Path) -> list[Path]:
    """Returns the store in a folder, or all stores below it, without the internal stores of stores.

    Raises:
      StoreError: The folder contains no store.
    """
    if has_ledger(folder):
        return [folder]
    stores = sorted(path.parent for path in folder.rglob("ledger.sqlite"))
    if not stores:
        raise StoreError("no result store found", where=str(folder), next_step="is the path right?")
    return [store for store in stores if not set(store.parents) & set(stores)]


def run_history(stores: Iterable[Path]) -> list[RunSummary]:
    """Returns the runs of stores, the latest last."""
    runs: list[tuple[str, Snapshot]] = []
    for store in stores:
        store_snapshot = read_store(store, all_codes=True, summarized=True)
        groups: dict[tuple[str, int], list[EvaluationRow]] = {}
        codes: dict[str, list[str]] = {}
        revision = ""
        for row in store_snapshot.rows:
            # Evaluations without curves have no provenance, and count as made at the previous one's revision.
            curves = row.curves_or_summary
            revision = curves.origin.revision_text if curves is not None else revision
            codes_of_case = codes.setdefault(row.case.key, [])
            if row.code not in codes_of_case:
                codes_of_case.append(row.code)
            # Code can differ in a revision.
            groups.setdefault((revision, codes_of_case.index(row.code)), []).append(row)
        if len(groups) == 1:
            runs.append((revision, store_snapshot))
        else:
            positions = {subject.subject: index for index, subject in enumerate(store_snapshot.subjects)}
            for (name, _), rows in groups.items():
                # If all cases of a run were changed since, the run keeps its own forms.
                current = store_snapshot.current if any(map(store_snapshot.current.is_current, rows)) else None
                runs.append((name, Snapshot.of(store, rows, positions=positions, current=current)))
    scales = Scales.of([subject for _, snapshot in runs for subject in snapshot.subjects], None)
    summaries = [_run_summary(revision, snapshot, scales) for revision, snapshot in runs]
    # Runs of one store are in the order of its ledger, whatever the clocks; stores are ordered by their last result.
    last_times = {
        store: max(run.last for run in summaries if run.store == store) for store in {run.store for run in summaries}
    }
    last_row_ids = {
        id(run): max(row.id for row in snapshot.rows) for run, (_, snapshot) in zip(summaries, runs, strict=True)
    }
    return sorted(summaries, key=lambda run: (last_times[run.store], str(run.store), last_row_ids[id(run)]))


def _run_summary(revision: str, snapshot: Snapshot, scales: Scales) -> RunSummary:
    last_subject = snapshot.subjects[snapshot.headline_index]
    metrics = [metric for _, metric in headline_metrics([last_subject])]
    unscored_cells = [
        cell
        for cell in last_subject.cells.values()
        if cell.curves_by_seed
        and not all(scales.scale(cell.case, metric or cell.case.primary_metric).is_usable for metric in metrics)
    ]
    cases = [case.identity for case in snapshot.cases]
    scores_by_metric = {
        label: mean_score(last_subject, metric, scales, cases) for label, metric in headline_metrics(snapshot.subjects)
    }
    return RunSummary(
        store=snapshot.store,
        first=min(row.recorded_at for row in snapshot.rows),
        last=max(row.recorded_at for row in snapshot.rows),
        git_revision=revision,
        num_checkpoints=len({row.key.checkpoint_sha256 for row in snapshot.rows}),
        num_evaluations=len(snapshot.rows),
        last_checkpoint=last_subject.label,
        scores={label: score.interval for label, score in scores_by_metric.items() if score.num_cases},
        scale=scales.describe(_ADVICE),
        num_diverged=last_subject.num_diverged,
        num_exploded=last_subject.num_exploded,
        num_seeds=last_subject.num_seeds,
        num_unscored=len(unscored_cells),
        programs=tuple(sorted(map(str, last_subject.programs))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSummary(HistoryEntry):
    """One version of an experiment: a configuration at a revision.

    Attributes:
      kind: Always "experiment".
      id: Number of the version in its store, as used by `--patch`.
      name: Name of the experiment.
      patch_bytes: Size of the patch from the revision to its dirty tree; 0 without a patch.
      note: Line on the contents that the patch lacks.
      methods: Methods with evaluations, in the order of its file.
      best: Method with the highest mean score over the cases that all its methods have. "" if no method has a score.
      level_with: Other methods whose mean score is level with it.
      score: Score of the best method.
      over: Cases that the mean is over, and the methods that lack other cases; "" if all methods have all cases.
      metric: Name of the metric.
    """

    kind: Literal["experiment"] = "experiment"
    id: int
    name: str
    patch_bytes: int
    note: str
    methods: tuple[str, ...]
    best: str
    level_with: tuple[str, ...]
    score: Interval | None
    over: str
    metric: str


def experiment_history(stores: Iterable[Path]) -> list[ExperimentSummary]:
    """Returns every version of every experiment of stores, in the order of their last runs."""
    experiment_runs: list[tuple[ExperimentRow, Snapshot]] = []
    for store in stores:
        with Ledger.open(store, read_only=True) as ledger:
            experiment_rows = [row for row in ledger.experiments() if row.config]
            if not experiment_rows:
                continue
            store_snapshot = read_store(store, all_codes=True, summarized=True)
            for row in experiment_rows:
                form_snapshot = snapshot_of_members(
                    store_snapshot, row.config, ledger.memberships(row.id), ledger.trials(row.id)
                )
                experiment_runs.append((row, with_race(form_snapshot, row.config, ledger)))
    subjects = [subject for _, snapshot in experiment_runs for subject in snapshot.subjects]
    scales = Scales.of(
        subjects,
        None,
        all_subjects=[subject for _, snapshot in experiment_runs for subject in snapshot.scale_subjects_of_all_codes],
    )
    return sorted(
        (_experiment_summary(row, snapshot, scales) for row, snapshot in experiment_runs),
        key=lambda summary: (summary.last, summary.id),
    )


def _experiment_summary(experiment: ExperimentRow, snapshot: Snapshot, scales: Scales) -> ExperimentSummary:
    summary = Summary(snapshot, scales)
    label, metric = headline_metrics(snapshot.subjects)[0] if snapshot.subjects else ("", None)
    scores = [summary.mean_score(index, metric or "primary") for index in range(len(snapshot.subjects))]
    means = [score.interval for score in scores]
    out_at = summary.race.out_at if summary.race is not None else [None] * len(means)
    # The best method must still be in the race, have a seed that neither diverged nor exploded, and have all planned
    # seeds, because missing seeds may be bad ones.
    candidates = [
        index
        for index, score in enumerate(scores)
        if not math.isnan(score.mean)
        and score.has_surviving_seed
        and out_at[index] is None
        and not snapshot.subjects[index].num_missing
    ]
    best_index = max(candidates, key=lambda index: means[index].mean, default=None)
    revision = experiment.revision
    score = means[best_index] if best_index is not None else None
    return ExperimentSummary(
        store=snapshot.store,
        id=experiment.id,
        name=experiment.name,
        first=experiment.created_at,
        last=experiment.last_at,
        git_revision=revision.commit[:12] + "+" * revision.is_dirty,
        patch_bytes=len(revision.patch or b""),
        note=revision.note,
        methods=snapshot.labels,
        num_evaluations=len(snapshot.rows),
        best=snapshot.labels[best_index] if best_index is not None else "",
        level_with=tuple(
            snapshot.labels[index]
            for index in candidates
            if best_index is not None and index != best_index and is_level(means[index].mean, means[best_index].mean)
        ),
        score=score,
        over=summary.common_cases_text(metric or "primary") if best_index is not None else "",
        metric=label,
        scale=scales.describe(_ADVICE),
    )


def patch_of(store: Path, experiment: int) -> bytes:
    """Returns the patch from an experiment's revision to its dirty tree, for `git apply` in a checkout of the revision.

    Raises:
      StoreError: The folder contains no store.
      UsageError: The store lacks the experiment, or its patch. The message gives the reason.
    """
    if not has_ledger(store):
        raise StoreError("--patch needs one store", where=str(store), next_step="name that with --store")
    with Ledger.open(store, read_only=True) as ledger:
        revisions = {row.id: row.revision for row in ledger.experiments() if row.config}
    if experiment not in revisions:
        known_ids = ", ".join(map(str, sorted(revisions))) or "no experiment here"
        raise UsageError("no such experiment", where=str(store), got=str(experiment), expected=known_ids)
    revision = revisions[experiment]
    if revision.patch is None:
        why = (
            revision.note
            if revision.is_dirty
            else "its checkout was clean"
            if revision.commit
            else "it had no checkout"
        )
        raise UsageError("the experiment has no patch", where=str(store), got=why)
    return revision.patch

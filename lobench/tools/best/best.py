"""`lobench.best`: ranks the checkpoints of a store, and evaluates the top ones, then the winner, on fresh seeds.

Scores are biased upward on the seeds that were used for a choice. So the run's seeds choose the top, fresh seeds choose
the best of the top, and further seeds, which choose nothing, give the score to report.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from lobench.analysis.scores.mean_scores import RankedSubject, rank_subjects
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.former_bindings import (
    former_bindings_line,
    subjects_with_former_bindings,
    subjects_without_present_results,
)
from lobench.analysis.store.former_code import without_former_code
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.analysis.store.subjects import (
    Cell,
    StoredSubject,
    subjects_of,
)
from lobench.api.fresh_seeds import names_on_fresh_seeds, note_on_fixed_seeds
from lobench.api.resolve import RunFolder
from lobench.api.rounds import MetricCheck, RoundProgress
from lobench.api.settings import EvaluationKeywords
from lobench.api.watched_run import WatchedRun
from lobench.core.errors import LobenchError, StoreError, UsageError
from lobench.core.metric import UnknownDirection, stored_spelling, unknown_metric
from lobench.core.settings_field import check_keywords
from lobench.core.subject import Subject
from lobench.core.wording import cause, counted
from lobench.engine.checkpoints.kept import readable_location
from lobench.engine.checkpoints.spool import holds_theta
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.store.ledger import EvaluationRow
from lobench.engine.store.series import has_step_in_name
from lobench.engine.whole_file import require_writable, write_whole
from lobench.report.live.notebook_progress import default_progress
from lobench.report.tables.text import subject_name
from lobench.tools.best.choice import Best, BestRecord, Candidate

__all__ = ["best", "rank_checkpoints"]


def best(
    location: str | Path,
    suites: str | Path | Sequence[str | Path],
    *,
    metric: str = "",
    top: int = 3,
    seeds: int | None = None,
    name: str = "",
    store: str | Path | None = None,
    progress: WatchProgress | None = None,
    **options: Unpack[EvaluationKeywords],
) -> Best:
    """Finds the best checkpoint of a watched run, and its score on seeds that were not used to choose it.

    Example:
        found = lobench.best("runs/today", "quick", top=5)
        found.uri  # path of the checkpoint

    Args:
      location: The run's folder. With `store`, a session of an experiment's command, by scope or label, such as
        `mine-0`.
      suites: Suites of the watch.
      metric: Metric to rank by. "": each case's primary metric.
      top: Number of checkpoints to evaluate again.
      seeds: Number of fresh seeds per case, and of further seeds. None: the case's own number.
      name: Name of the watch. "": the name of the first suite.
      store: Store of the watch. None: the default store of `lobench.watch`.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of an evaluation, such as `workers`, and the `gin_files` and `gin_params` of the watch.
    Returns:
      The best checkpoint. Its record is added to `best.json` in the store.
    Raises:
      UsageError: No subject has the metric, the store has no checkpoint to choose from or is read-only, or no case has
        fresh seeds.
      UnknownDirection: The metric's direction is not declared.
      StoreError: The folder is not a store, or its `best.json` is damaged.
      LobenchError: No candidate could be evaluated again.
      KeyboardInterrupt: Ctrl-C was pressed.

    >>> best = lobench.best("run", "quadratic.gin", top=1, executor="inline")
    >>> Path(best.uri).name
    'theta_1.npz'
    """
    check_keywords("best", options, EvaluationKeywords)
    watched_run = WatchedRun.find(location, suites, store=store, name=name)
    reporter = progress or default_progress()
    watched_run.require_store(reporter.log)
    run = watched_run.run
    suite_paths = watched_run.suites
    store = watched_run.store
    cases: tuple[str, ...] = ()  # all
    evaluator = watched_run.evaluator("best", RoundProgress(reporter), options)

    def evaluate(folder: Path, first_seed: int, subjects: Sequence[Subject]) -> None:
        names = ", ".join(map(subject_name, subjects))
        reporter.log(f"evaluating {names} on seeds from {first_seed} on")
        num_seeds_bindings = [] if seeds is None else [f"Case.num_seeds = {seeds}"]
        given_subjects = [run.request_for(subject) for subject in subjects]
        replace(evaluator, store=folder).evaluate(
            given_subjects, [f"Case.first_seed = {first_seed}", *num_seeds_bindings], cases=cases
        )

    def evaluate_again(reason: str, hint: str) -> Snapshot:
        """Evaluates the checkpoints whose theta can be read on the seeds of the watch, and returns their results."""
        # A checkpoint that was evaluated with several former bindings is several subjects.
        thetas = dict.fromkeys(
            replace(subject.subject, variant=former_subjects.get(subject.subject, subject.subject).variant)
            for subject in snapshot.subjects
            if subject.subject.has_theta and run.contains(subject.subject.uri)
        )
        readable_subjects = [
            readable_subject
            for theta in thetas
            if (readable_subject := _readable_subject(theta, run, store, snapshot.subjects))
        ]
        reporter.log(f"{reason}; evaluating {counted(len(readable_subjects), 'checkpoint')} again{hint}")
        if not readable_subjects:
            return snapshot
        repeated_store = store / "best" / "again"
        check = MetricCheck(evaluator.progress, [metric])
        replace(evaluator, store=repeated_store, progress=check).evaluate(
            [run.request_for(readable_theta) for readable_theta in readable_subjects]
        )
        return read_store(repeated_store)

    _earlier_records(store / "best.json")  # raises before hours of work instead of after
    require_writable(store / "best.json")
    snapshot = read_store(store)
    first_seed = _first_unused_seed(snapshot.rows)
    if note := note_on_fixed_seeds(snapshot.cases):
        if not (cases := names_on_fresh_seeds(snapshot.cases)):
            results_command = f"`{shlex.join(['lobench', 'results', '--store', str(store)])}` ranks without them"
            raise UsageError(note, where=str(store), next_step=results_command)
        reporter.log(note)
    reason = "" if options.get("keep_results") else snapshot.edited_code_line()
    hint = " (--keep-results uses the results)" if reason else ""
    former_subjects = subjects_with_former_bindings(snapshot.rows, snapshot.current)
    unlike_subjects = subjects_without_present_results(
        former_subjects, (subject.subject for subject in snapshot.subjects)
    )
    replaced_subjects = former_subjects.keys() - unlike_subjects
    snapshot = snapshot.part_with(lambda subject: subject not in replaced_subjects)
    reason = reason or former_bindings_line([subject for subject in unlike_subjects if run.contains(subject.uri)])
    while True:
        if reason:
            snapshot = evaluate_again(reason, hint)
        ranked_metric, scales, all_ranked = rank_checkpoints(snapshot, suite_paths, metric)
        ranked = [ranked_subject for ranked_subject in all_ranked if run.contains(ranked_subject.subject.subject.uri)]
        top_ranked, gone_uris = _readable_checkpoints(ranked, top, run, store, snapshot.subjects)
        if not top_ranked:
            raise _no_checkpoint_error(store, suite_paths, ranked, gone_uris)
        candidates = _candidates(
            top_ranked, _rank_on_fresh_seeds(evaluate, store / "best", first_seed, top_ranked, ranked_metric, scales)
        )
        if not candidates:
            uris = ", ".join(ranked_candidate.subject.checkpoint.uri for ranked_candidate in top_ranked)
            results_command = shlex.join(["lobench", "results", "--store", str(store / "best")])
            raise LobenchError(
                "no candidate could be evaluated again",
                got=uris,
                next_step=f"see the lines above, and `{results_command}`",
            )
        # `config.gin` was edited after the watch, or this call lacks a --gin-param of the watch.
        unlike_candidates = [
            candidate.chosen.subject.subject
            for candidate in candidates
            if _has_other_bindings(candidate.fresh.subject.cells, candidate.chosen.subject.cells)
        ]
        if reason or not unlike_candidates:
            break
        reason = former_bindings_line(unlike_candidates)
    further_seed = _first_unused_seed(read_store(store / "best").rows)
    sha256 = candidates[0].chosen.subject.checkpoint.sha256
    winners = [ranked_subject for ranked_subject in top_ranked if ranked_subject.subject.checkpoint.sha256 == sha256]
    winner_results = _rank_on_fresh_seeds(
        evaluate, store / "best" / "winner", further_seed, winners, ranked_metric, scales
    )
    best_checkpoint = Best(
        metric=ranked_metric,
        candidates=candidates,
        report=next(
            (further_ranked for further_ranked in winner_results if further_ranked.subject.checkpoint.sha256 == sha256),
            None,
        ),
        scale=scales.describe(),
        first_fresh_seed=first_seed,
        first_further_seed=further_seed,
        suites=suite_paths,
        gone=tuple(gone_uris),
        at=time.time(),
    )
    _append_record(store / "best.json", best_checkpoint.to_record())
    return best_checkpoint


def rank_checkpoints(
    snapshot: Snapshot, suites: Sequence[str], metric: str
) -> tuple[str | None, Scales, list[RankedSubject]]:
    """Returns the metric (None: each case's primary one), the scales, and the checkpoints of a store, the best first.

    Raises:
      UsageError: No subject has the metric.
      UnknownDirection: The metric's direction is not declared.
    """
    subjects = [subject for subject in snapshot.subjects if subject.subject.has_theta]
    ranked_metric = _stored_metric(metric, subjects, snapshot.store)
    scales = Scales.of(
        snapshot.subjects,
        [Path(suite) for suite in suites],
        all_subjects=without_former_code(snapshot.subjects, snapshot.events),
    )
    for name in scales.metrics_without_direction(ranked_metric):
        raise UnknownDirection(name, where=str(snapshot.store))
    return ranked_metric, scales, rank_subjects(subjects, ranked_metric, scales)


def _first_unused_seed(rows: Sequence[EvaluationRow]) -> int:
    return max((row.key.seed_block.start + row.key.seed_block.size for row in rows), default=0)


def _stored_metric(metric: str, subjects: Sequence[StoredSubject], store: Path) -> str | None:
    recorded_metrics = set().union(*(subject.metrics() for subject in subjects))
    metric = stored_spelling(metric, recorded_metrics)
    if metric and metric not in recorded_metrics:
        raise unknown_metric(metric, recorded_metrics, where=str(store))
    return metric or None


def _no_checkpoint_error(
    store: Path, suites: Sequence[str], ranked_subjects: Sequence[RankedSubject], gone_uris: Sequence[str]
) -> UsageError:
    if any(not math.isnan(ranked_subject.score.mean) for ranked_subject in ranked_subjects) and not gone_uris:
        return UsageError(
            "every seed of every checkpoint diverged or exploded, and none of them is the best",
            where=str(store),
            got=counted(len(ranked_subjects), "checkpoint"),
            next_step="`lobench debug` shows where a training goes wrong",
        )
    if ranked_subjects and not gone_uris:
        return UsageError(
            "no checkpoint has a score: where none ends better than it began, only a tuned baseline gives a scale",
            where=str(store),
            got=counted(len(ranked_subjects), "checkpoint"),
            next_step=f"`{shlex.join(['lobench', 'baseline', *suites])}` makes one",
        )
    next_step = "they are gone from their places, or overwritten" if gone_uris else "watch the run first"
    return UsageError(
        "no checkpoint to choose from", where=str(store), got=", ".join(gone_uris) or "none", next_step=next_step
    )


def _readable_checkpoints(
    ranked_subjects: Sequence[RankedSubject],
    max_checkpoints: int,
    run: RunFolder,
    store: Path,
    stored_subjects: Sequence[StoredSubject],
) -> tuple[list[RankedSubject], list[str]]:
    """Returns the best checkpoints with a readable theta, and the paths of better ones that cannot be read.

    Trainers delete older checkpoints, and a restarted trainer overwrites them with other thetas. The same theta may
    still exist at another path: `latest.npz` may equal `theta_100.npz`.

    Args:
      ranked_subjects: Checkpoints of the run, the best first.
      max_checkpoints: Number of checkpoints to return.
      run: The run.
      store: Store of the watch.
      stored_subjects: Subjects of the store. A theta that was seen at several paths is several subjects.
    """
    top_ranked: list[RankedSubject] = []
    gone_uris = []
    for ranked_subject in ranked_subjects:
        if len(top_ranked) == max_checkpoints or math.isnan(ranked_subject.ranking_value):
            break
        readable_subject = _readable_subject(ranked_subject.subject.subject, run, store, stored_subjects)
        if readable_subject is None:
            gone_uris.append(ranked_subject.subject.subject.uri)
        else:
            top_ranked.append(
                replace(ranked_subject, subject=replace(ranked_subject.subject, subject=readable_subject))
            )
    return top_ranked, gone_uris


def _readable_subject(
    subject: Subject, run: RunFolder, store: Path, stored_subjects: Sequence[StoredSubject]
) -> Subject | None:
    """Returns a checkpoint with a path at which its theta can be read; None if there is none.

    Args:
      subject: Checkpoint of the run.
      run, store, stored_subjects: As in `_readable_checkpoints`.
    """
    sha256 = subject.sha256
    sightings = (
        stored_subject.subject
        for stored_subject in stored_subjects
        if stored_subject.subject.has_theta
        and stored_subject.subject.sha256 == sha256
        and run.contains(stored_subject.subject.uri)
    )
    located_subjects = [replace(sighting, uri=run.path_of(sighting.uri)) for sighting in sightings]
    located_subjects.sort(key=lambda sighting: not has_step_in_name(sighting.uri))  # stable
    readable_subject = next(
        (candidate for candidate in located_subjects if holds_theta(candidate.uri, sha256) is not False), None
    )
    if readable_subject is None:  # perhaps the store has a copy
        readable_paths = (
            (candidate, readable_location(store, candidate.uri, sha256)) for candidate in located_subjects
        )
        readable_subject = next(
            (replace(candidate, uri=path) for candidate, path in readable_paths if path is not None), None
        )
    # Another run may have this theta and other bindings.
    return None if readable_subject is None else replace(readable_subject, variant=subject.variant)


def _rank_on_fresh_seeds(
    evaluate: Callable[[Path, int, Sequence[Subject]], None],
    store: Path,
    first_seed: int,
    top_ranked: Sequence[RankedSubject],
    metric: str | None,
    scales: Scales,
) -> list[RankedSubject]:
    """Evaluates checkpoints on seeds from `first_seed` on, into a store below the watch's, which may be in use.

    Returns:
      Checkpoints of that store by score on these seeds, the best first. Some may be left over from earlier calls.
    """
    evaluate(store, first_seed, [ranked_subject.subject.subject for ranked_subject in top_ranked])
    snapshot = read_store(store)
    fresh_rows = [row for row in snapshot.rows if row.key.seed_block.start >= first_seed]
    return rank_subjects(subjects_of(fresh_rows, current=snapshot.current), metric, scales)


def _candidates(top_ranked: Sequence[RankedSubject], fresh_results: Sequence[RankedSubject]) -> tuple[Candidate, ...]:
    """Returns the chosen checkpoints with their fresh scores, the best first.

    Leftovers of earlier calls are ignored.
    """
    chosen_by_hash = {ranked_subject.subject.checkpoint.sha256: ranked_subject for ranked_subject in top_ranked}
    pairs = [
        (chosen_by_hash.get(ranked_subject.subject.checkpoint.sha256), ranked_subject)
        for ranked_subject in fresh_results
    ]
    return tuple(
        Candidate(chosen=chosen_subject, fresh=ranked_subject)
        for chosen_subject, ranked_subject in pairs
        if chosen_subject is not None
    )


def _has_other_bindings(cells: Mapping[str, Cell], other_cells: Mapping[str, Cell]) -> bool:
    """Returns whether the bindings of the optimizer differ on a case of both sides."""
    return any(
        cells[identity].case.optimizer_hash != other_cells[identity].case.optimizer_hash
        for identity in cells.keys() & other_cells.keys()
    )


def _earlier_records(path: Path) -> list[Any]:
    """Returns the records of earlier calls.

    Raises:
      StoreError: The file is damaged.
    """
    try:
        records = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    except (OSError, ValueError) as error:
        records = error
    if not isinstance(records, list):
        raise StoreError(
            "what earlier calls found cannot be read",
            where=str(path),
            got=cause(records) if isinstance(records, Exception) else str(records),
            expected="a JSON list",
            next_step="move it away",
        )
    return records


def _append_record(path: Path, record: BestRecord) -> None:
    """Appends a record to the file, atomically."""
    write_whole(path, json.dumps([*_earlier_records(path), record], indent=1) + "\n")

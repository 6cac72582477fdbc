"""Evidence along a watched run: results of its checkpoints in its store and in the store of confirmations."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lobench.analysis.comparisons.paired_values import paired_values
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.store.former_bindings import (
    former_bindings_line,
    subjects_with_former_bindings,
    subjects_without_present_results,
)
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import (
    Cell,
    StoredSubject,
    subject_of,
)
from lobench.api.resolve import RunFolder, is_store
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.errors import UsageError
from lobench.core.subject import Subject
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.store.edited_code import edited_code, edited_code_line
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.tools.alarm.rule import KINDS, AlarmKind, Confirmation

__all__ = ["StoredRun", "confirmation_block", "read_run"]

# Fresh seeds are larger than all seeds that a watch, a search or another tool of the run evaluates.
# Each confirmation has a range of 1,000 seeds and uses the first ones, so that ranges never overlap.
_FIRST_CONFIRMATION_SEED = 2 * FIRST_REPORT_SEED
_SEEDS_OF_A_KIND = 10_000_000
_SEEDS_OF_A_CONFIRMATION = 1000


def confirmation_block(kind: AlarmKind, number: int, seeds: int) -> SeedBlock:
    """Returns the seeds of a confirmation. No other evaluation uses them."""
    start = _FIRST_CONFIRMATION_SEED + KINDS.index(kind) * _SEEDS_OF_A_KIND + (number - 1) * _SEEDS_OF_A_CONFIRMATION
    return SeedBlock(start=start, size=seeds)


@dataclass(frozen=True, kw_only=True)  # without slots, which cached properties do not allow
class StoredRun:
    """Checkpoints of a run by generation and outer step, up to the first one that the watch has not finished.

    A position is the index of a checkpoint in `subjects`.

    Attributes:
      subjects, run_names: Checkpoints, and the names of their runs, by position.
      results_by_hash: Results by hash of theta.
      fresh_results: Results of confirmations, by first seed, then by hash of theta.
      optimizers: Optimizers without theta in the store. Scales depend on them too.
      suites: Folders in which tuned baselines are looked up.
      seeds: Number of seeds of a confirmation.
      tried_confirmations: Confirmations that were evaluated: the first seed, and the hashes of both sides.
      is_readable: Whether the theta of a checkpoint can be read, for evaluations on fresh seeds.
      other_code: Note on results that are left out because another version of the user's code computed them.
      other_bindings: Note on checkpoints that are left out because their results have former bindings of the optimizer.
      unlike_results: First seed of each confirmation, and hash of theta, whose latest results were made with other
        bindings of the optimizer than the results of the watch.
    """

    subjects: tuple[Subject, ...]
    run_names: tuple[str, ...]
    results_by_hash: Mapping[str, StoredSubject]
    fresh_results: Mapping[int, Mapping[str, StoredSubject]]
    optimizers: tuple[StoredSubject, ...]
    suites: tuple[Path, ...]
    seeds: int
    tried_confirmations: set[tuple[int, str, str]] = field(default_factory=set)
    is_readable: Callable[[Subject], bool] = lambda subject: True
    other_code: str = ""
    other_bindings: str = ""
    unlike_results: frozenset[tuple[int, str]] = frozenset()
    _scales: dict[int, Scales] = field(default_factory=dict)
    _scores: dict[tuple[object, ...], float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.subjects)

    @functools.cached_property
    def cases(self) -> Mapping[str, CaseInfo]:
        """Cases on which any checkpoint was evaluated, by identity."""
        stored_subjects = [
            self.results_by_hash[subject.sha256] for subject in self.subjects if subject.sha256 in self.results_by_hash
        ]
        return {key: cell.case for stored_subject in stored_subjects for key, cell in stored_subject.cells.items()}

    def outer_step(self, index: int) -> int:
        return self.subjects[index].outer_step

    def scales(self, newest: int) -> Scales:
        """Returns the scales known when a checkpoint was finished. Later results must not change decisions."""
        if newest not in self._scales:
            last_scales = self._scales.get(-1) or self._scales_of(len(self) - 1)
            self._scales[-1] = last_scales
            is_frozen = last_scales.baselines.baseline_by_case.keys() >= last_scales.cases.keys()
            self._scales[newest] = last_scales if is_frozen else self._scales_of(newest)
        return self._scales[newest]

    def _scales_of(self, newest: int) -> Scales:
        hashes = dict.fromkeys(subject.sha256 for subject in self.subjects[: newest + 1])
        stored_subjects = [self.results_by_hash[sha256] for sha256 in hashes if sha256 in self.results_by_hash]
        return Scales.of([*self.optimizers, *stored_subjects], self.suites)

    def mean_score(
        self, index: int, newest: int, kind: AlarmKind = "stall", number: int = 0, cases: Collection[str] | None = None
    ) -> float:
        scales = self.scales(newest)
        blocks = [confirmation_block(kind, confirmation, self.seeds).start for confirmation in range(1, number + 1)]
        sha256 = self.subjects[index].sha256
        fresh_cells = [
            self.fresh_results[block][sha256].cells for block in blocks if sha256 in self.fresh_results.get(block, ())
        ]
        scale_key = -1 if scales is self._scales[-1] else newest
        key = (index, scale_key, kind, len(fresh_cells), None if cases is None else frozenset(cases))
        if key not in self._scores:
            self._scores[key] = self._mean_score([self._cells_at(index), *fresh_cells], scales, cases)
        return self._scores[key]

    def _mean_score(
        self, cells_by_block: Sequence[Mapping[str, Cell]], scales: Scales, cases: Collection[str] | None
    ) -> float:
        """Returns the mean score over cases. NaN if a case has no score on the first block, the usual seeds.

        Cases without a scale are left out. A case has a scale once a training on it ended better than untrained.
        """
        means = []
        for identity in self.cases if cases is None else cases:
            case = self.cases[identity]
            if not scales.scale(case, case.primary_metric).is_usable:
                continue
            cells_of_case = [cells[identity] for cells in cells_by_block if identity in cells]
            scores = [score for cell in cells_of_case for score in scales.scores(cell, None).values()]
            is_scored = identity in cells_by_block[0] and len(scores) > 0
            means.append(math.fsum(scores) / len(scores) if is_scored else math.nan)
        return float(np.mean(means)) if means else math.nan

    def _cells_at(self, index: int) -> Mapping[str, Cell]:
        stored_subject = self.results_by_hash.get(self.subjects[index].sha256)
        return {} if stored_subject is None else stored_subject.cells

    def usual_samples(self, reference: int, index: int) -> Mapping[str, Samples]:
        return self._paired_samples(self._cells_at(reference), self._cells_at(index), index)

    def fresh_samples(self, confirmation: Confirmation) -> Mapping[str, Samples] | None:
        reference_cells, checkpoint_cells = self._fresh_cells(confirmation)
        common_cases = self._cells_at(confirmation.reference).keys() & self._cells_at(confirmation.position).keys()
        confirmed_cases = [identity for identity in common_cases if not self.cases[identity].fixed_seeds]
        is_complete = all(
            self._is_cell_complete(cells.get(identity))
            for cells in (reference_cells, checkpoint_cells)
            for identity in confirmed_cases
        )
        return (
            self._paired_samples(reference_cells, checkpoint_cells, confirmation.position)
            if is_complete or self.confirmation_identity(confirmation) in self.tried_confirmations
            else None
        )

    def _fresh_cells(self, confirmation: Confirmation) -> tuple[Mapping[str, Cell], Mapping[str, Cell]]:
        """Returns the cells of both sides on the seeds of a confirmation."""
        subjects_of_block = self.fresh_results.get(
            confirmation_block(confirmation.kind, confirmation.number, self.seeds).start, {}
        )
        subjects = [
            subjects_of_block.get(self.subjects[index].sha256)
            for index in (confirmation.reference, confirmation.position)
        ]
        reference_cells, checkpoint_cells = ({} if subject is None else subject.cells for subject in subjects)
        return reference_cells, checkpoint_cells

    def confirmation_identity(self, confirmation: Confirmation) -> tuple[int, str, str]:
        """Returns the identity of a confirmation: its first seed and the hashes of both checkpoints.

        The hashes are included because a restarted run may replace the checkpoint at a position.
        """
        start = confirmation_block(confirmation.kind, confirmation.number, self.seeds).start
        return start, self.subjects[confirmation.reference].sha256, self.subjects[confirmation.position].sha256

    def has_unlike_results(self, confirmation: Confirmation) -> bool:
        """Returns whether a confirmation was made with other bindings of the optimizer than the watch's results."""
        start, *hashes = self.confirmation_identity(confirmation)
        return any((start, sha256) in self.unlike_results for sha256 in hashes)

    def can_refer_to(self, index: int, kind: AlarmKind, number: int) -> bool:
        start = confirmation_block(kind, number, self.seeds).start
        subject = self.subjects[index]
        return subject.sha256 in self.fresh_results.get(start, ()) or self.is_readable(subject)

    def _is_cell_complete(self, cell: Cell | None) -> bool:
        """Returns whether each seed of a confirmation has ended, possibly in an error."""
        return cell is not None and len(cell.seeds) + sum(cell.num_lost_by_outcome.values()) >= self.seeds

    def _paired_samples(
        self, reference_cells: Mapping[str, Cell], checkpoint_cells: Mapping[str, Cell], newest: int
    ) -> dict[str, Samples]:
        scales = self.scales(newest)
        pairs = {
            identity: paired_values(reference_cells[identity], checkpoint_cells[identity], None, scales).samples
            for identity in reference_cells
            if identity in checkpoint_cells
        }
        return {identity: samples for identity, samples in pairs.items() if len(samples) > 1 and samples.has_scale}


def read_run(
    store: Path,
    run: RunFolder,
    suites: Sequence[Path],
    seeds: int,
    tried: set[tuple[int, str, str]],
    *,
    is_over: bool,
    keeps_results: bool = False,
    is_readable: Callable[[Subject], bool] = lambda subject: True,
) -> StoredRun:
    """Reads the results of a run.

    A checkpoint counts as unfinished if other code than the user's present code computed its results. It is left out if
    its results have other bindings of the optimizer than those planned last.

    Args:
      store: Store of the watch. The store of confirmations is below it.
      run: Folder of the run.
      suites: Folders in which tuned baselines are looked up.
      seeds: Number of seeds of a confirmation.
      tried: Confirmations that were evaluated already. They are not requested again if results are missing.
      is_over: Whether to skip unfinished checkpoints. Otherwise the run ends before the first of them.
      keeps_results: Whether results computed by other code count, too.
      is_readable: Whether the theta of a checkpoint can be read now.
    Raises:
      UsageError: The store holds several runs, and `run` is not the folder of one of them.
    """
    if not is_store(store):
        return StoredRun(
            subjects=(),
            run_names=(),
            results_by_hash={},
            fresh_results={},
            optimizers=(),
            suites=(),
            seeds=seeds,
            tried_confirmations=tried,
        )
    with Ledger.open(store, read_only=True) as ledger:
        superseded_subjects = ledger.superseded_subjects()  # by a trainer that started again in the same folder
        excluded = superseded_subjects | ledger.numbered_by_arrival()
        standings = [standing for standing in ledger.run_standings() if standing[1] not in excluded]
        rows = list(ledger.evaluations())
        current = ledger.current_cases(rows)
        edited_codes = {} if keeps_results else edited_code(ledger, rows)
    edited_rows = [row for row in rows if row.key.code in edited_codes and current.is_current(row)]
    rows = [row for row in rows if row.key.code not in edited_codes]
    former_subjects = subjects_with_former_bindings(rows, current)
    unfinished_hashes = {row.key.checkpoint_sha256 for row in edited_rows}
    standings = [
        (name, sighted_subject, is_ready and sighted_subject.sha256 not in unfinished_hashes)
        for name, sighted_subject, is_ready in standings
    ]
    standings_of_run = [standing for standing in standings if standing[1].has_theta and run.contains(standing[1].uri)]
    left_out_subjects = {subject for _, subject, _ in standings_of_run if subject in former_subjects}
    standings_of_run = [standing for standing in standings_of_run if standing[1] not in left_out_subjects]
    if len(names := {standing[1].run for standing in standings_of_run}) > 1:
        raise UsageError(
            "several runs", where=run.location, got=", ".join(sorted(names)), expected="the folder of one of them"
        )
    standings_of_run.sort(key=lambda standing: (standing[1].generation, standing[1].outer_step))
    ready_standings = (
        [standing for standing in standings_of_run if standing[2]]
        if is_over
        else itertools.takewhile(lambda standing: standing[2], standings_of_run)
    )
    subjects = list[Subject]()
    runs = list[str]()
    for name, subject, _ in ready_standings:
        # Of two thetas at one step, the first one counts.
        if not subjects or _run_position(subject) > _run_position(subjects[-1]):
            subjects.append(subject)
            runs.append(name)
    stored_by_hash, other_subjects = {}, []
    optimizer_hashes: dict[tuple[str, str], set[str]] = {}  # current optimizer hashes, by hash of theta and case
    for sha256, rows_of_checkpoint in _rows_by_subject(rows).items():
        # Another run may have this theta and other bindings.
        sightings = {
            sighting: None  # in the order of the store, so that the first of equal steps is always the same
            for row in rows_of_checkpoint
            for sighting in row.sightings
            if (not sighting.has_theta or run.contains(sighting.uri)) and sighting not in left_out_subjects
        }
        if not sightings:
            continue
        latest_sighting = max(sightings, key=lambda sighting: sighting.outer_step)
        current_rows = [
            row
            for row in current.by_precedence(latest_sighting, rows_of_checkpoint)
            if any(current.is_current(row, sighting) for sighting in row.sightings if sighting in sightings)
        ]
        for row in current_rows:
            optimizer_hashes.setdefault((sha256, row.case.identity), set()).add(row.key.optimizer_hash)
        stored_subject = subject_of(
            latest_sighting, current_rows or rows_of_checkpoint, current.identities if current_rows else ()
        )
        stored_by_hash[sha256] = stored_subject
        if not latest_sighting.has_theta:
            other_subjects.append(stored_subject)
    rows_by_block: dict[int, list[EvaluationRow]] = {}
    unlike_results = set[tuple[int, str]]()
    confirmations = read_store(store / "alarm") if is_store(store / "alarm") else None
    for row in () if confirmations is None else confirmations.rows:
        assert confirmations is not None
        if row.key.code in confirmations.edited_codes and not keeps_results:
            continue
        # Blocks that were halved for lack of memory belong to the confirmation. Blocks with more seeds do not.
        block = row.key.seed_block
        start = block.start - (block.start - _FIRST_CONFIRMATION_SEED) % _SEEDS_OF_A_CONFIRMATION
        hashes_of_watch = optimizer_hashes.get((row.key.checkpoint_sha256, row.case.identity), set())
        if row.key.optimizer_hash not in hashes_of_watch:
            # Made after an edit, or without a --gin-param of the watch.
            if hashes_of_watch and confirmations.current.is_current(row):
                unlike_results.add((start, row.key.checkpoint_sha256))
            continue
        if block.start + block.size <= start + seeds:
            rows_by_block.setdefault(start, []).append(row)
    fresh_subjects = {
        start: {
            sha256: subject_of(rows_of_checkpoint[-1].sightings[0], rows_of_checkpoint, current.identities)
            for sha256, rows_of_checkpoint in _rows_by_subject(block_rows).items()
        }
        for start, block_rows in rows_by_block.items()
    }
    return StoredRun(
        subjects=tuple(subjects),
        run_names=tuple(runs),
        results_by_hash=stored_by_hash,
        fresh_results=fresh_subjects,
        optimizers=tuple(other_subjects),
        suites=tuple(suites),
        seeds=seeds,
        tried_confirmations=tried,
        is_readable=is_readable,
        other_code=edited_code_line(edited_rows, edited_codes),
        other_bindings=former_bindings_line(
            subjects_without_present_results(left_out_subjects, [standing[1] for standing in standings_of_run])
        ),
        unlike_results=frozenset(unlike_results),
    )


def _run_position(subject: Subject) -> tuple[int, int]:
    return subject.generation, subject.outer_step


def _rows_by_subject(rows: Sequence[EvaluationRow]) -> dict[str, list[EvaluationRow]]:
    rows_by_hash: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        rows_by_hash.setdefault(row.key.checkpoint_sha256, []).append(row)
    return rows_by_hash

"""What a report is made of: a store's evaluations as arrays by subject and case."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lobench.analysis.baseline_file import Baseline, BaselineCase, BaselineError, beside_cases, find_baselines
from lobench.analysis.subjects import place_of
from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Curves, Outcome
from lobench.engine.ledger import EvaluationRow, Ledger

__all__ = ["Cell", "Gathered", "Subject", "gather"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Subject:
    """What was evaluated: a sighting of a checkpoint, or an optimizer, in order of generation and outer step.

    Attributes:
      by_name: Its outer step tells it from nobody: it goes by its file's name.
    """

    generation: int
    outer_step: int
    position: int
    uri: str
    sha256: str
    optimizer_hash: str
    by_name: bool = field(default=False, compare=False)

    @property
    def label(self) -> str:
        if self.uri.startswith("optimizer: "):
            return self.uri.removeprefix("optimizer: ")
        if self.by_name:
            return self.uri.rstrip("/").rsplit("/", 1)[-1] or self.sha256[:12]
        lineage = f"generation {self.generation}, " if self.generation else ""
        return f"{lineage}outer step {self.outer_step}"

    @property
    def opening(self) -> str:
        """The label at the start of a sentence: names of files and optimizers keep their spelling."""
        is_name = self.by_name or self.uri.startswith("optimizer: ")
        return self.label if is_name else self.label.capitalize()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One subject on one case: the seeds of all its blocks that gave curves.

    Attributes:
      metrics: float32[num_seeds, num_evals] by name; those that every seed has.
      steps: int[num_evals].
      diverged_at: int[num_seeds], -1 where not.
      troubles: Outcome and message of each block that did not pass.
    """

    seeds: tuple[int, ...]
    metrics: dict[str, np.ndarray]
    steps: np.ndarray
    diverged_at: np.ndarray
    troubles: tuple[tuple[Outcome, str], ...]

    @property
    def diverged(self) -> np.ndarray:
        return self.diverged_at >= 0

    def final(self, metric: str) -> np.ndarray:
        return self.metrics[metric][:, -1].astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A store, read.

    Attributes:
      subjects: In order.
      cases: By suite and name; one identity each. Of a case that was changed, as it was evaluated last, unless every
        form was asked for.
      cells: By place in `subjects` and in `cases`; what was not evaluated is missing.
      rows: As the ledger holds them.
      baselines: By place in `cases`.
      baseline: The file that they are from.
      baseline_problems: Why some cases have none, a line each.
      changed: Names of the cases that `rows` hold in an earlier form too, by the number of those evaluations.
    """

    store: Path
    subjects: tuple[Subject, ...]
    cases: tuple[CaseInfo, ...]
    cells: dict[tuple[int, int], Cell]
    rows: tuple[EvaluationRow, ...]
    events: tuple[tuple[str, dict[str, object]], ...] = ()
    baselines: dict[int, BaselineCase] = field(default_factory=dict)
    baseline: Baseline | None = None
    baseline_problems: tuple[str, ...] = ()
    changed: tuple[tuple[str, int], ...] = ()

    def headline_subject(self) -> int:
        """Returns the last subject among those that were evaluated on the most cases."""
        counts = [sum((place, case) in self.cells for case in range(len(self.cases))) for place in self.places()]
        return max(self.places(), key=lambda place: (counts[place], place))

    def places(self) -> range:
        return range(len(self.subjects))

    def name(self, case: int) -> str:
        """Returns what to call a case: suite and name, and its test where that name is several cases'."""
        info = self.cases[case]
        name = f"{info.suite}/{info.name}"
        namesakes = sum((one.suite, one.name) == (info.suite, info.name) for one in self.cases)
        return name if namesakes == 1 else f"{name} ({place_of(info)[-1]})"


def gather(store: Path, baselines: Sequence[Path] | None = None, *, every_form: bool = False) -> Gathered:
    """Reads a store, which may be in use, and the baselines that fit its cases.

    Args:
      baselines: Suites, or baseline files; the first that has a case gives its baseline. None: those of the suites
        that the store names, where they lie below the working directory.
      every_form: Also the earlier forms of cases that were changed, as cases of their own.
    Raises:
      StoreError: there is no store. BaselineError: a file cannot be read.
    """
    ledger = Ledger.open(store, read_only=True)
    try:
        rows = tuple(ledger.evaluations())
        positions = {checkpoint: place for place, checkpoint in ledger.sightings().items()}
        events = tuple(ledger.events())
    finally:
        ledger.close()
    current, changed = (rows, ()) if every_form else _current(rows)
    subjects, cases, blocks = _index(current, positions)
    cells = {key: cell for key, found in blocks.items() if (cell := _cell(found)) is not None}
    kept, first, problems = _baselines(cases, beside_cases(cases) if baselines is None else baselines)
    return Gathered(
        store=store,
        subjects=subjects,
        cases=cases,
        cells=cells,
        rows=rows,
        events=events,
        baselines=kept,
        baseline=first,
        baseline_problems=problems,
        changed=changed,
    )


def _current(rows: Sequence[EvaluationRow]) -> tuple[Sequence[EvaluationRow], tuple[tuple[str, int], ...]]:
    """Returns the evaluations of cases as they were evaluated last, and how many of each case are of another form.

    Both forms in one mean would count the case twice.
    """
    latest = {place_of(row.case): row.case.identity for row in sorted(rows, key=lambda row: row.recorded_at)}
    identities = set(latest.values())
    former = Counter(f"{r.case.suite}/{r.case.name}" for r in rows if r.case.identity not in identities)
    return [row for row in rows if row.case.identity in identities], tuple(sorted(former.items()))


def _index(
    rows: Sequence[EvaluationRow], positions: dict[Checkpoint, int]
) -> tuple[tuple[Subject, ...], tuple[CaseInfo, ...], dict[tuple[int, int], list[EvaluationRow]]]:
    by_subject = [(subject, row) for row in rows for subject in _subjects(row, positions)]
    steps = Counter((one.generation, one.outer_step) for one in {subject for subject, _ in by_subject})
    subjects = tuple(
        dataclasses.replace(one, by_name=len(steps) == 1 or steps[one.generation, one.outer_step] > 1)
        for one in sorted({subject for subject, _ in by_subject})
    )
    by_identity = {row.case.identity: row.case for row in rows}
    cases = tuple(sorted(by_identity.values(), key=lambda case: (case.suite, case.name, case.identity)))
    place_of = {subject: place for place, subject in enumerate(subjects)}
    case_of = {case.identity: place for place, case in enumerate(cases)}
    blocks: dict[tuple[int, int], list[EvaluationRow]] = {}
    for subject, row in by_subject:
        blocks.setdefault((place_of[subject], case_of[row.case.identity]), []).append(row)
    return subjects, cases, blocks


def _subjects(row: EvaluationRow, positions: dict[Checkpoint, int]) -> Iterator[Subject]:
    unseen = Checkpoint(uri="", sha256=row.key.checkpoint_sha256, outer_step=0)
    for checkpoint in row.checkpoints or (unseen,):
        yield Subject(
            generation=checkpoint.generation,
            outer_step=checkpoint.outer_step,
            position=positions.get(checkpoint, -1),
            uri=checkpoint.uri,
            sha256=checkpoint.sha256,
            optimizer_hash=row.key.optimizer_hash,
        )


def _cell(rows: Sequence[EvaluationRow]) -> Cell | None:
    """Joins seed blocks; a seed that two blocks hold counts once, from the later evaluation that gave curves."""
    by_seed: dict[int, tuple[Curves, int]] = {}
    for row in sorted(rows, key=lambda row: row.recorded_at):
        if row.curves is not None:
            by_seed.update({seed: (row.curves, place) for place, seed in enumerate(row.curves.seeds)})
    troubles = tuple((row.outcome, row.message) for row in rows if row.outcome is not Outcome.PASSED)
    seeds = tuple(sorted(by_seed))
    if not seeds:
        return Cell(seeds=(), metrics={}, steps=np.empty(0, int), diverged_at=np.empty(0, int), troubles=troubles)
    found = [by_seed[seed] for seed in seeds]
    first = found[0][0]
    return Cell(
        seeds=seeds,
        metrics={
            name: np.stack([np.asarray(curves.metrics[name])[place] for curves, place in found])
            for name in first.metrics
            # A plugin's metric may have come, or gone, between two blocks of seeds.
            if name != "batch/loss" and all(name in curves.metrics for curves, _ in found)
        },
        steps=np.asarray(first.eval_steps),
        diverged_at=np.asarray([curves.diverged_at[place] for curves, place in found]),
        troubles=troubles,
    )


def _baselines(
    cases: Sequence[CaseInfo], places: Iterable[Path]
) -> tuple[dict[int, BaselineCase], Baseline | None, tuple[str, ...]]:
    files = [path for place in places for path in ([place] if place.suffix == ".json" else find_baselines(place))]
    loaded = [Baseline.load(path) for path in files]
    # One protocol for the whole page: scores of two would not be on one scale.
    loaded = [found for found in loaded if found.label == loaded[0].label]
    kept: dict[int, BaselineCase] = {}
    problems = []
    for index, case in enumerate(cases):
        errors = []
        for found in loaded:
            try:
                kept[index] = found.case(case)
                break
            except BaselineError as error:
                errors.append(str(error))
        if loaded and index not in kept:
            # Of several files the one that knows the case by name has more to say.
            problems.append(next((text for text in errors if "stale" in text), errors[0]))
    return kept, loaded[0] if loaded else None, tuple(problems)

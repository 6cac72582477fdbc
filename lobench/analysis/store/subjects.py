"""Evaluated subjects and their cells, joined over seed blocks.

Cells, the arrays of many cells, and the subjects that hold them are in one module because they use private parts of
each other, and share data that are kept between two readings of a store.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.seed_groups import group_indices
from lobench.analysis.store.former_bindings import bindings_note
from lobench.analysis.store.trainings import ITEM_DRAWS, LOBENCH_SEEDS, trainings_of
from lobench.core.case import CaseInfo, seed_blocks
from lobench.core.checkpoint import Checkpoint
from lobench.core.code import describe_codes
from lobench.core.curve_summary import CurveSummary, head_ids, packed_divergence_steps, packed_first_and_last
from lobench.core.metric import Direction, is_of_batch
from lobench.core.program import IMPORTED, Program, describe_programs
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.current import CurrentCases, place_of_case
from lobench.engine.store.ledger import EvaluationRow

__all__ = [
    "ENDED_EARLY",
    "LOBENCH_SEEDS",
    "NOT_IMPORTED",
    "NOT_RUN",
    "Cell",
    "CellBlock",
    "StoredSubject",
    "are_common",
    "codes_note",
    "diverged_names",
    "exploded_names",
    "headline_metrics",
    "last_on_most_cases",
    "last_subject",
    "notes_on_rows",
    "repeated_cases_note",
    "rows_by_subject",
    "subject_of",
    "subjects_of",
]

NOT_RUN = "not run"  # a planned seed without an evaluation
NOT_IMPORTED = "not imported"  # an imported seed that only other curves of its training, or the other side, have
ENDED_EARLY = "ended early"  # a seed whose training stopped before the last step of the others
_IMPORT_PROGRAM = IMPORTED.key
_LABEL_DRAWS = ""  # draws of seeds that are labels


def are_common(draws: str, other_draws: str) -> bool:
    """Returns whether seeds with equal numbers have the same draws on two sides, so that they form pairs."""
    return draws == other_draws != _LABEL_DRAWS


@dataclass(frozen=True, kw_only=True)  # without slots, which cached properties do not allow
class Cell:
    """Results of one subject on one case, with its seed blocks joined.

    Attributes:
      case: The case.
      final_values: Value after the last inner step, by metric and seed. NaN if the seed diverged.
      untrained_values: Value before the first inner step, by metric and seed. Imported curves that begin later have
        none.
      diverged_at: First inner step with a non-finite loss, by seed that met one.
      num_lost_by_outcome: Number of seeds for which no evaluation gave curves, by the outcome of the last one.
      missing_seeds: Outcome of the last evaluation, or NOT_RUN, by planned seed without a value. Includes the seeds of
        `lost`.
      failures: Outcome and message of each evaluation that did not pass.
      curves_by_seed: Curves of its block, and its row in them, by seed.
      directions: Direction of each metric, as declared by the task and plugins.
      draws: Name of the draws of the seeds. Cells with the same draws have the same initial parameters and data for a
        seed. LOBENCH_SEEDS for lobench's trainings, ITEM_DRAWS if the seeds stand for items of a data set; "" if seeds
        are only labels.
      repeated_cases: Other cases with the same training and the same bits, which count as this one.
    """

    case: CaseInfo
    final_values: Mapping[str, Mapping[int, float]]
    untrained_values: Mapping[str, Mapping[int, float]]
    diverged_at: Mapping[int, int] = field(default_factory=dict)
    num_lost_by_outcome: Mapping[str, int] = field(default_factory=dict)
    missing_seeds: Mapping[int, str] = field(default_factory=dict)
    failures: tuple[tuple[Outcome, str], ...] = ()
    curves_by_seed: Mapping[int, tuple[Curves | CurveSummary, int]] = field(default_factory=dict)
    directions: Mapping[str, Direction] = field(default_factory=dict)
    draws: str = LOBENCH_SEEDS
    repeated_cases: tuple[CaseInfo, ...] = ()

    def has_name(self, name: str) -> bool:
        """Returns whether a name is that of its case, or of a case that counts as this one."""
        return any(case.has_name(name) for case in (self.case, *self.repeated_cases))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds that gave curves, in order."""
        return tuple(sorted(self.curves_by_seed))

    @property
    def num_seeds(self) -> int:
        """Number of seeds that gave curves."""
        return len(self.curves_by_seed)

    def seed_names(self) -> dict[int, int | str]:
        """Returns the displayed name of each seed that gave curves: its number, or the name of its item."""
        if not self.case.has_items:
            return {seed: seed for seed in self.curves_by_seed}
        items = {id(curves): curves.complete().items for curves in self.blocks}  # each is read once
        return {seed: items[id(curves)][row] for seed, (curves, row) in self.curves_by_seed.items()}

    def final_column(self, metric: str) -> tuple[Collection[int], Collection[float]]:
        """Returns the seeds of `final[metric]` and their values; empty if no seed has the metric."""
        values = self.final_values.get(metric, {})
        return values.keys(), values.values()

    def seeds_of(self, metric: str) -> Collection[int]:
        """Returns the seeds that have a metric, in the order of `final_column`."""
        return self.final_values.get(metric, {}).keys()

    @property
    def metric_names(self) -> Collection[str]:
        """Metrics that a seed has."""
        return self.final_values.keys()

    def has_further_starts(self, metric: str, known_seeds: Collection[int]) -> bool:
        """Returns whether `untrained[metric]` has seeds that are not in `known_seeds`."""
        return not all(seed in known_seeds for seed in self.untrained_values.get(metric, ()))

    @functools.cached_property
    def blocks(self) -> tuple[Curves | CurveSummary, ...]:
        """Curves of its seeds, each once."""
        return tuple({id(curves): curves for curves, _ in self.curves_by_seed.values()}.values())

    @property
    def num_planned(self) -> int:
        """Number of seeds that have curves or are planned."""
        return len(self.curves_by_seed.keys() | self.missing_seeds.keys())

    @property
    def is_imported(self) -> bool:
        """Whether its curves were imported. Imports have no plan of seeds."""
        return any(curves.origin.imported for curves in self.blocks[:1])

    def lacking_seeds(self, others: Iterable[Cell]) -> frozenset[int]:
        """Returns the seeds of the same draws that other cells have and this one lacks, if its curves were imported.

        Cells of lobench's own trainings have a plan, and their lacking seeds are in `missing`. Seeds that are labels
        are not shared with other cells.
        """
        if not self.is_imported:
            return frozenset()
        shared = (cell.curves_by_seed.keys() for cell in others if are_common(self.draws, cell.draws))
        return frozenset[int]().union(*shared) - self.curves_by_seed.keys()

    def missing_seeds_text(self) -> str:
        """Returns the outcomes of the missing seeds and counts, like `2 error, 1 not run`; "" if none is missing."""
        counts = sorted(Counter(self.missing_seeds.values()).items())
        return ", ".join(f"{count} {outcome}" for outcome, count in counts)

    def last_step_by_seed(self) -> dict[int, int]:
        """Returns the last evaluated step of each seed."""
        return {seed: curves.eval_steps[-1] for seed, (curves, _) in self.curves_by_seed.items()}

    def distinct_last_steps(self) -> set[int]:
        """Returns the last evaluated steps of its seeds."""
        return {curves.eval_steps[-1] for curves in self.blocks}

    @property
    def diverged_seeds(self) -> frozenset[int]:
        return frozenset(self.diverged_at)

    @functools.cached_property
    def exploded_seeds(self) -> frozenset[int]:
        """Seeds that exploded in the primary metric; see `lobench.core.result.exploded_seeds`."""
        name = self.case.primary_metric
        starts = self.untrained_values.get(name, {})
        # In most cells no seed ends above its start, so that no curve has to be read.
        finals = self.final_values.get(name, {})
        if all(map(operator.le, finals.values(), map(starts.get, finals, itertools.repeat(-math.inf)))):
            return frozenset()
        exploded_rows = {id(curves): curves.exploded(self.case) for curves, _ in self.curves_by_seed.values()}
        return frozenset(seed for seed, (curves, row) in self.curves_by_seed.items() if exploded_rows[id(curves)][row])

    @property
    def unconverged_seeds(self) -> frozenset[int]:
        """Seeds that diverged or exploded.

        Comparisons, gates and P(better) treat both alike: as lost, and as worse than any value.
        """
        return self.diverged_seeds | self.exploded_seeds if self.diverged_at else self.exploded_seeds

    @functools.cached_property
    def is_fully_trained(self) -> bool:
        """Whether lobench trained every planned seed to one last step, and none diverged or exploded."""
        return (
            self.draws == LOBENCH_SEEDS
            and not self.missing_seeds
            and not self.unconverged_seeds
            and len(self.distinct_last_steps()) <= 1
        )

    @property
    def has_single_values(self) -> bool:
        """Whether each seed has a single value, at step 0, as commands and tests may record.

        Such a value is a result, and not the value before a training.
        """
        return self.distinct_last_steps() == {0}

    @property
    def steps(self) -> NDArray[np.int64]:
        """Inner steps of the evaluations: int64[num_evals].

        Seeds of imported curves may have different steps. Then these are the common steps, or the last one if they
        share none.
        """
        grids = {curves.eval_steps for curves in self.blocks}
        if len(grids) == 1:
            return _steps_array(grids.pop())
        common_steps = set.intersection(*map(set, grids)) or {max(steps[-1] for steps in grids)}
        return np.asarray(sorted(common_steps), np.int64)

    def curves_of_seeds(self, metric: str) -> NDArray[np.float64]:
        """Returns the curve of each seed that has the metric, at `steps`: float64[num_seeds, num_evals].

        A metric with one value a seed, as computed by plugins, has it at the last step, and NaN before.
        """
        steps = self.steps
        sources = [source for source in self.curves_by_seed.values() if metric in source[0].shapes]
        blocks = {id(curves): curves for curves, _ in sources}
        values = {key: np.asarray(curves.metrics[metric]) for key, curves in blocks.items()}  # each is read once
        rows = [_values_at_steps(steps, values[id(curves)][row], curves.eval_steps) for curves, row in sources]
        return np.stack(rows).astype(np.float64)

    def mean_curve(self, metric: str) -> NDArray[np.float64]:
        """Returns the mean over the seeds that have the metric: float64[num_evals]. NaN if one of them diverged."""
        return np.asarray(self.curves_of_seeds(metric).mean(axis=0))

    def finals(self, metric: str) -> dict[int, float]:
        """Returns the final value of each seed that has the metric. NaN if the seed diverged, whatever the metric."""
        values = self.final_values.get(metric, {})
        finals = {seed: values[seed] for seed in sorted(values)}
        return finals | dict.fromkeys(finals.keys() & self.diverged_at.keys(), math.nan) if self.diverged_at else finals

    def converged_finals(self, metric: str) -> dict[int, float]:
        """Returns the final value of each seed that has the metric. NaN if the seed diverged or exploded.

        Comparisons use these values. Tables print those of `finals`.
        """
        finals = self.finals(metric)
        exploded = self.exploded_seeds
        return finals | dict.fromkeys(finals.keys() & exploded, math.nan) if exploded else finals

    def surviving_seeds(self, metric: str) -> frozenset[int]:
        """Returns the seeds that ended with a finite value and neither diverged nor exploded."""
        unconverged, (seeds, finals) = self.unconverged_seeds, self.final_column(metric)
        return frozenset(itertools.compress(seeds, map(math.isfinite, finals))) - unconverged

    def starts(self, metric: str) -> dict[int, float]:
        """Returns the first value of each seed, at the step at which its curve begins."""
        return {
            seed: curves.first(metric)[row]
            for seed, (curves, row) in self.curves_by_seed.items()
            if metric in curves.shapes
        }


_EMPTY_MAPPING: Mapping[Any, Any] = {}  # shared, and never changed
_NO_SEEDS = frozenset[int]()


class _OneBlockCell(Cell):
    """Cell of one evaluation of lobench's own that was read as a summary. Values by seed are made on first access.

    Most cells of a large store are like this, and tables need the values by seed of few of them.
    """

    # In a dictionary, fields that are added later take three times the memory.
    __slots__ = (
        "_curves",
        "_exploded_seeds",
        "case",
        "curves_by_seed",
        "diverged_at",
        "final_values",
        "missing_seeds",
        "untrained_values",
    )

    num_lost_by_outcome = _EMPTY_MAPPING
    failures = ()
    _curves: CurveSummary
    _exploded_seeds: frozenset[int]

    def __new__(cls, **fields: Any) -> Cell:  # type: ignore[misc]  # called by `dataclasses.replace` only
        """Returns an ordinary cell, because replaced fields no longer follow from the summary."""
        return Cell(**fields)

    @classmethod
    def of(cls, row: EvaluationRow, curves: CurveSummary, missing: Mapping[int, str]) -> _OneBlockCell:
        """Returns the cell of an evaluation.

        Args:
          row: The evaluation.
          curves: Summary of the evaluation's curves.
          missing: Planned seeds that the evaluation does not contain, as in `Cell`.
        """
        cell = object.__new__(cls)
        _set_field(cell, "case", row.case)
        _set_field(cell, "missing_seeds", missing)
        _set_field(cell, "_curves", curves)
        if row.outcome is not Outcome.PASSED:
            _set_field(cell, "failures", ((row.outcome, row.message),))
        return cell

    def __getattr__(self, name: str) -> Any:
        """Makes a field when it is first read."""
        if name not in _FIELD_MAKERS:
            raise AttributeError(name)
        value = _FIELD_MAKERS[name](self)
        _set_field(self, name, value)
        return value

    @property
    def directions(self) -> Mapping[str, Direction]:
        return self._curves.directions

    @property
    def blocks(self) -> tuple[CurveSummary, ...]:
        return (self._curves,)

    @property
    def is_imported(self) -> bool:
        return False

    @property
    def num_seeds(self) -> int:
        return len(self._curves.seeds)

    def distinct_last_steps(self) -> set[int]:
        return {self._curves.eval_steps[-1]}

    def final_column(self, metric: str) -> tuple[Collection[int], Collection[float]]:
        curves = self._curves
        return (curves.seeds, curves.final(metric)) if metric in curves.summarized_metrics else ((), ())

    def has_further_starts(self, metric: str, known_seeds: Collection[int]) -> bool:
        curves = self._curves
        begins = curves.eval_steps[0] == 0 and metric in curves.summarized_metrics
        return begins and not all(seed in known_seeds for seed in curves.seeds)

    def seeds_of(self, metric: str) -> Collection[int]:
        return self._curves.seeds if metric in self._curves.summarized_metrics else ()

    @property
    def metric_names(self) -> Collection[str]:
        return self._curves.summarized_metrics

    @property
    def exploded_seeds(self) -> frozenset[int]:
        return self._exploded_seeds

    @property
    def is_fully_trained(self) -> bool:
        return not (self.missing_seeds or self._exploded_seeds or self.diverged_at)

    def finals(self, metric: str) -> dict[int, float]:
        if self.diverged_at or not self._curves.has_sorted_seeds:
            return super().finals(metric)
        return dict(zip(*self.final_column(metric), strict=True))


_set_field = object.__setattr__  # cells are frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class CellBlock:
    """Values of a metric in many cells of a case, as arrays.

    Attributes:
      cells: The cells. Each is of one evaluation of the same seeds by lobench, and was read as a summary.
      seeds: The seeds.
      finals: `Cell.final_values`: float64[num_cells, num_seeds].
      untrained: `Cell.untrained_values`: float64[num_cells, num_seeds]. None if no curve begins at step 0.
      is_lost: Whether a seed is in `Cell.unconverged_seeds`: bool[num_cells, num_seeds]. None if no seed of any cell
        is.
      row_by_cell_id: Index in `cells` of each cell, by its `id`.
      metrics: Metrics that all of the cells have.
    """

    cells: Sequence[_OneBlockCell]
    seeds: tuple[int, ...]
    finals: NDArray[np.float64]
    untrained: NDArray[np.float64] | None
    is_lost: NDArray[np.bool_] | None
    row_by_cell_id: Mapping[int, int]
    metrics: frozenset[str]

    @classmethod
    def of(cls, cells: Sequence[Cell], metric: str, *, primary_block: CellBlock | None = None) -> CellBlock | None:
        """Returns the values of the cells of a case that are read as summaries and have the same seeds.

        Args:
          cells: Cells of a case.
          metric: Name of the metric.
          primary_block: Block of the case's primary metric in the same cells. If all of its cells have the metric too,
            these are the cells of the block.

        Returns:
          None if there are no such cells.
        """
        if primary_block is not None and metric in primary_block.metrics:
            finals, untrained = _finals_and_starts([cell._curves for cell in primary_block.cells], metric)
            return dataclasses.replace(primary_block, finals=finals, untrained=untrained)
        candidates = [cell for cell in cells if isinstance(cell, _OneBlockCell)]
        if not candidates:
            return None
        primary_metric = cells[0].case.primary_metric
        is_usable_head = dict[int, bool]()
        first_curves: CurveSummary | None = None
        metrics = list[Collection[str]]()  # metrics of each distinct head
        heads = head_ids(candidate._curves for candidate in candidates)
        first_index_by_head = dict(zip(reversed(heads), reversed(range(len(heads))), strict=True))
        for head, index in sorted(first_index_by_head.items(), key=lambda pair: pair[1]):
            head_curves = candidates[index]._curves
            is_known = head_curves.has_sorted_seeds and {metric, primary_metric} <= {*head_curves.summarized_metrics}
            first_curves = head_curves if first_curves is None and is_known else first_curves
            has_same_seeds = first_curves is not None and head_curves.seeds == first_curves.seeds
            begins_alike = first_curves is not None and (head_curves.eval_steps[0] == 0) == (
                first_curves.eval_steps[0] == 0
            )
            is_usable_head[head] = is_known and has_same_seeds and begins_alike
            metrics += [head_curves.summarized_metrics] if is_usable_head[head] else []
        if first_curves is None:
            return None
        usable_cells = candidates
        if not all(is_usable_head.values()):
            usable_cells = [cell for cell, head in zip(candidates, heads, strict=True) if is_usable_head[head]]
        curves = [cell._curves for cell in usable_cells]
        shape = len(curves), len(first_curves.seeds)
        packed_values = packed_first_and_last(curves, primary_metric)
        starts_and_stops = np.frombuffer(packed_values, "<f4").reshape(len(curves), 2, -1)
        has_diverged = np.frombuffer(packed_divergence_steps(curves), "<i8").reshape(shape) >= 0
        # See `_find_exploded_seeds`.
        may_be_lost = np.any(~(starts_and_stops[:, 1] <= starts_and_stops[:, 0]) | has_diverged, axis=1)
        is_lost = None
        for cell, is_candidate in zip(usable_cells, may_be_lost.tolist(), strict=True):
            if not is_candidate:
                _set_field(cell, "diverged_at", _EMPTY_MAPPING)
                _set_field(cell, "_exploded_seeds", _NO_SEEDS)
        for row in np.flatnonzero(may_be_lost).tolist():
            if lost_seeds := usable_cells[row].unconverged_seeds:
                is_lost = np.zeros(shape, bool) if is_lost is None else is_lost
                is_lost[row] = [seed in lost_seeds for seed in first_curves.seeds]
        finals, untrained = _finals_and_starts(curves, metric, packed_values if metric == primary_metric else None)
        return cls(
            cells=usable_cells,
            seeds=first_curves.seeds,
            finals=finals,
            untrained=untrained,
            is_lost=is_lost,
            row_by_cell_id={id(cell): row for row, cell in enumerate(usable_cells)},
            metrics=frozenset(metrics[0]).intersection(*metrics),
        )


def _finals_and_starts(
    curves: Sequence[CurveSummary], metric: str, packed_values: bytes | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Returns `CellBlock.finals` and `CellBlock.untrained`.

    Args:
      curves: Summaries of the cells.
      metric: Name of the metric.
      packed_values: `packed_first_and_last(curves, metric)`, if the caller has it.
    """
    starts_and_finals = np.frombuffer(
        packed_first_and_last(curves, metric) if packed_values is None else packed_values, "<f4"
    )
    starts_and_finals = starts_and_finals.reshape(len(curves), 2, -1).astype(np.float64)
    return starts_and_finals[:, 1], starts_and_finals[:, 0] if curves[0].eval_steps[0] == 0 else None


def _divergence_steps(cell: _OneBlockCell) -> Mapping[int, int]:
    curves = cell._curves
    if not curves.num_diverged:
        return _EMPTY_MAPPING
    return {seed: step for seed, step in sorted(zip(curves.seeds, curves.diverged_at, strict=True)) if step >= 0}


def _find_exploded_seeds(cell: _OneBlockCell) -> frozenset[int]:
    curves, name = cell._curves, cell.case.primary_metric
    if name in curves.summarized_metrics and all(map(operator.le, curves.final(name), curves.first(name))):
        return frozenset()
    return frozenset(itertools.compress(curves.seeds, curves.exploded(cell.case)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSubject:
    """A checkpoint or optimizer, evaluated with certain bindings, as stored.

    Attributes:
      subject: The checkpoint, or the optimizer without theta.
      optimizer_hashes: Hashes of the optimizer's bindings.
      cells: Results by identity of the case, for current cases.
      former_cells: Results by identity of the case, for cases with a later form in the store. Headlines do not include
        them.
      repeated_identities: Identities of current cases that are left out, because their results are those of another
        case.
      git_revisions: Revisions of the checkouts of the evaluations, with `+` if a checkout had changes.
      programs: Programs that made the results.
      codes: Code of the evaluations, as passed to `describe_codes`.
      custom_label: Label that replaces its own; "" if it has none.
    """

    subject: Subject
    optimizer_hashes: frozenset[str]
    cells: Mapping[str, Cell]
    former_cells: Mapping[str, Cell] = field(default_factory=dict)
    git_revisions: frozenset[str] = frozenset()
    programs: frozenset[Program] = frozenset()
    codes: frozenset[tuple[str, str, str, str]] = frozenset()
    custom_label: str = ""
    repeated_identities: frozenset[str] = frozenset()
    _metrics: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)

    def with_label(self, name: str) -> StoredSubject:
        """Returns the subject with another label."""
        return dataclasses.replace(self, custom_label=name)

    @property
    def is_optimizer(self) -> bool:
        """Whether the subject is an optimizer without theta."""
        return self.subject.is_optimizer

    @property
    def checkpoint(self) -> Checkpoint:
        """Checkpoint of the subject; see `lobench.core.subject.Subject.checkpoint`."""
        return self.subject.checkpoint

    @property
    def label(self) -> str:
        return self.custom_label or self.subject.label

    @property
    def num_lost(self) -> int:
        return sum(sum(cell.num_lost_by_outcome.values()) for cell in self.cells.values())

    @property
    def num_missing(self) -> int:
        """Number of planned seeds without a value, summed over the cases; see `Cell.missing_seeds`."""
        return sum(len(cell.missing_seeds) for cell in self.cells.values())

    @property
    def num_diverged(self) -> int:
        return sum(len(cell.diverged_at) for cell in self.cells.values())

    @property
    def num_exploded(self) -> int:
        """Number of seeds that exploded; see `Cell.exploded_seeds`."""
        return sum(len(cell.exploded_seeds) for cell in self.cells.values())

    @property
    def num_seeds(self) -> int:
        """Number of seeds that gave curves, summed over the cases."""
        return sum(cell.num_seeds for cell in self.cells.values())

    def lacks_seeds(self, others: Iterable[StoredSubject]) -> bool:
        """Returns whether a seed is missing: a planned seed, or a seed of `others` (see `Cell.lacking_seeds`)."""
        rivals = list(others)
        return self.num_missing > 0 or any(
            cell.lacking_seeds(rival.cells[key] for rival in rivals if key in rival.cells)
            for key, cell in self.cells.items()
            if cell.is_imported
        )

    def metrics(self) -> frozenset[str]:
        """Returns the metrics that a cell has."""
        metrics = self._metrics
        if metrics is None:
            names_of_cells = [cell.metric_names for cell in self.cells.values()]
            # Most cells share one object.
            metrics = frozenset[str]().union(*{id(names): names for names in names_of_cells}.values())
            _set_field(self, "_metrics", metrics)
        return metrics

    def all_cells(self) -> dict[str, Cell]:
        """Returns all cells, including those of former forms."""
        return {**self.former_cells, **self.cells}


@functools.lru_cache(maxsize=256)  # a store with thousands of cells has only a few grids
def _steps_array(steps: tuple[int, ...]) -> NDArray[np.int64]:
    grid = np.asarray(steps, np.int64)
    grid.setflags(write=False)
    return grid


def _values_at_steps(
    steps: NDArray[np.int64], values: NDArray[np.float32], steps_of_seed: Sequence[int]
) -> NDArray[np.float32]:
    """Returns a seed's values at `steps`.

    `values` has a value for each of `steps`, for each of `steps_of_seed`, or only the final one. In the last case, the
    result is NaN at all other steps.
    """
    if len(values) == len(steps):
        return values
    if len(values) == len(steps_of_seed):
        return values[_step_indices(steps_of_seed, steps)]
    return np.append(np.full(len(steps) - 1, np.nan, np.float32), values[-1:])


def _step_indices(steps_of_curve: Sequence[int], steps: NDArray[np.int64]) -> NDArray[np.intp]:
    """Returns the indices of steps in a curve's own steps; the last index if it does not have all of them."""
    indices = np.flatnonzero(np.isin(steps_of_curve, steps))
    return indices if len(indices) == len(steps) else np.asarray([len(steps_of_curve) - 1])


def subjects_of(
    rows: Iterable[EvaluationRow],
    positions: Mapping[Subject, int] | None = None,
    current: CurrentCases | None = None,
    *,
    subject_cache: dict[Subject, tuple[int, list[StoredSubject]]] | None = None,
    grouped_rows: Mapping[Subject, list[EvaluationRow]] | None = None,
) -> list[StoredSubject]:
    """Returns the subjects of a store's evaluations, by generation, outer step and first sight.

    A checkpoint that was seen at several outer steps is several subjects with the same cells. A checkpoint that was
    evaluated with several bindings of its optimizer is several subjects too, unless a plan determines the current ones.
    If a case was evaluated twice on the same seeds (with another version of jax, say), the last evaluation that gave
    curves counts. `StoredSubject.cells` has the current form of a changed case.

    Checkpoints that a restart in place superseded are left out.

    Args:
      rows: Evaluations in the order of the ledger.
      positions: Order in which the subjects were first seen. None: that of their first evaluations.
      current: Current cases of the store. None: those of the rows, without plans.
      subject_cache: Subjects of an earlier call, each with its number of evaluations. They are used if they have as
        many evaluations now, and the others are added.
      grouped_rows: `rows_by_subject` of the rows. None: computed here.
    """
    rows = list(rows) if grouped_rows is None else rows
    subject_cache = {} if subject_cache is None else subject_cache
    current = CurrentCases.of_rows(rows) if current is None else current
    grouped_rows = rows_by_subject(rows) if grouped_rows is None else grouped_rows
    subjects = list[StoredSubject]()
    for key, members in grouped_rows.items():
        if key in subject_cache and subject_cache[key][0] == len(members):
            subjects += subject_cache[key][1]
            continue
        ordered_rows = current.by_precedence(key, members)
        counting_rows = current.rows_with_bindings(ordered_rows, key)
        # If the present bindings have no result yet, nothing is current.
        row_groups = _rows_by_optimizer(counting_rows) if counting_rows else [ordered_rows]
        identities = current.identities if counting_rows else frozenset[str]()
        subject_cache[key] = len(members), [subject_of(key, group, identities) for group in row_groups]
        subjects += subject_cache[key][1]
    position_by_subject = positions or {}

    def sort_key(subject: StoredSubject) -> tuple[int, int, int]:
        key = subject.subject
        return key.generation, key.outer_step, position_by_subject.get(key, -1)

    return sorted(subjects, key=sort_key)


def rows_by_subject(
    rows: Iterable[EvaluationRow], earlier_rows: dict[Subject, list[EvaluationRow]] | None = None
) -> dict[Subject, list[EvaluationRow]]:
    """Returns the evaluations of each subject. Superseded subjects are left out.

    Args:
      rows: Evaluations in the order of the ledger.
      earlier_rows: Result for the evaluations before these, which is extended. None: there are none.
    """
    groups = {} if earlier_rows is None else earlier_rows
    # Lists are found by the id of `row.subjects`, which the rows of a subject share. Hashing a subject takes longer.
    lists_of_sightings = dict[int, list[list[EvaluationRow]]]()
    kept_alive = list[object]()  # so that no other object gets the same id
    for row in rows:
        if row.superseded_sightings or not row.recorded_sightings:
            for subject in row.present_sightings:
                groups.setdefault(subject, []).append(row)
            continue
        lists = lists_of_sightings.get(id(row.recorded_sightings))
        if lists is None:
            lists = [groups.setdefault(subject, []) for subject in row.recorded_sightings]
            lists_of_sightings[id(row.recorded_sightings)] = lists
            kept_alive.append(row.recorded_sightings)
        for members in lists:
            members.append(row)
    return groups


def last_subject(subjects: Sequence[StoredSubject]) -> StoredSubject:
    """Returns the last of the checkpoints with the most evaluated cases. A run's last checkpoint may be unfinished.

    Optimizers without theta are considered only in the absence of checkpoints.
    """
    return last_on_most_cases([subject for subject in subjects if subject.subject.has_theta] or subjects)


def last_on_most_cases(subjects: Sequence[StoredSubject]) -> StoredSubject:
    """Returns the last subject, of any kind, among those with the most evaluated cases."""
    max_cases = max(len(subject.cells) for subject in subjects)
    return [subject for subject in subjects if len(subject.cells) == max_cases][-1]


def headline_metrics(subjects: Sequence[StoredSubject]) -> list[tuple[str, str | None]]:
    """Returns the metrics of a headline, each with its label.

    The primary metric of the cases comes first. If it differs between cases, its label is `primary` and its metric
    None. The losses of train and test follow.
    """
    names_with_values = set().union(*(subject.metrics() for subject in subjects))
    primary_metrics = {cell.case.primary_metric for subject in subjects for cell in subject.cells.values()}
    losses = [name for name in ("train/loss", "test/loss") if name in names_with_values]
    if len(primary_metrics) > 1:
        return [("primary", None), *((name, name) for name in losses)]
    # Without any curve the metrics are unknown, but the lost seeds must be reported.
    names = [name for name in dict.fromkeys([*primary_metrics, *losses]) if name in names_with_values] or sorted(
        primary_metrics
    )
    return [(name, name) for name in names]


def _rows_by_optimizer(rows: Sequence[EvaluationRow]) -> list[Sequence[EvaluationRow]]:
    """Divides rows by the bindings of their optimizers, if a case was evaluated with several of them.

    Otherwise they are one subject, because a case may require its own bindings.
    """
    if len({row.key.optimizer_hash for row in rows}) == 1:
        return [rows]
    block_keys = {(row.key.case_identity, row.key.seed_block, row.key.optimizer_hash) for row in rows}
    if len({block_key[:2] for block_key in block_keys}) == len(block_keys):
        return [rows]
    rows_by_optimizer: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        rows_by_optimizer.setdefault(row.key.optimizer_hash, []).append(row)
    return list(rows_by_optimizer.values())


def subject_of(subject: Subject, rows: Sequence[EvaluationRow], current_identities: Collection[str]) -> StoredSubject:
    """Returns one subject from the rows of its evaluations. The last evaluation of a seed counts.

    Args:
      subject: The checkpoint or optimizer.
      rows: Evaluations in order of precedence.
      current_identities: Identities of the current cases. All others are former forms.
    """
    rows_by_case: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        rows_by_case.setdefault(row.case.identity, []).append(row)
    # Sums and resampled intervals depend on the order of cases and seeds, which must not be that of their evaluation.
    identities = sorted(rows_by_case, key=lambda identity: (place_of_case(rows_by_case[identity][-1].case), identity))
    cells = {identity: _join_rows(rows_by_case[identity]) for identity in identities}
    repeated_identities = _repeated_identities(
        [cell for identity, cell in cells.items() if identity in current_identities]
    )
    for repeated_identity, identity in repeated_identities.items():
        repeated_cases = (*cells[identity].repeated_cases, cells[repeated_identity].case)
        cells[identity] = dataclasses.replace(cells[identity], repeated_cases=repeated_cases)
    cells = _with_missing_seeds(
        {identity: cell for identity, cell in cells.items() if identity not in repeated_identities}
    )
    origins = [curves.origin for cell in cells.values() for curves in cell.blocks]
    origins = list({id(origin): origin for origin in origins}.values())  # most cells share one object
    return StoredSubject(
        subject=subject,
        optimizer_hashes=frozenset(row.key.optimizer_hash for row in rows),
        cells={identity: cell for identity, cell in cells.items() if identity in current_identities},
        former_cells={identity: cell for identity, cell in cells.items() if identity not in current_identities},
        repeated_identities=frozenset(repeated_identities),
        git_revisions=frozenset(origin.revision_text for origin in origins if origin.git_revision),
        programs=_programs([row for row in rows if row.case.identity in current_identities]),
        codes=frozenset(_code_record(row) for row in rows if row.code and row.case.identity in current_identities),
    )


def _with_missing_seeds(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Returns cells in which the seeds that an imported case lacks, and other cases of its training have, are missing.

    Imports have no plan, so such a seed is treated like a planned one without a value. The cells are of one subject.
    """
    imported_cells = {key: cell for key, cell in cells.items() if cell.is_imported}
    if len(imported_cells) < 2:
        return dict(cells)
    keys = list(imported_cells)
    trainings = [trainings_of(cell.blocks) for cell in imported_cells.values()]
    completed_cells = dict(cells)
    for indices in group_indices(trainings):
        seeds = frozenset().union(*(imported_cells[keys[index]].curves_by_seed for index in indices))
        for cell in (imported_cells[keys[index]] for index in indices):
            if lacking_seeds := seeds - cell.curves_by_seed.keys():
                missing = {**dict.fromkeys(sorted(lacking_seeds), NOT_IMPORTED), **cell.missing_seeds}
                completed_cells[cell.case.identity] = dataclasses.replace(cell, missing_seeds=missing)
    return completed_cells


def _code_record(row: EvaluationRow) -> tuple[str, str, str, str]:
    """Returns the argument of `describe_codes` for a row. Equal texts of different rows are one object."""
    name = sys.intern(f"{row.case.suite}/{row.case.name}")
    subject = sys.intern(f"{row.key.checkpoint_sha256} {row.key.optimizer_hash}")
    return name, row.case.identity, subject, row.code


def repeated_cases_note(names: Sequence[str]) -> str:
    """Returns a note on cases that are left out, because another case has the same training; "" if there are none."""
    return f"the same training as another case, and counted once: {', '.join(names)}" if names else ""


def codes_note(rows: Iterable[EvaluationRow]) -> str:
    """Returns a line on results of several versions of the user's code; "" if there is one version."""
    return describe_codes({_code_record(row) for row in rows if row.code})


def notes_on_rows(rows: Sequence[EvaluationRow], current: CurrentCases) -> list[str]:
    """Returns the lines on results of several programs, versions of the user's code and bindings of an optimizer."""
    notes = (describe_programs({row.program for row in rows}), codes_note(rows), bindings_note(rows, current))
    return [note for note in notes if note]


def _repeated_identities(cells: Sequence[Cell]) -> dict[str, str]:
    """Returns the identities of cases to ignore, each with that of the case that has bit-identical results and counts.

    Two tests may evaluate one case of a file, a test may have parameters, and a file may be linked from another suite.
    The training is then the same, and its seeds would count twice as evidence. Among equal cases the one with the most
    seeds counts, or else the first by name.
    """
    if len({cell.case.problem for cell in cells} - {""}) == len(cells):
        return {}
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        case = cell.case
        if case.problem and cell.num_seeds:
            key = case.problem, case.num_inner_steps, case.primary_metric, case.scale, case.minimum, cell.draws
            groups.setdefault(key, []).append(cell)
    repeated_identities = dict[str, str]()
    for group in groups.values():
        if len(group) < 2:
            continue
        group.sort(key=lambda cell: (-cell.num_seeds, place_of_case(cell.case), cell.case.identity))
        for position, cell in enumerate(group):
            earlier_cells = (
                earlier_cell
                for earlier_cell in group[:position]
                if earlier_cell.case.identity not in repeated_identities
            )
            equal_cell = next((earlier for earlier in earlier_cells if _has_same_finals(earlier, cell)), None)
            if equal_cell is not None:
                repeated_identities[cell.case.identity] = equal_cell.case.identity
    return repeated_identities


def _has_same_finals(cell: Cell, other: Cell) -> bool:
    """Returns whether the first cell has all seeds of the second, with bit-identical final values."""
    if (
        not other.curves_by_seed.keys() <= cell.curves_by_seed.keys()
        or other.diverged_at.items() - cell.diverged_at.items()
    ):
        return False
    return all(
        seed in cell.final_values.get(metric, {}) and repr(cell.final_values[metric][seed]) == repr(value)
        for metric, values in other.final_values.items()
        for seed, value in values.items()
    )


def _programs(rows: Sequence[EvaluationRow]) -> frozenset[Program]:
    """Returns the programs behind the results that count. For repeated seeds, later results count."""
    programs = frozenset(
        program.without_at_once for program in {id(row.program): row.program for row in rows if row.has_curves}.values()
    )
    if len(programs) < 2:
        return programs
    program_by_seed: dict[tuple[str, int], Program] = {}
    for row in rows:
        if row.has_curves:
            seeds = ((row.case.identity, seed) for seed in row.key.seed_block.seeds)
            program_by_seed.update(dict.fromkeys(seeds, row.program.without_at_once))
    return frozenset(program_by_seed.values())


def diverged_names(cell: Cell) -> dict[str, int]:
    """Returns the step at which each diverged seed or item of a cell diverged, by its name: `seed 3`, `item q17`."""
    names = cell.seed_names() if cell.diverged_at else {}
    return {f"{cell.case.replicate_noun} {names[seed]}": step for seed, step in cell.diverged_at.items()}


def exploded_names(cell: Cell) -> list[str]:
    """Returns the exploded seeds of a cell: `seed 3`."""
    names = cell.seed_names() if cell.exploded_seeds else {}
    return [f"{cell.case.replicate_noun} {names[seed]}" for seed in sorted(cell.exploded_seeds)]


def _planned_seeds(rows: Sequence[EvaluationRow]) -> frozenset[int]:
    """Returns the planned seeds, from the case of the last planned evaluation.

    Imported curves have no plan, and neither have items. Seeds beyond the case's own, added by a gate or an alarm, have
    none either.
    """
    for row in reversed(rows):
        if row.key.program_version != _IMPORT_PROGRAM and not row.case.has_items:
            case = row.case
            planned_seeds = _seeds_of_plan((case.num_seeds, case.seed_block, case.first_seed, case.block_sizes))
            if planned_seeds.issuperset(row.key.seed_block.seeds):
                return planned_seeds
    return frozenset()


_SeedPlan: TypeAlias = tuple[int, int | None, int, tuple[int, ...]]  # arguments of `seed_blocks`


@functools.lru_cache(maxsize=1024)  # thousands of cells have a few plans
def _seeds_of_plan(plan: _SeedPlan) -> frozenset[int]:
    return frozenset(seed for block in seed_blocks(*plan) for seed in block.seeds)


@functools.lru_cache(maxsize=1024)
def _unrun_seeds(plan: _SeedPlan, block: tuple[int, int], seeds: tuple[int, ...]) -> Mapping[int, str]:
    """Returns `Cell.missing_seeds` of a case's only evaluation, which must not be changed.

    Args:
      plan: Plan of the case.
      block: Start and size of the evaluated seed block.
      seeds: Seeds that gave curves.
    """
    planned_seeds = _seeds_of_plan(plan)
    start, size = block
    return (
        dict.fromkeys(planned_seeds.difference(seeds), NOT_RUN)
        if planned_seeds.issuperset(range(start, start + size))
        else {}
    )


def _join_rows(rows: Sequence[EvaluationRow]) -> Cell:
    """Joins the evaluations of one case, given in the order of their recording."""
    if rows[-1].case.has_items:
        rows = _last_item_rows(rows)
    elif (
        len(rows) == 1
        and isinstance(only_curves := rows[0].attached_curves, CurveSummary)
        and only_curves.seeds
        and not only_curves.origin.imported
    ):
        (row,) = rows
        case = row.case
        missing = _EMPTY_MAPPING
        if row.key.program_version != _IMPORT_PROGRAM:
            plan = case.num_seeds, case.seed_block, case.first_seed, case.block_sizes
            missing = _unrun_seeds(plan, (row.key.seed_block.start, row.key.seed_block.size), only_curves.seeds)
        return _OneBlockCell.of(row, only_curves, missing)
    sources: dict[int, tuple[Curves | CurveSummary, int]] = {}
    lost_outcomes: dict[int, str] = {}
    for row in rows:
        curves = row.curves_or_summary
        # Errors and timeouts do not replace values of an earlier evaluation.
        if curves is None:
            lost_outcomes.update(dict.fromkeys(set(row.key.seed_block.seeds) - sources.keys(), str(row.outcome)))
            continue
        # If a seed was evaluated twice, the later evaluation counts.
        for index, seed in enumerate(curves.seeds):
            sources[seed] = curves, index
        for seed in lost_outcomes.keys() & curves.seeds if lost_outcomes else ():
            del lost_outcomes[seed]
    sources = dict(sorted(sources.items()))
    directions: dict[str, Direction] = {}
    blocks = {id(curves): curves for curves, _ in sources.values()}
    has_diverged = False
    draws = set[str]()
    for curves in blocks.values():
        draws.add(curves.origin.imported.get("draws", LOBENCH_SEEDS) if not rows[-1].case.has_items else ITEM_DRAWS)
        directions |= curves.directions
        has_diverged |= max(curves.diverged_at) >= 0
    if len(blocks) == 1:
        (block,) = blocks.values()
        final = _final_values_of(block)
        untrained = _untrained_values_of(block)
    else:
        final, untrained = _values_of_blocks(blocks.values(), sources)
    divergence_steps = (
        sorted((seed, block.diverged_at[index]) for seed, (block, index) in sources.items()) if has_diverged else ()
    )
    return Cell(
        case=rows[-1].case,
        final_values=final,
        untrained_values=untrained,
        diverged_at={seed: divergence_step for seed, divergence_step in divergence_steps if divergence_step >= 0},
        num_lost_by_outcome=Counter(lost_outcomes.values()) if lost_outcomes else {},
        missing_seeds={**dict.fromkeys(_planned_seeds(rows) - sources.keys(), NOT_RUN), **lost_outcomes},
        failures=tuple([(row.outcome, row.message) for row in rows if row.outcome is not Outcome.PASSED]),
        curves_by_seed=sources,
        directions=directions,
        draws=draws.pop() if len(draws) == 1 else _LABEL_DRAWS if draws else LOBENCH_SEEDS,
    )


def _last_item_rows(rows: Sequence[EvaluationRow]) -> Sequence[EvaluationRow]:
    """Returns the last evaluation that has values of items, as a list. Without one, all evaluations.

    Values of earlier evaluations are not merged, because they may come from another data set.
    """
    return [row for row in rows if row.curves_or_summary is not None][-1:] or rows


_FIELD_MAKERS: Mapping[str, Callable[[_OneBlockCell], Any]] = {
    "final_values": lambda cell: _final_values_of(cell._curves),
    "untrained_values": lambda cell: _untrained_values_of(cell._curves),
    "curves_by_seed": lambda cell: {seed: (cell._curves, index) for index, seed in enumerate(cell._curves.seeds)},
    "diverged_at": _divergence_steps,
    "_exploded_seeds": _find_exploded_seeds,
}

_ValuesBySeed: TypeAlias = Mapping[str, Mapping[int, float]]  # values by metric, then seed


def _final_values_of(curves: Curves | CurveSummary) -> Mapping[str, Mapping[int, float]]:
    """Returns the last values of curves, by metric and seed."""
    return {name: dict(zip(curves.seeds, curves.final(name), strict=True)) for name in _measured_metrics(curves)}


def _untrained_values_of(curves: Curves | CurveSummary) -> Mapping[str, Mapping[int, float]]:
    """Returns the first values of curves, by metric and seed; {} if they begin after step 0."""
    if curves.eval_steps[0] != 0:
        return {}
    return {
        name: _values_by_seed(curves.seeds, array("d", curves.first(name)).tobytes())
        for name in _measured_metrics(curves)
    }


def _values_of_blocks(
    blocks: Iterable[Curves | CurveSummary], sources: Mapping[int, tuple[Curves | CurveSummary, int]]
) -> tuple[_ValuesBySeed, _ValuesBySeed]:
    """Returns the last and the first values of the selected seeds of several blocks."""
    final: dict[str, dict[int, float]] = {}
    untrained: dict[str, dict[int, float]] = {}
    for curves in blocks:
        indices = [index for index, seed in enumerate(curves.seeds) if sources[seed][0] is curves]
        seeds = [curves.seeds[index] for index in indices]
        for name in _measured_metrics(curves):
            final_values = curves.final(name)
            final.setdefault(name, {}).update(zip(seeds, (final_values[index] for index in indices), strict=True))
            if curves.eval_steps[0] == 0:
                starts = curves.first(name)
                untrained.setdefault(name, {}).update(zip(seeds, (starts[index] for index in indices), strict=True))
    return final, untrained


def _measured_metrics(curves: Curves | CurveSummary) -> list[str]:
    """Returns the metrics with values at evaluations."""
    return [name for name, shape in curves.shapes.items() if not is_of_batch(name) and all(shape)]


@functools.lru_cache(maxsize=1024)  # untrained values of a case's seeds are the same with every optimizer
def _values_by_seed(seeds: tuple[int, ...], values: bytes) -> Mapping[int, float]:
    return dict(zip(seeds, array("d", values), strict=True))

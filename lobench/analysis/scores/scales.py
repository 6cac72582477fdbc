"""Scales of a store's cases: the values that 0 and 1 stand for, and the only conversion from final values to scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.scores.baseline_file import (
    Baseline,
    BaselineCase,
    BaselineError,
    StaleBaseline,
    baseline_files,
)
from lobench.analysis.scores.baseline_places import baselines_of_cases
from lobench.analysis.scores.score_scale import ScaleKind, ScoreScale, is_signed, ordering_values, scores
from lobench.analysis.stats.intervals import agreed_variance
from lobench.analysis.store.snapshot import Snapshot, case_names, distinct_labels
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, CellBlock, StoredSubject
from lobench.core.case import CaseInfo, common_replicate_noun
from lobench.core.code import other_code_text
from lobench.core.metric import Direction, direction_of, how_to_declare
from lobench.core.wording import LEVEL_TOLERANCE, counted, is_level, one_line, shortened_list
from lobench.engine.store.series import has_step_in_name

__all__ = ["CaseBaselines", "Scales", "seed_scores"]

_MAX_NAMED_CASES = 4  # number of cases and of next steps in one line


class _Column(NamedTuple):
    """Final values of a metric in the cells of a case, flat because thousands of cells have a few seeds each.

    Attributes:
      cells: Cells that have the metric: first the cells of the block, then all others.
      finals: Final values of their seeds, cell after cell: float64[num_values].
      block: Values of most cells as arrays. None if there are none.
    """

    cells: Sequence[Cell]
    finals: NDArray[np.float64]
    block: CellBlock | None = None

    @property
    def other_cells(self) -> Sequence[Cell]:
        """Cells that are not in the block."""
        return self.cells[len(self.block.cells) :] if self.block is not None else self.cells


class _CaseScores(NamedTuple):
    """Scores of a metric in the cells of a case.

    Attributes:
      block: Scores of the cells in `_Column.block`, float64[num_cells, num_seeds]. None without a block.
      first_index_by_cell_id: Index of the first score of each other cell in `scores`, by the cell's `id`.
      scores: Scores of the other cells, cell after cell: float64[num_scores].
    """

    block: NDArray[np.float64] | None
    first_index_by_cell_id: Mapping[int, int]
    scores: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBaselines:
    """Baselines of some cases, all with the optimizer and the protocol of the first file found.

    Attributes:
      first_baseline: First baseline file found.
      baseline_by_case: Baseline of each case that has one, by identity.
      problems: Cases that the found baselines do not serve, with the reasons.
      moved_notes: A line for each suite whose baselines are missing, or differ from those used when its store was
        scored.
    """

    first_baseline: Baseline | None = None
    baseline_by_case: Mapping[str, BaselineCase] = field(default_factory=dict)
    problems: tuple[BaselineError, ...] = ()
    moved_notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, cases: Mapping[str, CaseInfo], baseline_paths: Sequence[Path] | None) -> CaseBaselines:
        """Returns the baselines of cases.

        Args:
          cases: The cases, by identity.
          baseline_paths: Suites, or baseline files. None: the suites of the cases, as recorded in their stores.

        Raises:
          BaselineError: A file cannot be read.
        """
        moved_notes: tuple[str, ...] = ()
        if baseline_paths is None:
            located_baselines = baselines_of_cases(cases.values())
            baseline_paths, moved_notes = located_baselines.folders, located_baselines.notes
        loaded_baselines = [Baseline.load(path) for path in baseline_files(baseline_paths)]
        loaded_baselines = [baseline for baseline in loaded_baselines if baseline.label == loaded_baselines[0].label]
        tuned: dict[str, BaselineCase] = {}
        problems = []
        for identity, case_info in cases.items():
            baseline_case = _baseline_or_error(loaded_baselines, case_info)
            if isinstance(baseline_case, BaselineError):
                problems.append(baseline_case)
            elif baseline_case is not None:
                tuned[identity] = baseline_case
        first_baseline = loaded_baselines[0] if loaded_baselines else None
        return cls(
            first_baseline=first_baseline, baseline_by_case=tuned, problems=tuple(problems), moved_notes=moved_notes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Scales of every case and metric. They come from a tuned baseline, or else from the best stored mean.

    All scores in lobench are computed by `scores`, or for gates by `seed_scores`.

    Attributes:
      all_cells: Cells of all subjects read, by identity of the case.
      baselines: Tuned baselines of the cases.
      cases: Cases for which a baseline was looked for, by identity.
      label_by_cell_id: Label of the subject of each cell in `all_cells`, by the cell's `id`.
    """

    all_cells: Mapping[str, Sequence[Cell]]
    baselines: CaseBaselines = field(default_factory=CaseBaselines)
    cases: Mapping[str, CaseInfo]
    label_by_cell_id: Mapping[int, str] = field(default_factory=dict)
    _directions: dict[str, dict[str, Direction]] = field(default_factory=dict, repr=False, compare=False)
    _scales: dict[tuple[str, str], ScoreScale] = field(default_factory=dict, repr=False, compare=False)
    _unsigned_scales: dict[tuple[str, str], ScoreScale] = field(default_factory=dict, repr=False, compare=False)
    _common_starts: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict, repr=False, compare=False)
    _best_labels: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)
    _columns: dict[tuple[str, str], _Column] = field(default_factory=dict, repr=False, compare=False)
    _case_scores: dict[tuple[str, str], _CaseScores] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        subjects: Iterable[StoredSubject],
        baseline_paths: Sequence[Path] | None = (),
        *,
        all_subjects: Iterable[StoredSubject] | None = None,
        edited_codes: Mapping[str, Sequence[str]] | None = None,
    ) -> Scales:
        """Returns the scales of all cases that the subjects have.

        Args:
          subjects: Subjects that are shown.
          baseline_paths: Suites, or baseline files. Only baselines with the optimizer and protocol of the first one are
            used.
            None: the suites of the cases, as recorded in their stores (`baselines_of_cases`).
          all_subjects: All subjects in the stores, so that a score does not depend on which subjects are shown. Without
            a tuned baseline the best of their means scores 1. None: `subjects`.
          edited_codes: Codes of results that are not the user's present code, as in `Snapshot.edited_codes`, for the
            line on the subjects whose means score 1.

        Raises:
          BaselineError: A file cannot be read.
        """
        subjects = tuple(subjects)
        cells = dict[str, list[Cell]]()
        labels = dict[int, str]()
        scale_subjects = subjects if all_subjects is None else tuple(all_subjects)
        # A file without a step (`last.pt`) has the number of its arrival, so that it comes before `ckpt_20.pt`, and
        # would set the score 0.
        scale_subjects = tuple(
            sorted(
                scale_subjects,
                key=lambda subject: subject.subject.has_theta and not has_step_in_name(subject.subject.uri),
            )
        )
        scale_keys = {subject.subject.key for subject in scale_subjects}
        other_subjects = [subject for subject in subjects if subject.subject.key not in scale_keys]
        all_labels = distinct_labels([*scale_subjects, *other_subjects])
        for subject, label in zip(scale_subjects, all_labels, strict=False):
            for identity, cell in subject.all_cells().items():
                cells.setdefault(identity, []).append(cell)
                labels[id(cell)] = label
                if edited_codes:
                    code = subject.subject.uri if subject.subject.is_imported else cell.case.code
                    if names := edited_codes.get(code):
                        labels[id(cell)] = f"{label} ({other_code_text(names)})"
        current_cases: dict[str, CaseInfo] = {}
        for subject in subjects:
            for identity, cell in subject.cells.items():
                # The case of imported curves has the code of the time of the import, and not that of a training.
                if identity not in current_cases or not cell.is_imported:
                    current_cases[identity] = cell.case
        return cls(
            all_cells=cells,
            label_by_cell_id=labels,
            baselines=CaseBaselines.of(current_cases, baseline_paths),
            cases=current_cases,
        )

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot, baseline_paths: Sequence[Path] | None = None) -> Scales:
        """Returns the scales of the cases of a snapshot. `baseline_paths` are as in `of`."""
        return cls.of(
            snapshot.subjects,
            baseline_paths,
            all_subjects=snapshot.scale_subjects,
            edited_codes=snapshot.edited_codes,
        )

    @property
    def num_cases(self) -> int:
        return len(self.cases)

    @property
    def baseline_label(self) -> str:
        """Name of the baseline; "" if it serves no case."""
        return (
            self.baselines.first_baseline.label
            if self.baselines.first_baseline is not None and self.baselines.baseline_by_case
            else ""
        )

    def scores(self, cell: Cell, metric: str | None) -> dict[int, float]:
        """Returns the score of each seed that has the metric. All are NaN if the case has no scale.

        Args:
          cell: Results of a subject on a case.
          metric: Name of the metric. None: the case's primary metric.
        """
        name = metric or cell.case.primary_metric
        identity = cell.case.identity
        if (identity, name) not in self._case_scores:
            self._case_scores[identity, name] = self._scores_of_case(identity, name)
        block_scores, starts_by_cell, values = self._case_scores[identity, name]
        block = self._columns[identity, name].block
        if block is not None and block_scores is not None and (row := block.row_by_cell_id.get(id(cell))) is not None:
            return dict(zip(block.seeds, block_scores[row].tolist(), strict=True))
        if (start := starts_by_cell.get(id(cell))) is not None:
            seeds = cell.seeds_of(name)
            return dict(zip(seeds, values[start : start + len(seeds)].tolist(), strict=True))
        starts = self.cell_starts(cell, name)
        return seed_scores(cell.final_values.get(name, {}), starts, cell.unconverged_seeds, self.scale(cell.case, name))

    def least_variance(self, cell: Cell, metric: str | None) -> float:
        """Returns the least variance of a seed's score: that of rounding if all final values agree, else 0.

        Args:
          cell: Results of a subject on a case.
          metric: Name of the metric. None: the case's primary metric.
        """
        name = metric or cell.case.primary_metric
        finals = cell.final_values.get(name, {}).values()
        if len(finals) < 2 or len(set(finals)) > 1 or cell.unconverged_seeds:
            return 0.0
        scale = self.scale(cell.case, name)
        value = next(iter(finals))
        if not scale.is_usable:
            return 0.0
        error = math.sqrt(agreed_variance(name, list(finals)))
        if scale.kind is ScaleKind.LOG:
            error /= max(value - (scale.minimum or 0.0), error, scale.floor)
        return float((error / scale.unit) ** 2)

    def _scores_of_case(self, identity: str, metric: str) -> _CaseScores:
        """Returns the scores of all cells of a case.

        They are computed as one array, because there may be thousands of cells with a few seeds each.
        """
        column = self._column(identity, metric)
        if not column.cells:
            return _CaseScores(None, {}, column.finals)
        block = column.block
        other_cells = column.other_cells
        case = column.cells[0].case
        common_starts = self.common_starts(case, metric)
        scale = self.scale(case, metric)
        block_scores = None
        if block is not None:
            starts = np.broadcast_to([common_starts.get(seed, math.nan) for seed in block.seeds], block.finals.shape)
            block_scores = scores(block.finals, scale, starts=starts, diverged=block.is_lost)
        other_scores = np.zeros(0)
        if other_cells:
            start_values = list[float]()
            is_diverged = list[bool]()
            for cell in other_cells:
                # A lobench seed that is not in `common_starts` has no finite start in any cell.
                starts_by_seed = common_starts if cell.draws == LOBENCH_SEEDS else {}
                unconverged = cell.unconverged_seeds
                seeds = cell.seeds_of(metric)
                start_values += map(starts_by_seed.get, seeds, itertools.repeat(math.nan))
                is_diverged += map(unconverged.__contains__, seeds)
            other_scores = scores(column.finals[-len(start_values) :], scale, starts=start_values, diverged=is_diverged)
        cell_starts = itertools.accumulate([len(cell.seeds_of(metric)) for cell in other_cells], initial=0)
        return _CaseScores(block_scores, dict(zip(map(id, other_cells), cell_starts, strict=False)), other_scores)

    def _column(self, identity: str, metric: str) -> _Column:
        key = (identity, metric)
        if key not in self._columns:
            all_cells = self.all_cells.get(identity, ())
            primary_metric = all_cells[0].case.primary_metric if all_cells else metric
            primary_block = self._column(identity, primary_metric).block if metric != primary_metric else None
            block = CellBlock.of(all_cells, metric, primary_block=primary_block)
            cells = list[Cell]() if block is None else block.cells
            values = list[float]()
            if len(cells) < len(all_cells):
                cells = [*cells]
                cell_ids = {*map(id, cells)}
                for cell in all_cells:
                    seeds_of_cell, finals = cell.final_column(metric)
                    if seeds_of_cell and id(cell) not in cell_ids:
                        cells.append(cell)
                        values += finals
            values_of_others = np.asarray(values, np.float64)
            arrays = [*([block.finals.ravel()] if block is not None else []), *([values_of_others] if values else [])]
            self._columns[key] = _Column(cells, arrays[0] if len(arrays) == 1 else np.concatenate([*arrays, []]), block)
        return self._columns[key]

    def _cells_with_distinct_starts(self, identity: str, metric: str) -> Sequence[Cell]:
        """Returns the cells of a case, in order. Of a block with equal starts it returns only the first cell."""
        cells = self.all_cells.get(identity, ())
        block = self._column(identity, metric).block
        if block is None or (block.untrained is not None and not np.isfinite(block.untrained[0]).all()):
            return cells
        if len(block.cells) == len(cells):
            return cells[:1]
        left_out_ids = {*map(id, block.cells[1:])}
        return [cell for cell in cells if id(cell) not in left_out_ids]

    def seed_scores(
        self,
        case: CaseInfo,
        metric: str,
        finals: Mapping[int, float],
        diverged: Collection[int] = (),
    ) -> dict[int, float]:
        """Returns the score of each seed of a case that lobench trained, including a tuned baseline's seeds."""
        return seed_scores(finals, self.common_starts(case, metric), diverged, self.scale(case, metric))

    def cell_starts(self, cell: Cell, metric: str) -> Mapping[int, float]:
        """Returns the start values from which the seeds of a cell are scored.

        Empty for seeds that lobench did not draw. They are scored from the untrained mean, so that their scores depend
        on their last values only and not on where their curves begin. The same holds for seeds of commands and tests
        with a single value, unless a subject that sets the scale has them.
        """
        if cell.draws != LOBENCH_SEEDS:
            return {}
        start_values = cell.untrained_values.get(metric, {})
        if cell.case.evaluator and start_values == cell.final_values.get(metric):
            start_values = {}  # a curve with a single value has no start
        return {**start_values, **self.common_starts(cell.case, metric)}

    def common_starts(self, case: CaseInfo, metric: str) -> dict[int, float]:
        """Returns the initial value of each seed that lobench evaluated. All subjects share the first one stored."""
        key = (self._stored_identity(case), metric)
        if key not in self._common_starts:
            first_values: dict[int, float] = {}
            for cell in self._cells_with_distinct_starts(key[0], metric):
                if cell.draws == LOBENCH_SEEDS and cell.has_further_starts(metric, first_values):
                    cell_starts = cell.untrained_values.get(metric, {})
                    first_values |= {s: v for s, v in cell_starts.items() if s not in first_values and math.isfinite(v)}
            self._common_starts[key] = first_values
        return self._common_starts[key]

    def ordering_values(self, cell: Cell, metric: str | None) -> list[float]:
        """Returns the values by which the seeds of a cell are ordered for P(better): unclipped, worst for a lost seed.

        Lost seeds are those that diverged or exploded. The list is empty if the metric's direction is not known.
        """
        name = metric or cell.case.primary_metric
        finals = cell.final_values.get(name, {})
        scale = self.scale(cell.case, name)
        if scale.direction is None:
            return []
        unconverged = cell.unconverged_seeds
        is_diverged = [seed in unconverged for seed in finals]
        return [float(value) for value in ordering_values(list(finals.values()), scale, diverged=is_diverged)]

    def scale(self, case: CaseInfo, metric: str) -> ScoreScale:
        """Returns the scale of a case. It is not usable if the case has none.

        If a loss of any subject is signed, the scale is linear for all subjects.
        """
        key = (self._stored_identity(case), metric)
        if key not in self._scales:
            case_scale = self._unsigned_scale(key[0], case, metric)
            self._scales[key] = case_scale.as_linear() if self._is_signed(key[0], metric, case_scale) else case_scale
        return self._scales[key]

    def is_signed(self, case: CaseInfo, metric: str) -> bool:
        """Returns whether a case's scale is linear only because a loss is below 0, in which case no gate may decide."""
        identity = self._stored_identity(case)
        return self._is_signed(identity, metric, self._unsigned_scale(identity, case, metric))

    def direction(self, case: CaseInfo, metric: str) -> Direction | None:
        """Returns the direction in which a metric is better on a case; None if no subject declares it."""
        return self._direction(self._stored_identity(case), metric)

    def metrics_without_direction(self, metric: str | None = None) -> list[str]:
        """Returns the primary metrics, or the given one, whose direction no subject declares."""
        requested_metrics = (
            (identity, metric or cells[0].case.primary_metric) for identity, cells in self.all_cells.items()
        )
        undirected_metrics = (
            (identity, name) for identity, name in requested_metrics if self._direction(identity, name) is None
        )
        return sorted(
            {
                name
                for identity, name in undirected_metrics
                if any(name in cell.metric_names for cell in self.all_cells[identity])
            }
        )

    def _direction(self, identity: str, metric: str) -> Direction | None:
        if identity not in self._directions:
            cells = self.all_cells.get(identity, ())
            self._directions[identity] = {
                name: direction for cell in cells for name, direction in cell.directions.items()
            }
        return direction_of(metric, self._directions[identity])

    def _stored_identity(self, case: CaseInfo) -> str:
        """Returns the identity of a case in `all_cells`, or "".

        Other seeds or another budget change the identity. A case whose identity is not stored is looked up by its name.
        """
        if case.identity in self.all_cells:
            return case.identity
        names = {(cells[0].case.suite, cells[0].case.name): identity for identity, cells in self.all_cells.items()}
        return names.get((case.suite, case.name), "")

    def _is_signed(self, identity: str, metric: str, scale: ScoreScale) -> bool:
        return is_signed(self._column(identity, metric).finals, scale)

    def _unsigned_scale(self, identity: str, case: CaseInfo, metric: str) -> ScoreScale:
        """Returns the scale set by the baseline, or by the stored subjects, before signed losses are considered."""
        key = (identity, metric)
        if key not in self._unsigned_scales:
            self._unsigned_scales[key] = self._make_scale(identity, case, metric)
        return self._unsigned_scales[key]

    def _make_scale(self, identity: str, case: CaseInfo, metric: str) -> ScoreScale:
        tuned_case = self.baselines.baseline_by_case.get(identity)
        cells = self.all_cells.get(identity, ())
        direction = self._direction(identity, metric)
        if tuned_case is not None and metric in tuned_case.tuned:
            return tuned_case.score_scale(metric, direction, is_primary=metric == case.primary_metric)
        is_primary = metric == case.primary_metric
        common_starts = self.common_starts(case, metric)
        column = self._column(identity, metric)
        finals = list[float]()
        starts = dict[Any, float]()
        for cell in self._cells_with_distinct_starts(identity, metric):
            if cell.draws == LOBENCH_SEEDS and (not starts or cell.has_further_starts(metric, common_starts)):
                starts |= self.cell_starts(cell, metric)  # other cells have no further starts
        # Seeds of other draws differ even if their numbers are equal, so their key includes the cell.
        seeds = list[tuple[Sequence[Any], int]]()
        if (block := column.block) is not None:
            seeds.append((block.seeds, len(block.cells)))
        for index, cell in enumerate(column.other_cells):
            seeds_of_cell, values = cell.final_column(metric)
            unconverged = cell.unconverged_seeds
            finals += [
                math.nan if seed in unconverged else value for seed, value in zip(seeds_of_cell, values, strict=True)
            ]
            is_drawn = cell.draws == LOBENCH_SEEDS
            seeds.append((tuple(seed if is_drawn else (index, seed) for seed in seeds_of_cell), 1))
        if not starts:  # imported seeds are scored from the mean of all starts
            starts_of_cells = [cell.untrained_values.get(metric, {}) for cell in cells]
            # If no cell has step 0, the first values of the curves are the starts.
            starts_of_cells = starts_of_cells if any(starts_of_cells) else [cell.starts(metric) for cell in cells]
            starts_of_cells = starts_of_cells[:1] if case.has_items else starts_of_cells
            starts = {
                (-1 - index, seed): start_value
                for index, cell_starts in enumerate(starts_of_cells)
                for seed, start_value in cell_starts.items()
            }
        all_finals = np.asarray(finals, np.float64)
        if block is not None:
            block_finals = block.finals if block.is_lost is None else np.where(block.is_lost, np.nan, block.finals)
            all_finals = np.concatenate([block_finals.ravel(), all_finals])
        declared_scale = (case.scale or "") if is_primary else ""
        scale = ScoreScale.of_final_values(
            metric,
            direction,
            finals=all_finals,
            seeds=seeds,
            starts=starts,
            declared=declared_scale,
            minimum=case.minimum if is_primary else None,
            is_either_way=self._has_single_values(identity, case),
        )
        return replace(scale, is_clipped=False) if case.has_items else scale

    def _has_step_0(self, identity: str, metric: str) -> bool:
        """Returns whether step 0 was evaluated by a subject or a baseline, or no subject has the metric."""
        cells = [cell for cell in self.all_cells.get(identity, ()) if metric in cell.metric_names]
        return (
            identity in self.baselines.baseline_by_case
            or not cells
            or any(metric in cell.untrained_values for cell in cells)
        )

    @property
    def one_text(self) -> str:
        """Description of the score 1."""
        stored_mean_text = "the best mean that is stored"
        if self.num_cases and self._num_single_value_cases == self.num_cases:
            return "the largest change of a stored mean from it, on each case"
        if not self.baselines.baseline_by_case:
            return f"{stored_mean_text}, on each case"
        partial_note = (
            f" on {len(self.baselines.baseline_by_case)} of {self.num_cases} cases, {stored_mean_text} on the others"
        )
        return self.baseline_label + (partial_note if len(self.baselines.baseline_by_case) < self.num_cases else "")

    @property
    def zero_text(self) -> str:
        """Description of the score 0.

        Commands and tests that record one value have no value before training. Their scores begin at the first stored
        value of each seed, or at the mean over the items of the first subject.
        """
        num_single = self._num_single_value_cases
        if not num_single:
            return "the untrained network"
        have_items = {case.has_items for case in self.cases.values()}
        first_value_text = "the first stored mean" if have_items == {True} else "the first stored value of each seed"
        first_value_text += ", or mean over items" if len(have_items) > 1 else ""
        partial_text = f"the untrained network ({first_value_text} on {num_single} of {self.num_cases} cases)"
        return first_value_text if num_single == self.num_cases else partial_text

    @property
    def _replicate_noun(self) -> str:
        """Noun for one replicate of the cases: "seed", "item", or "value" if some have seeds and others items."""
        return common_replicate_noun(self.cases.values())

    @property
    def _num_single_value_cases(self) -> int:
        return sum(self._has_single_values(identity, case) for identity, case in self.cases.items())

    def _has_single_values(self, identity: str, case: CaseInfo) -> bool:
        """Returns whether all subjects of a case without baseline recorded only a single value for each seed.

        Such a case has no starts. The unit of its scores is the largest change of a subject from the first stored
        value.
        """
        if not (case.evaluator or case.has_items) or identity in self.baselines.baseline_by_case:
            return False
        evaluated_cells = [cell for cell in self.all_cells.get(identity, ()) if cell.num_seeds]
        return bool(evaluated_cells) and all(cell.has_single_values for cell in evaluated_cells)

    @property
    def is_tunable(self) -> bool:
        """Whether lobench trains a case, so that `lobench baseline` can tune an optimizer on it."""
        return any(
            not case.evaluator and all(cell.draws == LOBENCH_SEEDS for cell in self.all_cells.get(identity, ()))
            for identity, case in self.cases.items()
        )

    def describe(self, advice: str = "--baseline SUITE names one") -> str:
        """Returns lines that describe 0 and 1, problems with baselines, and limits of the scales."""
        is_known = self.baselines.baseline_by_case or self.baselines.problems or not self.is_tunable
        hint = "" if is_known else f" (no tuned baseline was found: {advice})"
        lines = [f"scores: 0 is {self.zero_text}, 1 {self.one_text}; a diverged {self._replicate_noun} scores -1{hint}"]
        lines += [f"without a baseline: {line}" for line in self.problem_lines()]
        lines += [f"no score on {name}: {how_to_declare(name)}" for name in self.metrics_without_direction()]
        return "\n".join([*lines, *self.best_subject_lines(), *self.limit_notes()])

    def best_subject_lines(self) -> list[str]:
        """Returns a line naming the subjects whose means score 1, on the cases without a baseline."""
        names = case_names(list(self.cases.values()))
        names_by_setter = dict[str, list[str]]()
        condition = f"over {self._replicate_noun}s that converge"
        for identity, case in self.cases.items():
            if identity not in self._best_labels:
                self._best_labels[identity] = self._labels_of_best(identity, case)
            for label in self._best_labels[identity]:
                names_by_setter.setdefault(one_line(label), []).append(one_line(names[identity]))
        have_all_cases = all(len(names) == len(self.cases) for names in names_by_setter.values())
        setters = [
            label if have_all_cases else f"{label} ({shortened_list(sorted(names), _MAX_NAMED_CASES)})"
            for label, names in sorted(names_by_setter.items())
        ]
        each = "each of " if have_all_cases and len(setters) > 1 else ""
        return (
            [f"the score 1 is the mean of {each}{shortened_list(setters, _MAX_NAMED_CASES)}, {condition}"]
            if setters
            else []
        )

    def _labels_of_best(self, identity: str, case: CaseInfo) -> list[str]:
        """Returns the labels of the subjects whose means score 1 on a case; [] for a baseline, or without a scale."""
        if identity in self.baselines.baseline_by_case or not self.scale(case, case.primary_metric).is_usable:
            return []
        labels = set[str]()
        for cell in self._cells_near_one(identity, case):
            finals = cell.converged_finals(case.primary_metric)
            scores = self.scores(cell, None)
            finite_scores = [scores[seed] for seed, final in finals.items() if math.isfinite(final)]
            is_setter = finite_scores and 2 * len(finite_scores) >= len(finals)
            if is_setter and is_level(math.fsum(finite_scores) / len(finite_scores), 1.0):
                labels.add(self.label_by_cell_id.get(id(cell), ""))
        return sorted(labels - {""})

    def _cells_near_one(self, identity: str, case: CaseInfo) -> Iterable[Cell]:
        """Returns the cells of a case whose mean score may be 1 up to rounding. The caller checks each of them."""
        column = self._column(identity, case.primary_metric)
        if (block := column.block) is None:
            return self.all_cells.get(identity, ())
        self.scores(block.cells[0], None)
        case_scores = self._case_scores[identity, case.primary_metric].block
        assert case_scores is not None
        is_known = np.isfinite(block.finals) if block.is_lost is None else np.isfinite(block.finals) & ~block.is_lost
        distances = np.abs(np.where(is_known, case_scores - 1, 0.0).sum(axis=1))
        near_indices = np.flatnonzero(distances < 2 * len(block.seeds) * LEVEL_TOLERANCE).tolist()
        return [*(block.cells[index] for index in near_indices), *column.other_cells]

    def short_description(self) -> str:
        """Returns one line that describes 0 and 1, and names baselines that differ from the store's baselines."""
        return "; ".join([self.describe().splitlines()[0], *self.baselines.moved_notes])

    def problem_lines(self) -> list[str]:
        """Returns a line for each kind of problem with baselines, with the cases that have it."""
        problems_by_kind: dict[str, list[BaselineError]] = {}
        for problem in self.baselines.problems:
            problems_by_kind.setdefault(problem.what, []).append(problem)
        return [_problem_line(kind, problems) for kind, problems in sorted(problems_by_kind.items())]

    def limit_notes(self) -> list[str]:
        """Returns a line for each limit of the scales: thin scales, signed losses, baselines without starts."""
        names = case_names(list(self.cases.values()))
        names_by_note = dict[str, list[str]]()
        for identity, case in self.cases.items():
            scale = self.scale(case, case.primary_metric)
            name = names[identity]
            if scale.is_usable and scale.is_thin:
                names_by_note.setdefault(
                    "thin scale, the tuned baseline's seeds differ as much as it gains", []
                ).append(name)
            if not scale.has_starts:
                text = "the baseline's seeds are taken to begin at the untrained mean (`lobench baseline` adds starts)"
                names_by_note.setdefault(text, []).append(name)
            if not self._has_step_0(identity, case.primary_metric):
                names_by_note.setdefault("step 0 was not evaluated, and the curves begin at 0", []).append(name)
            for metric in dict.fromkeys((case.primary_metric, "train/loss", "test/loss")):
                if self.is_signed(case, metric):
                    text = f'a {metric} lies below 0, so its scale is linear; to declare it, bind Case.scale = "linear"'
                    names_by_note.setdefault(text, []).append(name)
        notes = [f"{text}: {', '.join(sorted(members))}" for text, members in names_by_note.items()]
        return [*self.baselines.moved_notes, *notes]


def seed_scores(
    finals: Mapping[int, float], starts: Mapping[int, float], diverged: Collection[int], scale: ScoreScale
) -> dict[int, float]:
    """Returns the score of each seed. All scores in lobench are computed here.

    Args:
      finals: Final value of each seed.
      starts: Value of each seed at step 0. Seeds may be missing.
      diverged: Seeds that met a non-finite loss.
      scale: Scale of the case. If it is not usable, every score is NaN.
    """
    values = scores(
        list(finals.values()),
        scale,
        starts=[starts.get(seed, math.nan) for seed in finals],
        diverged=[seed in diverged for seed in finals],
    )
    return dict(zip(finals, values.tolist(), strict=True))


def _problem_line(kind: str, problems: Sequence[BaselineError]) -> str:
    """Returns one line for problems of the same kind, with the cases and each next step once."""
    # Two cases may share one baseline if they differ in seeds or deadlines only.
    cases = sorted({problem.where for problem in problems})
    if len(cases) == 1:
        return str(problems[0])
    steps = sorted({problem.next_step.removeprefix("run ") for problem in problems})
    cases_text = ", ".join(cases[:_MAX_NAMED_CASES]) + (
        f" and {len(cases) - _MAX_NAMED_CASES} more" if len(cases) > _MAX_NAMED_CASES else ""
    )
    omission_note = (
        f" and likewise for {counted(len(steps) - _MAX_NAMED_CASES, 'more suite')}"
        if len(steps) > _MAX_NAMED_CASES
        else ""
    )
    return (
        f"{kind} ({counted(len(cases), 'case')}: {cases_text}); run "
        f"{', '.join(steps[:_MAX_NAMED_CASES])}{omission_note}"
    )


def _baseline_or_error(baselines: Sequence[Baseline], info: CaseInfo) -> BaselineCase | BaselineError | None:
    errors: list[BaselineError] = []
    for baseline in baselines:
        try:
            return baseline.case(info)
        except BaselineError as error:
            errors.append(error)
    # A file that has the case's name gives the more specific error.
    return next((error for error in errors if isinstance(error, StaleBaseline)), errors[0] if errors else None)

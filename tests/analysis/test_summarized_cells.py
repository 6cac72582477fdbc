"""Stores that are read as summaries, with cells as arrays, have the values of stores that are read with all curves."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from stores import add

from lobench.analysis.comparisons.best_group import bold_cells, bold_means
from lobench.analysis.comparisons.paired_values import paired_block
from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import Cell, CellBlock
from lobench.core.result import Outcome

METRICS = ("train/loss", "test/loss")
_VALUES = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.5, -0.5, math.nan, math.inf])
_LOW_VALUES = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5, 1.75])
_SEEDS = st.sampled_from([3, 3, 3, 2, 1])


@st.composite
def _cells(draw: st.DrawFn) -> object:
    """Draws the argument of `add` for one case: curves, or an outcome."""
    if draw(st.integers(0, 9)) == 0:
        return Outcome.ERROR
    num_seeds, values = draw(_SEEDS), draw(st.sampled_from([_VALUES, _LOW_VALUES, _LOW_VALUES]))
    metrics = METRICS if draw(st.integers(0, 4)) else METRICS[:1]
    return {name: draw(st.lists(values, min_size=num_seeds, max_size=num_seeds)) for name in metrics}


_STORES = st.lists(st.dictionaries(st.sampled_from("abc"), _cells(), min_size=1), min_size=1, max_size=6)


def _of_cell(cell: Cell) -> object:
    fields = {one.name: getattr(cell, one.name) for one in dataclasses.fields(cell) if one.name != "curves_by_seed"}
    found = [
        {name: dict(value) if isinstance(value, dict) else value for name, value in fields.items()},
        [(seed, row) for seed, (_, row) in cell.curves_by_seed.items()],
        [
            cell.seeds,
            cell.num_seeds,
            cell.num_planned,
            cell.distinct_last_steps(),
            cell.last_step_by_seed(),
            cell.is_imported,
            cell.is_fully_trained,
        ],
        [cell.diverged_seeds, cell.exploded_seeds, cell.unconverged_seeds, {*cell.metric_names}],
    ]
    for metric in (*METRICS, "other"):
        found += [
            [cell.finals(metric), cell.converged_finals(metric), cell.surviving_seeds(metric), cell.starts(metric)],
            dict(zip(*cell.final_column(metric), strict=True)),
            [cell.has_further_starts(metric, known) for known in ({}, {0, 1, 2})],
        ]
    return repr(found)  # in which NaN is equal to NaN


def _of_summary(summary: Summary) -> object:
    snapshot, scales = summary.snapshot, summary.scales
    found: list[object] = [
        scales.describe(),
        scales.best_subject_lines(),
        scales.metrics_without_direction(),
        summary.headline_index,
        summary.metrics,
    ]
    for metric in METRICS:
        found += [sorted(summary.common_cases(metric)), summary.common_cases_text(metric)]
        found += [bold_means(summary, range(len(snapshot.subjects)), metric)]
        for case in snapshot.cases:
            cells = [subject.cells.get(case.identity) for subject in snapshot.subjects]
            known = {place: cell for place, cell in enumerate(cells) if cell is not None}
            found += [scales.scale(case, metric), scales.common_starts(case, metric), bold_cells(cells, metric, scales)]
            found += [[scales.scores(cell, metric) for cell in known.values()]]
            first = next(iter(known.values()), None)
            found += [paired_block(first, known, metric, scales)] if first is not None else []
        for place, subject in enumerate(snapshot.subjects):
            mean = summary.mean_score(place, metric)
            found += [mean.scores, mean.interval, mean.num_missing, mean.num_diverged, mean.has_surviving_seed]
            found += [sorted(subject.metrics()), subject.num_seeds, subject.num_missing, subject.git_revisions]
    return repr(found)


@given(_STORES)
def test_summaries_give_the_values_of_the_curves(histories: list[dict[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        for step, cases in enumerate(histories):
            add(store, step, cases)  # type: ignore[arg-type]  # drawn
        with_curves, summarized = (
            summary_of(store, (), snapshot=read_store(store, summarized=s)) for s in (False, True)
        )
        assert _of_summary(summarized) == _of_summary(with_curves)  # first, as it makes fields of cells
        for one, other in zip(with_curves.snapshot.subjects, summarized.snapshot.subjects, strict=True):
            assert {k: _of_cell(cell) for k, cell in one.cells.items()} == {
                k: _of_cell(cell) for k, cell in other.cells.items()
            }


def test_block_of_cells_has_their_values(tmp_path: Path) -> None:
    for step, values in enumerate([[1.0, 0.5], [0.25, math.nan], [5.0, 0.125]]):
        add(tmp_path, step, {"a": {"train/loss": values, "test/loss": values}})
    cells = [subject.cells["s/a"] for subject in read_store(tmp_path, summarized=True).subjects]
    block = CellBlock.of(cells, "test/loss")
    assert block is not None and block.is_lost is not None and block.untrained is not None
    np.testing.assert_array_equal(block.finals, [[1.0, 0.5], [0.25, math.nan], [5.0, 0.125]])
    np.testing.assert_array_equal(block.is_lost, [[False, False], [False, True], [True, False]])
    assert block.seeds == (0, 1) and (block.untrained == 2).all()
    assert CellBlock.of(cells, "other") is None
    assert CellBlock.of([dataclasses.replace(cells[0])], "test/loss") is None
    with_other = CellBlock.of([dataclasses.replace(cells[0]), *cells], "test/loss")
    assert with_other is not None and with_other.cells == cells


def test_changed_copy_of_a_cell_is_independent_of_its_summary(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 0.5]}})
    (subject,) = read_store(tmp_path, summarized=True).subjects
    copy = dataclasses.replace(subject.cells["s/a"], final_values={"train/loss": {0: 4.0}})
    assert copy.finals("train/loss") == {0: 4.0} and copy.final_column("train/loss")[0] == {0}

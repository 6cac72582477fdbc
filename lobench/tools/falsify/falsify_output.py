"""Output of `lobench falsify`: text and a JSON record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict

from lobench.core.json_numbers import record_from
from lobench.core.wording import counted, one_line
from lobench.report.tables.text import factor_text, text_table
from lobench.tools.falsify.cell_search import CellIndex, StopReason
from lobench.tools.falsify.falsify import FalsifyResult

__all__ = ["FalsifyRecord", "falsify_record", "falsify_text"]


class AxisRecord(TypedDict):
    name: str
    case: Annotated[str, "Value on the original case."]
    found: Annotated[str | None, "Value on the first confirmed cell. null: no cell was confirmed."]
    smallest: str | None
    steps: Annotated[int | None, "Distance on this axis between the original case and the smallest cell."]
    ratio: Annotated[float | None, "Number of the smallest cell over that of the original case."]


class LossRecord(TypedDict):
    gap: Annotated[float, "Score of the tuned optimizer minus that of the checkpoint or optimizer that loses."]
    p_value: Annotated[float, "p-value of the hypothesis that it loses by no more than the margin."]
    test: Annotated[int, "Number of the test, from 1."]
    seeds: int


class FalsifyRecord(TypedDict):
    """`lobench falsify`: a case on which a checkpoint or an optimizer loses to a tuned one, and the smallest one.

    Its fields are the keys of the JSON document.
    """

    checkpoint: Annotated[str, "Label of the checkpoint or optimizer."]
    case: Annotated[str, "Case from which the search started."]
    is_trained_on: Annotated[bool, "Whether the checkpoint was meta-trained on the case, according to the suite."]
    against: str
    is_at_edge: Annotated[bool, "Whether the tuned setting is at the edge of its grid, so that a better one may exist."]
    ending: StopReason
    margin: float
    alpha: float
    level: Annotated[float, "Level of each test."]
    axes: list[AxisRecord]
    first: LossRecord | None
    smallest: LossRecord | None
    num_cells: int
    num_tests: int
    params: Annotated[list[int], "Number of inner parameters of the original case and of the smallest cell."]
    inner_steps: list[int]
    files: list[Path]


def falsify_record(result: FalsifyResult, files: Sequence[Path]) -> FalsifyRecord:
    """Returns the record for `--format json`."""
    sizes = [result.case_size, *([result.smallest_size] if result.smallest_size is not None else [])]
    return record_from(
        FalsifyRecord,
        result,
        result.search,
        result.rules,
        checkpoint=result.subject_label,
        ending=result.search.stop_reason,
        axes=_axis_records(result),
        first=_loss_record(result, is_first=True),
        smallest=_loss_record(result, is_first=False),
        num_cells=len(result.search.gaps),
        num_tests=len(result.search.tests),
        params=[params for params, _ in sizes],
        inner_steps=[steps for _, steps in sizes],
        files=files,
    )


def _loss_record(result: FalsifyResult, *, is_first: bool) -> LossRecord | None:
    test = result.search.first if is_first else result.search.smallest
    if test is None:
        return None
    seeds = test.factor * result.rules.seeds
    return LossRecord(gap=test.gap, p_value=test.p_value, test=test.number + 1, seeds=seeds)


def _axis_records(result: FalsifyResult) -> list[AxisRecord]:
    first_cell, smallest_cell = (
        test.cell if test is not None else None for test in (result.search.first, result.search.smallest)
    )

    def text(axis_index: int, cell: CellIndex | None) -> str | None:
        return result.cells.axes[axis_index].value_text(cell[axis_index]) if cell is not None else None

    return [
        AxisRecord(
            name=axis.name,
            case=axis.value_text(axis.home_index),
            found=text(index, first_cell),
            smallest=text(index, smallest_cell),
            steps=abs(smallest_cell[index] - axis.home_index) if smallest_cell is not None else None,
            ratio=axis.ratio_to_home(smallest_cell[index]) if smallest_cell is not None else None,
        )
        for index, axis in enumerate(result.cells.axes)
    ]


def falsify_text(result: FalsifyResult, files: Sequence[Path]) -> str:
    """Returns the answer, the next step, a row for each axis, and the number of tests."""
    rows = [["axis", "the case", "found", "smallest", "steps away", "ratio"]]
    for axis in _axis_records(result):
        ratio = f"{axis['ratio']:.3g}" if axis["ratio"] is not None else ""
        steps = str(axis["steps"]) if axis["steps"] is not None else ""
        rows.append([axis["name"], axis["case"], axis["found"] or "", axis["smallest"] or "", steps, ratio])
    lines = [*map(one_line, _answer_lines(result, files)), "", text_table(rows, left={0, 1, 2, 3}), ""]
    return "\n".join([*lines, *map(one_line, _note_lines(result))])


def _answer_lines(result: FalsifyResult, files: Sequence[Path]) -> list[str]:
    test = result.search.smallest
    if test is None:
        line = f"no case was confirmed on which {result.subject_label} loses to tuned {result.against}"
        return [f"{line}; this does not show that none exists"]
    seeds = counted(test.factor * result.rules.seeds, "fresh seed")
    evidence = f"p = {test.p_value:.2g}, threshold {result.rules.level:.2g}"
    lines = [
        f"{result.subject_label} loses to tuned {result.against}: "
        f"its score is lower by {test.gap:.3f} on {seeds} ({evidence})",
        f"written: {', '.join(map(str, files))}",
    ]
    if result.search.stop_reason == "smallest":
        lines.append("one step simpler on any axis is not confirmed")
    else:
        lines.append("perhaps not the smallest: --most-cells or --most-tests allows more")
    if result.is_at_edge:
        lines.append(f"{result.against}'s setting is at the edge of the grid: --grid may put it ahead by more")
    return lines


def _origin_text(result: FalsifyResult) -> str:
    if result.optimizer:
        return "where the search began"
    if result.is_trained_on:
        return "on which the checkpoint was meta-trained"
    return "where the search began; whether the checkpoint was meta-trained on it is not known"


def _note_lines(result: FalsifyResult) -> list[str]:
    lines = []
    if result.smallest_size is not None:
        sizes = (result.smallest_size, result.case_size)
        smallest, home_text = (f"{params:,} parameters for {steps:,} steps" for params, steps in sizes)
        costs = [params * steps for params, steps in sizes]
        ratio = f", which is {factor_text(costs[1] / costs[0])} times the cost" if costs[0] != costs[1] else ""
        lines.append(f"the smallest cell trains {smallest}, and the case {home_text}{ratio}")
    if result.search.smallest is not None:
        lines.append(f"steps away and ratio are counted from {result.case}, {_origin_text(result)}")
    rules = result.rules
    counts_text = f"{counted(len(result.search.gaps), 'cell')} evaluated"
    tests = f"{counted(len(result.search.tests), 'test')} of level {rules.level:.2g}"
    event = f"naming a cell although the score is lower by no more than {rules.margin:g} (--margin)"
    return [*lines, f"{counts_text}; {tests}: {event} has a chance below {rules.alpha:g} (--alpha)"]

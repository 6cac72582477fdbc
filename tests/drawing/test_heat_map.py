"""The accuracies of a stream of tasks as a heat map: numbers of the store, nothing drawn where nothing is known."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
from report_store import case_info

from lobench.analysis.store.subjects import Cell
from lobench.analysis.tables.accuracy_matrix import accuracy_matrix
from lobench.core.result import Curves
from lobench.drawing.heat_map import HeatMap


def cell(**metrics: list[list[float]]) -> Cell:
    arrays = {name.replace("_of_", "/"): np.float32(values) for name, values in metrics.items()}
    curves = Curves(
        seeds=(0, 1),
        metrics={name: memoryview(values.data) for name, values in arrays.items()},
        eval_steps=(0, 5, 10, 15, 20),
        diverged_at=(-1, -1),
    )
    final = {name: dict(enumerate(values[:, -1].tolist())) for name, values in arrays.items()}
    return Cell(
        case=case_info("split"),
        final_values=final,
        untrained_values={},
        curves_by_seed={0: (curves, 0), 1: (curves, 1)},
    )


TASKS = [[0.0, 0, 0, 1, 1]] * 2
FIRST, SECOND = [[0.5, 0.8, 1.0, 0.7, 0.6]] * 2, [[0.5, 0.4, 0.5, 0.8, 0.9], [0.5, 0.4, 0.3, 0.8, 1.0]]


def test_a_row_is_the_end_of_a_task_and_a_value_the_mean_over_seeds() -> None:
    found = accuracy_matrix(
        cell(train_of_task=TASKS, test_of_accuracy_task_0=FIRST, test_of_accuracy_task_1=SECOND,
             train_of_accuracy_task_0=SECOND, train_of_accuracy_task_1=SECOND)
    )  # fmt: skip
    assert found is not None and found[0] == "test"
    np.testing.assert_allclose(found[1], [[1.0, 0.4], [0.6, 0.95]], rtol=1e-6)
    only_train = accuracy_matrix(cell(train_of_task=TASKS, train_of_accuracy_task_0=FIRST))
    assert only_train is not None and only_train[0] == "train"


def test_what_is_no_stream_has_no_matrix() -> None:
    assert accuracy_matrix(cell(test_of_accuracy=FIRST)) is None
    assert accuracy_matrix(cell(test_of_accuracy_task_0=FIRST)) is None, "all tasks at once"


def test_a_map_says_its_values_and_leaves_out_what_is_none() -> None:
    drawn = HeatMap(title="<b>", description="d", x_label="x", y_label="y", values=((1.0, 0.04), (float("nan"), 0.951)))
    svg = str(drawn.svg())
    assert re.findall(r"value\" x=\S+ y=\S+>(\S+?)</text>", svg) == ["1.00", ".04", ".95"]
    assert "<b>" not in svg and "&lt;b&gt;" in svg
    opacities = [float(found) for found in re.findall(r'fill-opacity="(\S+)"', svg)]
    assert opacities == sorted(opacities, reverse=True)[:1] + [0.02, 0.57]
    assert len(re.findall("<rect", str(dataclasses.replace(drawn, values=((0.5,),)).svg()))) == 1


def test_a_map_of_many_tasks_has_colours_alone_and_names_some_of_its_rows() -> None:
    values = tuple((0.5,) * 30 for _ in range(30))
    svg = str(HeatMap(title="t", description="d", x_label="x", y_label="y", values=values).svg())
    assert svg.count("<rect") == 900 and 'value"' not in svg
    assert re.findall(r'class="end" [^>]*>(\d+)<', svg) == [str(row) for row in range(0, 30, 3)]

"""Costs of steps in comparisons: on one class of machines at a time, and losses at equal time beside equal steps."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_store
from commands import lobench
from shown import texts_of
from stores import add

from lobench.analysis.comparisons.step_costs import class_costs, compare_costs
from lobench.analysis.comparisons.steps_to_target import Target, compare_steps
from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.analysis.tables.frames import open_results as lobench_results
from lobench.analysis.tables.table import TableSpec
from lobench.analysis.tables.tabulate import tabulate
from lobench.core.result import Curves
from lobench.core.step_cost import MachineClass, StepCost
from lobench.report.tables.method_table import method_text

SHOWN = texts_of("analysis")

FAST, SLOW = (1e-3, 1.01e-3, 0.99e-3), (2e-3, 2.02e-3, 1.98e-3)
LOSSES = {"train/loss": [0.5, 0.6, 0.4, 0.5]}
BETTER = {"train/loss": [0.2, 0.3, 0.1, 0.2]}


def cost(samples: tuple[float, ...], machine: str = "m x 1", together: int = 1, **more: object) -> StepCost:
    return StepCost(machine=machine, num_together=together, samples=samples, busy=1.0, state_bytes=24, **more)  # type: ignore[arg-type]


def subjects(store: Path) -> list[StoredSubject]:
    return list(read_store(store).subjects)


def test_at_equal_time_the_slower_one_is_taken_where_it_was_then(tmp_path: Path) -> None:
    """Twice as long a step: of ten steps five; curves go from 2 by the middle of the way to the final value."""
    add(tmp_path, 1, {"a": LOSSES}, cost=cost(FAST))
    add(tmp_path, 2, {"a": BETTER}, cost=cost(SLOW))
    (found,) = compare_costs(*subjects(tmp_path), {"s/a": "train/loss"})
    assert found.shared is not None and found.shared.budget == pytest.approx(0.01)
    fast, slow = found.shared.sides
    assert fast is not None and slow is not None
    assert (fast.steps, slow.steps) == pytest.approx((10, 5))
    assert list(slow.at_equal_time.values()) == pytest.approx([(2 + value) / 2 for value in BETTER["train/loss"]])
    assert list(fast.at_equal_time.values()) == pytest.approx(LOSSES["train/loss"])
    assert found.at_equal_steps.mean == pytest.approx(-0.3) and found.at_equal_time.mean == pytest.approx(0.6)
    assert found.at_equal_time.p_value < 0.01 and found.at_equal_steps.p_value < 0.05


def test_between_two_evaluations_a_curve_is_linear_and_a_seed_that_diverges_later_has_its_value(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": LOSSES}, cost=cost(FAST))
    lost = {"train/loss": [0.2, 0.3, 0.1, math.nan]}  # NaN at the last evaluation alone
    add(tmp_path, 2, {"a": lost}, cost=cost((1.25e-3, 1.25e-3, 1.25e-3)))
    (found,) = compare_costs(*subjects(tmp_path), {"s/a": "train/loss"})
    assert found.shared is not None and found.shared.sides[1] is not None
    side = found.shared.sides[1]
    assert side.steps == pytest.approx(8)
    middle = [(2 + value) / 2 for value in (0.2, 0.3, 0.1)]
    expected = [one + 0.6 * (value - one) for one, value in zip(middle, (0.2, 0.3, 0.1), strict=True)]
    assert list(side.at_equal_time.values()) == pytest.approx([*expected, 2.0])


@pytest.mark.parametrize("other", [{"machine": "n x 1"}, {"together": 4}])
def test_times_of_two_classes_are_never_held_against_each_other(tmp_path: Path, other: dict[str, object]) -> None:
    add(tmp_path, 1, {"a": LOSSES, "b": LOSSES}, cost=cost(FAST))
    add(tmp_path, 2, {"a": BETTER}, cost=cost(SLOW, **other))  # type: ignore[arg-type]
    add(tmp_path, 2, {"b": BETTER}, cost=cost(SLOW))
    one, two = subjects(tmp_path)
    by_case = {found.case: found for found in compare_costs(one, two, {"s/a": "train/loss", "s/b": "train/loss"})}
    assert by_case["s/a"].shared is None and math.isnan(by_case["s/a"].at_equal_time.p_value)
    assert by_case["s/a"].at_equal_steps.p_value < 0.05 and by_case["s/b"].shared is not None
    each = class_costs([one.cells["s/a"], two.cells["s/a"]], "train/loss")
    assert [[side is not None for side in found.sides] for found in each] in ([[True, False], [False, True]],)
    output = lobench("compare", "1", "2", "--store", tmp_path, "--details").stdout
    assert SHOWN["no-time-of-one-class"] in output
    assert SHOWN["times-are-of-m-x"] in output


def test_blocks_of_two_machines_are_two_classes_and_the_one_of_both_sides_counts(tmp_path: Path) -> None:
    half = {"train/loss": LOSSES["train/loss"][:2]}
    add(tmp_path, 1, {"a": half}, cost=cost(FAST))
    add(tmp_path, 1, {"a": half}, start=2, cost=cost(SLOW, machine="n x 1"))
    add(tmp_path, 2, {"a": BETTER}, cost=cost(FAST, machine="n x 1"))
    (found,) = compare_costs(*subjects(tmp_path), {"s/a": "train/loss"})
    assert found.shared is not None and found.shared.machine == MachineClass(machine="n x 1", num_together=1)
    first, second = found.shared.sides
    assert first is not None and second is not None
    assert (first.seconds.median, second.seconds.median) == pytest.approx((2e-3, 1e-3))
    assert len(first.at_equal_time) == 4, "the curves are of all seeds"


def test_a_target_has_a_time_beside_its_steps(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": LOSSES}, cost=cost(FAST))
    add(tmp_path, 2, {"a": BETTER}, cost=cost(SLOW))
    add(tmp_path, 3, {"a": BETTER})
    one, two, untimed = subjects(tmp_path)
    scales = Scales.of([one, two, untimed])
    (found,) = compare_steps(one, two, Target(value=1.2), scales)
    assert found.time is not None and found.difference.mean == pytest.approx(-3.75)
    assert found.time.a.mean.mean == pytest.approx(8.75e-3) and found.time.b.mean.mean == pytest.approx(10e-3)
    assert found.time.difference.mean == pytest.approx(1.25e-3), "fewer steps, and later"
    assert compare_steps(one, untimed, Target(value=1.2), scales)[0].time is None


def test_text_and_json_say_costs_overheads_and_what_is_unsteady(tmp_path: Path) -> None:
    bare = cost(tuple(value / 2 for value in FAST))
    add(tmp_path, 1, {"a": LOSSES}, cost=cost(FAST, gradient=bare))
    add(tmp_path, 2, {"a": BETTER}, cost=cost((2e-3, 4e-3, 2e-3, 4e-3), gradient=bare, peak_bytes=7))
    words = ("compare", "1", "2", "--store", tmp_path, "--target", "1.2")
    output = lobench(*words, "--details").stdout
    (line,) = [line.split() for line in output.splitlines() if line.startswith("s/a ") and "x2" in line]
    assert line[1:] == ["0.001", "~0.003", "x3", "x2", "~x6", "24", "24"]
    assert SHOWN["at-equal-time"] in output and "~: unreliable" in output and SHOWN["seconds-to-the-target"] in output
    (record,) = json.loads(lobench(*words, "--format", "json").stdout)
    shared = record["costs"]["s/a"]["shared"]
    assert (shared["machine"], shared["a"]["overhead"], shared["b"]["unsteady"]) == ("m x 1", 2.0, True)
    assert shared["b"]["peak_bytes"] == 7 and shared["a"]["gradient_seconds"] == pytest.approx(5e-4)
    assert record["costs"]["s/a"]["at_equal_time"]["mean"] > 0 > record["costs"]["s/a"]["at_equal_steps"]["mean"]
    assert record["steps_to_target"]["s/a"]["time"]["a"]["mean"]["mean"] == pytest.approx(8.75e-3)


def test_without_times_nothing_is_said_of_them(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": LOSSES}, cost=dataclasses.replace(cost(()), state_bytes=1))
    add(tmp_path, 2, {"a": BETTER})
    done = lobench("compare", "1", "2", "--store", tmp_path, "--target", "1.2", "--details")
    assert "seconds" not in done.stdout and "machine" not in done.stdout
    (record,) = json.loads(lobench("compare", "1", "2", "--store", tmp_path, "--format", "json").stdout)
    assert record["costs"] == {} and np.isfinite(record["metrics"]["train/loss"]["p_value"])


def timed_methods(store: Path) -> None:
    """Two methods on machine m, a third one on n."""
    bare = cost(tuple(value / 2 for value in FAST))
    add(store, 0, {"a": LOSSES, "b": LOSSES}, optimizer="adam()", cost=cost(FAST, gradient=bare))
    add(store, 0, {"a": BETTER, "b": BETTER}, optimizer="sgd()", cost=cost((2e-3, 4e-3, 2e-3, 4e-3)))
    add(store, 0, {"a": BETTER}, optimizer="lion()", cost=cost(SLOW, machine="n x 1"))


def test_tables_have_panels_of_costs_one_for_each_class_of_machines(tmp_path: Path) -> None:
    timed_methods(tmp_path)
    words = ("results", "--store", tmp_path, "--by", "method")
    panels = {block.splitlines()[0]: block for block in lobench(*words).stdout.split("\n\n")}
    seconds = {name.split("  ")[0]: block for name, block in panels.items() if name.startswith("seconds of a step")}
    assert sorted(seconds) == [SHOWN["seconds-of-a-step-m"], SHOWN["seconds-of-a-step-n"]]
    assert (
        "lion()" not in seconds[SHOWN["seconds-of-a-step-m"]] and "adam()" not in seconds[SHOWN["seconds-of-a-step-n"]]
    )
    found = json.loads(lobench(*words, "--format", "json").stdout)
    cells = {(one["metric"], one["machine"], one["method"], one["case"]): one for one in found if one["machine"]}
    assert cells["seconds of a step", "n x 1", "lion()", "a"]["mean"] == pytest.approx(2e-3)
    assert cells["times a gradient step", "m x 1", "adam()", "b"]["mean"] == pytest.approx(2)
    slow = cells["train/loss at equal time", "m x 1", "sgd()", "a"]
    assert slow["unsteady"] and slow["seeds"] == 4 and slow["mean"] == pytest.approx(1.4, abs=1e-3)  # a third of it
    assert cells["train/loss at equal time", "n x 1", "lion()", "a"]["mean"] == pytest.approx(0.2), "the fastest there"


def test_where_there_is_a_baseline_there_are_seconds_to_its_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = report_store.curves

    def timed(final: float, rng: np.random.Generator, *, diverges: bool = False) -> Curves:
        """The better ones get below the baseline's loss."""
        return dataclasses.replace(plain(final**3, rng, diverges=diverges), cost=cost(FAST))

    monkeypatch.setattr(report_store, "curves", timed)
    found = summary_of(report_store.make_store(tmp_path), [report_store.make_baseline(tmp_path)])
    table = tabulate(found, TableSpec(rows="method", costs=True))
    (panel,) = (panel for panel in table.panels if panel.title == "seconds to tuned train/loss")
    places = list(range(len(found.snapshot.subjects)))
    steps = found.times_to_tuned(places)[:-1]
    assert steps.size and np.isfinite(steps).any()
    noted = [entry.interval.mean for line in panel.lines for entry in line.entries if entry is not None]
    assert sorted(noted) == pytest.approx(sorted((steps * 1e-3).ravel().tolist()))
    assert panel.machine == "m x 1" and ("never" in method_text(table)) == bool(np.isinf(steps).any())


def test_a_frame_has_times_and_what_they_are_of(tmp_path: Path) -> None:
    timed_methods(tmp_path)
    add(tmp_path, 0, {"c": LOSSES}, optimizer="adam()")
    frame = lobench_results(tmp_path).evaluations().set_index(["label", "case"])
    assert frame.loc["adam()", "a"][["step_seconds", "gradient_seconds", "machine", "num_together"]].tolist() == [
        pytest.approx(1e-3), pytest.approx(5e-4), "m x 1", 1,
    ]  # fmt: skip
    assert frame.loc["adam()", "c"][["step_seconds", "machine"]].isna().all()


def test_papers_have_no_costs_unless_a_table_asks_for_them(tmp_path: Path) -> None:
    timed_methods(tmp_path / "store")
    words = ("report", "--store", tmp_path / "store", "--format", "latex", "--output", tmp_path / "t.tex")
    assert lobench(*words).returncode == 0 and "seconds" not in (tmp_path / "t.tex").read_text()
    (tmp_path / "table.gin").write_text("Table.costs = True\n")
    assert lobench(*words, "--table", tmp_path / "table.gin").returncode == 0
    text = (tmp_path / "t.tex").read_text()
    assert SHOWN["seconds-of-a-step-m"] in text and r"$\sim " in text and "never" not in text


def test_the_page_has_costs_and_says_what_is_unsteady(tmp_path: Path) -> None:
    timed_methods(tmp_path / "store")
    lobench("report", "--store", tmp_path / "store", "--output", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert (
        SHOWN["seconds-of-a-step-m"] in page and SHOWN["train-loss-at-equal-time"] in page and "~: unreliable" in page
    )


def test_the_page_of_a_run_has_the_costs_of_its_last_checkpoint_by_case(tmp_path: Path) -> None:
    bare = cost(tuple(value / 4 for value in FAST))
    for step in (1, 2):
        add(tmp_path / "store", step, {"a": LOSSES, "b": LOSSES}, cost=cost(FAST, gradient=bare))
    lobench("report", "--store", tmp_path / "store", "--output", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count(">0.001</td>") == 2 and page.count(">x4</td>") == 2
    assert SHOWN["times-a-gradient-step-m"] in page and SHOWN["of-one-seed-without-compilation"] in page


def test_a_store_without_the_time_of_a_gradient_has_no_column_of_it(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": LOSSES}, cost=cost(FAST))
    assert SHOWN["over-gradient"] not in lobench("results", "--store", tmp_path, "--evaluations").stdout
    add(tmp_path, 2, {"a": LOSSES}, cost=cost(FAST, gradient=cost(tuple(value / 4 for value in FAST))))
    lines = lobench("results", "--store", tmp_path, "--evaluations").stdout.splitlines()
    assert [line.split()[-2] for line in lines[1:3]] == ["-", "x4"]
    found = json.loads(lobench("results", "--store", tmp_path, "--format", "json").stdout)
    assert [(one["overhead"], one["gradient_seconds"]) for one in found] == [(None, None), (4.0, 2.5e-4)]


def of_one_program(found: list[StoredSubject]) -> list[StoredSubject]:
    """The same subjects, whose cases were compiled to one program."""

    def compiled(cell: Cell) -> Cell:
        return replace(cell, case=replace(cell.case, program_hash="p"))

    return [replace(one, cells={key: compiled(cell) for key, cell in one.cells.items()}) for one in found]


def test_compare_costs_of_two_thetas_of_one_program_have_one_time_and_no_verdict_of_its_noise(tmp_path: Path) -> None:
    same = {"train/loss": [0.5, 0.6, 0.4, 0.51]}
    add(tmp_path, 1, {"a": same}, cost=cost(FAST))
    add(tmp_path, 2, {"a": {"train/loss": [0.51, 0.59, 0.41, 0.5]}}, cost=cost(SLOW))
    apart = subjects(tmp_path)
    (noise,) = compare_costs(*apart, {"s/a": "train/loss"})
    assert noise.at_equal_time.p_value < 0.01, "of two programs these are two times"
    found = of_one_program(apart)
    (one,) = compare_costs(*found, {"s/a": "train/loss"})
    assert one.shared is not None
    first, second = one.shared.sides
    assert first is not None and second is not None
    assert first.seconds == second.seconds and first.steps == second.steps == 10
    assert math.isnan(one.at_equal_time.p_value) or one.at_equal_time.p_value == one.at_equal_steps.p_value
    assert one.at_equal_time.mean == pytest.approx(one.at_equal_steps.mean)
    (steps,) = compare_steps(*found, Target(value=1.0), Scales.of(found))
    assert steps.time is not None and steps.time.a.mean.mean == pytest.approx(steps.a.mean.mean * first.seconds.median)
    ratio = steps.time.b.mean.mean / steps.time.a.mean.mean
    assert ratio == pytest.approx(steps.b.mean.mean / steps.a.mean.mean)


def test_compare_costs_with_an_unsteady_time_gives_no_p_value_and_no_bounds(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": LOSSES}, cost=cost(FAST))
    add(tmp_path, 2, {"a": BETTER}, cost=cost((1e-3, 2e-3, 4e-3)))
    found = subjects(tmp_path)
    (costs,) = compare_costs(*found, {"s/a": "train/loss"})
    assert math.isnan(costs.at_equal_time.p_value) and math.isnan(costs.at_equal_time.lower)
    assert SHOWN["no-verdict-unsteady"] in costs.at_equal_time.note and math.isfinite(costs.at_equal_steps.p_value)
    (steps,) = compare_steps(*found, Target(value=1.5), Scales.of(found))
    assert steps.time is not None and math.isnan(steps.time.difference.p_value)


def test_compare_costs_interval_holds_the_uncertainty_of_a_steady_time(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": LOSSES}, cost=cost(FAST))
    add(tmp_path, 2, {"a": BETTER}, cost=cost((2e-3, 2.1e-3, 1.9e-3)))
    add(tmp_path / "exact", 1, {"a": LOSSES}, cost=cost((1e-3,) * 3))
    add(tmp_path / "exact", 2, {"a": BETTER}, cost=cost((2e-3,) * 3))
    (measured,), (exact,) = (
        compare_costs(*subjects(store), {"s/a": "train/loss"}) for store in (tmp_path, tmp_path / "exact")
    )
    assert measured.at_equal_time.mean == pytest.approx(exact.at_equal_time.mean)
    assert measured.at_equal_time.lower < exact.at_equal_time.lower
    assert measured.at_equal_time.upper > exact.at_equal_time.upper

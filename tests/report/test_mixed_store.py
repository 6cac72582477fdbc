"""A run with optimizers beside it, and a checkpoint that failed: who is drawn where, and one number in all places."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from stores import add

from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.tables.tabulate import tabulate
from lobench.core.result import Outcome
from lobench.drawing.svg import Chart, Series, format_number, round_value
from lobench.report.charts.charts import sections
from lobench.report.page.page import render_page
from lobench.report.tables.verdict import cards, verdict_text

SHOWN = texts_of("report")

ADAM, SGD = "adam(); adam.learning_rate = 0.01", "sgd(); sgd.learning_rate = 0.1"
FAILED = 20  # the checkpoint of this outer step gave no curve


def losses(scale: float) -> dict[str, dict[str, list[float]]]:
    return {
        case: {
            "train/loss": [scale * (1 + 0.01 * seed + 0.1 * place) for seed in range(4)],
            "test/loss": [scale * (1.2 + 0.01 * seed + 0.1 * place) for seed in range(4)],
        }
        for place, case in enumerate(("a", "b"))
    }


def make(store: Path, steps: tuple[int, ...] = (10, FAILED, 30, 40)) -> Path:
    for step in steps:
        lost = dict.fromkeys(("a", "b"), Outcome.ERROR)
        add(store, step, lost if step == FAILED else losses(10 / step))
    for text, scale in ((ADAM, 0.5), (SGD, 0.7)):
        add(store, 0, losses(scale), optimizer=text)
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def summary(store: Path) -> Summary:
    return summary_of(store, [])


def charts(summary: Summary, section: str) -> list[Chart]:
    (found,) = (one for one in sections(summary) if one.id == section)
    return [figure.chart for figure in found.figures if isinstance(figure.chart, Chart)]


def called(chart: Chart) -> dict[str, Series]:
    return {one.label: one for one in chart.series}


def test_the_line_along_the_run_has_the_runs_own_steps_and_none_of_a_failed_checkpoint(summary: Summary) -> None:
    series = called(charts(summary, "outer")[0])
    line = series["score on train/loss"]
    assert line.x == [10, FAILED, 30, 40]
    assert [math.isnan(value) for value in line.y] == [False, True, False, False]
    adam = series[ADAM]
    assert list(adam.x) == [10, 40] and adam.y[0] == adam.y[1], "a level line: it is at no outer step"
    (section,) = (one for one in sections(summary) if one.id == "outer")
    assert section.figures[0].note == SHOWN["of-4-checkpoints-have-no"]


def test_optimizers_are_in_profiles_curves_and_the_table(summary: Summary) -> None:
    who = {"outer step 40", "outer step 10", ADAM, SGD}
    assert set(called(charts(summary, "profiles")[0])) == who
    assert {label.rpartition(", ")[0] for label in called(charts(summary, "curves")[0])} == who
    assert {heading.label for heading in tabulate(summary).columns} >= who
    ranked = charts(summary, "scores")[0]
    best = {summary.mean_score(place, "primary").interval.mean: summary.snapshot.labels[place] for place in range(6)}
    assert 'class="cross' not in ranked.svg(), "nothing diverged"
    assert ranked.y_names[-1] == best[max(value for value in best if not math.isnan(value))]


def test_a_long_run_beside_optimizers_leaves_them_room(tmp_path: Path) -> None:
    found = summary_of(make(tmp_path, tuple(range(10, 110, 10))), [])
    table = tabulate(found)
    assert [heading.label for heading in table.columns] == [ADAM, SGD, "outer step 10", SHOWN["outer-step-100"]]
    assert table.notes[0] == SHOWN["each-run-s-first-and"]


def test_errors_are_red_for_themselves_and_divergence_is_not(summary: Summary, tmp_path: Path) -> None:
    found = {card.label: card for card in cards(summary, summary.headline_comparison())}
    assert (found[SHOWN["diverged-or-exploded-seeds"]].value, found[SHOWN["diverged-or-exploded-seeds"]].kind) == (
        "0 of 40",
        "good",
    )
    errors = found["Evaluations that did not pass"]
    assert (errors.value, errors.note, errors.kind) == ("2 of 12", "2 error", "bad")
    add(tmp_path, 1, {"a": {"train/loss": [1.0, math.nan]}})
    last = cards(summary_of(tmp_path, []), None)[-1]
    assert (last.label, last.value, last.kind) == (SHOWN["diverged-or-exploded-seeds"], "1 of 2", "bad")


def test_an_optimizer_stands_at_no_outer_step(store: Path) -> None:
    found = json.loads(lobench("results", "--store", store, "--format", "json").stdout)
    assert {record["checkpoint"]["outer_step"] for record in found if record["kind"] == "optimizer"} == {None}
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page_of(store))[1])[
        "evaluations"
    ]
    rows = [dict(zip((one["name"] for one in data["columns"]), row, strict=False)) for row in data["rows"]]
    assert {row["checkpoint"] for row in rows if row["outer step"] is None} == {ADAM, SGD}


def page_of(store: Path) -> str:
    return render_page(summary_of(store, []))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (40_890_000_000_000.0, "4.089e13"),
        (9.56e-08, "9.56e-8"),
        (0.00012346, "1.235e-4"),
        (0.00099999, "0.001"),
        (12_345.0, "12,345"),
        (1234.56, "1,235"),
        (123_456.7, "123,500"),
        (999_999.9, "1e6"),
        (0.5, "0.5"),
        (1e6, "1e6"),
    ],
)
def test_numbers_far_from_one_are_powers_of_ten(value: float, text: str) -> None:
    assert format_number(value) == format_number(round_value(value)) == text  # in the page's data they are rounded


def test_a_long_number_beside_an_axis_has_the_room_it_takes() -> None:
    chart = Chart(
        title="t",
        description="d",
        x_label="x",
        y_label="y",
        series=(Series(label="a", x=[0, 1], y=[100_000.0, 500_000.0]), Series(label="b", x=[0], y=[-200_000.0])),
    )
    lines = re.findall(r'<text x="([\d.]+)" y="[\d.]+" class="end">([^<]+)</text>', chart.svg())
    assert "-200,000" in {text for _, text in lines}
    assert all(float(x) >= 7.6 * len(text) for x, text in lines), "as wide as digits of DejaVu Sans at 12 px"


def test_a_checkpoints_outer_step_is_told_in_full() -> None:
    steps = [99_990, 99_995, 100_250]
    series = Series(label="a", x=steps, y=[0.1, 0.2, 0.3])
    svg = str(Chart(title="t", description="d", x_label="outer step", y_label="y", series=(series,)).svg())
    assert '"x":[99990,99995,100250],"y":[0.1,0.2,0.3]' in svg.replace("&#34;", '"')


def test_what_is_wrong_with_many_baselines_is_said_once(tmp_path: Path) -> None:
    from report_store import make_baseline, make_store

    store, suite = make_store(tmp_path, num_cases=8), make_baseline(tmp_path, num_cases=8)
    (file,) = (suite / "baselines").iterdir()
    file.write_text(file.read_text().replace("problem of case", "what it was before "))
    text = verdict_text(summary_of(store, [suite]))
    notes = [line for line in text.splitlines() if "stale" in line]
    assert notes == [SHOWN["note-the-baseline-tuned-adam"]]


def test_headlines_are_of_the_best_method_and_of_the_last_checkpoint(tmp_path: Path) -> None:
    for place, scale in enumerate((2.0, 1.0, 3.0)):
        add(tmp_path, 0, losses(scale), optimizer=f"method{place}()", sha256=f"{place:064d}")
    found = summary_of(tmp_path, [])
    assert [found.snapshot.labels[place] for place in (found.headline_index, found.reference_index)] == [
        "method1()",
        "method0()",
    ]
    lines = verdict_text(found).splitlines()
    assert lines[3].startswith(SHOWN["score-on-train-loss-method1"])
    assert SHOWN["method1-has-the-highest-mean"] in lines
    add(tmp_path, 0, losses(0.5), optimizer="best()", sha256="b" * 64)
    add(tmp_path, 10, losses(5.0))
    found = summary_of(tmp_path, [])
    assert found.snapshot.labels[found.headline_index] == "theta_10.npz", "a watch has begun"
    assert SHOWN["has-the-highest-mean-score"] not in verdict_text(found)


def test_the_best_method_is_compared_with_another_one(tmp_path: Path) -> None:
    add(tmp_path, 0, losses(1.0), optimizer="method0()", sha256="0" * 64)
    found = summary_of(tmp_path, [])
    assert found.headline_index == found.reference_index and found.headline_comparison() is None
    add(tmp_path, 0, losses(2.0), optimizer="method1()", sha256="1" * 64)
    found = summary_of(tmp_path, [])
    assert (found.headline_index, found.reference_index) == (0, 1)
    (card,) = [card for card in cards(found, found.headline_comparison()) if card.label == "Against method1()"]
    p_value = re.search(r", (two-sided[^ ]+)$", card.note)
    assert p_value is not None, "no line ends between p and its value"
    assert f", {p_value[1].replace(chr(0xA0), ' ')})" in verdict_text(found)

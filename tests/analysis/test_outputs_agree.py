"""Random stores without training: every output has the same numbers, and verdicts agree with their bounds."""

from __future__ import annotations

import json
import math
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from hypothesis import given, settings
from hypothesis import strategies as st
from shown import texts_of
from stores import add

from lobench.analysis.comparisons.event_numbers import numbers_of
from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.methods import read_methods
from lobench.analysis.tables.frames import open_results
from lobench.analysis.tables.notebook import html_of_results
from lobench.analysis.tables.table import TableSpec, cell_text
from lobench.analysis.tables.tabulate import tabulate
from lobench.engine.store.ledger import Ledger
from lobench.report.tables.latex import latex_table

SHOWN = texts_of("analysis")

METRICS = ("train/loss", "test/loss")


@dataclass(frozen=True, kw_only=True)
class World:
    """A random store.

    Attributes:
      seed: Of the losses.
      num_methods, num_cases, num_seeds: Sizes; with more than two methods some lack a case.
      exploding, diverging: Chance that a seed explodes, and that one seed of a case diverges.
      digits: Significant digits of the losses; 0: those of a float32.
    """

    seed: int
    num_methods: int
    num_cases: int
    num_seeds: int
    exploding: float
    diverging: float
    digits: int


worlds = st.builds(
    World,
    seed=st.integers(0, 2**32 - 1),
    num_methods=st.integers(2, 4),
    num_cases=st.integers(1, 3),
    num_seeds=st.integers(2, 6),
    exploding=st.sampled_from([0.0, 0.05, 0.3]),
    diverging=st.sampled_from([0.0, 0.15, 0.5]),
    digits=st.sampled_from([0, 2]),
)


def fill(store: Path, world: World) -> list[str]:
    """Adds methods with random losses: some far apart, some diverged, exploded or rounded."""
    rng = np.random.default_rng(world.seed)
    num_methods, num_cases, num_seeds = world.num_methods, world.num_cases, world.num_seeds
    names = [f"m{place}()" for place in range(num_methods)]
    for place, name in enumerate(names):
        cases = {}
        for case in range(num_cases):
            if num_methods > 2 and rng.random() < 0.1:
                continue  # it lacks a case
            metrics = {}
            for metric in METRICS:
                finals = np.exp(rng.normal(-1 + 0.4 * place * rng.integers(0, 3), rng.choice([0.05, 0.5]), num_seeds))
                finals[rng.random(num_seeds) < world.exploding] *= 100
                metrics[metric] = [float(f"{value:.{world.digits}g}") if world.digits else value for value in finals]
            if rng.random() < world.diverging:
                lost = int(rng.integers(num_seeds))
                for metric in METRICS:
                    metrics[metric][lost] = math.nan
            cases[f"case{case}"] = metrics
        add(store, 0, cases or {"case0": dict.fromkeys(METRICS, [1.0] * num_seeds)}, optimizer=name)
    return names


def close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return (one is None or math.isnan(one)) and (other is None or math.isnan(other))
    return one == pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True)


@settings(max_examples=5)
@given(world=worlds)
def test_outputs_of_a_random_store_have_equal_numbers(world: World) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        names = fill(store, world)
        check_tables(store)
        check_pairs(store, names)
        check_exports(store)


def check_tables(store: Path) -> None:
    """The method table: a value, JSON, text, LaTeX, and the mean scores of report and page."""
    summary = summary_of(store, snapshot=read_methods(store))
    table = tabulate(summary, TableSpec(rows="method"))
    records = json.loads(lobench("results", "--store", store, "--by", "method", "--format", "json").stdout)
    text = lobench("results", "--store", store, "--by", "method").stdout
    latex = latex_table(summary, TableSpec(rows="method"))
    lobench("report", "--store", store, "--output", store.parent / "page.html")
    page = (store.parent / "page.html").read_text()
    notebook = html_of_results(summary.snapshot, "")
    by_cell = {(one["metric"], one["method"], one["case"]): one for one in records}
    for panel in table.panels:
        if panel.machine or panel.title.startswith(("seconds", "times")):
            continue
        for line in panel.lines:
            for column, entry in zip(table.columns, line.entries, strict=False):
                if entry is None:
                    continue
                one = by_cell[panel.title, line.heading.label, column.label]
                assert close(one["mean"], entry.interval.mean) and close(one["lower"], entry.interval.lower)
                assert close(one["upper"], entry.interval.upper) and one["bold"] == entry.is_bold
                shown = cell_text(entry, panel.digits)
                assert shown in text and shown in page and shown.replace("*", "") in notebook.replace("*", "")
                if not entry.num_lost and entry.is_score:
                    bounds = [f"{bound:z.3f}" for bound in (entry.interval.lower, entry.interval.upper)]
                    assert f"{entry.interval.mean:.3f}" in latex
                    assert math.isnan(entry.interval.upper) or f"[{', '.join(bounds)}]" in latex
    means = [summary.mean_score(place, "primary").interval for place in range(len(summary.snapshot.subjects))]
    report = lobench("report", "--store", store, "--format", "text").stdout
    shown = means[summary.headline_index].mean
    if not math.isnan(shown):
        assert re.search(SHOWN["score-on-train-loss"].format(score=re.escape(f"{shown:.3f}")), report), report
        assert f"{shown:.3f}" in page


def check_pairs(store: Path, names: list[str]) -> None:
    """compare in JSON and text: bounds and verdicts of one level, and the report's difference of the same pair."""
    output = lobench("compare", *names, "--store", store, "--format", "json")
    if output.returncode == 2:
        return  # no case in common
    text = lobench("compare", *names, "--store", store, "--details").stdout
    for pair in json.loads(output.stdout):
        for found in pair["metrics"].values():
            difference, chance = found["difference"], found["probability_of_improvement"]
            for one, sign in ((difference, "+"), (chance, "")):
                if one["lower"] is not None:
                    shown = f"{one['mean']:{sign}z.3f} [{one['lower']:{sign}z.3f}, {one['upper']:{sign}z.3f}]"
                    assert shown in text, shown
            if difference["lower"] is not None and found["p_diverged"] is None:
                effect = "better" if difference["lower"] > 0 else "worse" if difference["upper"] < 0 else "undecided"
                assert found["effect"] == effect, found
            for name, one in found["cases"].items():
                if one["lower"] is None:
                    continue
                shown = f"{one['mean']:+.3f} [{one['lower']:+.3f}, {one['upper']:+.3f}]"
                assert shown in text, name
                if one["p_diverged"] is None:
                    effect = "better" if one["lower"] > 0 else "worse" if one["upper"] < 0 else "undecided"
                    assert one["effect"] == effect, (name, one)
                gate = one["gate"]
                assert gate["name"] == name
                if gate["lower"] is not None and gate["p_diverged"] is None:
                    assert (gate["verdict"] == "REGRESSED") == (gate["lower"] > one["margin"]), (name, gate)
                    if gate["verdict"] == "PASS":
                        assert gate["upper"] < one["margin"]
    summary = summary_of(store, snapshot=read_methods(store))
    comparison = summary.headline_comparison()
    if comparison is not None and not math.isnan(comparison.overall.mean):
        labels = summary.snapshot.labels[summary.reference_index], summary.snapshot.labels[summary.headline_index]
        (pair,) = json.loads(lobench("compare", *labels, "--store", store, "--format", "json").stdout)
        found = pair["metrics"]["train/loss"]
        assert close(found["difference"]["mean"], comparison.overall.mean)
        assert close(found["difference"]["lower"], comparison.overall.lower)
        assert found["effect"] == str(comparison.verdict)


def check_exports(store: Path) -> None:
    """Records, notebook frames and sinks: counts and finals are equal, and an evaluation has one label."""
    records = json.loads(lobench("results", "--store", store, "--format", "json").stdout)
    results = open_results(store)
    evaluations, frame = results.evaluations(), results.frame()
    keys = [_key(one) for one in records]
    assert len(set(keys)) == len(keys) == len(evaluations)
    by_key = {(row.label, row.suite, row.case): row for row in evaluations.itertuples()}
    for key, one in zip(keys, records, strict=True):
        row = by_key[key]
        assert (one["diverged"], one["exploded"]) == (row.diverged, row.exploded)
    labels: dict[tuple[str, str, str], set[str]] = {}
    for one in records:
        labels.setdefault((one["checkpoint"]["sha256"], str(one["case"]), str(one["seeds"])), set()).add(one["label"])
    assert all(len(own) == 1 for own in labels.values()), "an evaluation under two labels"
    summary = summary_of(store)
    for subject in summary.snapshot.subjects:
        for cell in subject.cells.values():
            label = frame[(frame["label"] == subject.label) & (frame["case"] == cell.case.name)]
            own = label[label["metric"] == "train/loss"].sort_values("seed")["value"].tolist()
            assert own == pytest.approx(list(cell.finals("train/loss").values()), nan_ok=True)
            assert len(cell.exploded_seeds) == by_key[subject.label, cell.case.suite, cell.case.name].exploded
    with Ledger.open(store, read_only=True) as ledger:
        events = [one.event for one in ledger.deliveries_after(0, limit=1000)]
    for event in events:
        if hasattr(event, "evaluations"):
            counts = {
                (one.name, one.case): one.value for one in numbers_of(event) if one.name in ("diverged", "exploded")
            }
            for (name, case), value in counts.items():
                if case:
                    row = by_key[event.subject.label, "s", case]
                    assert value == getattr(row, name), (event.subject.label, name, case)


def _key(record: dict) -> tuple[str, str, str]:
    case = record["case"]
    if isinstance(case, dict):
        return record["label"], case.get("suite") or "s", case["name"]
    return record["label"], "s", case.removeprefix("s/")


def test_numbers_do_not_depend_on_the_order_in_which_cases_and_seeds_were_evaluated(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    methods = ["sgd()", "adam()", "lion()"]
    parts = [
        (method, case, start, draw.uniform(0.3, 1.9, 3).tolist())
        for method in methods
        for case in ("a", "b", "c", "d")
        for start in (0, 3)
    ]
    outputs = []
    for name in ("one", "other"):
        for method, case, start, finals in sorted(parts, key=lambda part: methods.index(part[0])):
            add(tmp_path / name, 0, {case: {"train/loss": finals}}, start=start, optimizer=method)
        commands = (("results", "--by", "method"), ("compare", "sgd()", "adam()"))
        outputs.append([lobench(*words, "--store", tmp_path / name, "--format", "json").stdout for words in commands])
        draw.shuffle(parts)
    for one, other in zip(*outputs, strict=True):
        assert "mean" in one and one == other.replace(str(tmp_path / "other"), str(tmp_path / "one"))

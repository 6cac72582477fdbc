"""The accepted results of modded-nanogpt's optimizer track: what they published follows from their imported curves."""

from __future__ import annotations

import itertools
import json
import os
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lobench
from imported import HEADER, held, write_csv
from scipy import stats

from lobench.analysis.comparisons.method_comparison import compare_subjects
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import Cell
from lobench.tools.curve_import.imports import import_curves

DATA = Path(os.environ.get("LOBENCH_REFERENCE_DATA", Path(__file__).parents[3] / "shared" / "data")) / "track3"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no reference data of track 3: {DATA} ($LOBENCH_REFERENCE_DATA) is not there"
)


def published() -> list[dict[str, Any]]:
    return json.loads((DATA / "track3_published.json").read_text())["results"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("track3") / "store"
    import_curves(
        DATA / "track3_val_loss.csv.gz",
        store=found,
        columns=["method=record", "seed=run"],
        metrics=["val_loss"],
        case="track3",
        until_step=[f"{one['record']}={one['steps']}" for one in published()],
    )
    return found


@pytest.fixture(scope="module")
def cells(store: Path) -> dict[str, Cell]:
    return {subject.subject.name: next(iter(subject.cells.values())) for subject in read_store(store).subjects}


@pytest.mark.parametrize("one", published() if DATA.is_dir() else [], ids=lambda one: f"record{one['record']}")
def test_means_and_steps_are_those_that_were_published(one: dict[str, Any], cells: dict[str, Cell]) -> None:
    cell = cells[str(one["record"])]
    finals = cell.final_values["val/loss"].values()
    assert (len(finals), int(cell.steps[-1])) == (one["n"], one["steps"])
    # Logs have five digits, which float32 keeps: the shortest text of each is what was logged.
    mean = sum(Decimal(str(np.float32(value))) for value in finals) / len(finals)
    assert mean.quantize(Decimal("0.0001"), ROUND_HALF_UP) == Decimal(f"{one['published_mean']:.4f}")


def test_p_values_of_all_pairs_are_those_of_the_values_in_the_headline_too(store: Path, cells: dict[str, Cell]) -> None:
    subjects = {subject.subject.name: subject for subject in read_store(store).subjects}
    scales, seen = Scales.of(subjects.values()), 0
    for one, other in itertools.combinations([name for name, cell in cells.items() if len(cell.seeds) > 1], 2):
        a, b = (list(cells[name].final_values["val/loss"].values()) for name in (one, other))
        if max(len(a), len(b)) >= 2 * min(len(a), len(b)):
            continue  # the larger p-value of two tests
        (found,) = compare_subjects([subjects[one], subjects[other]], scales=scales)
        expected, (case,) = float(stats.ttest_ind(a, b, equal_var=False).pvalue), found.primary.comparison.cases
        for p_value in (found.primary.comparison.p_value, case.paired.p_value):
            assert p_value == pytest.approx(expected, rel=1e-4, abs=1e-12)
        seen += 1
    assert seen > 50


def printed_by(store: Path, one: str, other: str) -> tuple[set[str], set[float]]:
    """Returns the p-values that texts and the page print of a pair, and those of the documents for programs."""
    of_report = ("report", "--store", store, "--method", one, "--method", other)
    text = lobench("compare", one, other, "--store", store, "--details").stdout
    headline = next(line for line in text.splitlines() if line.startswith("val/loss "))
    case = "\n".join(line for line in text.splitlines() if line.startswith("imported/track3"))
    page = store.parent / f"{one}-{other}.html"
    assert lobench(*of_report, "--output", page).returncode == 0
    lines = (headline, case, page.read_text())
    shown = [
        set(re.findall(r"(?<![\d.])[01]\.\d{4}(?= +(?:better|worse|undecided))|(?<=p[ \xa0]=[ \xa0])[\d.]+", line))
        for line in lines
    ]
    assert all(len(found) == 1 for found in shown), shown
    pair = json.loads(lobench("compare", one, other, "--store", store, "--format", "json").stdout)[0]
    metric = pair["metrics"]["val/loss"]
    reported = json.loads(lobench(*of_report, "--format", "json").stdout)["change"]["p_value"]
    (own,) = metric["cases"].values()
    return set.union(*shown), {metric["p_value"], own["p_value"], own["p_holm"], reported}


@pytest.mark.parametrize(("one", "other"), [("5", "8"), ("32", "34"), ("26", "36")])
def test_headline_tables_page_and_documents_say_one_p_value(
    store: Path, cells: dict[str, Cell], one: str, other: str
) -> None:
    printed, recorded = printed_by(store, one, other)
    a, b = (list(cells[name].final_values["val/loss"].values()) for name in (one, other))
    expected = float(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert printed == {f"{expected:.4f}"} and len(recorded) == 1
    assert recorded.pop() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("start", [10.87, 5.4, None], ids=["near", "half", "none"])
def test_where_curves_begin_moves_no_p_value_anywhere(tmp_path: Path, start: float | None) -> None:
    rows, draws = [], np.random.default_rng(0)
    finals = {name: np.float32(draws.normal(mean, 0.001, 10)).tolist() for name, mean in (("a", 3.28), ("b", 3.2805))}
    for name, begin in (("a", 10.82), ("b", start)):
        for seed, final in enumerate(finals[name]):
            rows += [(name, "track3", f"{name}{seed}", 0, "val_loss", begin)] if begin is not None else []
            rows.append((name, "track3", f"{name}{seed}", 100, "val_loss", final))
    write_csv(tmp_path / "x.csv", rows, HEADER)
    import_curves(tmp_path / "x.csv", store=tmp_path / "s", metrics=["val_loss"])
    printed, recorded = printed_by(tmp_path / "s", "a", "b")
    expected = float(stats.ttest_ind(finals["a"], finals["b"], equal_var=False).pvalue)
    assert printed == {f"{expected:.4f}"} and len(recorded) == 1
    assert recorded.pop() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "path", sorted((DATA / "raw").glob("*[!n]")) if DATA.is_dir() else [], ids=lambda path: path.name
)
def test_raw_logs_have_the_curves_that_are_known_of_them(path: Path, tmp_path: Path) -> None:
    expected = json.loads((DATA / "raw" / "expected.json").read_text())[path.name]
    import_curves(path, store=tmp_path / "s", metrics=["val_loss"])
    found = held(tmp_path / "s")
    rows = [len(points["val/loss"]) for _, points in sorted(found.items())]
    # What repeats the end of the run before is no run.
    assert rows == [rows for rows in expected["rows_per_curve"] if rows != 3]
    last = [points["val/loss"][-1] for _, points in sorted(found.items())]
    for line in expected["last"]:
        step, loss = line.split()[0], line.split()[1]
        assert (int(step[5:].partition("/")[0]), float(loss[9:])) in last


def test_the_tracks_rule_accepts_what_was_accepted(store: Path) -> None:
    records = [str(one["record"]) for one in published()]
    done = lobench("compare", *records, "--store", store, "--rule", "track3", "--format", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 1  # the first two are marked as before the rule
    for one, result in zip(published(), found["results"], strict=True):
        assert (result["test"]["passed"], result["step"], result["runs"]) == (
            one["passes_rule"],
            one["steps"],
            one["n"],
        )
        assert round(result["mean"], 4) == pytest.approx(one["published_mean"], abs=1.01e-4)
    assert max(result["deviation"] or 0 for result in found["results"]) < 0.0014

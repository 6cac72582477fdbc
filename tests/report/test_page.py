"""The page as text: everything that a report must say, everything from outside escaped, no number of its own making."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lobench
from report_store import NASTY, make_baseline, make_store
from shown import texts_of
from store_histories import checkpoint, evaluate
from stores import add

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.stats.speedup import Speedup, SpeedupReference
from lobench.core.errors import StoreError
from lobench.core.result import Outcome
from lobench.engine.store.edited_code import ResultCodes
from lobench.engine.store.ledger import Ledger
from lobench.report.charts.charts import sections
from lobench.report.page.page import render_page, write_page
from lobench.report.tables.latex import latex_table
from lobench.report.tables.result_records import result_records
from lobench.report.tables.verdict import _speedup_text, report_warnings, verdict_text

SHOWN = texts_of("report")


class Page(HTMLParser):
    """Text by element, and what the page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag if tag in ("script", "style") else self._inside
        if tag == "script":
            self.scripts.append("")
        self.loads += [
            value or ""
            for name, value in attrs
            if name in ("src", "href") and not str(value).startswith(("data:", "#"))
        ]

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def page(store: Path) -> Page:
    return Page(render_page(summary_of(store, [make_baseline(store.parent)])))


def test_it_loads_nothing_and_has_two_scripts_of_its_own(page: Page) -> None:
    assert page.loads == []
    assert len(page.scripts) == 2, "text from outside made a script"
    assert NASTY in page.words, "escaped text reads as it was"


def test_an_optimizer_without_curves_has_no_line_in_profiles(tmp_path: Path) -> None:
    store = make_store(tmp_path, num_checkpoints=2)
    add(store, 0, {"case0": Outcome.ERROR}, optimizer="lost()")
    found = summary_of(store, [make_baseline(tmp_path)])
    (profiles,) = (section for section in sections(found) if section.id == "profiles")
    charts = [figure.chart for figure in profiles.figures]
    assert charts[-1].title == SHOWN["ratio-profile"]
    assert all("lost()" not in {series.label for series in chart.series} for chart in charts)


def test_divergence_failures_and_censoring_are_in_plain_sight(page: Page) -> None:
    assert SHOWN["digits-case0-1-of-4"] in page.words
    assert SHOWN["failed-assertionerror"].format(nasty=NASTY) in page.words
    assert "1 of 48" in page.words, "diverged seeds of all"
    assert re.search(SHOWN["never-reached-it-on-of"], page.words)
    assert SHOWN["digits-tuned-adam-has-no"].format(nasty=NASTY) in page.words
    assert SHOWN["tuned-adam-velo-protocol-on"] in page.words
    assert SHOWN["change-leaves-out-seeds"] in page.words


def test_a_horizon_too_short_is_said(store: Path, tmp_path: Path) -> None:
    suite = make_baseline(tmp_path)
    path = suite / "baselines" / "adam-velo.json"
    record = json.loads(path.read_text())
    summary = summary_of(store, [suite])
    assert record["cases"] and summary.scales.baselines.baseline_by_case
    words = Page(render_page(summary_of(make_store(tmp_path, num_checkpoints=40), [suite]))).words
    assert SHOWN["speed-up-over-the-best"] in words
    assert ">= 10x" in words
    text = lobench("report", "--store", tmp_path / "store", "--baseline", suite, "--format", "text").stdout
    lines = text.splitlines()
    sentence = "is censored on 1 of 2 cases, more than a tenth: the baseline, run for 10 times the budget, never was"
    assert any(line.startswith(SHOWN["note-the-speed-up-over"]) and sentence in line for line in lines)
    spans = next(line for line in lines if "speed-up over tuned adam: over the best single setting" in line)
    assert SHOWN["over-the-envelope"] not in spans, "its smoothing is longer than the budget"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([(2.0, False), (10.0, True), (10.0, True)], SHOWN["10x-in-the-median-censored"]),
        ([(2.0, False), (3.0, False), (10.0, True)], SHOWN["3x-in-the-median-censored"]),
        ([(2.0, True), (3.0, False), (4.0, False)], SHOWN["3x-in-the-median-censored-on"]),
        ([(2.0, False), (5.0, False), (3.0, False), (4.0, False)], SHOWN["5x-in-the-median-censored"]),
        ([(math.nan, False)], SHOWN["none-censored-on-0-of"]),
    ],
)
def test_a_median_of_bounds_is_a_bound(found: list[tuple[float, bool]], message: str) -> None:
    form = SpeedupReference.BEST_SINGLE
    assert _speedup_text([Speedup(value=value, censored=censored, form=form) for value, censored in found]) == message


def test_the_verdict_in_a_terminal_is_that_of_the_page(store: Path, tmp_path: Path) -> None:
    suite = make_baseline(tmp_path)
    words = Page(render_page(summary_of(store, [suite]))).words
    text = lobench("report", "--store", store, "--baseline", suite, "--format", "text").stdout
    train, test = (
        next(line for line in text.splitlines() if line.startswith(f"Score on {name}, outer step 3: "))
        for name in ("train/loss", "test/loss")
    )
    assert re.search(SHOWN["interquartile-mean-over-its-runs"], text)
    for line in (train, test):
        label, _, value = line.partition(": ")
        assert f"{label} {value.split()[0]}" in words
    assert (
        SHOWN["censored-on-0-of-2"] in text
        and SHOWN["censored-on-0-of-2"] in words
        and SHOWN["more-than-a-tenth"] not in text
    )
    output = tmp_path / "new" / "verdict.txt"
    assert lobench("report", "--store", store, "--format", "text", "--output", output).returncode == 0
    assert output.read_text(encoding="utf-8").startswith(SHOWN["lobench-digits"])
    no_page = lobench("report", "--store", store)
    assert no_page.returncode == 2 and SHOWN["html-is-not-printed"] in no_page.stderr


def test_checkpoints_that_their_step_does_not_tell_apart_go_by_name(tmp_path: Path) -> None:
    for name in ("dm.npz", "celo.msgpack"):
        add(tmp_path, 0, {"a": {"train/loss": [1.0, 0.5]}}, sha256=name, uri=f"shared/{name}")
    assert summary_of(tmp_path, []).snapshot.capitalized_labels == ("dm.npz", "celo.msgpack")


def test_every_number_of_the_table_is_one_of_results(store: Path, page: Page) -> None:
    data = json.loads(page.scripts[0])["evaluations"]
    ledger = Ledger.open(store, read_only=True)
    expected = {
        (r["case"]["name"], r["checkpoint"]["outer_step"]): r
        for r in result_records(ledger.evaluations(), ResultCodes(ledger), with_curves=False)
    }
    ledger.close()
    names = [column["name"] for column in data["columns"]]
    assert len(data["rows"]) == len(expected) == 12
    for row in data["rows"]:
        cells: dict[str, Any] = dict(zip(names, row, strict=False))  # and the places of subject and case
        record = expected[cells["case"].partition("/")[2], cells["outer step"]]
        final = record["metrics"]["train/loss"]["final"]
        assert cells["train final"] == ("diverged" if final is None else float(f"{final:.4g}"))
        assert (cells["outcome"], cells["diverged"]) == (record["outcome"], record["diverged"])


def test_cases_of_one_name_are_told_apart_and_keep_both_of_their_comparisons(tmp_path: Path) -> None:
    """Two tests evaluate a case of one name: they are two cases, and none is the other one changed."""
    for step in (1, 2):
        for identity, first in (("one", 1.0), ("two", 0.1)):
            finals = [first * step, first * step + 0.01, first * step]
            add(tmp_path, step, {"a": {"train/loss": finals}}, identities={"a": identity}, test=f"test_{identity}")
    summary = summary_of(tmp_path, [])
    snapshot = summary.snapshot
    names = [snapshot.case_name(case) for case in range(len(snapshot.cases))]
    assert names == ["s/a (test_s.py::test_one[a])", "s/a (test_s.py::test_two[a])"]
    assert snapshot.left_out.former_cases == ()
    assert r"a (test\_s.py::test\_one[a])" in latex_table(summary)
    change = summary.headline_comparison()
    assert change is not None and len(change.cases) == 2
    effects = [found.effect for found in summary.shown_cases(change)]
    assert len({effect.paired.mean for effect in effects if effect}) == 2


def test_a_metric_that_only_some_seeds_have_is_theirs(tmp_path: Path) -> None:
    identities = {"a": "one"}
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 1.1], "test/other": [1.0, 2.0]}}, identities=identities)
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 1.1]}}, start=2, identities=identities)
    cell = summary_of(tmp_path, []).snapshot.cell(0, 0)
    assert cell is not None and cell.seeds == (0, 1, 2, 3)
    assert [sorted(cell.final_values[name]) for name in ("train/loss", "test/other")] == [[0, 1, 2, 3], [0, 1]]


def test_the_later_evaluation_of_a_seed_counts_whatever_the_versions_are_called(tmp_path: Path) -> None:
    for version, final in (("9", 1.0), ("10", 0.5)):
        add(tmp_path, 1, {"a": {"train/loss": [final]}}, program_version=version)
    cell = summary_of(tmp_path, []).snapshot.cell(0, 0)
    assert cell is not None and cell.final_values["train/loss"] == {0: 0.5}


def test_notes_on_what_is_in_no_number_name_the_reason_and_agree_in_number(tmp_path: Path) -> None:
    losses = [1.0, 0.5]
    evaluate(tmp_path, checkpoint(0), losses, is_planned=True)
    evaluate(tmp_path, checkpoint(0), losses, optimizer="other", is_planned=True)
    evaluate(tmp_path, checkpoint(1), losses, name="b", is_planned=True)
    evaluate(tmp_path, checkpoint(1, "restarted"), losses, is_planned=True)  # without a result on b
    summary = summary_of(tmp_path, [])
    assert summary.snapshot.left_out.repeated_cases == ()
    notes = report_warnings(summary, [])
    for name in ("1-evaluation-with-other-bindings-is", "1-checkpoint-of-a-former-run-is"):
        assert any(note.startswith(SHOWN[name]) for note in notes), notes
    assert not any("was changed" in note for note in notes), notes


def test_of_a_changed_case_the_last_form_is_shown_and_counted_once(tmp_path: Path) -> None:
    losses = {"train/loss": [1.0, 0.5], "test/loss": [1.0, 0.6]}
    for step in (1, 2):
        add(tmp_path, step, {"a": losses, "b": losses}, identities={"a": "before", "b": "b"})
    assert summary_of(tmp_path, []).snapshot.left_out.former_cases == ()
    add(tmp_path, 2, {"a": {"train/loss": [0.2, 0.3]}}, identities={"a": "after"})
    summary = summary_of(tmp_path, [])
    assert [(case.name, case.identity) for case in summary.snapshot.cases] == [("a", "after"), ("b", "b")]
    assert summary.mean_score(summary.headline_index, "primary").num_cases == 2
    words = Page(render_page(summary)).words
    note = SHOWN["s-a-was-changed-2"]
    assert note in words and note in lobench("report", "--store", tmp_path, "--format", "text").stdout
    assert len(summary.snapshot.rows) == 5, "the table of evaluations has them"


def test_one_seed_says_why_nothing_is_decided(tmp_path: Path) -> None:
    for step in (1, 2):
        add(tmp_path, step, {"a": {"train/loss": [1.0 / step]}})
    words = Page(render_page(summary_of(tmp_path, []))).words
    assert SHOWN["no-interval-one-value-a"] in words and SHOWN["undecidable-below-n-2"] in words
    assert "= nan" not in words and "95% (no" not in words


def test_a_baseline_that_fits_no_case_was_found_all_the_same(tmp_path: Path) -> None:
    suite = make_baseline(tmp_path)
    add(tmp_path / "other", 1, {"a": {"train/loss": [1.0, 0.5]}})
    summary = summary_of(tmp_path / "other", [suite])
    assert report_warnings(summary, []) == [str(problem) for problem in summary.scales.baselines.problems]
    assert len(summary.scales.baselines.problems) == 1 and summary.scale_label.endswith(SHOWN["no-baseline-fits"])


def test_a_gate_of_the_store_is_a_headline(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    ledger = Ledger.open(store)
    ledger.record_event(
        "gate", against=NASTY, verdict="REGRESSED", margin=0.02, alpha=0.05, cases=[{"verdict": "PASS"}], overall={}
    )
    ledger.close()
    words = Page(render_page(summary_of(store, []))).words
    assert (
        SHOWN["gate-against"].format(nasty=NASTY) in words
        and "REGRESSED" in words
        and SHOWN["pass-margin-0-02"] in words
    )


def test_an_empty_store_and_no_store_are_clear_lines(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "empty").close()
    with pytest.raises(StoreError, match=SHOWN["no-evaluation-yet"]):
        render_page(summary_of(tmp_path / "empty", []))
    done = lobench("report", "--store", tmp_path / "none", "--output", "x.html", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["no-result-store-found"] in done.stderr, done.stderr


def test_a_page_that_cannot_be_written_is_a_clear_line(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=SHOWN["cannot-write-the-report"]):
        write_page(summary_of(store, []), tmp_path / "file" / "x.html")


@pytest.mark.parametrize("kind", ["html", "latex", "png", "pdf"])
def test_the_command_writes_each_format(store: Path, tmp_path: Path, kind: str) -> None:
    options = ("--output", tmp_path / "out", "--baseline", make_baseline(tmp_path))
    done = lobench("report", "--store", store, "--format", kind, *options)
    assert done.returncode == 0, done.stderr
    if kind in ("png", "pdf"):
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            f"{name}.{kind}" for name in ("curves", "outer", "profiles")
        ]
    else:
        assert (tmp_path / "out").read_text().startswith({"html": "<!doctype html>", "latex": "%"}[kind])


@pytest.mark.parametrize("kind", ["text", "json", "latex", "appendix", "badge"])
def test_formats_of_plain_text_are_printed_without_a_file(store: Path, tmp_path: Path, kind: str) -> None:
    words = ("report", "--store", store, "--format", kind, "--baseline", make_baseline(tmp_path))
    printed, written = lobench(*words), lobench(*words, "--output", tmp_path / "out")
    assert printed.returncode == written.returncode == 0
    assert "".join(printed.stdout.split()) == "".join((tmp_path / "out").read_text(encoding="utf-8").split())
    assert f"{tmp_path / 'out'}: " in written.stdout + written.stderr


def test_roles_have_scores_of_their_own_and_a_suite_chooses_its_headline(tmp_path: Path) -> None:
    store = make_store(tmp_path, num_cases=4, roles=("meta_train", "meta_test", "meta_test"), headline="speedup")
    found = summary_of(store, [make_baseline(tmp_path, num_cases=4)])
    lines = verdict_text(found).splitlines()
    line = next(line for line in lines if "by the role of cases" in line)
    assert SHOWN["meta-train-in-distribution-1"] in line and SHOWN["meta-test-out-of-distribution"] in line
    scores = found.mean_score(found.headline_index, "primary").scores
    means = [float(np.mean(list(scores[f"identity of case{index}"].values()))) for index in range(3)]
    roles = found.scores_by_role("primary")
    assert roles["meta_train"][0].mean == pytest.approx(means[0])
    assert roles["meta_test"][0].mean == pytest.approx((means[1] + means[2]) / 2)
    card = next(line for line in lines if line.startswith("Speed-up over the envelope of tuned adam, outer step 3: "))
    assert card == lines[3] and SHOWN["interquartile-mean-of-3-cases"] in card
    assert SHOWN["too-large-on-3-cases"] in card
    speedups, num_cases, num_censored = found.speedups()
    assert num_cases == 3 and 1 < speedups.lower < speedups.upper < 10 and num_censored == 0
    assert 1 < speedups.mean < 10, "the baseline ran ten times the budget"

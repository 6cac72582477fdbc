"""Whoever tells of a store tells the same number: compare, the report in its forms, best and the history."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commands import lobench
from report_store import make_baseline
from shown import texts_of
from stores import add

from lobench.analysis.store.snapshot import read_store
from lobench.core.result import Outcome
from lobench.tools.best.best import rank_checkpoints

SHOWN = texts_of("lobench")

NAN = math.nan


def one_diverged(store: Path) -> None:
    add(store, 1, {"case0": {"train/loss": [0.6, 0.5, NAN, 0.7]}})
    add(store, 2, {"case0": {"train/loss": [1.0, 0.9, 1.2, 1.1]}})


def most_diverged(store: Path) -> None:
    """Of the best one most seeds diverged: it sets no scale."""
    add(store, 1, {"case0": {"train/loss": [0.1, NAN, NAN]}, "case1": {"train/loss": [1.0, 1.1, 1.2]}})
    add(store, 2, {"case0": {"train/loss": [1.0, 1.1, 0.9]}, "case1": {"train/loss": [1.3, 0.9, 1.0]}})


def missing(store: Path) -> None:
    """Other seeds, a case that gave nothing, a case that one lacks, a block that failed beside one that did not."""
    three = {"train/loss": [1.0, 0.8, 0.9], "test/loss": [1.2, 1.0, 1.1]}
    add(store, 1, {"case0": three, "case1": three, "case2": Outcome.TIMEOUT})
    add(store, 2, {"case0": three, "case1": Outcome.OOM, "case2": three}, start=1)
    add(store, 2, {"case0": Outcome.ERROR}, start=8)


def several(store: Path) -> None:
    """The best is neither the first nor the last; the last is under way; one has no scale; a case was changed."""
    for step, factor in ((1, 1.0), (2, 0.2), (3, 0.7)):
        finals = {"train/loss": [factor, 0.9 * factor, 1.1 * factor], "test/loss": [1.5 * factor, factor, factor]}
        worse = {"train/loss": [2.5, 2.6, 2.7], "test/loss": [2.5, 2.6, 2.7]}
        add(store, step, {"case0": finals, "case1": finals, "case2": worse})
    add(store, 4, {"case0": {"train/loss": [0.01, 0.02, 0.03], "test/loss": [0.01, 0.02, 0.03]}})
    add(store, 2, {"case1": {"train/loss": [0.3, 0.4, 0.5]}}, identities={"case1": "before"})
    for step in (1, 3):
        add(store, step, {"case1": {"train/loss": [0.6, 0.7, 0.5], "test/loss": [0.9, 0.8, 0.7]}})


def optimizers(store: Path) -> None:
    add(store, 0, {"case0": {"train/loss": [0.2, 0.3]}}, optimizer="adam()")
    add(store, 1, {"case0": {"train/loss": [1.0, 1.1]}})
    add(store, 2, {"case0": {"train/loss": [0.5, 0.6]}})


def changed(store: Path) -> None:
    """Of two cases one was changed after the first checkpoint."""
    for step, form in ((1, "old"), (2, "new")):
        finals = {"train/loss": [1.0 / step, 1.1 / step, 0.9 / step]}
        add(store, step, {"case0": finals, "case1": finals}, identities={"case1": form})


STORES = [one_diverged, most_diverged, missing, several, changed, optimizers]


class _Text(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.feed(page)
        self.words = " ".join(" ".join(self.parts).split())

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def headline(text: str, label: str) -> list[str]:
    """Returns value and bounds of a card."""
    found = re.search(re.escape(label) + r"[^:]*?[: ]+(-?\d\.\d+) \(?(?:95% \[(-?\d\.\d+), (-?\d\.\d+)\])?", text)
    assert found, (label, text)
    return [value for value in found.groups() if value]


@pytest.mark.parametrize("with_baseline", [False, True], ids=["among-themselves", "baseline"])
@pytest.mark.parametrize("write", STORES, ids=lambda write: write.__name__)
def test_every_headline_of_a_store_is_the_same_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None], with_baseline: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    write(store := tmp_path / "store")
    # The suite lies where the store's cases say that they are: in the working directory itself.
    suite = tmp_path
    if with_baseline:
        (make_baseline(tmp_path) / "baselines").rename(tmp_path / "baselines")
    (run,) = json.loads(lobench("results", "--store", store, "--history", "--format", "json").stdout)
    text = lobench("report", "--store", store, "--format", "text").stdout
    assert lobench("report", "--store", store, "--output", "r.html").returncode == 0
    words = _Text(Path("r.html").read_text()).words
    assert lobench("report", "--store", store, "--format", "latex", "--output", "t.tex").returncode == 0
    rows = [line for line in Path("t.tex").read_text().splitlines() if line.startswith("mean score")]
    order = {True: -2, False: -1}[with_baseline]  # the last subject's column
    for row in rows:
        metric = row.split(" & ")[0].removeprefix("mean score, ")
        output = run["scores"][metric]
        expected = [f"{output[key]:.3f}" for key in ("mean", "lower", "upper") if output[key] is not None]
        assert headline(text, f"Score on {metric}") == expected
        assert headline(words, f"Score on {metric}") == expected
        every = rank_checkpoints(read_store(store), [str(suite)], metric)[2]
        ranked = next(one for one in every if one.subject.label == run["last_checkpoint"])
        assert ranked.score.mean == pytest.approx(output["mean"], abs=1e-12)
        shown = re.findall(r"(?:mathbf\{)?(-?\d\.\d{3})\}?(?:\\,\[|\$)", row)
        if write is not several:  # its last one is not the one that headlines are of
            assert row.split(" & ")[order].find(expected[0]) >= 0, shown
    against = re.search(r"Against (.*?): (\w+) \(difference (\S+) \[(\S+), (\S+)\]", text)
    assert against, text
    done = lobench("compare", "1", run["last_checkpoint"], "--store", store, "--format", "json")
    (pair,) = json.loads(done.stdout)
    effect = next(iter(pair["metrics"].values()))
    found = [f"{effect['difference'][key]:.3f}" for key in ("mean", "lower", "upper")]
    assert [value.strip(",]") for value in against.groups()[2:]] == found and against[2] == effect["effect"]
    assert f"difference {found[0]} [{found[1]}, {found[2]}]" in words
    verdicts = [case["effect"] for case in effect["cases"].values()]
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in ("better", "worse", "undecided"))
    assert SHOWN["holm-level-0-05"].format(counts=counts) in text


def test_a_baseline_of_some_cases_leaves_none_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    several(tmp_path / "store")
    (make_baseline(tmp_path) / "baselines").rename(tmp_path / "baselines")
    text = lobench("report", "--store", "store", "--format", "text").stdout
    assert SHOWN["is-tuned-adam-on-2"] in text
    assert SHOWN["without-a-score-1"] in text, "on case2 nobody trained"

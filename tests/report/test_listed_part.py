"""The part of a large store that its page lists, and what the page says of the rest."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from shown import texts_of
from stores import add

from lobench.analysis.comparisons import listed_part as module
from lobench.analysis.comparisons.listed_part import listed_part
from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.report.page.page import render_page

SHOWN = texts_of("report")

FINALS = (1.5, 0.1, 1.4, 1.3, 1.2, 1.1, 1.0)  # of seven checkpoints: the second is the best


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    store = tmp_path_factory.mktemp("listed") / "store"
    for step, final in enumerate(FINALS):
        add(store, step, {"a": {"train/loss": [final, final + 0.01]}, "b": {"train/loss": [final, final + 0.02]}})
    for index, final in enumerate((0.9, 0.3, 0.6)):
        name = f"adam(); adam.learning_rate = 0.{index + 1}"
        add(store, 10 + index, {"a": {"train/loss": [final, final + 0.01]}}, optimizer=name)
    return summary_of(store, [])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in {"MOST_CHECKPOINTS": 4, "MOST_METHODS": 2, "_NEWEST": 1, "_BEST": 1}.items():
        monkeypatch.setattr(module, name, number)


def test_listed_part_of_a_small_store_is_the_whole(summary: Summary) -> None:
    listed = listed_part(summary)
    assert listed.subjects is summary and listed.methods is summary and listed.note == ""
    assert SHOWN["lists-and-tables"] not in render_page(summary)


def test_listed_part_of_a_large_store_has_its_ends_and_its_best(summary: Summary, few: None) -> None:
    listed = listed_part(summary)
    subjects = listed.subjects.snapshot.subjects
    assert [one.subject.outer_step for one in subjects if one.subject.has_theta] == [0, 1, 4, 6]
    assert {one.label[-3:] for one in subjects if one.is_optimizer} == {"0.2", "0.3"}
    assert listed.note == (SHOWN["lists-and-tables-of-this"])
    rows = {row.key.checkpoint_sha256 for row in listed.subjects.snapshot.rows}
    assert rows == {one.subject.sha256 for one in listed.subjects.snapshot.subjects}


def test_listed_part_of_many_runs_has_the_newest_checkpoints(
    tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_NEWEST", 2)
    for index in range(8):
        finals, uri = {"a": {"train/loss": [1.0 + index / 10] * 2}}, f"run{index // 2}/theta_{index % 2}.npz"
        add(tmp_path, index % 2, finals, sha256=f"{index}" * 64, uri=uri)
    subjects = listed_part(summary_of(tmp_path, [])).subjects.snapshot.subjects
    assert {"5" * 64, "7" * 64} <= {one.subject.sha256 for one in subjects} and len(subjects) == 4


def test_listed_part_has_the_headline_and_the_scores_of_the_whole(summary: Summary, few: None) -> None:
    part = listed_part(summary).subjects
    for one, place in ((part.headline_index, summary.headline_index), (part.reference_index, summary.reference_index)):
        assert part.snapshot.subjects[one] is summary.snapshot.subjects[place]
    places = {id(one): place for place, one in enumerate(summary.snapshot.subjects)}
    for place, subject in enumerate(part.snapshot.subjects):
        own, whole = (at.mean_score(here, "primary") for at, here in ((part, place), (summary, places[id(subject)])))
        assert own.interval == whole.interval and not math.isnan(own.mean)


def test_page_of_a_large_store_says_what_it_leaves_out(summary: Summary, few: None) -> None:
    page = render_page(summary)
    assert "have 4 of 7 checkpoints" in page and SHOWN["all-ranks-every-checkpoint-and"] in page
    assert SHOWN["checkpoints-and-3-optimizers-2"] in page, "counts are of the whole store"
    assert SHOWN["of-7-checkpoints-table-methods"] in page, "so are those of the table of methods"

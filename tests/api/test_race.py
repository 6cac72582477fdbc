"""`lobench compare --race`: what leaves when, from the ledger alone, through kills and beside other rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Done, lobench, lobench_here
from races import noisy_suite
from shown import texts_of
from tiny import killed_chief

from lobench.analysis.comparisons.race import RaceResult, Standing
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.search_history import edge_notes_among
from lobench.analysis.store.snapshot import read_store
from lobench.core.subject import Subject
from lobench.report.tables.race_output import race_text

SHOWN = texts_of("api")

METHODS = [f"sgd(); sgd.learning_rate = {rate}" for rate in (0.1, 0.09, 0.03, 0.0003)]
STORE = Path(".lobench") / "compare" / "tiny"
OPTIONS = ("--seeds", "12", "--workers", "1", "--executor", "inline", "--format", "json")


def race(folder: Path, *options: str, methods: list[str] = METHODS) -> Done:
    return lobench("compare", *methods, "--race", "--suite", "tiny", *(options or OPTIONS), cwd=folder)


def bits(store: Path) -> dict[Any, bytes | None]:
    """What a store holds by evaluation: the values of its curves."""
    return {
        (row.key.checkpoint_sha256, row.key.case_identity, row.key.seed_block): b"".join(
            values.tobytes() for _, values in sorted(row.curves.metrics.items())
        )
        if row.curves is not None
        else None
        for row in read_store(store).rows
    }


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("raced")
    noisy_suite(folder)
    done = race(folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_who_is_worse_leaves_and_is_trained_no_more(raced: tuple[Path, dict[str, Any]]) -> None:
    folder, record = raced
    by_name = {one["method"]: one for one in record["methods"]}
    slowest = by_name[METHODS[3]]
    assert slowest["out_at"] in (3, 4, 5) and slowest["gap"]["upper"] < 0
    assert slowest["inner_steps"] == 2 * 20 * 2 * slowest["out_at"]
    assert record["leader"] in METHODS[:2] and METHODS[3] not in record["left"]
    assert record["inner_steps"] == sum(one["inner_steps"] for one in record["methods"])
    assert record["inner_steps"] < record["inner_steps_without_a_race"] == 4 * 2 * 20 * 12
    trained = [row for row in read_store(folder / STORE).rows for _ in row.key.seed_block.seeds]
    assert sum(row.case.num_inner_steps for row in trained) == record["inner_steps"]


def test_a_race_that_is_killed_again_and_again_decides_the_same_on_the_same_bits(
    tmp_path: Path, raced: tuple[Path, dict[str, Any]]
) -> None:
    noisy_suite(tmp_path)
    for commits, after in ((15, 1), (26, 0)):
        words = ["compare", *METHODS, "--race", "--suite", "tiny", *OPTIONS]
        killed = killed_chief(commits, after, *words, cwd=tmp_path)
        assert killed.returncode == -9, killed.stderr
    done = race(tmp_path)
    assert json.loads(done.stdout) == raced[1], done.stderr
    assert bits(tmp_path / STORE) == bits(raced[0] / STORE)


def test_what_else_is_stored_and_what_came_later_decides_nothing(
    tmp_path: Path, raced: tuple[Path, dict[str, Any]]
) -> None:
    suite = noisy_suite(tmp_path)
    store = tmp_path / STORE
    sizes = "Case.block_sizes = (2, 2, 2, 2, 2, 2)"
    more = [METHODS[3], METHODS[1], "sgd(); sgd.learning_rate = 0.15"]
    options = ("--store", store, "--gin-param", sizes, "--workers", "1")
    assert lobench_here("compare", *more, "--suite", suite, *options, cwd=tmp_path).returncode in (0, 1)
    assert json.loads(race(tmp_path).stdout) == raced[1]


def test_a_second_call_trains_nothing_and_more_seeds_keep_what_was_decided(
    raced: tuple[Path, dict[str, Any]],
) -> None:
    folder, record = raced
    store = folder / STORE
    before = len(read_store(store).rows)
    again = race(folder)
    assert json.loads(again.stdout) == record and len(read_store(store).rows) == before
    longer = json.loads(race(folder, "--seeds", "14", *OPTIONS[2:]).stdout)
    for one, other in zip(record["methods"], longer["methods"], strict=True):
        assert one["out_at"] is None or one == other


def test_the_table_says_who_left_when_and_behind_whom_and_a_margin_ends_a_race(
    raced: tuple[Path, dict[str, Any]],
) -> None:
    plain = OPTIONS[:-2]
    assert SHOWN["none-of-the-4-that"] in race(raced[0], "--margin", "2", *plain).stdout
    output = race(raced[0], *plain).stdout
    assert "  look " in output and "leads" in output and SHOWN["nothing-shows-which-is-best"] in output
    assert SHOWN["for-all-methods-on-all"] in output and SHOWN["best-mean-of-the-first"] in output


def test_a_leader_at_the_end_of_what_races_is_said(raced: tuple[Path, dict[str, Any]]) -> None:
    who = [Subject.of_optimizer(text) for text in (*METHODS, "adam(); adam.b1 = 0.9", "sgd(); sgd.learning_rate = x()")]
    (line,) = edge_notes_among(who, 0)
    assert line == SHOWN["best-sgd-learning-rate-0"]
    assert SHOWN["is-the-least"] in edge_notes_among(who, 3)[0]
    assert edge_notes_among(who, 1) == edge_notes_among(who, 4) == edge_notes_among(who[:2], 0) == []
    folder, record = raced
    assert record["edges"] == edge_notes_among(who, METHODS.index(record["leader"]))
    stdout = race(folder, *OPTIONS[:-2]).stdout
    assert [f"{record['leader']}: {edge}" in stdout for edge in record["edges"]] == [True] * len(record["edges"])


def test_seeds_that_diverge_are_counted_apart_and_leave_the_bounds_of_the_others(tmp_path: Path) -> None:
    suite = noisy_suite(tmp_path)
    with (suite / "tiny.gin").open("a") as file:
        file.write("b/Case.task = @Cliff()\n")
    rates = [f"sgd(); sgd.learning_rate = {rate}" for rate in (0.05, 0.5)]
    record = json.loads(race(tmp_path, "--seeds", "16", *OPTIONS[2:], methods=rates).stdout)
    worse = record["methods"][1]
    assert record["ending"] == SHOWN["one-left"] and record["left"] == rates[:1]
    assert worse["diverged"] > 0 == worse["other_diverged"]
    assert worse["gap"]["lower"] < worse["gap"]["mean"] < worse["gap"]["upper"] < 3, "of the seeds that converge"
    line = SHOWN["scores-are-of-the-seeds"]
    assert line in race(tmp_path, "--seeds", "16", *OPTIONS[2:-2], methods=rates).stdout


def test_what_cannot_race_says_so(raced: tuple[Path, dict[str, Any]]) -> None:
    folder = raced[0]
    assert SHOWN["race-takes-two-methods-or"] in race(folder, methods=METHODS[:1]).stderr
    assert SHOWN["method-is-in-the-race"] in race(folder, methods=[METHODS[0], METHODS[0]]).stderr
    assert SHOWN["seeds-come-in-whole-blocks"] in race(folder, "--seeds", "5").stderr
    assert SHOWN["strict-is-of-no-race"] in race(folder, "--strict").stderr
    assert (
        SHOWN["seeds-is-of-race-alone"]
        in lobench("compare", *METHODS, "--suite", "tiny", "--seeds", "4", cwd=folder).stderr
    )


def test_methods_whose_scores_are_level_with_the_leader_are_named() -> None:
    gaps = {"adam": None, "sgd": 0.0, "lion": -0.2}
    standings = [
        None if gap is None else Standing(rival=0, score_gap=Interval(mean=gap), diverged_counts=(0, 0))
        for gap in gaps.values()
    ]
    found = RaceResult(
        labels=tuple(gaps),
        looks=1,
        out_at=(None, None, None),
        standings=tuple(standings),
        leader=0,
        ending=None,
        steps=(8, 8, 8),
        all_steps=8,
        missing_evaluations=(),
        scale="",
    )
    assert SHOWN["adam-leads-level-with-sgd"] in race_text(found, alpha=0.05, margin=0.0)

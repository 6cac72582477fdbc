"""`lobench best` on a real run: watched, chosen from, evaluated again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import lobench_here as lobench
from shown import texts_of
from stores import add
from tiny import ONE_CASE, make_run, make_suite, results, write_checkpoint
from tiny import watch_here as watch

from lobench.analysis.store.former_bindings import former_bindings_line
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import notes_on_rows
from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject
from lobench.tools.best.best import rank_checkpoints
from lobench.tools.best.choice import Best, Candidate, best_text

SHOWN = texts_of("best")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Four learning rates: one far too small, two good ones, one that diverges."""
    folder = tmp_path_factory.mktemp("run")
    suite, run = make_suite(folder), make_run(folder, -9.0, -1.5, -1.2, 30.0)
    done = watch(run, suite, "--once", "--checkpoints", "all", "--executor", "inline")
    assert done.returncode == 0, done.stdout + done.stderr
    return run, suite


def test_the_top_is_evaluated_again_and_the_best_of_it_once_more_on_seeds_that_chose_nothing(
    watched: tuple[Path, Path],
) -> None:
    run, suite = watched
    done = lobench("best", run, "--suite", suite, "--top", "2", "--seeds", "3", "--workers", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    steps = {candidate["outer_step"] for candidate in record["candidates"]}
    assert steps == {2, 3} and record["best"] == record["candidates"][0]["uri"]
    assert record["candidates"][0]["fresh"]["mean"] >= record["candidates"][1]["fresh"]["mean"]
    store = run / "lobench_results" / "tiny"
    assert record["first_fresh_seed"] == 2
    assert {tuple(found["seeds"]) for found in results(store / "best")} == {(2, 3, 4)}
    further = results(store / "best" / "winner")
    assert {(found["checkpoint"]["sha256"], tuple(found["seeds"])) for found in further} == {
        (record["sha256"], (5, 6, 7))
    }
    assert record["first_further_seed"] == 5
    assert len(further) == 2 and record["report"]["num_cases"] == 2 and record["report"]["diverged"] == 0
    assert record["report"]["score"] != record["candidates"][0]["fresh"]
    # The watch's own store, and its cases' identities, are as before.
    assert {tuple(found["seeds"]) for found in results(store)} == {(0, 1)}
    assert json.loads((store / "best.json").read_text()) == [{k: v for k, v in record.items() if k != "schema"}]
    text = lobench("best", run, "--suite", suite, "--top", "1", "--workers", "1").stdout
    assert (
        text.startswith(SHOWN["best-checkpoint-by-the-primary"]) and SHOWN["on-seeds-from-5-on"] in text.splitlines()[0]
    )
    assert SHOWN["of-2-seeds-diverged-or"] in text.splitlines()[0]
    assert text.splitlines()[1].startswith(SHOWN["report-this-score"]) and "\n\ncheckpoint" in text
    assert SHOWN["best-mean-that-is-stored"] in text
    assert len(json.loads((store / "best.json").read_text())) == 2


def test_results_with_other_bindings_than_those_of_today_choose_nothing(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -1.5)
    config = run / "config.gin"
    options = ("--once", "--checkpoints", "latest", "--executor", "inline")
    assert watch(run, suite, *options).returncode == 0
    config.write_text(f"{config.read_text()}LearnableSGD.initial_lr = 0.5\n")
    command = ("best", run, "--suite", suite, "--top", "2", "--executor", "inline", "--format", "json")
    edited = lobench(*command)  # no watch has seen the edit
    assert edited.returncode == 0 and SHOWN["evaluating-1-checkpoint-again"] in edited.stderr, edited.stderr
    write_checkpoint(run / "theta_2.npz", -4.0)
    assert watch(run, suite, *options).returncode == 0
    mixed = lobench(*command)
    assert mixed.returncode == 0 and SHOWN["evaluating-2-checkpoints-again"] in mixed.stderr, mixed.stderr
    found = results(run / "lobench_results" / "tiny" / "best" / "again")
    assert len(found) == 2
    assert all("initial_lr = 0.5" in one["provenance"]["bindings"] for one in found)
    assert watch(run, suite, *options[:2], "all", *options[3:]).returncode == 0
    assert "again" not in lobench(*command).stderr


def test_config_of_a_run_below_the_watched_folder_that_was_edited_counts_for_all_its_checkpoints(
    tmp_path: Path,
) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path / "runs", -1.2)
    watched = (tmp_path / "runs", suite, "--store", tmp_path / "store", "--source", "population", "--once")
    options = ("--executor", "inline", "--checkpoints")
    assert watch(*watched, *options, "latest").returncode == 0
    for rate in (0.7, 0.5):
        with (run / "config.gin").open("a") as config:
            config.write(f"LearnableSGD.initial_lr = {rate}\n")
        if rate == 0.5:
            write_checkpoint(run / "theta_2.npz", -1.5)
        assert watch(*watched, *options, "latest").returncode == 0
    command = ("best", run, "--suite", suite, "--store", tmp_path / "store", "--top", "1", *options[:2])
    unknown = lobench(*command, "--metric", "x")
    assert unknown.returncode == 2 and SHOWN["no-subject-has-this-metric"] in unknown.stderr
    done = lobench(*command)
    assert done.returncode == 0 and SHOWN["evaluating-2-checkpoints-again"] in done.stderr, done.stderr
    again = results(tmp_path / "store" / "best" / "again")
    assert ["initial_lr = 0.5" in found["provenance"]["bindings"] for found in again] == [True, True]
    assert watch(*watched, *options, "all").returncode == 0
    assert "again" not in lobench(*command).stderr
    (fresh,) = results(tmp_path / "store" / "best" / "winner")
    assert "initial_lr = 0.5" in fresh["provenance"]["bindings"]


def test_each_of_two_runs_in_one_store_has_bindings_of_its_own(tmp_path: Path) -> None:
    suite, store = make_suite(tmp_path, ONE_CASE), tmp_path / "store"
    run, other_run = make_run(tmp_path, -1.5, -1.4), make_run(tmp_path / "other", -1.5, -1.2)  # of one first theta
    with (other_run / "config.gin").open("a") as config:
        config.write("LearnableSGD.initial_lr = 0.5\n")
    for watched in (run, other_run):
        done = watch(watched, suite, "--store", store, "--once", "--checkpoints", "all", "--executor", "inline")
        assert done.returncode == 0, done.stderr
    done = lobench("best", run, "--suite", suite, "--store", store, "--top", "1", "--executor", "inline")
    assert done.returncode == 0 and "again" not in done.stderr, done.stderr
    snapshot = read_store(store)
    assert notes_on_rows(snapshot.rows, snapshot.current) == []


def test_results_of_a_case_that_the_watch_left_out_are_no_reason_to_evaluate_again(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, extra="b/LearnableSGD.initial_lr = 0.5\n")
    run = make_run(tmp_path, -1.5)
    assert watch(run, suite, "--case", "a", "--once", "--executor", "inline").returncode == 0
    done = lobench("best", run, "--suite", suite, "--top", "1", "--executor", "inline")
    assert done.returncode == 0 and "again" not in done.stderr, done.stderr


def test_line_on_other_bindings_names_a_file_without_a_step_and_no_number_of_an_arrival() -> None:
    numbered, latest = (
        Subject.of_checkpoint(Checkpoint(uri=f"run/{name}.npz", sha256=name, outer_step=3))
        for name in ("theta_3", "latest")
    )
    line = former_bindings_line([numbered, replace(latest, is_numbered_by_arrival=True)])
    assert line.startswith(SHOWN["results-of-outer-step-3-and"]), line


def test_candidates_with_the_score_of_the_best_one_on_fresh_seeds_are_named(tmp_path: Path) -> None:
    for step, losses in enumerate(([0.2, 0.3], [0.3, 0.2], [0.5, 0.6])):
        add(tmp_path, step, {"a": {"train/loss": losses}})
    metric, scales, ranked = rank_checkpoints(read_store(tmp_path), [], "")
    found = Best(
        metric=metric,
        candidates=tuple(Candidate(chosen=one, fresh=one) for one in ranked),
        report=None,
        scale=scales.describe(),
        first_fresh_seed=2,
        first_further_seed=4,
        suites=(),
        gone=(),
        at=0.0,
    )
    assert f"{found.uri}, level with run/theta_1.npz; " in best_text(found)


def test_usage_is_one_clear_line(tmp_path: Path) -> None:
    store = tmp_path / "store"
    add(store, 1, {"a": {"train/loss": [1.0, 0.5]}})
    gone = lobench("best", tmp_path, "--suite", "suites/quick", "--store", store)
    assert gone.returncode == 2 and SHOWN["no-checkpoint-to-choose-from"] in gone.stderr
    unknown = lobench("best", tmp_path, "--suite", "suites/quick", "--store", store, "--metric", "x")
    assert unknown.returncode == 2 and SHOWN["no-subject-has-this-metric"] in unknown.stderr
    assert lobench("best", tmp_path, "--suite", "suites/quick").returncode == 2
    add(tmp_path / "worse", 1, {"a": {"train/loss": [9.0, 9.0]}})
    unscaled = lobench("best", tmp_path, "--suite", "suites/quick", "--store", tmp_path / "worse")
    assert unscaled.returncode == 2 and SHOWN["no-checkpoint-has-a-score"] in unscaled.stderr
    assert SHOWN["lobench-baseline"] in unscaled.stderr

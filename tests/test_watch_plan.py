"""A watch does what today's plan lacks: another config, another case, another checkpoint policy, a second try."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from tiny import (
    CONFIG,
    GIN,
    ONE_CASE,
    make_run,
    make_suite,
    results,
    watch,
    write_checkpoint,
)

from lobench.analysis.store.snapshot import read_store
from lobench.core.program import Program

SHOWN = texts_of("watch")

ONCE = ("--once", "--workers", "1")
HERE = (*ONCE, "--executor", "inline")  # what is planned does not hang on where it runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite, a run of two checkpoints, and the store of a watch that is through with both."""
    folder = tmp_path_factory.mktemp("finished")
    suite, run = make_suite(folder), make_run(folder, -3.0, -2.0)
    done = watch(run, suite, *HERE, "--checkpoints", "all", "--store", str(folder / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy: its store names the checkpoints where they are now."""
    shutil.copytree(finished, tmp_path / "copy")
    with sqlite3.connect(tmp_path / "copy" / "store" / "ledger.sqlite") as ledger:
        for table in ("subjects", "fingerprints"):
            ledger.execute(f"UPDATE {table} SET uri = replace(uri, ?, ?)", (str(finished), str(tmp_path / "copy")))
    ledger.close()
    return tmp_path / "copy"


def again(folder: Path, *options: str, code: int = 0) -> str:
    done = watch(folder / "run", folder / "tiny", *HERE, *options, "--store", str(folder / "store"))
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def steps(folder: Path) -> Counter[tuple[int, str]]:
    return Counter((r["checkpoint"]["outer_step"], r["case"]["name"]) for r in results(folder / "store"))


def test_nothing_changed_trains_nothing(folder: Path) -> None:
    output = again(folder, "--checkpoints", "all")
    assert SHOWN["nothing-new"] in output
    assert SHOWN["resuming-checkpoints-already-evaluated"] + "2 of 2" in output
    assert steps(folder).total() == 4


def test_resuming_after_an_edit_of_the_task_counts_no_checkpoint_as_evaluated(folder: Path) -> None:
    tasks = folder / "tiny" / "tiny_tasks.py"
    tasks.write_text(tasks.read_text().replace("jnp.sum(params**2)", "2 * jnp.sum(params**2)"))
    assert SHOWN["resuming-checkpoints-already-evaluated"] + "0 of 2" in again(folder)


@pytest.mark.parametrize(("policy", "expected"), [("latest", {2: 2}), ("all", {1: 2, 2: 2})])
def test_a_changed_binding_of_the_optimizer_is_evaluated(folder: Path, policy: str, expected: dict[int, int]) -> None:
    before = {record["optimizer"] for record in results(folder / "store")}
    (folder / "run" / "config.gin").write_text(CONFIG + "LearnableSGD.initial_lr = 0.5\n")
    output = again(folder, "--checkpoints", policy)
    assert (SHOWN["2-different-bindings-of-their"] in output) == (policy == "latest"), output
    found = results(folder / "store")
    added = Counter(r["checkpoint"]["outer_step"] for r in found if r["optimizer"] not in before)
    assert added == expected
    assert len(found) == 4 + sum(expected.values()), "what was there stays"
    (folder / "run" / "config.gin").write_text(CONFIG)
    assert SHOWN["nothing-new"] in again(folder), "and the old plan still has its results"


def test_a_changed_number_of_steps_is_evaluated_and_then_known(folder: Path) -> None:
    options = ("--gin-param", "Case.num_inner_steps = 20")
    assert "2 passed" in again(folder, *options)
    assert {r["checkpoint"]["outer_step"] for r in results(folder / "store") if r["num_inner_steps"] == 20} == {2}
    assert SHOWN["nothing-new-2"] in again(folder, *options)


def test_a_new_case_alone_is_trained(folder: Path) -> None:
    (folder / "tiny" / "tiny.gin").write_text(GIN + "new/Case.task = @Bowl()\n")
    output = again(folder, "--verbose")
    assert SHOWN["tiny-new-passed"] in output and "tiny/a" not in output.split("cases:")[1].split("\n", 1)[1]
    assert steps(folder) == {(1, "a"): 1, (1, "b"): 1, (2, "a"): 1, (2, "b"): 1, (2, "new"): 1}


def test_a_deleted_case_is_no_longer_current_and_is_again_once_it_returns(folder: Path) -> None:
    store, gin = folder / "store", folder / "tiny" / "tiny.gin"
    gin.write_text(ONE_CASE)
    again(folder, "--case", "a")
    assert len(read_store(store).cases) == 2, "a start of a part says nothing of the other cases"
    write_checkpoint(folder / "run" / "theta_3.npz", -1.0)
    again(folder)
    snapshot = read_store(store)
    assert [(case.name, len(snapshot.subjects)) for case in snapshot.cases] == [("a", 3)]
    assert snapshot.left_out.removed_cases == (("tiny/b", 2),)
    assert SHOWN["is-no-longer-in-its-suite"] in lobench("report", "--store", store, "--format", "text").stdout
    gin.write_text(GIN)
    again(folder)
    assert len(read_store(store).cases) == 2


def test_a_typo_is_an_error_as_at_the_first_run(folder: Path) -> None:
    assert "Case.num_inner_step" in again(folder, "--gin-param", "Case.num_inner_step = 20", code=2)


def test_what_is_gone_expires_for_what_is_missing_alone(folder: Path) -> None:
    (folder / "run" / "theta_1.npz").unlink()
    (folder / "tiny" / "tiny.gin").write_text(GIN + "new/Case.task = @Bowl()\n")
    assert SHOWN["1-evaluation-gave-no-result"] in again(folder, "--checkpoints", "all", code=3)
    found = {(r["checkpoint"]["outer_step"], r["case"]["name"]): r["outcome"] for r in results(folder / "store")}
    assert found.pop((1, "new")) == "expired"
    assert set(found.values()) == {"passed"} and len(found) == 5


def test_a_failed_verdict_and_an_error_are_the_exit_code_of_every_call(folder: Path) -> None:
    test = folder / "tiny" / "test_tiny.py"
    test.write_text(test.read_text() + "    assert case.scope != 'new'\n")
    (folder / "tiny" / "tiny.gin").write_text(GIN + "new/Case.task = @Bowl()\n")
    again(folder, code=1)
    assert SHOWN["nothing-new-recorded-before-1"] in again(folder, code=1)


def test_errors_are_tried_again_with_the_new_case_and_expired_ones_too(folder: Path) -> None:
    hidden = (folder / "run" / "theta_1.npz").rename(folder / "theta_1.npz")
    (folder / "tiny" / "tiny.gin").write_text(GIN + "new/Case.task = @Bowl()\n")
    again(folder, "--checkpoints", "all", code=3)
    hidden.rename(folder / "run" / "theta_1.npz")
    (folder / "tiny" / "tiny.gin").write_text(GIN + "new/Case.task = @Bowl()\nnewer/Case.task = @Bowl()\n")
    output = again(folder, "--retry-errors", "--checkpoints", "latest")
    assert SHOWN["trying-1-evaluation-again"] in output
    assert set(steps(folder).values()) == {1} and steps(folder).total() == 8
    assert {r["outcome"] for r in results(folder / "store")} == {"passed"}


def test_a_checkpoint_that_was_skipped_is_evaluated_where_all_are_asked_for(folder: Path) -> None:
    for step in (3, 4, 5):
        write_checkpoint(folder / "run" / f"theta_{step}.npz", -1.0 * step)
    output = again(folder)
    assert output.count("skipped:") == 1 and "2 checkpoints" in output, output
    assert SHOWN["nothing-new-2"] in again(folder)
    assert {step for step, _ in steps(folder)} == {1, 2, 5}
    again(folder, "--checkpoints", "all")
    assert {step for step, _ in steps(folder)} == {1, 2, 3, 4, 5}


def test_results_of_another_jax_are_kept_beside_todays_and_never_taken_for_them(folder: Path) -> None:
    before = Program(jax="0.4.1", jaxlib="0.4.1", device="cpu: x86-64-v3")
    with contextlib.closing(sqlite3.connect(folder / "store" / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE evaluations SET program_version = ?", (before.key,))
        ledger.execute("INSERT INTO programs VALUES (?, ?)", (before.key, json.dumps(dataclasses.asdict(before))))
    assert "2 passed" in again(folder)
    found = Counter((r["checkpoint"]["outer_step"], "0.4.1" in r["program"]) for r in results(folder / "store"))
    assert found == {(1, True): 2, (2, True): 2, (2, False): 2}
    assert SHOWN["nothing-new-2"] in again(folder)
    assert SHOWN["results-of-2-programs-which"] in lobench("results", "--store", folder / "store").stdout


def test_bindings_that_return_are_shown_by_every_command_though_nothing_is_trained(
    folder: Path, tmp_path: Path
) -> None:
    """The clock of the watch in between was ahead, too."""
    store = folder / "store"

    def shown() -> list[str]:
        commands = (
            ("results", "--store", store, "--by", "method"),
            ("report", "--store", store, "--format", "markdown"),
            ("compare", f"{store}@theta_1.npz", f"{store}@theta_2.npz"),
            ("history", store, "--case", "a", "--format", "json"),
        )
        found = [lobench(*command, cwd=folder).stdout for command in commands]
        return [
            re.sub(r"last result [^;]*;|\d+ evaluations?|.*(was changed|Time of all).*", "", text) for text in found
        ]

    before = shown()
    again(folder, "--checkpoints", "all", "--gin-param", "Case.num_inner_steps = 5")
    assert shown() != before
    with sqlite3.connect(store / "ledger.sqlite") as ledger:
        ledger.execute("UPDATE evaluations SET recorded_at = recorded_at + 86400 WHERE id > 4")
    ledger.close()
    count = len(results(store))
    again(folder, "--checkpoints", "all")
    assert len(results(store)) == count
    after = shown()
    assert [one == other for one, other in zip(before, after, strict=True)] == [True] * len(before), after


def test_comparison_by_outer_steps_in_a_watchs_store_trains_nothing_and_adds_no_row(folder: Path) -> None:
    store = folder / "store"
    before = {row["recorded_at"] for row in results(store)}
    done = lobench("compare", "1", "2", "--suite", folder / "tiny", "--store", store, "--executor", "inline")
    assert done.returncode == 0 and {row["recorded_at"] for row in results(store)} == before, done.stderr
    shown = lobench("results", "--store", store)
    assert "of 2 checkpoints" in shown.stdout, shown.stdout

"""Runs in the folders below a watched one: their own bindings, names and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lobench_here as lobench
from commands import pytest_session
from shown import texts_of
from tiny import CONFIG, ONE_CASE, make_suite, results, write_checkpoint
from tiny import watch_here as watch

from lobench.api.load_optimizer import load_learned
from lobench.engine.checkpoints.given import run_variant
from lobench.engine.store.ledger import Ledger
from lobench.tools.convert.model_card import ExportedCheckpoint

SHOWN = texts_of("watch")

OPTIONS = ("--once", "--checkpoints", "all", "--workers", "1")
MOMENTUM = "Case.learned_optimizer = @LearnableSGDM()\n"
POPULATION = (*OPTIONS, "--source", "population")


def make_runs(folder: Path, configs: dict[str, str]) -> Path:
    for name, config in configs.items():
        run = folder / "runs" / name
        run.mkdir(parents=True)
        (run / "config.gin").write_text(config)
        write_checkpoint(run / "theta_1.npz", -1.5)
    return folder / "runs"


def evaluated(runs: Path) -> set[tuple[str, str]]:
    """Returns run and file of each checkpoint that passed."""
    records = results(runs / "lobench_results" / "tiny")
    uris = [Path(record["checkpoint"]["uri"]) for record in records if record["outcome"] == "passed"]
    return {(uri.parent.name, uri.name) for uri in uris}


def test_watch_of_a_folder_of_runs_names_the_option_that_watches_them(tmp_path: Path) -> None:
    done = watch(make_runs(tmp_path, {"one": CONFIG, "two": CONFIG}), make_suite(tmp_path), *OPTIONS)
    assert done.returncode == 2 and SHOWN["in-one-two-source-population"] in done.stderr


def test_each_run_binds_its_own_config_over_that_of_the_folder(tmp_path: Path) -> None:
    suite, runs = make_suite(tmp_path, ONE_CASE), make_runs(tmp_path, {"first": "", "momentum": MOMENTUM})
    (runs / "config.gin").write_text(CONFIG)
    theta = {"log_lr": np.float32(-1.5), "one_minus_momentum": np.float32(-0.1)}
    np.savez(runs / "momentum" / "theta_1.npz", **theta)  # type: ignore[arg-type]
    done = watch(runs, suite, *POPULATION)
    assert done.returncode == 0, done.stdout
    found = results(runs / "lobench_results" / "tiny")
    assert sorted(one["label"] for one in found) == ["first/theta_1.npz", "momentum/theta_1.npz"]
    again = watch(runs, suite, *POPULATION)
    assert again.returncode == 0 and SHOWN["nothing-new-2"] in again.stdout, again.stdout


def hashes(store: Path, name: str) -> set[str]:
    """Returns the hashes of the optimizer's bindings under which a run's checkpoints were evaluated on case `a`."""
    with Ledger.open(store, read_only=True) as ledger:
        rows = [row for row in ledger.evaluations() if row.case.name == "a"]
    return {row.key.optimizer_hash for row in rows if any(f"/{name}/" in who.uri for who in row.sightings)}


def test_commands_that_evaluate_again_bind_a_runs_config_over_that_of_the_folder_as_the_watch_does(
    tmp_path: Path,
) -> None:
    suite = make_suite(tmp_path, ONE_CASE, "Case.num_seeds = 8\n")
    runs, store = make_runs(tmp_path, dict.fromkeys(("one", "two"), "")), tmp_path / "store"
    (runs / "config.gin").write_text(CONFIG)  # no run binds the optimizer itself
    (runs / "one" / "config.gin").write_text("LearnableSGD.initial_lr = 0.5\n")
    (runs / "two" / "config.gin").write_text("LearnableSGD.initial_lr = 0.25\n")
    for step, log_lr in enumerate((-1.5, -1.4, -5.0, -5.1), start=1):
        write_checkpoint(runs / "one" / f"theta_{step}.npz", log_lr)
    write_checkpoint(runs / "two" / "theta_1.npz", -1.2)
    assert watch(runs, suite, *POPULATION, "--store", str(store)).returncode == 0
    of_one, of_two = hashes(store, "one"), hashes(store, "two")
    assert len(of_one) == len(of_two) == 1 and of_one != of_two
    given = ("--lobench-checkpoint", runs / "one" / "theta_1.npz", "--lobench-store", tmp_path / "p")
    by_pytest = pytest_session(suite, "-k", "a", *given, cwd=tmp_path)
    assert by_pytest.returncode == 0, by_pytest.stdout
    assert hashes(tmp_path / "p", "one") == of_one
    options = ("--suite", suite, "--store", store)
    best = lobench("best", runs, *options, "--top", "5")
    assert best.returncode == 0, best.stdout + best.stderr
    assert (hashes(store / "best", "one"), hashes(store / "best", "two")) == (of_one, of_two)
    alarm = lobench("alarm", runs / "one", *options)
    assert SHOWN["may-be-worse"] in alarm.stdout + alarm.stderr, alarm.stdout + alarm.stderr
    assert hashes(store / "alarm", "one") == of_one
    write_checkpoint(runs / "one" / "theta_5.npz", -5.2)  # which the watch has not seen
    found = lobench("bisect", runs / "one", *options, "--case", "tiny/a", "--most", "4")
    assert SHOWN["looking-at"] in found.stdout + found.stderr, found.stdout + found.stderr
    assert hashes(store / "bisect", "one") == of_one
    learned: Any = load_learned("one/theta_1.npz", store=store)[0]
    assert np.exp(learned.init(None)["log_lr"]) == pytest.approx(0.5)
    exported = ExportedCheckpoint.find(f"{store}@one/theta_1.npz", "LearnableSGD", "", ())
    assert CONFIG.strip() in exported.config and "initial_lr = 0.5" in exported.config


def test_watch_after_edit_of_a_runs_config_evaluates_its_checkpoints_again_and_none_after_the_return(
    tmp_path: Path,
) -> None:
    suite, runs = make_suite(tmp_path, ONE_CASE), make_runs(tmp_path, {"one": CONFIG, "two": CONFIG})
    write_checkpoint(runs / "two" / "theta_1.npz", -1.2)
    assert watch(runs, suite, *POPULATION).returncode == 0
    config = runs / "one" / "config.gin"
    config.write_text(CONFIG + "LearnableSGD.initial_lr = 0.5\n")
    edited = watch(runs, suite, *POPULATION)
    assert edited.returncode == 0 and "1 passed" in edited.stdout, edited.stdout
    assert len(results(runs / "lobench_results" / "tiny")) == 3
    assert SHOWN["nothing-new-2"] in watch(runs, suite, *POPULATION).stdout
    config.write_text(CONFIG)
    assert SHOWN["nothing-new-2"] in watch(runs, suite, *POPULATION).stdout
    (runs / "config.gin").write_text(CONFIG + "LearnableSGD.initial_lr = 0.5\n")
    config.unlink()  # only the folder's config is bound now, as after the edit; `two` takes it too, for the first time
    above = watch(runs, suite, *POPULATION)
    assert above.returncode == 0 and "1 passed" in above.stdout, above.stdout


def test_runs_with_configs_need_none_in_the_folder_above_and_are_named_in_tables(tmp_path: Path) -> None:
    suite, runs = make_suite(tmp_path), make_runs(tmp_path, {"one": CONFIG, "two": CONFIG})
    write_checkpoint(runs / "two" / "theta_1.npz", -1.2)
    assert watch(runs, suite, *POPULATION).returncode == 0
    table = lobench("results", "--store", runs / "lobench_results" / "tiny", "--evaluations").stdout
    assert "one 1" in table and "two 1" in table
    note = lobench("results", "--store", runs / "lobench_results" / "tiny").stdout
    assert re.search(SHOWN["score-1-is-the-mean"], note), note


def test_equal_errors_are_shown_once_with_their_number(tmp_path: Path) -> None:
    suite, runs = make_suite(tmp_path), make_runs(tmp_path, {"one": CONFIG, "two": CONFIG})
    for name, value in (("one", 1.0), ("two", 2.0)):
        np.savez(runs / name / "theta_1.npz", other=np.float32(value))
    done = watch(runs, suite, *POPULATION)
    assert done.returncode == 3
    assert done.stdout.count(SHOWN["log-lr-is-missing"]) == 2, done.stdout
    assert SHOWN["evaluations-ended-with-one-error"] in done.stdout


@pytest.mark.parametrize("broken", ["Case.learned_optimizer = @", "import no_such_module\n"])
def test_watch_goes_on_without_a_run_whose_config_is_broken_until_it_is_repaired(tmp_path: Path, broken: str) -> None:
    suite, runs = make_suite(tmp_path, ONE_CASE), make_runs(tmp_path, {"good": CONFIG, "other": CONFIG, "bad": broken})
    write_checkpoint(runs / "bad" / "theta_2.npz", -1.0)
    command = ("watch", runs, "--suite", suite, "--executor", "inline", *POPULATION)
    for _ in range(2):  # the second start knows the checkpoints of the good runs
        done = lobench(*command)
        assert done.returncode == 3, done.stdout + done.stderr
        assert {run for run, _ in evaluated(runs)} == {"good", "other"}
        assert sum(line.startswith("unreadable: ") for line in done.stdout.splitlines()) == 1, done.stdout
        assert SHOWN["not-evaluated"] in done.stdout
    (runs / "bad" / "config.gin").write_text(CONFIG)
    done = lobench(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name for run, name in evaluated(runs) if run == "bad"} == {"theta_1.npz", "theta_2.npz"}


@pytest.mark.parametrize(
    ("configs", "expected"),
    [((), None), (("",), None), (("a",), "root\na"), (("a", "a/b"), "root\na\na/b")],
)
def test_run_variant_joins_the_configs_on_the_way_down(
    tmp_path: Path, configs: tuple[str, ...], expected: str | None
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "config.gin").write_text("x = 'root'")
    for folder in configs:
        (tmp_path / folder / "config.gin").write_text(f"x = {folder or 'root'!r}")
    found = run_variant(str(tmp_path), str(tmp_path / "a" / "b" / "theta_1.npz")).trainer_config
    texts = None if expected is None else "\n".join(f"x = {part!r}" for part in expected.split("\n"))
    assert found == texts


def test_watch_of_the_latest_evaluates_the_newest_of_each_run(tmp_path: Path) -> None:
    suite, runs = make_suite(tmp_path, ONE_CASE), make_runs(tmp_path, {"one": CONFIG, "two": CONFIG})
    write_checkpoint(runs / "one" / "theta_2.npz", -1.4)
    write_checkpoint(runs / "two" / "theta_3.npz", -1.3)
    done = lobench(
        "watch", runs, "--suite", suite, "--once", "--workers", "1", "--executor", "inline", *POPULATION[-2:]
    )
    assert done.returncode == 0, done.stdout
    assert evaluated(runs) == {("one", "theta_2.npz"), ("two", "theta_3.npz")}


def test_commands_on_one_of_the_runs_take_its_checkpoints_alone(tmp_path: Path) -> None:
    suite, runs = make_suite(tmp_path, ONE_CASE, "Case.num_seeds = 3\n"), tmp_path / "runs"
    for name, log_lrs in (("good", (-3.0, -2.0, -1.2)), ("bad", (-1.6, -1.5, -4.0))):
        (runs / name).mkdir(parents=True)
        for step, log_lr in enumerate(log_lrs, 1):
            write_checkpoint(runs / name / f"theta_{step}.npz", log_lr)
    (runs / "config.gin").write_text(CONFIG)
    assert watch(runs, suite, *POPULATION).returncode == 0
    store = runs / "lobench_results" / "tiny"
    options = ("--suite", suite, "--store", store, "--workers", "1", "--format", "json")
    best = lobench("best", runs / "bad", *options)
    assert best.returncode == 0, best.stderr
    assert {Path(one["uri"]).parent.name for one in json.loads(best.stdout)["candidates"]} == {"bad"}
    alarm = lobench("alarm", runs / "bad", *options, "--seeds", "4")
    assert alarm.returncode == 1, alarm.stderr
    (raised,) = json.loads(alarm.stdout)["alarms"]
    assert raised["outer_step"] == 3 and Path(raised["uri"]).parent.name == "bad"
    bisect = lobench("bisect", runs / "bad", *options, "--case", "a", "--most", "0")
    assert bisect.returncode in (0, 4), bisect.stderr
    found = json.loads(bisect.stdout)
    assert found["num_checkpoints"] == 3
    several = lobench("alarm", runs, *options)
    assert several.returncode == 2 and SHOWN["several-runs-got-bad-good"] in several.stderr

"""A trainer is killed and restarted in the same folder: everything shows the present run, and evaluates its thetas."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import lobench_here as lobench
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite, results, until, watch_command, write_checkpoint
from tiny import watch_here as watch

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.tables.frames import open_results
from lobench.core.errors import StoreError
from lobench.engine.store.ledger import Ledger
from lobench.extend import wandb_rows
from lobench.report.tables.appendix import appendix_markdown

SHOWN = texts_of("lobench")

SEEDS = "Case.num_seeds = 3\n"
FIRST = (-2.0, -1.8, -1.5, -1.4, -1.3)  # log learning rates, by outer step from 1 on
SECOND = (-1.7, -1.6, 30.0)  # the last one diverges
OPTIONS = ("--once", "--checkpoints", "all", "--workers", "1")


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path, str]:
    """Returns the run, the suite, the store and the output of the watch that saw the restart."""
    folder = tmp_path_factory.mktemp("restarted")
    suite, run = make_suite(folder, ONE_CASE, SEEDS), make_run(folder, *FIRST)
    sinks = [f"--sink={name}" for name in ("tensorboard", "wandb", "mlflow")]
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            environment.delenv(name)
        assert watch(run, suite, *OPTIONS, *sinks).returncode == 0
        restart(run, *SECOND)
        done = watch(run, suite, *OPTIONS, *sinks)
    assert done.returncode == 0, done.stderr
    return run, suite, run / "lobench_results" / "tiny", done.stdout + done.stderr


def restart(run: Path, *log_lrs: float) -> None:
    """Does as a trainer that is started again: it removes the old checkpoints, and writes others of the same names."""
    for file in run.glob("theta_*"):
        file.unlink()
    for step, log_lr in enumerate(log_lrs, 1):
        write_checkpoint(run / f"theta_{step}.npz", log_lr)


def tensorboard(store: Path) -> dict[str, list[int]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for folder in sorted({file.parent for file in (store / "tensorboard").rglob("events.*")}):
        accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        accumulator.Reload()
        name = str(folder.relative_to(store / "tensorboard"))
        found[name] = [event.step for event in accumulator.Tensors("tiny/a/train/loss")]
    return found


def wandb(store: Path) -> dict[str, list[int]]:
    runs: dict[str, list[int]] = {}
    for file in sorted((store / "wandb").glob("*-run-*/run-*.wandb")):
        rows = [row for row, _ in wandb_rows(file) if any(key.endswith("a/train/loss") for key in row)]
        runs.setdefault(file.stem, []).extend(int(row["outer_step"]) for row in rows)
    return runs


def mlflow(store: Path) -> dict[str, list[int]]:
    from mlflow.tracking import MlflowClient

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        client = MlflowClient(tracking_uri=(store / "mlruns").as_uri())
        return {
            run.info.run_id: [one.step for one in client.get_metric_history(run.info.run_id, name)]
            for experiment in client.search_experiments()
            for run in client.search_runs([experiment.experiment_id])
            for name in run.data.metrics
            if name.endswith("a/train/loss") and "intervals" not in name
        }


@pytest.mark.parametrize("read", [tensorboard, wandb, mlflow])
def test_restart_begins_a_new_run_in_each_sink_in_step_order(
    restarted: tuple[Path, Path, Path, str], read: Callable[[Path], dict[str, list[int]]]
) -> None:
    found = read(restarted[2])
    assert sorted(found.values()) == [[1, 2, 3], [1, 2, 3, 4, 5]]


def test_tensorboard_names_the_run_after_the_restart_and_a_line_reports_it(
    restarted: tuple[Path, Path, Path, str],
) -> None:
    _, _, store, output = restarted
    assert tensorboard(store)["restart 1"] == [1, 2, 3]
    assert re.search(SHOWN["restarted-theta-1-npz-outer"], output, re.MULTILINE), output
    assert SHOWN["is-not-written"] not in output


def test_tables_and_curves_show_the_present_run_and_results_list_both(restarted: tuple[Path, Path, Path, str]) -> None:
    _, _, store, _ = restarted
    snapshot = read_store(store)
    assert [subject.subject.outer_step for subject in snapshot.subjects] == [1, 2, 3]
    assert len(snapshot.left_out.superseded_subjects) == 5
    assert sorted({one["checkpoint"]["outer_step"] for one in results(store)}) == [1, 2, 3, 4, 5]
    assert len({one["checkpoint"]["sha256"] for one in results(store)}) == 8
    page = store / "report.html"
    assert lobench("report", "--store", store, "--output", page).returncode == 0
    assert SHOWN["checkpoints-of-a-former-run"] in page.read_text()


def test_best_chooses_among_the_thetas_that_lie_there(restarted: tuple[Path, Path, Path, str]) -> None:
    run, suite, _, _ = restarted
    done = lobench("best", run, "--suite", suite, "--top", "3", "--workers", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["gone"] == [] and record["best"].endswith("theta_2.npz")
    assert {one["outer_step"] for one in record["candidates"]} == {1, 2}, "the third diverges on all seeds"


def test_alarm_is_raised_for_a_checkpoint_that_diverges_after_the_restart(
    restarted: tuple[Path, Path, Path, str],
) -> None:
    run, suite, _, _ = restarted
    done = lobench("alarm", run, "--suite", suite, "--workers", "1", "--seeds", "4", "--format", "json")
    assert done.returncode == 1, done.stdout + done.stderr
    (raised,) = json.loads(done.stdout)["alarms"]
    assert (raised["outer_step"], raised["reference_outer_step"]) == (3, 2)


def test_bisect_finds_the_break_of_the_present_run(restarted: tuple[Path, Path, Path, str]) -> None:
    run, suite, _, _ = restarted
    done = lobench("bisect", run, "--suite", suite, "--case", "a", "--workers", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["num_checkpoints"] == 3 and record["broken"]["outer_step"] == 3


def test_compare_takes_the_last_checkpoint_of_the_present_run(restarted: tuple[Path, Path, Path, str]) -> None:
    _, _, store, _ = restarted
    done = lobench("compare", f"{store}@1", f"{store}@3", "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    (found,) = json.loads(done.stdout)
    sides = [found["a"], found["b"]]
    shas = {one.subject.outer_step: one.subject.sha256 for one in read_store(store).subjects}
    assert [one["sha256"] for one in sides] == [shas[1], shas[3]]


def test_exit_code_counts_and_failures_are_of_the_present_run(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -1.5, 30.0)
    test = suite / "test_tiny.py"
    test.write_text(
        test.read_text().replace("evaluate(case)", "assert evaluate(case).final('train/loss').mean() < 9.0")
    )
    np.savez(run / "theta_1.npz", other=np.float32(1.0))  # an error; the second one diverges
    done = watch(run, suite, *OPTIONS)
    assert done.returncode == 3 and "FAILED" in done.stdout, done.stdout
    shown = ("results", "--store", run / "lobench_results" / "tiny")
    assert SHOWN["did-not-pass-1-error"] in lobench(*shown).stdout
    assert "ended as error" in appendix_markdown(summary_of(shown[-1]))
    restart(run, 31.0, -1.4)
    done = watch(run, suite, *OPTIONS)
    assert done.returncode == 1 and done.stdout.count("FAILED") == 1, done.stdout
    assert SHOWN["nothing-new-recorded-before-1"] in watch(run, suite, *OPTIONS).stdout
    assert SHOWN["did-not-pass"] in lobench(*shown).stdout
    appendix = appendix_markdown(summary_of(shown[-1]))
    assert "ended as failed" in appendix and "ended as error" not in appendix


def test_alarm_of_a_watch_forgets_the_references_of_the_run_before(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE, SEEDS), make_run(tmp_path, -1.5, -4.0)
    alarms = (*OPTIONS, "--alarm", "regress")
    assert watch(run, suite, *alarms).returncode == 1
    restart(run, -1.6, 30.0)
    done = watch(run, suite, *alarms)
    assert done.returncode == 1, done.stderr
    stored = json.loads((run / "lobench_results" / "tiny" / "alarm" / "alarms.json").read_text())
    assert len(stored["told"]) == 2 and len({sha256 for _, sha256, _ in stored["told"]}) == 2


def test_best_leaves_out_an_overwritten_theta_that_no_watch_has_seen(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -1.5, -1.2)
    assert watch(run, suite, *OPTIONS).returncode == 0
    write_checkpoint(run / "theta_1.npz", 30.0)
    done = lobench("best", run, "--suite", suite, "--workers", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert [Path(path).name for path in record["gone"]] in ([], ["theta_1.npz"])
    assert {one["outer_step"] for one in record["candidates"]} == {2}


def test_overwritten_file_without_a_step_is_a_curve_of_its_arrivals(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path)
    for log_lr in (-2.0, -1.5, -1.2):
        write_checkpoint(run / "latest.npz", log_lr)
        assert watch(run, suite, *OPTIONS, "--sink", "tensorboard").returncode == 0
    store = run / "lobench_results" / "tiny"
    assert tensorboard(store) == {".": [0, 1, 2]}
    assert [one.subject.outer_step for one in read_store(store).subjects] == [0, 1, 2]


def test_one_theta_in_two_formats_is_evaluated_once(tmp_path: Path) -> None:
    from flax import serialization

    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -1.5)
    tree = {"theta": {"log_lr": np.float32(-1.5)}, "opt_state": {"mu": {"log_lr": np.float32(0.1)}}, "step": 1}
    (run / "theta_1.msgpack").write_bytes(serialization.msgpack_serialize(tree))
    assert watch(run, suite, *OPTIONS).returncode == 0
    assert len({row.key.checkpoint_sha256 for row in read_store(run / "lobench_results" / "tiny").rows}) == 1


def test_bisect_leaves_out_files_of_the_former_run_that_still_lie_there(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -2.0, -1.9, -1.8, -1.7)
    options = ("--suite", suite, "--case", "a", "--workers", "1", "--format", "json")
    assert watch(run, suite, *OPTIONS).returncode == 0
    for step, log_lr in ((1, -1.5), (2, -1.4)):
        write_checkpoint(run / f"theta_{step}.npz", log_lr)
    before = lobench("bisect", run, *options, "--most", "2")  # the watch has not seen the restart yet
    assert before.returncode in (0, 4) and SHOWN["restarted-outer-step-1"] in before.stderr, before.stderr
    assert json.loads(before.stdout)["num_checkpoints"] == 2
    assert watch(run, suite, *OPTIONS).returncode == 0
    done = lobench("bisect", run, *options, "--most", "0")
    assert done.returncode in (0, 4), done.stderr
    assert json.loads(done.stdout)["num_checkpoints"] == 2


def test_bisect_leaves_out_files_of_the_former_run_that_no_watch_has_seen(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -2.0, -1.9)
    options = ("--suite", suite, "--case", "a", "--executor", "inline", "--most", "2", "--format", "json")
    inline = ("--once", "--checkpoints", "all", "--executor", "inline")
    assert watch(run, suite, *inline).returncode == 0
    for steps, log_lr, written_at in (((3, 4), -1.8, 1e9), ((1, 2), -1.4, 2e9)):
        for step in steps:
            write_checkpoint(run / f"theta_{step}.npz", log_lr + step / 10)
            os.utime(run / f"theta_{step}.npz", (written_at, written_at))
    before = lobench("bisect", run, *options)
    assert SHOWN["restarted-outer-step-1"] in before.stderr, before.stderr
    assert watch(run, suite, *inline).returncode == 0
    after = lobench("bisect", run, *options)
    assert SHOWN["left-out-former-run"] in after.stderr, after.stderr
    assert [json.loads(done.stdout)["num_checkpoints"] for done in (before, after)] == [2, 2]
    write_checkpoint(run / "theta_5.npz", -1.3)
    os.utime(run / "theta_5.npz", (3e9, 3e9))
    os.utime(run / "theta_1.npz", (4e9, 4e9))  # as in a copy: its time tells nothing
    assert json.loads(lobench("bisect", run, *options).stdout)["num_checkpoints"] == 5


LATEST = (-1.5, -1.3, -1.2, -4.0)  # the last one is far worse


@pytest.fixture(scope="module")
def with_latest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns the run and the suite of a trainer that writes each theta to `theta_N.npz` and to `latest.npz`."""
    folder = tmp_path_factory.mktemp("latest")
    suite, run = make_suite(folder, ONE_CASE, SEEDS), make_run(folder)
    for number, log_lr in enumerate(LATEST, 1):
        write_checkpoint(run / f"theta_{number * 10}.npz", log_lr)
        write_checkpoint(run / "latest.npz", log_lr)
        # With `latest`, the newest file with a step is evaluated even if a file without one is newer.
        assert watch(run, suite, "--once", "--workers", "1", "--sink", "tensorboard").returncode == 0
    return run, suite


def test_file_without_a_step_is_a_run_of_its_own_beside_files_with_steps(with_latest: tuple[Path, Path]) -> None:
    store = with_latest[0] / "lobench_results" / "tiny"
    assert tensorboard(store) == {".": [10, 20, 30, 40], "latest.npz": [0, 1, 2, 3]}
    labels = read_store(store).labels
    assert [label for label in labels if label.startswith("outer step")] == [
        SHOWN["outer-step-2"].format(n=n) for n in (10, 20, 30, 40)
    ]


def test_number_of_an_arrival_is_no_outer_step_in_tables_and_records(with_latest: tuple[Path, Path]) -> None:
    store = with_latest[0] / "lobench_results" / "tiny"
    steps = {(Path(one["checkpoint"]["uri"]).stem, one["checkpoint"]["outer_step"]) for one in results(store)}
    assert steps == {("latest", None), *((f"theta_{n}", n) for n in (10, 20, 30, 40))}
    rows = csv.DictReader(io.StringIO(lobench("results", "--store", store, "--format", "csv").stdout))
    assert {row["outer_step"] for row in rows if row["label"] == "latest.npz"} == {""}
    lines = lobench("results", "--store", store, "--evaluations").stdout.splitlines()
    named = [line.split()[1] for line in lines if line.startswith("tiny/a")]
    assert sorted(named) == ["10", "20", "30", "40", *["latest.npz"] * 4]
    assert lobench("compare", f"{store}@3", f"{store}@40").returncode == 2, "no checkpoint has outer step 3"
    assert not open_results(store).curves("train/loss", outer_step=1)


def test_alarm_and_bisect_follow_the_files_with_steps(with_latest: tuple[Path, Path]) -> None:
    run, suite = with_latest
    done = lobench("alarm", run, "--suite", suite, "--workers", "1", "--seeds", "4", "--format", "json")
    assert done.returncode == 1, done.stderr
    (alarm,) = json.loads(done.stdout)["alarms"]
    assert (alarm["outer_step"], alarm["reference_outer_step"]) == (40, 30)
    done = lobench("bisect", run, "--suite", suite, "--case", "a", "--most", "0", "--workers", "1", "--format", "json")
    assert done.returncode in (0, 4), done.stderr
    assert json.loads(done.stdout)["num_checkpoints"] == 4


def test_best_reads_a_theta_at_any_path_at_which_it_was_seen(with_latest: tuple[Path, Path], tmp_path: Path) -> None:
    run, suite = shutil.copytree(with_latest[0], tmp_path / "run"), with_latest[1]
    write_checkpoint(run / "latest.npz", LATEST[2])  # the best one
    assert watch(run, suite, "--once", "--workers", "1").returncode == 0
    (run / "theta_30.npz").unlink()
    done = lobench("best", run, "--suite", suite, "--workers", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert not record["gone"] and Path(record["candidates"][0]["uri"]).name == "latest.npz"


def numbered(store: Path) -> dict[int, float]:
    """Returns the outer step of each content of `latest.npz` that a watch has seen."""
    with contextlib.suppress(StoreError), Ledger.open(store, read_only=True) as ledger:  # the watch may be creating it
        return {position: who.outer_step for position, who in ledger.sightings().items()}
    return {}


@pytest.mark.long
def test_policy_during_a_watch_counts_a_file_that_is_overwritten_by_its_contents(tmp_path: Path) -> None:
    expected = [0, 2, 3]
    suite, run, store = make_suite(tmp_path, ONE_CASE), make_run(tmp_path), tmp_path / "store"
    options = ("--checkpoints", "every:2", "--executor", "inline", "--store", str(store))
    write_checkpoint(run / "latest.npz", -3.0)
    with subprocess.Popen(watch_command(run, suite, *options), stdout=subprocess.PIPE, text=True) as process:
        for number in range(4):
            if number:
                temporary = tmp_path / "new.npz"
                write_checkpoint(temporary, -3.0 + 0.2 * number)
                temporary.replace(run / "latest.npz")
            until(lambda: len(numbered(store)) == number + 1, f"content {number}")  # noqa: B023
            if number % 2 == 0:
                until(lambda: len(results(store)) == expected.index(number) + 1, f"results {number}")  # noqa: B023
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        process.stdout.read()
    assert process.returncode == 130
    assert watch(run, suite, *options, "--once").returncode == 0
    assert sorted({one["checkpoint"]["outer_step"] for one in results(store)}) == expected
    assert SHOWN["nothing-new"] in watch(run, suite, *options, "--once").stdout

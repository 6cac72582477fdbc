"""`lobench watch --executor slurm` in a real SLURM, and what becomes of it when jobs and the watch are ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from forked import python, started
from gated import GatedSuite
from lobench_slurm.slurm_options import SlurmOptions
from one_node import OneNode
from shown import texts_of
from tiny import PATIENCE, content, make_run, make_suite, results, until, watch, watch_command

from lobench import UsageError

SHOWN = texts_of("slurm")


def test_options_that_lobench_sets_are_refused() -> None:
    with pytest.raises(UsageError):
        SlurmOptions.parse("partition=main,cpus-per-task=4")


@pytest.mark.parametrize("option", ["idle", "idle=", "idle=soon", "idle=-1", "idle=nan", "host"])
def test_option_of_the_executor_without_a_usable_value_is_refused(option: str) -> None:
    with pytest.raises(UsageError):
        SlurmOptions.parse(f"partition=main,{option}")


@pytest.mark.long
def test_what_sbatch_refuses_is_one_line(in_slurm: OneNode, tmp_path: Path) -> None:
    run, suite = make_run(tmp_path, -3.0), make_suite(tmp_path)
    done = watch(run, suite, "--once", "--workers", "1", "--executor", "slurm:partition=nowhere")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("watching ")]
    assert line.startswith("lobench: ") and SHOWN["sbatch-refused-a-job-got"] in line


def test_the_process_keeps_its_log(tmp_path: Path) -> None:
    done = python(
        "-c",
        "import logging\n"
        "logging.basicConfig(filename='log', filemode='w', format='%(message)s')\n"
        "import lobench_slurm.executor\n"
        "logging.warning('here')\n",
        cwd=tmp_path,
    )
    assert (tmp_path / "log").read_text() == "here\n", done.stderr


@pytest.mark.long
def test_a_watch_whose_jobs_slurm_ends_and_which_is_killed_has_the_ledger_of_a_local_one(
    in_slurm: OneNode, tmp_path: Path
) -> None:
    """A job reaches its time limit, the next is pre-empted, the next cancelled. None of them counts against its case.

    A case whose worker dies twice would be given up.
    """
    suite, run = GatedSuite(tmp_path, "a", num_seeds=4), make_run(tmp_path, -3.0)
    suite.hold()
    options = (
        "--executor",
        "slurm:host=127.0.0.1,partition=main,time=60",
        "--once",
        "--store",
        str(tmp_path / "store"),
    )
    command, environment = watch_command(run, suite.path, *options), {**os.environ, **in_slurm.environment}
    first = started(
        *command[1:], "--workers", "0:1", env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: suite.num_begun() == 1, "a job evaluates")
        # SLURM looks every 30 s for jobs beyond their limit. Meanwhile the local watch starts.
        in_slurm.run("scontrol", "update", f"JobId={in_slurm.jobs()[0]}", "EndTime=now")
        local_command = watch_command(run, suite.path, "--once", "--workers", "1", "--store", str(tmp_path / "local"))
        local = subprocess.Popen(local_command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        until(lambda: suite.num_begun() == 3, "the local watch and another job evaluate the same")
        in_slurm.run("sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=true")
        until(lambda: suite.num_begun() == 4, "a third job evaluates the same")
        cancelled = in_slurm.jobs()
        in_slurm.run("scancel", *cancelled)
        until(lambda: suite.num_begun() == 5, "a fourth job evaluates the same")
        assert not set(cancelled) & set(in_slurm.jobs())
        first.send_signal(signal.SIGKILL)
        first.wait()
        until(lambda: not in_slurm.jobs(), "the job of a killed watch ends")
    finally:
        first.kill()
        first.wait()
        suite.release()
    second = subprocess.run(
        [*command, "--workers", "0:1"], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    output, _ = local.communicate(timeout=PATIENCE)
    assert local.returncode == 0, output
    assert second.returncode == 0, second.stdout + second.stderr
    assert [row["outcome"] for row in results(tmp_path / "store")] == ["passed"] * 4
    assert content(tmp_path / "store") == content(tmp_path / "local")


@pytest.mark.long
def test_results_of_trainings_commands_and_tests_are_those_of_the_local_pool(in_slurm: OneNode, tmp_path: Path) -> None:
    suite, run = tmp_path / "lm", make_run(tmp_path, -3.0)
    suite.mkdir()
    (suite / "evaluate.py").write_text(
        'import pathlib, sys\npathlib.Path(sys.argv[1], "a.csv").write_text("item,correct\\nq1,1\\nq2,0\\n")\n'
    )
    (suite / "lm.gin").write_text(
        'qa/Case.command = "python evaluate.py {out}"\nqa/Case.curves = "{out}/a.csv"\nqa/Case.replicates = "items"\n'
        'qa/Case.primary_metric = "correct"\nqa/Case.metric_directions = {"correct": "max"}\n'
        "import lobench.inner.tasks.quadratic\nbowl/Case.task = @Quadratic()\nbowl/Case.num_inner_steps = 10\n"
    )
    (suite / "test_lm.py").write_text(
        'def test_items(checkpoint, record):\n    for name in "ab":\n'
        '        record("accuracy", name == "a", item=name)\n'
    )
    executors = {"local": ("--workers", "1"), "slurm": ("--executor", "slurm:host=127.0.0.1", "--workers", "0:1")}
    for name, options in executors.items():
        command = watch_command(run, suite, *options, "--once", "--store", name)  # below the folder of the watch
        environment = {**os.environ, **in_slurm.environment}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
    assert content(tmp_path / "slurm") == content(tmp_path / "local")
    assert sorted(sorted(result.get("items", [])) for result in results(tmp_path / "slurm", "--curves")) == [
        [],
        ["a", "b"],
        ["q1", "q2"],
    ]

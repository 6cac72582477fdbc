"""An experiment's numbers in TensorBoard, MLflow and W&B at once, read back by their own readers."""

from __future__ import annotations

import json
import math
import subprocess
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from commands import lobench
from shown import texts_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import make_suite

from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("run")

Found = list[tuple[str, str, float]]  # run, `case/metric`, value

GIN = "import tiny_tasks\nCase.num_inner_steps = 4\nCase.eval_every = 2\nCase.num_seeds = 2\n" + "".join(
    f"case{dim}/Case.task = @Bowl()\ncase{dim}/Bowl.dim = {dim}\n" for dim in (1, 2)
)
# Session 0 is killed at its first start, before it writes anything.
TRAINER = """
import os, pathlib, signal, sys
import numpy as np
session, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
mark = pathlib.Path("was_killed")
if session == 0 and not mark.exists():
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
for step in (10, 20):
    theta = {"log_lr": np.float32(-5 + session + step / 10), "one_minus_momentum": np.float32(-1)}
    np.savez(folder / f"theta_{step}.tmp.npz", **theta)
    os.replace(folder / f"theta_{step}.tmp.npz", folder / f"theta_{step}.npz")
    (folder / f"theta_{step}.npz.done").touch()
"""
EXPERIMENT = """
Experiment.suites = ["tiny/tiny.gin"]
Experiment.num_sessions = 2
adam/Method.optimizer = @adam()
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
sgd/Method.label = "a/b ü"
theta/Method.checkpoint = "theta.npz"
theta/Method.label = "theta.npz"
theta/Case.learned_optimizer = @LearnableSGDM()
mine/Method.command = "python train.py {session} {folder}"
mine/Method.checkpoints = "all"
mine/Case.learned_optimizer = @LearnableSGDM()
"""


def of_ledger(store: Path) -> Found:
    with_all = Ledger.open(store, read_only=True)
    found = [
        (subject.label, f"{row.case.name}/{metric} {subject.outer_step}", float(np.mean(row.curves.final(metric))))
        for row in with_all.evaluations()
        for subject in row.sightings
        if row.curves is not None
        for metric in row.curves.metrics
    ]
    with_all.close()
    return sorted(found)


def of_tensorboard(folder: Path) -> Found:
    found: Found = []
    for run in sorted({file.parent for file in folder.rglob("events.*")}):
        events = EventAccumulator(str(run), size_guidance={"tensors": 0})
        events.Reload()
        found += [
            (
                unquote(run.name),
                f"{tag.removeprefix('tiny/')} {one.step}",
                one.tensor_proto.float_val[0],
            )
            for tag in events.Tags()["tensors"]
            if tag.startswith("tiny/")
            for one in events.Tensors(tag)
        ]
    return sorted(found)


def of_mlflow(folder: Path) -> Found:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=folder.as_uri())
    return sorted(
        (run.info.run_name.removeprefix("store/"), f"{name.removeprefix('tiny/')} {one.step}", one.value)
        for experiment in client.search_experiments()
        for run in client.search_runs([experiment.experiment_id])
        for name in run.data.metrics
        if name.startswith("tiny/")
        for one in client.get_metric_history(run.info.run_id, name)
    )


def of_wandb(folder: Path) -> Found:
    from wandb.util import get_core_path

    found: Found = []
    for file in sorted(folder.glob("*-run-*/run-*.wandb")):
        words = [get_core_path(), "leet", "inspect", "--no-observability", "--json", "--run-file", str(file)]
        done = subprocess.run([*words, str(folder)], capture_output=True, text=True, check=True)
        read = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
        run = next(one["run"]["display_name"] for one in read if one["type"] == "run").removeprefix("store/")
        for item in (one["history"]["item"] for one in read if one["type"] == "history"):
            step = item["outer_step"]
            own = {key.removeprefix("tiny/"): value for key, value in item.items() if key.startswith("tiny/")}
            found += [(run, f"{key} {step}", float(value)) for key, value in own.items()]
    return sorted(found)


def test_each_number_of_methods_and_sessions_is_in_every_sink_once_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    make_suite(tmp_path, GIN)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    (tmp_path / "train.py").write_text(TRAINER)
    np.savez(tmp_path / "theta.npz", log_lr=np.float32(-3), one_minus_momentum=np.float32(-1))
    sinks = [word for name in ("tensorboard", "mlflow", "wandb") for word in ("--sink", name)]
    words = ["run", "x.gin", "--store", "store", "--executor", "inline", *sinks]
    killed = lobench(*words, cwd=tmp_path)
    assert SHOWN["killed-by-signal-9"] in killed.stdout + killed.stderr
    done = lobench(*words, "--retry-errors", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    store = tmp_path / "store"
    expected = of_ledger(store)
    num_metrics = sum(run == "adam" for run, *_ in expected)  # of two cases, at one outer step
    num_steps = {"a/b ü": 1, "adam": 1, "mine-0": 2, "mine-1": 2, "theta.npz": 1}
    assert Counter(run for run, *_ in expected) == {run: num_metrics * num for run, num in num_steps.items()}
    for found in (of_tensorboard(store / "tensorboard"), of_mlflow(store / "mlruns"), of_wandb(store / "wandb")):
        assert [one[:2] for one in found] == [one[:2] for one in expected]
        for (*_, value), (*_, wanted) in zip(found, expected, strict=True):
            assert math.isclose(value, wanted, rel_tol=1e-6)


def test_watch_of_population_writes_a_run_for_each_member_and_for_each_restart_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    make_suite(tmp_path, GIN[: GIN.index("case2")])

    def write(member: str, log_lr: float) -> None:
        file = tmp_path / "population" / member / "theta_10.npz"
        file.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "population" / "config.gin").write_text("Case.learned_optimizer = @LearnableSGDM()\n")
        np.savez(file, log_lr=np.float32(log_lr), one_minus_momentum=np.float32(-1))
        Path(f"{file}.done").touch()

    write("trial_0", -3)
    write("trial_1", -2)
    words = ["watch", "population", "--suite", "./tiny", "--checkpoints", "all", "--once", "--executor", "inline"]
    words += [word for name in ("tensorboard", "mlflow", "wandb") for word in ("--sink", name)]
    done = lobench(*words, cwd=tmp_path)
    assert done.returncode == 0 and SHOWN["not-written"] not in done.stdout, done.stdout + done.stderr
    store = tmp_path / "population" / "lobench_results" / "tiny"
    written = of_tensorboard(store / "tensorboard")
    assert {run for run, *_ in written} == {"trial_0", "trial_1"}
    named = [(f"population/{run}", tag) for run, tag, _ in written]
    assert [one[:2] for one in of_mlflow(store / "mlruns")] == named
    assert [one[:2] for one in of_wandb(store / "wandb")] == named
    write("trial_0", -1)  # its trainer began again
    done = lobench(*words, cwd=tmp_path)
    assert done.returncode == 0 and "restarted: " in done.stdout, done.stdout + done.stderr
    assert SHOWN["not-written"] not in done.stdout and "sink '" not in done.stdout
    after = of_tensorboard(store / "tensorboard")
    assert {run for run, *_ in after} == {"trial_0", "trial_0 restart 1", "trial_1"}
    assert [one for one in after if "restart" not in one[0]] == written
    again = [one for one in after if "restart" in one[0]]
    assert [tag for _, tag, _ in again] == [tag for run, tag, _ in written if run == "trial_0"]
    named = [(f"population/{run}", tag) for run, tag, _ in after]
    assert sorted(one[:2] for one in of_mlflow(store / "mlruns")) == sorted(named)
    assert sorted(one[:2] for one in of_wandb(store / "wandb")) == sorted(named)


def test_a_sink_says_which_methods_share_a_run_and_what_later_sessions_do_not_add(tmp_path: Path) -> None:
    make_suite(tmp_path, GIN[: GIN.index("case2")])
    text = EXPERIMENT[: EXPERIMENT.index("theta/")].replace("sessions = 2", "sessions = {}")
    text += "same/Method.optimizer = @adam()\n"
    output = []
    for num_sessions in (1, 2):
        (tmp_path / "x.gin").write_text(text.format(num_sessions))
        done = lobench(
            "run", "x.gin", "--store", "store", "--executor", "inline", "--sink", "tensorboard", cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        output.append([line for line in done.stdout.splitlines() if line.startswith("sink ")])
    (shared,) = output[0]
    assert shared.startswith(SHOWN["sink-tensorboard-methods-adam-and"])
    assert sum(SHOWN["has-more-results-than-are"] in line for line in output[1]) == 2 and len(output[1]) == 3

"""A trainer's client over real gRPC: it outlives kills, and notices what goes wrong beside it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import lobench_pbt
import numpy as np
import pytest
from commands import lobench
from lobench_pbt.connection import Address, Connection
from lobench_pbt.gin_paths import bound_values
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.server import Security, start_server
from lobench_pbt.service import Service
from lobench_pbt.transitions import Completion
from lobench_pbt.trial import State
from pbt_served import PATIENCE, Served, serve, serving, suggestion
from pbt_simulation import PLUGINS, write_theta
from shown import texts_of

from lobench import LobenchError
from lobench.extend import Kind, Parameter

SHOWN = texts_of("pbt")


def test_the_command_begins_with_time_for_who_is_still_there(trainer: Path) -> None:
    """The store as a controller left it that was killed an hour ago."""
    from lobench_pbt.study_file import read_study

    service = Service(trainer / "store", clock=lambda: time.time() - 3600, plugins=PLUGINS)
    service.create_study(read_study(trainer / "study.gin"))
    trial = service.suggest("", "worker").trial
    assert trial is not None
    service.close()
    process = serve(trainer)
    try:
        connection = Connection(Address.parse((trainer / "store" / "address").read_text()), patience=PATIENCE)
        request = pbt_pb2.HeartbeatRequest(trial=trial.id, attempt=0)
        assert connection.call(connection.stub.Heartbeat, request).stop is False
        connection.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_a_trainer_in_ten_lines_while_the_service_is_killed(trainer: Path) -> None:
    process = serve(trainer)
    address = (trainer / "store" / "address").read_text()
    import pbt_trainer  # type: ignore[import-not-found]

    with lobench_pbt.client(address, patience=PATIENCE) as study:
        for trial in study.trials("worker-0"):
            loss = float(np.load(trial.warm_checkpoint)["x"]) if trial.warm_checkpoint else 1.0
            trial.apply()
            for step in range(trial.start_step, trial.end_step):
                loss *= 1 - pbt_trainer.served()
                trial.report(step, {"loss": loss})
            if trial.id in (1, 3):
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                process = serve(trainer)
            assert (trainer / "store" / "address").read_text() == address
            np.savez(trial.folder(trainer / "population") / "theta.npz", x=loss)
            trial.complete(trial.folder(trainer / "population") / "theta.npz", {"loss": loss})
        trials = list(study.all_trials())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 0
    assert [(trial.state, trial.generation, trial.attempt) for trial in trials] == [
        (State.SUCCEEDED, generation, 0) for generation in (0, 0, 1, 1)
    ]
    commands = (["status"], ["export"], ["replay", "3"])
    for command in commands:
        assert lobench("pbt", *command, "--store", trainer / "store").stdout


def test_a_second_controller_on_a_store_is_refused(trainer: Path) -> None:
    process = serve(trainer)
    done = lobench("pbt", "serve", trainer / "study.gin", "--store", trainer / "store")
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    assert done.returncode == 2 and SHOWN["another-controller-serves-this-store"] in done.stderr


def test_parameters_that_were_overwritten_or_never_applied_are_noticed(trainer: Path) -> None:
    import gin
    import pbt_trainer  # noqa: F401

    service = Service(trainer / "store", plugins=PLUGINS)
    from lobench_pbt.study_file import read_study

    service.create_study(read_study(trainer / "study.gin"))
    server, address = start_server(service, "127.0.0.1:0", Security())
    np.savez(trainer / "theta.npz", x=1.0)
    with lobench_pbt.client(address, patience=PATIENCE) as study:
        trial = next(study.trials("worker-0"))
        with pytest.raises(LobenchError, match=SHOWN["never-applied"]):
            trial.complete(trainer / "theta.npz", {"loss": 1.0})
        trial.apply()
        gin.bind_parameter("served.learning_rate", 0.5)  # as restoring a checkpoint does
        with pytest.raises(LobenchError, match=SHOWN["overwritten-them-served-learning-rate"]):
            trial.complete(trainer / "theta.npz", {"loss": 1.0})
        with pytest.raises(LobenchError, match=SHOWN["overwritten-them"]):
            trial.complete(trainer / "theta.npz", {"loss": 1.0}, used={"served.learning_rate": 0.5})
        trial.complete(trainer / "theta.npz", {"loss": 1.0}, used=trial.params)
    server.stop(grace=None).wait()
    service.close()


def test_a_worker_whose_lease_is_lost_goes_on_with_another_trial(tmp_path: Path) -> None:
    for served in serving(tmp_path, Security(), lease_seconds=0.4):
        np.savez(tmp_path / "theta.npz", x=1.0)
        ids: list[int] = []
        with lobench_pbt.client(served.address, patience=PATIENCE) as study:
            for trial in study.trials("slow"):
                ids.append(trial.id)
                if len(ids) == 1:
                    served.now = 100.0
                    assert suggestion(served.connect(), "quick").id == trial.id
                if len(ids) == 2:
                    break
                deadline = time.monotonic() + PATIENCE
                while not trial.is_lost and time.monotonic() < deadline:
                    time.sleep(0.01)
                assert trial.should_stop, "the heartbeat notices"
                trial.report(1, {"loss": 1.0})
                assert trial.complete(tmp_path / "theta.npz", {"loss": 1.0}) is False
        assert ids == [1, 2]
        assert [row.worker_id for row in served.service.list_trials("")] == ["quick", "slow"]


def test_a_trainer_that_fails_ends_its_heartbeats_with_the_client(served: Served) -> None:
    """Its trial goes to somebody else once the lease is over, and no thread fails on a closed channel."""
    with pytest.raises(RuntimeError, match="a bug"), lobench_pbt.client(served.address, patience=PATIENCE) as study:
        trials = study.trials("one")  # a name keeps the iterator, as a progress bar around it does
        for trial in trials:
            kept = trial
            raise RuntimeError("a bug")
    assert not kept._thread.is_alive()


def test_trials_of_many_metrics_are_listed_in_pages_that_a_client_takes(tmp_path: Path) -> None:
    """A suite of hundreds of cases has a metric of each: a few trials of it are more than a message holds."""
    metrics = {f"{'case' * 10}_{number}:train/loss": 1.0 for number in range(5000)} | {"loss": 1.0}
    for served in serving(tmp_path, Security(), population=20, generations=0):
        for worker in range(20):
            trial = served.service.suggest("", str(worker)).trial
            assert trial is not None
            theta = write_theta(tmp_path / f"{worker}.npz", 1.0)
            done = Completion(attempt=0, checkpoint=theta, metrics=metrics, n_steps=trial.n_steps)
            served.service.complete("", trial.id, done)
        with lobench_pbt.client(served.address, patience=PATIENCE) as study:
            assert [trial.id for trial in study.all_trials()] == list(range(1, 21))


def test_a_parameter_that_is_not_active_keeps_nothing_of_the_trial_before(tmp_path: Path) -> None:
    """One process trains many trials: an inactive parameter is as the trainer's own configuration has it."""
    import gin

    gin.external_configurable(lambda kind="", momentum=0.0, decay=0.0: None, name="inactive", module="served_tests")
    gin.bind_parameter("inactive.decay", 7.0)  # the trainer's own; momentum has none
    kind = Parameter(path="inactive.kind", kind=Kind.CATEGORICAL, values=("sgd", "sgdm"))
    when = {"inactive.kind": ("sgdm",)}
    inactive = [
        Parameter(path=f"inactive.{name}", kind=Kind.REAL, low=0.5, high=0.9, when=when)
        for name in ("momentum", "decay")
    ]
    kinds = ""
    try:
        for served in serving(tmp_path, Security(), parameters=(kind, *inactive), population=8, generations=0):
            np.savez(tmp_path / "theta.npz", x=1.0)
            with lobench_pbt.client(served.address, patience=PATIENCE) as study:
                for trial in study.trials("one"):
                    trial.apply()
                    kinds += "m" if trial.params["inactive.kind"] == "sgdm" else "-"
                    bound = bound_values({"inactive.kind": 0, "inactive.momentum": 0, "inactive.decay": 0})
                    assert bound == {"inactive.decay": 7.0, **trial.params}
                    trial.complete(tmp_path / "theta.npz", {"loss": 1.0})
        assert "mm" in kinds and "m-" in kinds and "-m" in kinds, "the draws of this seed show what is tested"
    finally:
        gin.clear_config()

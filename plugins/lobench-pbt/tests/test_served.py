"""The service over real gRPC: who is let in, what is refused and changes nothing, and a client that outlives kills."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import lobench_pbt
from lobench_pbt.codec import trial_from, trial_to
from lobench_pbt.connection import Address, Connection
from lobench_pbt.gin_paths import read_back
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.server import Security, security_from, start_server
from lobench_pbt.service import Service
from lobench_pbt.space import Kind, Parameter
from lobench_pbt.study import FitnessFrom
from lobench_pbt.transitions import Completion
from lobench_pbt.trial import Refusal, Refused, State
from pbt_simulation import PLUGINS, make_study, write_theta

from lobench import ConfigError, LobenchError, UsageError

PATIENCE = 250.0


@dataclass
class Served:
    """A service on a port, with a clock that the test moves."""

    service: Service
    address: str
    folder: Path
    now: float = 0.0

    def connect(self, options: str = "") -> Connection:
        return Connection(Address.parse(self.address + options), patience=PATIENCE)

    def rows(self) -> list[str]:
        return [repr(trial) for trial in self.service.list_trials("")]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    yield from serving(tmp_path, Security())


def serving(folder: Path, security: Security, **changes: object) -> Iterator[Served]:
    service = Service(folder / "store", clock=lambda: found.now, plugins=PLUGINS)
    service.create_study(make_study(**{"parameters": (), **changes}))
    server, address = start_server(service, "127.0.0.1:0", security)
    found = Served(service, address, folder)
    yield found
    server.stop(grace=None).wait()
    service.close()


def suggestion(connection: Connection, worker: str = "one") -> pbt_pb2.Trial:
    return connection.call(connection.stub.Suggest, pbt_pb2.SuggestRequest(worker=worker)).trial


def completion(told: pbt_pb2.Trial, path: Path, **changes: object) -> pbt_pb2.CompleteRequest:
    artifact = write_theta(path, 1.0) if not path.exists() else write_theta(path.with_name("other.npz"), 2.0)
    values: dict[str, object] = {
        "trial": told.id,
        "attempt": told.attempt,
        "checkpoint": pbt_pb2.Artifact(uri=artifact.uri, sha256=artifact.sha256),
        "metrics": {"loss": 1.0},
        "n_steps": told.n_steps,
    }
    return pbt_pb2.CompleteRequest(**{**values, **changes})  # type: ignore[arg-type]


def refused(served: Served, connection: Connection, request: pbt_pb2.CompleteRequest, refusal: Refusal) -> str:
    """Completes, expects a refusal, and checks that nothing changed."""
    before = served.rows()
    with pytest.raises(Refused) as caught:
        connection.call(connection.stub.Complete, request)
    assert caught.value.refusal is refusal
    assert served.rows() == before
    return str(caught.value)


def test_a_trial_crosses_as_a_message(tmp_path: Path) -> None:
    service = Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study())
    trial = service.suggest("", "one").trial
    assert trial is not None
    crossed = trial_from(trial_to(trial, study="sim"))
    assert crossed.params == trial.params and crossed.state is State.ACTIVE
    assert [type(value) for value in crossed.params.values()] == [
        type(trial.params[path]) for path in crossed.params
    ], "an int stays an int"
    service.close()


def test_a_duplicate_completion_changes_nothing_and_a_different_one_is_refused(served: Served) -> None:
    connection, path = served.connect(), served.folder / "theta.npz"
    trial = suggestion(connection)
    request = completion(trial, path)
    first = connection.call(connection.stub.Complete, request)
    assert first.state == "succeeded"
    assert connection.call(connection.stub.Complete, request) == first
    shutil.move(path, path.with_suffix(".moved"))  # the trainer's own may be gone by then
    assert connection.call(connection.stub.Complete, request) == first
    shutil.move(path.with_suffix(".moved"), path)
    refused(served, connection, completion(trial, path), Refusal.CONFLICT)
    refused(served, connection, completion(trial, path, metrics={"loss": 2.0}), Refusal.CONFLICT)


def test_a_missing_and_a_changed_checkpoint_are_refused(served: Served) -> None:
    connection, path = served.connect(), served.folder / "theta.npz"
    trial = suggestion(connection)
    request = completion(trial, path)
    path.rename(path.with_suffix(".gone"))
    assert "there is no such checkpoint" in refused(served, connection, request, Refusal.INVALID)
    np.savez(path, theta=np.float32(7.0))
    assert "changed since it was completed" in refused(served, connection, request, Refusal.INVALID)
    path.write_bytes(b"rubbish")
    refused(served, connection, request, Refusal.INVALID)
    assert "needs a checkpoint" in refused(
        served, connection, completion(trial, path, checkpoint=None), Refusal.INVALID
    )
    assert not list((served.folder / "store" / "checkpoints").iterdir()), "nothing is left of what was refused"


def test_wrong_steps_a_missing_metric_and_an_unknown_trial_are_refused(served: Served) -> None:
    connection, path = served.connect(), served.folder / "theta.npz"
    trial = suggestion(connection)
    refused(served, connection, completion(trial, path, n_steps=1), Refusal.INVALID)
    assert "metric" in refused(served, connection, completion(trial, path, metrics={}), Refusal.INVALID)
    refused(served, connection, completion(trial, path, trial=99), Refusal.NOT_FOUND)
    refused(served, connection, completion(trial, path, study="another"), Refusal.NOT_FOUND)


def test_an_expired_lease_is_fenced(served: Served) -> None:
    connection, path = served.connect(), served.folder / "theta.npz"
    trial = suggestion(connection)
    request = completion(trial, path)
    served.now = 11.0
    again = suggestion(connection, "two")
    assert (again.id, again.attempt, again.seed, again.params) == (trial.id, 1, trial.seed, trial.params)
    assert "another attempt has begun" in refused(served, connection, request, Refusal.STALE)
    with pytest.raises(Refused):
        connection.call(connection.stub.Heartbeat, pbt_pb2.HeartbeatRequest(trial=trial.id, attempt=0))
    connection.call(connection.stub.Heartbeat, pbt_pb2.HeartbeatRequest(trial=trial.id, attempt=1))
    served.now = 20.0
    assert suggestion(connection, "three").id != trial.id, "a heartbeat keeps the lease"


def test_a_worker_that_is_always_lost_leaves_an_infeasible_trial(served: Served) -> None:
    connection = served.connect()
    for _ in range(3):
        suggestion(connection)
        served.now += 11.0
    served.service.expire()
    (trial,) = served.service.list_trials("")
    assert (trial.state, trial.reason) == (State.INFEASIBLE, "its worker was lost 3 times")


def test_an_infinite_fitness_wins_and_nan_is_kept_as_what_it_is(served: Served) -> None:
    connection, path = served.connect(), served.folder / "theta.npz"
    ended = connection.call(
        connection.stub.Complete, completion(suggestion(connection), path, metrics={"loss": float("nan")})
    )
    assert ended.state == "succeeded" and np.isnan(ended.metrics["loss"]) and ended.fitness == [-np.inf]


def test_only_who_knows_the_token_is_let_in(tmp_path: Path) -> None:
    for name, content in (("right", "secret\n"), ("wrong", "guess")):
        (tmp_path / name).write_text(content)
    for served in serving(tmp_path, security_from(tmp_path / "right", None, None)):
        assert suggestion(served.connect(f",token_file={tmp_path / 'right'}")).id == 1
        before = served.rows()
        for options in ("", f",token_file={tmp_path / 'wrong'}"):
            with pytest.raises(LobenchError, match="unauthenticated"):
                suggestion(served.connect(options), "two")
        assert served.rows() == before


def test_tls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not here")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    options = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    options += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    command = ["openssl", "req", "-x509", *options, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    for served in serving(tmp_path, security_from(None, cert, key)):
        assert suggestion(served.connect(f",ca={cert}")).id == 1
        plain = Connection(Address.parse(served.address), patience=0.0)
        with pytest.raises(LobenchError, match="the controller"):
            suggestion(plain)


@pytest.mark.parametrize("listen", ["0.0.0.0:6006", "[::]:6006", "192.168.1.2:0", "example.org:6006"])
def test_beyond_loopback_a_token_or_tls_is_required(listen: str) -> None:
    with pytest.raises(ConfigError, match="beyond loopback needs a token or TLS"):
        Security().check(listen)
    Security(token="secret").check(listen)
    Security(tls_cert=b"cert").check(listen)


def test_bad_addresses_and_files_are_named(tmp_path: Path) -> None:
    for text in ("localhost", "localhost:1,colour=red", f"localhost:1,token_file={tmp_path / 'none'}"):
        with pytest.raises(UsageError):
            Address.parse(text)
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="the token is empty"):
        security_from(tmp_path / "empty", None, None)
    with pytest.raises(ConfigError, match="go together"):
        security_from(None, tmp_path / "empty", None)
    for listen in ("6006", "::1:6006"):
        with pytest.raises(ConfigError, match="--listen"):
            Security().check(listen)
    Security().check("[::1]:6006")


@pytest.mark.parametrize("content", [b"schl\xc3\xbcssel", b"two\nlines", b"\xff\xfe"])
def test_a_token_that_no_request_can_carry_is_refused_at_both_ends(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(ConfigError, match="this is no token; expected one line of ASCII"):
        security_from(tmp_path / "token", None, None)
    with pytest.raises(UsageError, match="this is no token; expected one line of ASCII"):
        Address.parse(f"localhost:1,token_file={tmp_path / 'token'}")
    with pytest.raises(ConfigError, match="cannot read the token; got Is a directory"):
        security_from(tmp_path, None, None)


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_text("no certificate")
    for path in (tmp_path / "rubbish", tmp_path):
        with pytest.raises(ConfigError, match="expected a certificate chain and its key without a password"):
            security_from(None, path, path)


def report(connection: Connection, sha256: str, **changes: object) -> str:
    """Reports fitness of trial 1 and returns what becomes of it."""
    values = {"trial": 1, "sha256": sha256, "metrics": {"loss": 2.0}}
    message = pbt_pb2.ReportFitnessRequest(**{**values, **changes})  # type: ignore[arg-type]
    reply = connection.call(connection.stub.ReportFitness, message)
    return pbt_pb2.ReportFitnessReply.Verdict.Name(reply.verdict)


def test_fitness_from_a_watch_is_taken_once_by_digest_and_generation(tmp_path: Path) -> None:
    for served in serving(tmp_path, Security(), fitness_from=FitnessFrom.WATCH):
        connection, path = served.connect(), tmp_path / "theta.npz"
        trial = suggestion(connection)
        request = completion(trial, path, metrics={})

        sha256 = request.checkpoint.sha256
        assert report(connection, sha256, generation=1) == "IGNORED"
        assert report(connection, "0" * 64) == "HELD"
        assert connection.call(connection.stub.Complete, request).state == "awaiting_fitness"
        assert report(connection, "0" * 64) == "IGNORED"
        assert report(connection, sha256) == "ACCEPTED"
        assert report(connection, sha256, metrics={"loss": 0.0}) == "ACCEPTED"
        (row,) = served.service.list_trials("")
        assert (row.state, row.metrics) == (State.SUCCEEDED, {"loss": 2.0}), "the first result stays"


def test_missing_fitness_is_infeasible_and_not_nan(tmp_path: Path) -> None:
    for served in serving(tmp_path, Security(), fitness_from=FitnessFrom.WATCH, population=2):
        connection = served.connect()
        for worker in ("one", "two"):
            trial = suggestion(connection, worker)
            request = completion(trial, tmp_path / f"{worker}.npz", metrics={})
            connection.call(connection.stub.Complete, request)
        poisoned = pbt_pb2.ReportFitnessRequest(trial=1, sha256=request.checkpoint.sha256, missing_reason="poisoned")
        connection.call(connection.stub.ReportFitness, poisoned)
        served.now = 51.0
        served.service.expire()
        rows = served.service.list_trials("")
        assert [(row.state, row.fitness) for row in rows] == [(State.INFEASIBLE, None)] * 2
        assert [row.reason for row in rows] == ["poisoned", "no fitness came before the deadline"]


def test_nobody_loses_a_trial_or_its_fitness_because_the_controller_was_away(tmp_path: Path) -> None:
    """Deadlines go on by the clock; what passed while nobody listened counts from the new beginning."""
    for served in serving(tmp_path, Security(), fitness_from=FitnessFrom.WATCH, fitness_seconds=1000.0, population=3):
        connection = served.connect()
        trained, held, lost = (suggestion(connection, worker) for worker in ("one", "two", "three"))
        request = completion(trained, tmp_path / "theta.npz", metrics={})
        connection.call(connection.stub.Complete, request)
        served.now = 5000.0  # a night
        served.service.resume()
        served.service.expire()
        connection.call(connection.stub.Heartbeat, pbt_pb2.HeartbeatRequest(trial=held.id, attempt=0))
        served.now += 9.0
        connection.call(connection.stub.Heartbeat, pbt_pb2.HeartbeatRequest(trial=held.id, attempt=0))
        served.now += 9.0
        assert suggestion(connection, "four").id == lost.id, "a worker that is gone has lost its trial all the same"
        connection.call(connection.stub.Heartbeat, pbt_pb2.HeartbeatRequest(trial=held.id, attempt=0))
        served.now += 100.0
        assert report(connection, request.checkpoint.sha256) == "ACCEPTED"
        assert served.service.list_trials("")[0].state is State.SUCCEEDED


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


STUDY = """
import pbt_trainer
Study.population = 2
Study.generations = 1
Study.n_steps = 3
Study.objectives = [@loss/Objective()]
loss/Objective.metric = "loss"
loss/Objective.direction = "min"
Study.parameters = [@rate/Real()]
rate/Real.path = "served.learning_rate"
rate/Real.low = 1e-4
rate/Real.high = 1e-1
rate/Real.scale = "log"
"""
TRAINER = "import gin\n@gin.configurable\ndef served(learning_rate=0.5):\n    return learning_rate\n"


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    import gin

    (tmp_path / "pbt_trainer.py").write_text(TRAINER)
    (tmp_path / "study.gin").write_text(STUDY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    gin.clear_config()


def serve(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lobench.cli", "pbt", "serve", str(folder / "study.gin")]
    process = subprocess.Popen([*command, "--store", str(folder / "store")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "is served at" in process.stdout.readline()
    return process


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
    assert process.wait(timeout=60) == 0
    assert [(trial.state, trial.generation, trial.attempt) for trial in trials] == [
        (State.SUCCEEDED, generation, 0) for generation in (0, 0, 1, 1)
    ]
    commands = (["status"], ["export"], ["replay", "3"])
    for command in commands:
        full = [sys.executable, "-m", "lobench.cli", "pbt", *command, "--store", str(trainer / "store")]
        assert subprocess.run(full, capture_output=True, text=True, check=True).stdout


def test_a_second_controller_on_a_store_is_refused(trainer: Path) -> None:
    process = serve(trainer)
    command = [sys.executable, "-m", "lobench.cli", "pbt", "serve", str(trainer / "study.gin")]
    done = subprocess.run([*command, "--store", str(trainer / "store")], capture_output=True, text=True, check=False)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    assert done.returncode == 2 and "another controller serves this store" in done.stderr


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
        with pytest.raises(LobenchError, match="never applied"):
            trial.complete(trainer / "theta.npz", {"loss": 1.0})
        trial.apply()
        gin.bind_parameter("served.learning_rate", 0.5)  # as restoring a checkpoint does
        with pytest.raises(LobenchError, match=r"overwritten them.*served\.learning_rate = 0\.5"):
            trial.complete(trainer / "theta.npz", {"loss": 1.0})
        with pytest.raises(LobenchError, match="overwritten them"):
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


def test_a_long_refusal_keeps_its_code_and_both_its_ends(served: Served) -> None:
    connection = served.connect()
    trial = suggestion(connection)
    metrics = {f"é{number}": 1.0 for number in range(2000)}
    line = refused(served, connection, completion(trial, served.folder / "theta.npz", metrics=metrics), Refusal.INVALID)
    assert line.endswith("é0, é1, é2, é3, é4, é5, é6, é7, é8, é9, é10, é11, ... (2000 in all); expected loss")
    request = completion(trial, served.folder / "a.npz", study="é" * 20000)
    line = refused(served, connection, request, Refusal.NOT_FOUND)
    assert line.startswith("there is no such study; got 'é") and line.endswith("é'; expected one of: sim")


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
                    bound = read_back({"inactive.kind": 0, "inactive.momentum": 0, "inactive.decay": 0})
                    assert bound == {"inactive.decay": 7.0, **trial.params}
                    trial.complete(tmp_path / "theta.npz", {"loss": 1.0})
        assert "mm" in kinds and "m-" in kinds and "-m" in kinds, "the draws of this seed show what is tested"
    finally:
        gin.clear_config()

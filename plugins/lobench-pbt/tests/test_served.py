"""The service over real gRPC: who is let in, what is refused and changes nothing, and a client that outlives kills."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lobench_pbt.codec import trial_from_message, trial_to_message
from lobench_pbt.connection import Address, Connection, ControllerAway
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.server import Security, security_from
from lobench_pbt.service import Service
from lobench_pbt.study import FitnessFrom
from lobench_pbt.trial import Refusal, Refused, State
from lobench_pbt.vault import CheckpointCopies
from pbt_served import PATIENCE, Served, serving, suggestion
from pbt_simulation import PLUGINS, make_study, write_theta
from shown import texts_of

from lobench import ConfigError, LobenchError, StoreError, UsageError

SHOWN = texts_of("pbt")


def completion(trial: pbt_pb2.Trial, path: Path, /, **changes: object) -> pbt_pb2.CompleteRequest:
    artifact = write_theta(path, 1.0) if not path.exists() else write_theta(path.with_name("other.npz"), 2.0)
    values: dict[str, object] = {
        "trial": trial.id,
        "attempt": trial.attempt,
        "checkpoint": pbt_pb2.Artifact(uri=artifact.uri, sha256=artifact.sha256),
        "metrics": {"loss": 1.0},
        "n_steps": trial.n_steps,
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
    crossed = trial_from_message(trial_to_message(trial, study="sim"))
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
    assert SHOWN["no-such-checkpoint"] in refused(served, connection, request, Refusal.INVALID)
    np.savez(path, theta=np.float32(7.0))
    assert SHOWN["changed-since-it-was-completed"] in refused(served, connection, request, Refusal.INVALID)
    path.write_bytes(b"rubbish")
    refused(served, connection, request, Refusal.INVALID)
    assert SHOWN["needs-a-checkpoint"] in refused(
        served, connection, completion(trial, path, checkpoint=None), Refusal.INVALID
    )
    assert not list((served.folder / "store" / "checkpoints").iterdir()), "nothing is left of what was refused"


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _with_a_pipe(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / "weights")


ENDLESS: dict[str, Callable[[Path], object]] = {
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to(os.ttyname(os.openpty()[1])),
    "a pipe": os.mkfifo,
    "a folder with a pipe": _with_a_pipe,
    "a folder with itself": lambda path: path.mkdir() or (path / "again").symlink_to(path),  # type: ignore[func-returns-value]
    "a sparse file": _sparse,
    "the folder of the store": lambda path: path.symlink_to(path.parent),
    "the root": lambda path: path.symlink_to("/"),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_what_has_no_end_is_not_copied(served: Served, kind: str) -> None:
    connection, path = served.connect(), served.folder / "theta.npz"
    request = completion(suggestion(connection), path)
    endless = served.folder / "endless"
    ENDLESS[kind](endless)
    state = pbt_pb2.Artifact(uri=str(endless), sha256="00")
    request.train_state.CopyFrom(state)
    refused(served, connection, request, Refusal.INVALID)
    request.ClearField("train_state")
    request.checkpoint.CopyFrom(state)
    refused(served, connection, request, Refusal.INVALID)
    assert not list((served.folder / "store" / "checkpoints").iterdir())


def test_a_copy_ends_with_the_controller(tmp_path: Path) -> None:
    vault, theta = CheckpointCopies(tmp_path / "vault"), write_theta(tmp_path / "theta.npz", 1.0)
    vault.close()
    with pytest.raises(StoreError, match=SHOWN["controller-ends"]):
        vault.copy_in("one", theta, None)
    assert not list((tmp_path / "vault").iterdir())


def test_a_path_with_a_nul_and_a_deep_study_are_refused(served: Served) -> None:
    connection, path = served.connect(), served.folder / "theta.npz"
    request = completion(suggestion(connection), path)
    request.checkpoint.uri = "/tmp/a\0b"
    refused(served, connection, request, Refusal.INVALID)
    for text in ("[" * 100_000, '{"version": ' * 100_000):
        with pytest.raises(LobenchError, match=SHOWN["nested-too-deeply"]) as caught:
            connection.call(connection.stub.CreateStudy, pbt_pb2.CreateStudyRequest(config=text))
        assert isinstance(caught.value, Refused) and caught.value.refusal is Refusal.INVALID


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
    assert SHOWN["another-attempt-has-begun"] in refused(served, connection, request, Refusal.STALE)
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
    assert (trial.state, trial.reason) == (State.INFEASIBLE, SHOWN["its-worker-was-lost-3"])


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


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a certificate that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs a machine with openssl, which makes the certificate")
    key, cert = folder / f"{name}_key.pem", folder / f"{name}.pem"
    options = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    options += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    command = ["openssl", "req", "-x509", *options, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    (cert, key), (other, _) = certificate(tmp_path, "cert"), certificate(tmp_path, "other")
    monkeypatch.setattr("lobench_pbt.connection._LOG_AFTER_SECONDS", 0.1)
    for served in serving(tmp_path, security_from(None, cert, key)):
        assert suggestion(served.connect(f",ca={cert}")).id == 1
        plain = Connection(Address.parse(served.address), patience=0.0)
        with pytest.raises(LobenchError, match=SHOWN["the-controller"]):
            suggestion(plain)
        assert caplog.messages == []
        stranger = Connection(Address.parse(f"{served.address},ca={other}"), patience=PATIENCE)

        def enough(record: object, stranger: Connection = stranger) -> bool:
            stranger._patience = 0.0
            return True

        logging.getLogger("lobench_pbt.connection").addFilter(enough)
        try:
            with pytest.raises(ControllerAway, match="CERTIFICATE_VERIFY_FAILED"):
                suggestion(stranger)
        finally:
            logging.getLogger("lobench_pbt.connection").removeFilter(enough)
        (line,) = caplog.messages
        assert re.search(SHOWN["certificate-verify-failed-waiting-for"], line)


def test_a_token_that_everybody_may_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o640)
    assert Address.parse(f"localhost:1,token_file={token}").token == "secret"
    assert caplog.messages == []
    token.chmod(0o644)
    assert security_from(token, None, None).token == "secret"
    assert caplog.messages == [SHOWN["everybody-on-this-machine-may"].format(token=token)]


@pytest.mark.parametrize("listen", ["0.0.0.0:6006", "[::]:6006", "192.168.1.2:0", "example.org:6006"])
def test_beyond_loopback_a_token_or_tls_is_required(listen: str) -> None:
    with pytest.raises(ConfigError, match=SHOWN["beyond-loopback-needs-a-token"]):
        Security().check(listen)
    Security(token="secret").check(listen)
    Security(tls_cert=b"cert").check(listen)


def test_bad_addresses_and_files_are_named(tmp_path: Path) -> None:
    for text in ("localhost", "localhost:1,colour=red", f"localhost:1,token_file={tmp_path / 'none'}"):
        with pytest.raises(UsageError):
            Address.parse(text)
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match=SHOWN["token-is-empty"]):
        security_from(tmp_path / "empty", None, None)
    with pytest.raises(ConfigError, match=SHOWN["go-together"]):
        security_from(None, tmp_path / "empty", None)
    for listen in ("6006", "::1:6006"):
        with pytest.raises(ConfigError, match="--listen"):
            Security().check(listen)
    Security().check("[::1]:6006")


@pytest.mark.parametrize("content", [b"schl\xc3\xbcssel", b"two\nlines", b"\xff\xfe"])
def test_a_token_that_no_request_can_carry_is_refused_at_both_ends(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(ConfigError, match=SHOWN["not-a-token-expected-one"]):
        security_from(tmp_path / "token", None, None)
    with pytest.raises(UsageError, match=SHOWN["not-a-token-expected-one"]):
        Address.parse(f"localhost:1,token_file={tmp_path / 'token'}")
    with pytest.raises(ConfigError, match=SHOWN["cannot-read-the-token-got"]):
        security_from(tmp_path, None, None)


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_text("no certificate")
    for path in (tmp_path / "rubbish", tmp_path):
        with pytest.raises(ConfigError, match=SHOWN["expected-a-certificate-chain-and"]):
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
        assert [row.reason for row in rows] == ["poisoned", SHOWN["no-fitness-came-before-the"]]


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


def test_a_long_refusal_keeps_its_code_and_both_its_ends(served: Served) -> None:
    connection = served.connect()
    trial = suggestion(connection)
    metrics = {f"é{number}": 1.0 for number in range(2000)}
    line = refused(served, connection, completion(trial, served.folder / "theta.npz", metrics=metrics), Refusal.INVALID)
    assert line.endswith(SHOWN["in-all-expected-loss"])
    request = completion(trial, served.folder / "a.npz", study="é" * 20000)
    line = refused(served, connection, request, Refusal.NOT_FOUND)
    assert line.startswith(SHOWN["no-such-study-got"]) and line.endswith(SHOWN["expected-one-of-sim"])

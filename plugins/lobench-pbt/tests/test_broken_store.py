"""A store that cannot be used: said in one line, nothing changed, and gone on with once it can."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
from pathlib import Path

import pytest
from commands import lobench
from lobench_pbt.connection import Address, Connection, ControllerAway
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.server import Security, start_server
from lobench_pbt.service import Service
from lobench_pbt.study_database import connect
from lobench_pbt.transitions import Completion
from lobench_pbt.trial import Artifact, Refusal, Refused
from lobench_pbt.vault import CheckpointCopies, bytes_sha256
from pbt_simulation import PLUGINS, make_study, write_theta
from shown import texts_of

from lobench import ConfigError, StoreError

SHOWN = texts_of("pbt")


def test_on_a_full_disk_nothing_changes_and_clients_wait_until_there_is_space(tmp_path: Path) -> None:
    """SQLite's bound on its pages stands in for the disk: its error is the same."""
    service = Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study(population=500))
    server, address = start_server(service, "127.0.0.1:0", Security())
    hasty = Connection(Address.parse(address), patience=0.0)
    service._db.execute("PRAGMA max_page_count = 1")  # as many as there are
    number = 0
    with pytest.raises(ControllerAway, match=SHOWN["unavailable-cannot-use-the-study"]):
        for worker in range(500):
            hasty.call(hasty.stub.Suggest, pbt_pb2.SuggestRequest(worker=str(worker)))
            number += 1
    for _ in range(2):  # and again: the one before left no transaction open
        assert len(service.list_trials("", limit=1000)) == number
        with pytest.raises(ControllerAway, match="full"):
            hasty.call(hasty.stub.Suggest, pbt_pb2.SuggestRequest(worker="late"))
    service._db.execute("PRAGMA max_page_count = 100000")
    reply = hasty.call(hasty.stub.Suggest, pbt_pb2.SuggestRequest(worker="late"))
    assert reply.trial.id == number + 1
    hasty.close()
    server.stop(grace=None).wait()
    service.close()


def test_a_database_without_tables_has_no_study(tmp_path: Path) -> None:
    (tmp_path / "study.sqlite").touch()  # as its first writer leaves it for a moment
    with pytest.raises(StoreError, match=SHOWN["no-study-found-is-store"]):
        connect(tmp_path / "study.sqlite", read_only=True)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Suggest", pbt_pb2.SuggestRequest(worker="one")),
        ("GetStudy", pbt_pb2.GetStudyRequest()),
        ("ListTrials", pbt_pb2.ListTrialsRequest()),
    ],
)
def test_a_database_that_cannot_be_read_is_waited_for(tmp_path: Path, method: str, request_: object) -> None:
    """A table that is away for a while stands in for a disk that fails to read."""
    service = Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study(parameters=()))
    server, address = start_server(service, "127.0.0.1:0", Security())
    hasty = Connection(Address.parse(address), patience=0.0)
    service._db.execute("ALTER TABLE studies RENAME TO away")
    try:
        with pytest.raises(ControllerAway, match=SHOWN["unavailable-cannot-use-the-study-s"]):
            hasty.call(getattr(hasty.stub, method), request_)
        done = lobench("pbt", "status", "--store", tmp_path)
        assert done.returncode == 2
        assert SHOWN["cannot-use-the-study-s"] in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
        service._db.execute("ALTER TABLE away RENAME TO studies")
        hasty.call(getattr(hasty.stub, method), request_)
    finally:
        hasty.close()
        server.stop(grace=None).wait()
        service.close()


def test_another_study_of_a_name_is_refused_and_says_what_differs(tmp_path: Path) -> None:
    service = Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study(population=4))
    with pytest.raises(Refused, match=SHOWN["another-study-of-that-name"]):
        service.create_study(make_study(population=8))
    service.close()


def test_a_database_of_a_later_version_is_left_as_it_is(tmp_path: Path) -> None:
    Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "pbt.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE meta SET value = '9'")
        database.execute("DROP TABLE scores")
    before = (tmp_path / "pbt.sqlite").read_bytes()
    with pytest.raises(StoreError, match=SHOWN["newer-lobench-got-schema-version"]):
        Service(tmp_path, clock=lambda: 0.0, plugins=PLUGINS)
    assert (tmp_path / "pbt.sqlite").read_bytes() == before


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_on_a_full_disk_a_checkpoint_is_not_the_trainers_fault(tmp_path: Path, kind: str) -> None:
    """The system's bound on the size of a file stands in for the disk; below it all goes on."""
    (tmp_path / "folder").mkdir()
    state = tmp_path / "folder" / "file"
    state.write_bytes(bytes(100_000))
    path = state if kind == "file" else state.parent
    theta, vault = write_theta(tmp_path / "theta.npz", 1.0), CheckpointCopies(tmp_path / "store")
    artifact = Artifact(uri=str(path), sha256=bytes_sha256(path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(StoreError, match=SHOWN["cannot-keep-a-checkpoint-too"]):
            vault.copy_in("trial", theta, artifact)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list((tmp_path / "store").iterdir())
    (state.parent / "dangling").symlink_to(tmp_path / "nowhere")
    if kind == "folder":
        with pytest.raises(Refused, match=SHOWN["no-such-checkpoint"]):
            vault.copy_in("trial", theta, artifact)
    else:
        assert vault.copy_in("trial", theta, artifact)[1] is not None


def test_a_path_that_no_file_can_have_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    vault = CheckpointCopies(tmp_path / "store")
    for path in (tmp_path / ("x" * 300), tmp_path.joinpath(*["folder"] * 1000), tmp_path / "circle"):
        with pytest.raises(Refused, match=SHOWN["no-file-has-such-a"]) as refused:
            vault.copy_in("trial", Artifact(uri=str(path), sha256="0" * 64), None)
        assert refused.value.refusal is Refusal.INVALID
    assert not list((tmp_path / "store").iterdir())


def test_a_store_is_gone_on_with_by_a_link_to_it_and_not_where_it_was_moved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    copies: list[list[Path]] = []
    for name in ("link", "real", "link"):
        service = Service(tmp_path / name / "store", clock=lambda: 0.0, plugins=PLUGINS)
        service.create_study(make_study(parameters=()))
        trial = service.suggest("", "worker").trial
        assert trial is not None
        theta = write_theta(tmp_path / f"{trial.id}.npz", trial.id)
        done = Completion(attempt=0, checkpoint=theta, metrics={"loss": 1.0}, n_steps=trial.n_steps)
        service.complete("", trial.id, done)
        service.close()
        copies.append(sorted((tmp_path / "real" / "store" / "checkpoints").rglob("*.npz")))
    assert [len(copy) for copy in copies] == [1, 2, 3], "each start leaves what the earlier ones kept"
    (tmp_path / "real").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match=SHOWN["store-was-moved-move-it"]):
        Service(tmp_path / "moved" / "store", clock=lambda: 0.0, plugins=PLUGINS)
    assert len(list((tmp_path / "moved" / "store" / "checkpoints").rglob("*.npz"))) == 3


@pytest.mark.parametrize("command", ["serve", "status", "export"])
@pytest.mark.parametrize(("broken", "expected"), [("file", "ff: "), ("database", SHOWN["pbt-sqlite-cannot-use"])])
def test_a_store_that_is_none(tmp_path: Path, command: str, broken: str, expected: str) -> None:
    store = tmp_path / "ff"
    if broken == "file":
        store.touch()
    else:
        store.mkdir()
        (store / "pbt.sqlite").write_bytes(b"no database" * 100)
    study = tmp_path / "study.gin"
    study.write_text(
        "Study.population = 3\nStudy.generations = 2\nStudy.n_steps = 5\nStudy.objectives = [@loss/Objective()]\n"
        'loss/Objective.metric = "loss"\nloss/Objective.direction = "min"\n'
    )
    done = lobench("pbt", command, *([study] if command == "serve" else []), "--store", store)
    assert done.returncode == 2
    assert expected in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_port_that_no_machine_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="--listen"):
        Security().check("127.0.0.1:99999")

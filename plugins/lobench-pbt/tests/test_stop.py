"""`lobench pbt stop`, of a study that is served and of one that is not."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from commands import Done, lobench
from lobench_pbt.connection import Address, Connection
from lobench_pbt.proto import pbt_pb2
from pbt_served import PATIENCE, serve, suggestion
from shown import texts_of

SHOWN = texts_of("pbt")


def stop(store: Path) -> Done:
    return lobench("pbt", "stop", "--store", store)


@pytest.mark.parametrize("is_served", [True, False])
def test_nothing_begins_after_it_and_who_trains_is_told(trainer: Path, is_served: bool) -> None:
    process = serve(trainer)
    try:
        connection = Connection(Address.parse((trainer / "store" / "address").read_text()), patience=PATIENCE)
        trial = suggestion(connection)
        if not is_served:
            process.terminate()
            process.wait()
        done = stop(trainer / "store")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (SHOWN["study-study-is-stopped-no"])
        if not is_served:
            process = serve(trainer)
        assert connection.call(connection.stub.Heartbeat, pbt_pb2.HeartbeatRequest(trial=trial.id)).stop is True
        reply = connection.call(connection.stub.Suggest, pbt_pb2.SuggestRequest(worker="two"))
        assert reply.answer == pbt_pb2.SuggestReply.DONE
        connection.close()
        assert stop(trainer / "store").returncode == 0, "again changes nothing"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_controller_ends_without_waiting_for_its_idle_threads(trainer: Path, number: int) -> None:
    process = serve(trainer)
    try:
        connection = Connection(Address.parse((trainer / "store" / "address").read_text()), patience=PATIENCE)
        for _ in range(3):
            suggestion(connection)
        connection.close()
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and SHOWN["still-waiting"] not in output


def test_a_folder_without_a_study_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    done = stop(tmp_path)
    assert done.returncode == 2 and SHOWN["no-study-found-is-store"] in done.stderr
    assert list(tmp_path.iterdir()) == []

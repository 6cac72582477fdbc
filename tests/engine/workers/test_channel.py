"""What a chief hears from a worker's pipe, whatever comes out of it."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.result import Outcome
from lobench.engine.workers import channel as channel_module
from lobench.engine.workers.channel import Channel
from lobench.engine.workers.protocol import Exit, JobResult, Progress

SHOWN = texts_of("workers")

PROGRESS = Progress(lease=0, step=1).to_bytes()


def result(payload: bytes = b"") -> bytes:
    return JobResult(lease=0, outcome=Outcome.PASSED, payload=payload).to_bytes()


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Connection]]:
    ours, theirs = socket.socketpair()
    channel, connection = Channel(ours), Connection(theirs.detach())
    yield channel, connection
    channel.close()
    connection.close()


def test_messages_come_whole_and_in_order_and_one_that_is_long_waits_for_its_rest(
    ends: tuple[Channel, Connection],
) -> None:
    channel, connection = ends
    connection.send_bytes(PROGRESS)
    connection.send_bytes(result(b"x" * 20_000))
    assert channel.receive() == [PROGRESS, result(b"x" * 20_000)]
    frame = struct.pack("!i", len(result(b"y" * 9))) + result(b"y" * 9)
    for byte in frame[:-1]:
        connection._send(bytes([byte]))  # type: ignore[attr-defined]  # a part of a frame
        assert channel.receive() == [] and channel.is_amid_a_message
    connection._send(frame[-1:])  # type: ignore[attr-defined]
    assert channel.receive() == [result(b"y" * 9)]
    assert not channel.is_amid_a_message and not channel.problem


def test_what_was_said_before_the_end_is_heard(ends: tuple[Channel, Connection]) -> None:
    channel, connection = ends
    connection.send_bytes(result(b"x" * 100_000))
    connection.close()
    assert len(channel.receive(to_the_end=True)) == 1
    assert channel.is_closed and not channel.problem
    channel.send(Exit().to_bytes())  # to nobody


@given(st.binary(min_size=1, max_size=200))
def test_rubbish_is_a_problem_or_not_whole_and_never_an_exception(rubbish: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours)
        theirs.sendall(struct.pack("!i", len(PROGRESS)) + PROGRESS + rubbish)
        assert channel.receive() == [PROGRESS]
        assert channel.problem or channel.is_amid_a_message
        channel.close()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0\0\0",
        PROGRESS[:12],
        struct.pack("<I", 2) + b"{}",
        b"\xff\xff\xff\xff{",
        b"hello world",
        b"[" * 99,
    ],
)
def test_a_frame_that_holds_no_message_is_one_line(ends: tuple[Channel, Connection], message: bytes) -> None:
    channel, connection = ends
    connection.send_bytes(message)
    assert channel.receive() == []
    assert SHOWN["other-than-a-message"] in channel.problem and "\n" not in channel.problem


def test_a_pause_in_a_message_counts_only_while_the_chief_looks() -> None:
    now = 0.0
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours, clock=lambda: now)
        theirs.sendall(struct.pack("!i", 500) + PROGRESS)
        channel.receive()
        channel.look()
        now += 10_000.0  # the chief itself was stopped
        channel.look()
        assert not channel.problem
        for _ in range(int(channel_module.STALL_SECONDS) + 1):
            now += 1.0
            channel.look()
        assert SHOWN["middle-of-a-message"] in channel.problem
        channel.close()


def test_who_does_not_read_blocks_nobody_and_gets_all_when_it_reads(ends: tuple[Channel, Connection]) -> None:
    channel, connection = ends
    messages = [result(b"x" * 100), result(b"y" * 5_000_000)]
    assert channel.send(messages[0])
    assert not channel.send(messages[1])
    reader = threading.Thread(target=lambda: received.extend(connection.recv_bytes() for _ in messages))
    received: list[bytes] = []
    reader.start()
    while not channel.flush():
        select.select([], [channel], [], 1.0)
    reader.join()
    assert received == messages

"""Signals that ask a chief to stop: which ones it counts, and what it leaves."""

from __future__ import annotations

import os
import pty
import signal
import socket
import sys

import pytest

from lobench.engine.chief.signals import Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_while_the_body_runs_are_counted_and_wake(number: int) -> None:
    before = signal.signal(number, signal.default_int_handler)  # a session below nohup ignores hangups
    try:
        assert after(number) == (1, bytes([number]))
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_signals_leave_a_hangup_ignored_that_nohup_ignores() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert after(signal.SIGHUP) == (0, b"")
    finally:
        signal.signal(signal.SIGHUP, before)


def after(number: int) -> tuple[int, bytes]:
    """Sends a signal to this process while signals are counted; returns their number and what wakes a wait."""
    signals, (ours, waking) = Signals(), socket.socketpair()
    with ours, waking:
        for end in (ours, waking):
            end.setblocking(False)
        with signals.counting(waking.fileno()):
            os.kill(os.getpid(), number)
        try:
            return signals.count, ours.recv(8)
        except BlockingIOError:
            return signals.count, b""


CLOSED = """
import os, signal, socket
from lobench.engine.chief.signals import Signals
signal.signal(signal.SIGHUP, signal.SIG_DFL)
ours, waking = socket.socketpair()
waking.setblocking(False)
with (signals := Signals()).counting(waking.fileno()):
    print("ready", flush=True)
    ours.recv(1)
    print("to a closed terminal", flush=True)
os.write(int(os.environ["TOLD"]), b"%d" % signals.count)
"""


def test_signals_after_the_terminal_was_closed_let_the_process_print_and_end() -> None:
    told, telling = os.pipe()
    os.set_inheritable(telling, True)
    child, terminal = pty.fork()
    if not child:
        os.execve(sys.executable, [sys.executable, "-c", CLOSED], {**os.environ, "TOLD": str(telling)})
    os.close(telling)
    with open(told, "rb") as reading:
        assert b"ready" in os.read(terminal, 100)
        os.close(terminal)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0 and reading.read() == b"1"

"""Retries of operations that fail for a while."""

from __future__ import annotations

import errno

import pytest

from lobench.engine.retries import retried


class _Machine:
    """A clock, and an operation that takes a minute before it fails."""

    def __init__(self, failures: int) -> None:
        self.now, self.calls, self._failures = 0.0, 0, failures

    def operation(self) -> int:
        self.calls += 1
        if self.calls <= self._failures:
            self.now += 60.0
            raise OSError(errno.ETIMEDOUT, "Connection timed out")
        return 7

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_retried_operation_that_fails_after_a_minute_is_called_again() -> None:
    machine = _Machine(failures=1)
    assert retried(machine.operation, most_seconds=5.0, clock=lambda: machine.now, sleep=machine.sleep) == 7


def test_retried_operation_that_goes_on_failing_raises_when_its_time_is_up() -> None:
    machine = _Machine(failures=9)
    with pytest.raises(OSError, match="timed out"):
        retried(machine.operation, most_seconds=5.0, clock=lambda: machine.now, sleep=machine.sleep)
    assert machine.calls == 2

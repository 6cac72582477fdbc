"""What the chief makes of a worker's words."""

from __future__ import annotations

import pytest
from stores import curves

from lobench.core.result import Outcome
from lobench.engine.pool import Message
from lobench.engine.watch_workers import finished_of

VALUES = {"lease": 3, "outcome": "passed", "message": "", "replace": False}
PAYLOAD = curves({"train/loss": [1.0, 0.5]}).to_payload()


def test_a_result_is_read_with_its_curves() -> None:
    event, found = finished_of(Message(worker=1, kind="result", values=VALUES, payload=PAYLOAD), 2.0)
    assert (event.worker, event.lease, event.outcome, event.replace_worker) == (1, 3, Outcome.PASSED, False)
    assert found is not None and event.seconds == found.compile_seconds + found.wall_seconds == 0.5


@pytest.mark.parametrize("length", [1, 4, 7, 40, len(PAYLOAD) - 1])
def test_a_result_that_cannot_be_read_is_an_error_and_the_worker_is_replaced(length: int) -> None:
    event, found = finished_of(Message(worker=1, kind="result", values=VALUES, payload=PAYLOAD[:length]), 2.0)
    assert found is None and event.outcome is Outcome.ERROR and event.replace_worker
    assert "its worker's result cannot be read" in event.message

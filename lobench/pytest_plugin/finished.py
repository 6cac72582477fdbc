"""One evaluation of a pytest session, as a report carries it; where the session keeps what its watch told it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.codec import Message
from lobench.core.result import Outcome
from lobench.engine.config.layers import Layers
from lobench.engine.store.states import States
from lobench.engine.workers.protocol import Job

__all__ = ["CURRENT_JOB", "LAYERS", "ON_PROGRESS", "STATES", "Finished"]

# How the worker's loop and the chief's options reach the `evaluate` fixture of the same pytest session.
CURRENT_JOB: pytest.StashKey[Job] = pytest.StashKey()
LAYERS: pytest.StashKey[Layers] = pytest.StashKey()
STATES: pytest.StashKey[States] = pytest.StashKey()
ON_PROGRESS: pytest.StashKey[Callable[[int], None]] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Message):
    """One evaluation as it is attached to a pytest report and sent to the chief.

    Attributes:
      payload: `Curves.to_payload()`, or b"" where there are none.
    """

    case: CaseInfo
    seed_block: SeedBlock
    outcome: Outcome
    message: str
    payload: bytes

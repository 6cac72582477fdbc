"""Item result: one evaluation as a report carries it, and the stash keys of items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.codec import Message
from lobench.core.result import Curves, Outcome
from lobench.engine.config.layers import Layers
from lobench.engine.store.states import StateAccess
from lobench.engine.workers.protocol import Job

__all__ = [
    "COLLECTED_CASES",
    "CURRENT_JOB",
    "FINISHED_BLOCKS",
    "ISOLATION_REASON",
    "IS_WHOLE",
    "LAYERS",
    "MEASUREMENTS",
    "ON_PROGRESS",
    "STATES",
    "TESTS_ARE_CASES",
    "ItemResult",
]

# Values that the worker's loop passes to the `evaluate` fixture of its pytest session.
CURRENT_JOB: pytest.StashKey[Job] = pytest.StashKey()
LAYERS: pytest.StashKey[Layers] = pytest.StashKey()
STATES: pytest.StashKey[StateAccess] = pytest.StashKey()
ON_PROGRESS: pytest.StashKey[Callable[[int], None]] = pytest.StashKey()
# Cases of all collected items, also of those that `-k` or `--case` leaves out.
COLLECTED_CASES: pytest.StashKey[dict[CaseSpec, None]] = pytest.StashKey()
# Whether ordinary tests are cases, which run once per checkpoint.
TESTS_ARE_CASES: pytest.StashKey[bool] = pytest.StashKey()
# Whether the session has every case of its arguments.
IS_WHOLE: pytest.StashKey[bool] = pytest.StashKey()
# Values that an item passes to its report: curves, reason for another process, measurements of its gate.
FINISHED_BLOCKS: pytest.StashKey[list[tuple[SeedBlock, Curves]]] = pytest.StashKey()
ISOLATION_REASON: pytest.StashKey[str] = pytest.StashKey()
MEASUREMENTS: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult(Message):
    """One evaluation, as attached to a pytest report and sent to the chief.

    Attributes:
      case: The case.
      seed_block: The seeds.
      outcome: Outcome of the item.
      message: One line on a failure; "" if there was none.
      payload: `Curves.to_payload()`, or b"" without curves.
    """

    case: CaseInfo
    seed_block: SeedBlock
    outcome: Outcome
    message: str
    payload: bytes

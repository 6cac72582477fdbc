"""Backpressure: a trainer waits until its evaluations have caught up."""

from __future__ import annotations

import math
import os
import time
import warnings
from pathlib import Path

from lobench.core.errors import UsageError
from lobench.core.wording import shortened_list
from lobench.engine.paths import path_exists
from lobench.engine.store.bundle import no_store_error
from lobench.engine.store.ledger import Ledger

__all__ = ["wait_for_evaluations"]

_MOST_NAMED = 3  # stores in a warning
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between looks


def wait_for_evaluations(store: str | Path, *, max_pending: int = 0, timeout: float | None = None) -> bool:
    """Waits until a watch has evaluated the checkpoints that it has seen, except for a few.

    Call it in a trainer after saving a checkpoint. It only reads the store, so it needs neither jax nor the watch: if
    the watch was killed, the trainer waits until another watch continues, or until the timeout. It does not wait for a
    store that does not exist yet, because the watch may start later; but it issues a `UserWarning`, once per store,
    because the path may be wrong.

    The checkpoints of all runs in the store count. A watch does not evaluate those of other runs, so if the watch of
    another run into the same store was interrupted, continue it first, give each run a store of its own, or set a
    timeout.

    Example:
        save(step)
        if not lobench.wait_for_evaluations("runs/today/lobench_results/quick", max_pending=3, timeout=3600):
            print("evaluations lag behind")

    Args:
      store: Folder of the watch's store.
      max_pending: Largest number of checkpoints that may still be evaluated. Checkpoints that the watch skips do not
        count.
      timeout: Longest wait in seconds. None: no limit.

    Returns:
      Whether at most `max_pending` checkpoints are left; False after the timeout.

    Raises:
      UsageError: `max_pending` or `timeout` is negative.
      StoreError: The store cannot be read, or `store` is a run's folder with a store below it.

    >>> lobench.wait_for_evaluations("results", timeout=10)
    True
    """
    if max_pending < 0 or (timeout is not None and not timeout >= 0):
        raise UsageError("wait_for_evaluations", got=f"{max_pending=}, {timeout=}", expected="numbers >= 0")
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    pause = _FIRST_PAUSE
    while _num_pending(Path(os.path.abspath(store))) > max_pending:
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            return False
        time.sleep(min(pause, seconds_left))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


_warned_stores: set[Path] = set()


def _warn_of_no_store(store: Path) -> None:
    if store in _warned_stores:
        return
    _warned_stores.add(store)
    other_stores = sorted(ledger_path.parent.name for ledger_path in store.parent.glob("*/ledger.sqlite"))
    hint = f"; stores beside it: {shortened_list(other_stores, _MOST_NAMED)}" if other_stores else ""
    text = f"{store}: no result store yet, so wait_for_evaluations does not wait{hint}. Is it the store of your watch?"
    warnings.warn(text, stacklevel=4)  # names the line that calls `wait_for_evaluations`


def _num_pending(store: Path) -> int:
    """Returns the number of checkpoints of a store that are neither evaluated nor skipped."""
    if not path_exists(store / "ledger.sqlite", kind="file"):
        if (error := no_store_error(store)).expected:  # for example, a run's folder was given in place of its store
            raise error
        _warn_of_no_store(store)
        return 0
    with Ledger.open(store, read_only=True) as ledger:
        return sum(not is_finished for _, _, is_finished in ledger.run_standings())

"""`evaluate_into`: the one way from given subjects to a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lobench.engine.checkpoints.source import GivenSource
from lobench.engine.chief.contract import Progress
from lobench.report.progress import SilentProgress
from lobench.sessions.rounds import Watched, run_rounds
from lobench.sessions.settings import WatchSettings, texts

__all__ = ["evaluate_into"]


def evaluate_into(
    store: str | Path,
    subjects: Sequence[str | Path],
    suites: str | Path | Sequence[str | Path],
    *,
    location: str | Path = "",
    progress: Progress | None = None,
    **options: Any,
) -> Watched:
    """Evaluates subjects on suites: what the store does not hold yet, and what ended there in an error.

    Args:
      store: Folder of the ledger.
      subjects: Paths of checkpoints; none: all that lie at `location`.
      suites: Folders, or `.gin` files.
      location: The run whose `config.gin` is bound below the suites' own bindings; "": the first subject's.
      progress: What is told while it runs; None: nothing is shown.
      options: Of `WatchSettings`.
    Raises:
      LobenchError: usage, an unwritable or busy store, a suite that cannot be collected, no subject at all.
      KeyboardInterrupt: Ctrl-C; the same call goes on from there.
    """
    paths = texts(subjects)
    settings = WatchSettings(
        location=str(location) or paths[0],
        suites=texts(suites),
        store=str(store),
        checkpoints="all",
        once=True,
        retry_errors=True,
        only=frozenset(paths) or None,
        **options,
    )
    given = (lambda named: GivenSource(paths, named.readers)) if paths else None
    watched = run_rounds(settings, progress or SilentProgress(), given=given)
    if watched.ending.interrupted:
        raise KeyboardInterrupt
    return watched

"""`evaluate_into`: the one way from given subjects to a ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lobench.core.subject import Given, GivenCheckpoint
from lobench.engine.checkpoints.given import given_subject
from lobench.engine.chief.contract import Progress
from lobench.report.notebook_progress import default_progress
from lobench.sessions.rounds import Watched, run_rounds
from lobench.sessions.settings import WatchSettings, texts

__all__ = ["evaluate_into"]


def evaluate_into(
    store: str | Path,
    subjects: Sequence[str | Path | Given],
    suites: str | Path | Sequence[str | Path],
    *,
    location: str | Path = "",
    progress: Progress | None = None,
    **options: Any,
) -> Watched:
    """Evaluates subjects on suites: what the store does not hold yet, and what ended there in an error.

    They are planned together: where the gin text of one of them is wrong, nothing runs. Of two that are the same it is
    said, and it is computed once.

    Args:
      store: Folder of the ledger.
      subjects: Checkpoints by path, with bindings of their own after semicolons, and optimizers without theta by their
        text; none: all checkpoints that lie at `location`.
      suites: Folders, or `.gin` files.
      location: The run whose `config.gin` is bound below the suites' own bindings; "": each checkpoint has that beside
        it.
      progress: What is told while it runs; None: in a notebook a display, elsewhere nothing is shown.
      options: Of `WatchSettings`.
    Raises:
      LobenchError: usage, an unwritable or busy store, a suite that cannot be collected, no subject at all, gin text
        that does not parse or names what is not there.
      KeyboardInterrupt: Ctrl-C; the same call goes on from there.
    """
    settings = WatchSettings(
        location=str(location),
        suites=texts(suites),
        store=str(store),
        checkpoints="all",
        once=True,
        retry_errors=True,
        **options,
    )
    given = [_given(one, has_run=bool(location)) for one in subjects]
    watched = run_rounds(settings, progress or default_progress(), given=given, has_source=not given)
    if watched.ending.interrupted:
        raise KeyboardInterrupt
    return watched


def _given(one: str | Path | Given, *, has_run: bool) -> Given:
    given = given_subject(str(one)) if isinstance(one, str | Path) else one
    if has_run and isinstance(given, GivenCheckpoint):
        return dataclasses.replace(given, variant=dataclasses.replace(given.variant, trainer_config=None))
    return given

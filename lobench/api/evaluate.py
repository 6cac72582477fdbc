"""`evaluate_into`: the only path from given subjects to a ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lobench.api.engine_run import Watched, run_rounds
from lobench.api.resolve import TrainedWith, find_trained
from lobench.api.settings import WatchSettings, texts
from lobench.core.subject import Given, GivenCheckpoint
from lobench.engine.checkpoints.given import given_subject
from lobench.engine.chief.interfaces import WatchProgress
from lobench.report.live.notebook_progress import default_progress

if TYPE_CHECKING:
    from lobench.evaluation.result import Result

__all__ = ["evaluate", "evaluate_into"]


def evaluate(
    suite: str | Path,
    *,
    case: str | None = None,
    checkpoint: str | Path | None = None,
    optimizer: str = "",
    store: str | Path | None = None,
    gin_files: Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    test: str | None = None,
    allow_pickle: bool = False,
) -> Result:
    """Trains one case and returns its result.

    It runs in a warm child process: bits depend on the number of threads of jax's backend, and this one is yours. After
    an edit of code that the case or its optimizer imports another child is started. New names or parameters for gin
    take a new session.

    Args:
      suite: A `.gin` file with cases, or the name of a shipped one, `quick/quick.gin`.
      case: The scope of the case; may be left out where the file holds one only.
      checkpoint: File or step directory; `config.gin` beside it is read. Or its name in a store: `STORE@NAME`, or NAME
        with `store`: a label, a scope, an outer step, the start of a sha256.
      optimizer: Instead of a checkpoint: `adam(); adam.learning_rate = 1e-3`, or a name likewise. Neither where the
        case insists on an optimizer.
      store: Where names are looked up.
      gin_files, gin_params: Bound over the file's own bindings, in this order.
      test: Name of the test that the suite's `test_*.py` wraps around the case; only for the case's identity.
      allow_pickle: Load a checkpoint that is a pickle; it can run code.
    Raises:
      UsageError: a checkpoint and an optimizer, or neither where the case insists on none; a name that nothing has.
      SuiteError: no such case. ConfigError, CheckpointError, ThetaMismatch: as in a suite.
    """
    from lobench.evaluation.notebook import evaluate as evaluated

    found = TrainedWith(checkpoint=str(checkpoint or ""), optimizer=optimizer)
    if bool(checkpoint) != bool(optimizer):
        kind: Literal["checkpoint", "optimizer"] = "checkpoint" if checkpoint else "optimizer"
        found = find_trained(str(checkpoint or optimizer), kind, None if store is None else Path(store))
    return evaluated(
        suite,
        case=case,
        checkpoint=found.checkpoint or None,
        optimizer=found.optimizer,
        gin_files=gin_files,
        gin_params=(*found.gin_params, *gin_params),
        test=test,
        allow_pickle=allow_pickle,
    )


def evaluate_into(
    store: str | Path,
    subjects: Sequence[str | Path | Given],
    suites: str | Path | Sequence[str | Path],
    *,
    location: str | Path = "",
    progress: WatchProgress | None = None,
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

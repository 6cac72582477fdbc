"""Seed blocks of an experiment that its store already has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lobench.core.case import SeedBlock
from lobench.core.errors import StoreError
from lobench.core.experiment import Experiment, SessionBlocks, session_blocks
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.paths import path_exists
from lobench.engine.store.bundle import has_ledger
from lobench.engine.store.ledger import Ledger

__all__ = ["blocks_of", "member_blocks", "open_if_present"]


def blocks_of(experiment: Experiment, store: Path) -> SessionBlocks | None:
    """Returns the seed blocks of an experiment; None if it sets no seeds and each case uses its own.

    Blocks whose results are stored are kept, so that these are reused. In a race, each round is one block.
    """
    if experiment.sessions is None:
        return None
    if experiment.race is not None:
        return SessionBlocks(
            first_seed=experiment.first_session, widths=(experiment.race.block,) * experiment.race.rounds
        )
    return session_blocks(experiment.sessions, _stored_blocks(experiment.name, store))


def _stored_blocks(name: str, store: Path) -> set[SeedBlock]:
    """Returns the seed blocks of the members of all versions of an experiment."""
    with open_if_present(store, will_write=True) as ledger:
        if ledger is None:
            return set()
        return {block for block in member_blocks(ledger, name) if block.start < FIRST_REPORT_SEED}


def member_blocks(ledger: Ledger, name: str) -> set[SeedBlock]:
    """Returns the seed blocks of all members of an experiment, including reports of its searches."""
    forms = [row.id for row in ledger.experiments() if row.name == name]
    return {member.evaluation.block for form in forms for member in ledger.memberships(form)}


@contextlib.contextmanager
def open_if_present(store: Path, *, will_write: bool = False) -> Iterator[Ledger | None]:
    """Opens the ledger of a store for reading; None if it does not exist yet.

    Args:
      store: Folder of the ledger.
      will_write: Whether the ledger will be opened for writing later. An unreadable ledger is then None here, because
        opening it for writing reports the error.
    Raises:
      StoreError: The ledger cannot be read.
    """
    if path_exists(store, kind="file") and not has_ledger(store):
        raise StoreError("cannot use the result store", where=str(store), got="a file", expected="a folder")
    try:
        ledger = Ledger.open(store, read_only=True) if has_ledger(store) else None
    except StoreError:
        if not will_write:
            raise
        ledger = None
    try:
        yield ledger
    finally:
        if ledger is not None:
            ledger.close()

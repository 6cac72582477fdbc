"""Cleanup of new stores: files that a refused command has written are removed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from lobench.core.errors import CheckpointError, ConfigError, PluginError, StoreError, SuiteError, UsageError
from lobench.engine.store.bundle import has_ledger
from lobench.engine.store.database import StoreLock
from lobench.engine.store.ledger import Ledger

__all__ = ["removed_if_refused", "restored_if_refused"]

_REFUSALS = (CheckpointError, ConfigError, PluginError, SuiteError, UsageError)  # errors in the user's input


@contextlib.contextmanager
def removed_if_refused(store: Path, refusals: tuple[type[BaseException], ...] = _REFUSALS) -> Iterator[None]:
    """Removes files that the body writes to a new store if the user's input is refused before there is a result.

    Workers check suites and bindings, and they need a store. Cleaning up prevents a mistyped name from leaving a folder
    behind. A store that already had a ledger, or that another process writes or has written since, is not changed.

    Args:
      store: Folder of the store.
      refusals: Exceptions of the body after which the files are removed.
    """
    if not _is_new(store):
        yield
        return
    folders = [folder for folder in (store, *store.parents) if not folder.exists()]
    old_files = set(store.iterdir()) if store.is_dir() else set()
    try:
        yield
    except refusals:
        _remove_without_result(store, old_files, folders)
        raise


def _remove_without_result(store: Path, kept_paths: set[Path], folders: list[Path]) -> None:
    """Removes the files of a store that has no result, unless another process has begun to write it."""
    if not store.is_dir():
        _remove(store, kept_paths, folders)
        return
    if StoreLock.is_anothers(store):
        return
    try:
        lock = StoreLock(store)
    except StoreError:  # StoreBusy: another process writes it now
        return
    try:
        if not _has_result(store):
            _remove(store, kept_paths, folders)
    finally:
        lock.release()


@contextlib.contextmanager
def restored_if_refused(file: Path) -> Iterator[None]:
    """Restores a file if the body refuses the user's input. If the store has no ledger, removes a new file."""
    folders = [folder for folder in file.parents if not folder.exists()]
    content = file.read_bytes() if file.is_file() else None
    try:
        yield
    except _REFUSALS:
        if content is not None:
            file.write_bytes(content)
        elif not has_ledger(file.parent):
            _remove(file.parent, set(file.parent.iterdir()) - {file} if file.parent.is_dir() else set(), folders)
        raise


def _is_new(store: Path) -> bool:
    """Returns whether a store has no ledger yet; False if this user has no access."""
    try:
        return not has_ledger(store)
    except OSError:
        return False


def _has_result(store: Path) -> bool:
    if not has_ledger(store):
        return False
    with Ledger.open(store, read_only=True) as ledger:
        return any(True for _ in ledger.evaluations())


def _remove(store: Path, kept_paths: set[Path], folders: list[Path]) -> None:
    """Removes the entries of a folder except those in `kept_paths`, and then the given folders if they are empty."""
    entries = set(store.iterdir()) - kept_paths if store.is_dir() else set()
    # The lock goes last: until then no other process writes the store.
    for entry in sorted(entries, key=lambda entry: entry.name == StoreLock.FILE):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    for folder in folders:  # the innermost first
        with contextlib.suppress(OSError):
            folder.rmdir()

"""Durability for many at once: commits are written one by one, and reach the disk together.

A commit of the service (SQLite in WAL mode, synchronous NORMAL) is in order and survives the death of the process as
soon as it is made; a power failure may take the last ones. Whoever answers for one waits here until it is on the disk.
The log is one file in which a later commit comes after an earlier, so that one sync serves all that were made before.
"""

from __future__ import annotations

import threading
from pathlib import Path

from lobench import StoreError
from lobench.extend import cause, sync

__all__ = ["CommitLog"]


class CommitLog:
    """Counts commits, and syncs the log for those who wait.

    Args:
      database: The database's file; its log lies beside it.
    """

    def __init__(self, database: Path) -> None:
        self._database, self._wal = database, database.with_name(f"{database.name}-wal")
        self._changed = threading.Condition()
        self._num_written = self._num_synced = 0
        self._is_syncing = False

    def written(self) -> None:
        """Says that a commit was made that somebody will answer for."""
        with self._changed:
            self._num_written += 1

    def wait(self) -> None:
        """Returns once all that was written before the call is on the disk.

        Raises:
          StoreError: the disk does not take it.
        """
        with self._changed:
            wanted = self._num_written
            while self._num_synced < wanted:
                if self._is_syncing:
                    self._changed.wait()
                    continue
                self._is_syncing, until = True, self._num_written
                self._changed.release()
                is_done = False
                try:
                    self._sync()
                    is_done = True
                finally:
                    self._changed.acquire()
                    self._is_syncing = False
                    if is_done:
                        self._num_synced = until
                    self._changed.notify_all()

    def _sync(self) -> None:
        try:
            # Without a log there is nothing that the database itself does not have.
            path = self._wal if self._wal.exists() else self._database
            sync(path)
        except OSError as error:
            raise StoreError("cannot use the study's database", where=str(self._database), got=cause(error)) from error

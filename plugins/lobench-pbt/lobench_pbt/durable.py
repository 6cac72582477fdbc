"""Durability of commits: they are written one by one, and synced to disk together.

A commit of the service (SQLite in WAL mode, synchronous NORMAL) is ordered, and survives the death of the process at
once; a power failure may lose the last ones. Before a request is answered, it waits here until its commit is on disk.
The log is a single file, so one sync serves all commits before it.
"""

from __future__ import annotations

import threading
from pathlib import Path

from lobench import StoreError
from lobench.extend import cause, sync

__all__ = ["CommitLog"]


class CommitLog:
    """Counts commits, and syncs the log for requests that wait.

    Args:
      database: Path of the database. Its log is in the same folder.
    """

    def __init__(self, database: Path) -> None:
        self._database, self._log_path = database, database.with_name(f"{database.name}-wal")
        self._condition = threading.Condition()
        self._num_written = self._num_synced = 0
        self._is_syncing = False

    def record_commit(self) -> None:
        """Records a commit whose request will wait."""
        with self._condition:
            self._num_written += 1

    def wait_until_synced(self) -> None:
        """Waits until all commits written before the call are on the disk.

        Raises:
          StoreError: The disk cannot be written.
        """
        with self._condition:
            num_needed = self._num_written
            while self._num_synced < num_needed:
                if self._is_syncing:
                    self._condition.wait()
                    continue
                self._is_syncing, num_to_sync = True, self._num_written
                self._condition.release()
                is_synced = False
                try:
                    self._sync()
                    is_synced = True
                finally:
                    self._condition.acquire()
                    self._is_syncing = False
                    if is_synced:
                        self._num_synced = num_to_sync
                    self._condition.notify_all()

    def _sync(self) -> None:
        try:
            # Without a log, the database itself has everything.
            path = self._log_path if self._log_path.exists() else self._database
            sync(path)
        except OSError as error:
            raise StoreError("cannot use the study's database", where=str(self._database), got=cause(error)) from error

"""Files outside a store that its reports read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from lobench.analysis.scores.baseline_file import baseline_files
from lobench.engine.file_stamps import FileStamp, stamps_of
from lobench.engine.store.edited_code import code_files
from lobench.engine.store.ledger import Ledger

__all__ = ["OutsideFiles"]


class OutsideFiles:
    """Files that change the reports of a store without a new record: code behind its results, and baselines.

    Args:
      ledger: Ledger of the store. It is not used later.
      baselines: Suites or files of baselines, besides those of the store's suites.
    """

    def __init__(self, ledger: Ledger, baselines: Iterable[Path] = ()) -> None:
        self._code_files = code_files(ledger)
        self._suites = [*baselines, *map(Path, ledger.folders_of_suites())]

    def stamps(self) -> dict[str, FileStamp | None]:
        """Returns the stamps of the files by path. They differ if a file was edited, created or removed since.

        Raises:
          OSError: The disk has failed for some seconds.
        """
        baselines = list[Path]()
        for suite in self._suites:
            with contextlib.suppress(PermissionError):  # such a suite counts as absent
                baselines += baseline_files([suite])
        return stamps_of([*self._code_files, *baselines])

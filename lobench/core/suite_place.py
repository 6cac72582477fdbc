"""Location of a suite, as stored with the results."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["BASELINES", "SuitePlace"]

BASELINES = "baselines"  # folder of baseline files in a suite's folder


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlace:
    """Location of a suite when a store was last evaluated on it, with the baseline files in its folder.

    Attributes:
      suite: Name of the suite, as in `CaseInfo.suite`.
      path: Absolute path of its folder. "": unknown, because an older lobench wrote the store.
      baselines: Name and sha256 (hex) of each baseline file, that of the scale first.
      store: Absolute path of the store today.
      stores: Absolute paths that the store has had, the last one first.
    """

    suite: str
    path: str = ""
    baselines: tuple[tuple[str, str], ...] = ()
    store: str = ""
    stores: tuple[str, ...] = ()

    def candidate_paths(self) -> list[str]:
        """Returns possible paths of the suite today: moved together with the store, or unchanged.

        >>> place = SuitePlace(suite="s", path="/a/suites/s", store="/b/runs/x", stores=("/a/runs/x",))
        >>> place.candidate_paths()
        ['/b/suites/s', '/a/suites/s']
        """
        return possible_paths(self.path, self.store, self.stores)


def possible_paths(path: str, store: str, stores: tuple[str, ...]) -> list[str]:
    """Returns possible present paths of a path that a store recorded. The recorded path itself comes last.

    If the store was moved, the path may have been moved with it.

    Args:
      path: Absolute path when it was recorded. "": the result is empty.
      store: Absolute path of the store today.
      stores: Absolute paths that the store has had.
    """
    if not path:
        return []
    moved_paths = (
        os.path.normpath(os.path.join(store, os.path.relpath(path, old_store)))
        for old_store in stores
        if old_store != store
    )
    return list(dict.fromkeys((*moved_paths, path)))

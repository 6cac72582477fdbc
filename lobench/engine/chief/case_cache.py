"""Case cache: descriptions of a suite's cases from earlier starts, so that a finished plan needs no worker.

A worker alone can say which cases there are: it collects the suite and binds them. Its answer is kept in the store with
all that it hangs on: the files, the gin text around the cases, the versions of what is installed. While none of these
has changed, a start takes the answer from there; who runs something asks a worker again all the same. How an
experiment's seeds are cut into blocks is no part of it: cases are cut as this start has them. (Four seeds that a first
start calls one block are four blocks to the second, where `Case.seed_block = 1` made them so.)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Protocol

from lobench.core.case import CaseInfo
from lobench.core.experiment import SessionBlocks
from lobench.core.subject import Variant
from lobench.engine.config.import_path import INI_FILES
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite_files import SuiteFiles, files_above, included_files, marks_of
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.provenance import versions_here
from lobench.engine.workers.protocol import Described

__all__ = ["Collecting", "KnownCases"]

_SUFFIXES = (".py", ".gin")
_ENVIRONMENT = ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_PLUGINS")  # changes what a worker collects
_PLUGIN_GROUPS = ("lobench", "pytest11")

_Mark = tuple[str, int, int]  # path, size, time of the last change in nanoseconds


class Collecting(Protocol):
    """What a worker collects: of a `WorkerConfig` what the cases hang on."""

    @property
    def arguments(self) -> tuple[str, ...]: ...

    @property
    def layers(self) -> Layers: ...


class KnownCases:
    """The cases of a suite by variant, as a store remembers them.

    Args:
      config: What workers are started with; asked for when it is needed, since a trainer may write its config.gin late.
      suite: The suite's files.
    """

    def __init__(self, ledger: Ledger, config: Callable[[], Collecting], suite: SuiteFiles) -> None:
        self._ledger, self._config, self._suite = ledger, config, suite
        self._at_start: tuple[str, list[_Mark]] | None = None  # fingerprint and files
        self._before: tuple[str, list[_Mark]] | None = None  # the same, before a worker has read them

    def recall(self, variant: Variant) -> tuple[CaseInfo, ...] | None:
        """Returns the cases of a variant; None where they are not known, or something has changed since."""
        row = self._ledger.described(variant.key)
        if row is None:
            return None
        if self._at_start is None:
            self._at_start = self._fingerprint(), self._around()
        around = [tuple(mark) for mark in row.files["around"]]
        loaded = [tuple(mark) for mark in row.files["loaded"]]
        if any(os.path.exists(path) for path in row.files.get("missing", ())):
            return None
        if (row.fingerprint, around) != self._at_start or loaded != list(marks_of(Path(path) for path, _, _ in loaded)):
            return None
        blocks, _ = SessionBlocks.split_off(self._config().layers.gin_params)
        return row.cases if blocks is None else tuple(blocks.cut(case, variant.bindings) for case in row.cases)

    def begin(self) -> None:
        """Takes the files as they are for those that workers read: called before each starts, the first call counts."""
        if self._before is None:
            self._before = self._fingerprint(), self._around()

    def keep(self, variant: Variant, described: Described) -> None:
        """Keeps what a worker said."""
        if self._before is None:
            return
        fingerprint, around = self._before
        known = {path for path, _, _ in around}
        loaded = sorted((mark.path, mark.size, mark.changed_ns) for mark in described.files if mark.path not in known)
        files = {"around": around, "loaded": loaded, "missing": sorted(described.missing)}
        self._ledger.record_described(variant.key, fingerprint=fingerprint, cases=described.cases, files=files)

    def _around(self) -> list[_Mark]:
        """Returns the files that a worker looks for, found or not: a new one counts too."""
        config = self._config()
        files = set(self._suite.files())
        for suite in map(Path, config.arguments):
            found = files_above(suite if suite.is_dir() else suite.parent)
            files.update(file for file in found if file.suffix in _SUFFIXES or file.name in INI_FILES)
        layers, seen = config.layers, set[Path]()
        for path in (*layers.gin_files, *filter(None, [layers.trainer_config])):
            files.update(included_files(Path(path), seen))
        return list(marks_of(files))

    def _fingerprint(self) -> str:
        config = self._config()
        blocks, params = SessionBlocks.split_off(config.layers.gin_params)
        parts = {
            "arguments": config.arguments,
            "layers": dataclasses.asdict(dataclasses.replace(config.layers, gin_params=params)),
            "bound": [line.partition(" = ")[0] for line in blocks.bindings] if blocks is not None else [],
            "python": [sys.version, sys.prefix],
            "versions": versions_here(),
            "plugins": sorted(_plugins()),
            "installed": [os.stat(sysconfig.get_path(name)).st_mtime_ns for name in ("purelib", "platlib")],
            "environment": {name: os.environ.get(name) for name in _ENVIRONMENT},
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _plugins() -> Iterator[tuple[str, str]]:
    installed = metadata.entry_points()  # once: each call looks through all that is installed
    for group in _PLUGIN_GROUPS:
        for entry in installed.select(group=group):
            if entry.dist is not None:
                about = entry.dist.metadata  # read anew by each of `name` and `version`
                yield about["Name"], about["Version"]

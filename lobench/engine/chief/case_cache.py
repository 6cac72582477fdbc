"""Case cache: descriptions of a suite's cases from earlier runs, so that a finished plan needs no worker.

Only a worker can list the cases of a suite, because it collects and binds them. Its description is stored together with
its inputs: the files, the gin text around the cases, and the versions of installed packages. The chief uses the stored
description as long as no input has changed. If there is something to run, a worker describes the cases again.

The division of an experiment's seeds into blocks is not part of the description, because it may differ between runs.
(Four seeds that are one block in one run are four blocks in a later run with `Case.seed_block = 1`.)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from lobench.core.case import CaseInfo
from lobench.core.experiment import SessionBlocks
from lobench.core.subject import Variant
from lobench.engine.config.code_walk import listing_sha256
from lobench.engine.config.import_path import INI_FILES
from lobench.engine.config.run_configs import config_chain
from lobench.engine.config.suite_files import SuiteFiles, files_above_suite, included_files, path_stamps
from lobench.engine.paths import path_exists
from lobench.engine.store.data_files import record_named_data
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.provenance import versions_here
from lobench.engine.workers.protocol import Described, WorkerSession
from lobench.plugins import installed_plugins

__all__ = ["RecordedCases"]

_SUFFIXES = (".py", ".gin")
_VARIABLES = ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_PLUGINS")  # variables that affect what a worker collects
_PLUGIN_GROUPS = ("lobench", "pytest11")

_Stamp = tuple[str, int, int]  # path, size, time of the last change in nanoseconds


class RecordedCases:
    """Cases of a suite by variant, as recorded in a store.

    Args:
      ledger: Ledger of the store.
      config: Returns the configuration of workers. Called when it is needed, because a trainer may write its
        `config.gin` late.
      suite: Files of the suite.
    """

    def __init__(self, ledger: Ledger, config: Callable[[], WorkerSession], suite: SuiteFiles) -> None:
        self._ledger = ledger
        self._config = config
        self._suite = suite
        # Fingerprint and stamps of files: at the first look, and before the first worker starts (see `begin`).
        self._first_look_stamps: tuple[str, list[_Stamp]] | None = None
        self._stamps_before_workers: tuple[str, list[_Stamp]] | None = None

    def unchanged_cases(
        self, variant: Variant, stamps: dict[str, _Stamp | None] | None = None
    ) -> tuple[CaseInfo, ...] | None:
        """Returns the recorded cases of a variant; None if unknown, or if an input has changed since.

        Args:
          variant: Variant of the subjects.
          stamps: Stamps of files by path (None: no such file), shared by variants that are recalled at the same time.
            Stamps of this variant's files are added.
        """
        stamps = {} if stamps is None else stamps
        row = self._ledger.recorded_description(variant.key)
        if row is None:
            return None
        if self._first_look_stamps is None:
            self._first_look_stamps = self._inputs_fingerprint(), self._environment_stamps()
        stamps_around = [tuple(stamp) for stamp in row.files["around"]]
        loaded_stamps = [tuple(stamp) for stamp in row.files["loaded"]]
        if any(os.path.exists(path) for path in row.files.get("missing", ())):
            return None
        listing_hashes = row.files.get("listed", {})
        if {folder: listing_sha256(folder) for folder in listing_hashes} != listing_hashes:
            return None
        new_paths = [path for path, _, _ in loaded_stamps if path not in stamps]
        stamps |= {**dict.fromkeys(new_paths), **{stamp[0]: stamp for stamp in path_stamps(map(Path, new_paths))}}
        if (row.fingerprint, stamps_around) != self._first_look_stamps or any(
            stamps[stamp[0]] != stamp for stamp in loaded_stamps
        ):
            return None
        blocks, _ = SessionBlocks.parse_last_lines(self._config().layers.gin_params)
        return row.cases if blocks is None else tuple(blocks.apply_to(case, variant.bindings) for case in row.cases)

    def record_stamps(self) -> None:
        """Records the state of the files before a worker reads them.

        Called before each worker starts; the first call counts.
        """
        if self._stamps_before_workers is None:
            self._stamps_before_workers = self._inputs_fingerprint(), self._environment_stamps()

    def record_description(self, variant: Variant, description: Described) -> None:
        """Stores a worker's description of a variant."""
        if self._stamps_before_workers is None:
            return
        fingerprint, stamps_around = self._stamps_before_workers
        paths_around = {path for path, _, _ in stamps_around}
        loaded_stamps = sorted(
            (stamp.path, stamp.size, stamp.changed_ns) for stamp in description.files if stamp.path not in paths_around
        )
        files = {
            "around": stamps_around,
            "loaded": loaded_stamps,
            "missing": sorted(description.missing),
            "listed": dict(description.listed),
        }
        data = [Path(path) for path in description.data if not self._suite.is_of_run(Path(path))]
        record_named_data(self._ledger, self._config().arguments, data)
        self._ledger.record_description(variant.key, fingerprint=fingerprint, cases=description.cases, files=files)

    def _environment_stamps(self) -> list[_Stamp]:
        """Returns stamps of the files that a worker looks for, including missing ones: creating one is a change."""
        config = self._config()
        files = set(self._suite.files())
        for suite in map(Path, config.arguments):
            files_around = files_above_suite(suite if path_exists(suite, kind="folder") else suite.parent)
            files.update(file for file in files_around if file.suffix in _SUFFIXES or file.name in INI_FILES)
        layers = config.layers
        seen_files = set[Path]()
        configs = config_chain(Path(layers.trainer_config)) if layers.trainer_config else []
        for path in (*map(Path, layers.gin_files), *configs):
            files.update(included_files(path, seen_files))
        return list(path_stamps(files))

    def _inputs_fingerprint(self) -> str:
        config = self._config()
        blocks, params = SessionBlocks.parse_last_lines(config.layers.gin_params)
        layers = dataclasses.asdict(dataclasses.replace(config.layers, gin_params=params))
        del layers["scopes"]  # they decide which bindings are refused, and no case
        inputs = {
            "arguments": config.arguments,
            "layers": layers,
            "bound": [line.partition(" = ")[0] for line in blocks.bindings] if blocks is not None else [],
            "python": [sys.version, sys.prefix],
            "versions": versions_here(),
            "plugins": installed_plugins(_PLUGIN_GROUPS),
            "installed": [os.stat(sysconfig.get_path(name)).st_mtime_ns for name in ("purelib", "platlib")],
            "environment": {name: os.environ.get(name) for name in _VARIABLES},
        }
        inputs |= {"with_tests": ["yes"]} if config.with_tests else {}
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()

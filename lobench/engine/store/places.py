"""Places in a ledger: where the suites lay that it was evaluated on, their baseline files, and where the store lay."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import TypeAlias

from lobench.core.case import CaseInfo
from lobench.core.suite_place import SuitePlace, relocated
from lobench.engine.store.database import LedgerPart
from lobench.engine.store.schema import intact_rows, store_errors

__all__ = ["Places"]

_Places: TypeAlias = dict[str, tuple[SuitePlace, ...]]


class Places(LedgerPart):
    """The part of a ledger that knows where things lie outside the store."""

    def record_suites(self, found: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Records where suites lie and which baseline files are beside them, as they are now.

        Args:
          found: By name of a suite, as its cases have it, and absolute path of its folder: sha256 (hex) of its baseline
            files by name, that of the scale first.
        """
        rows = [(suite, path, json.dumps(list(baselines.items()))) for (suite, path), baselines in found.items()]
        query = "SELECT suite, path, baselines FROM suites ORDER BY id DESC LIMIT ?"
        with store_errors(self.store):
            known = self._db.execute(query, (len(rows),)).fetchall()
        if known != rows[::-1] or self._locations()[:1] != (self._here,):
            with self.transaction():
                self._db.execute("INSERT OR REPLACE INTO locations (path) VALUES (?)", (self._here,))
                self._db.executemany("INSERT OR REPLACE INTO suites (suite, path, baselines) VALUES (?, ?, ?)", rows)
        self.__dict__["_places_of_suites"] = self._read_places()  # `placed` is called by other threads

    def places_of(self, path: str) -> list[str]:
        """Returns where a file may lie today whose absolute path the store recorded; see `relocated`."""
        with store_errors(self.store):
            return relocated(path, self._here, self._locations())

    def placed(self, case: CaseInfo) -> CaseInfo:
        """Returns a case with the places of its suite, the last one first."""
        places = self._places_of_suites.get(case.suite) or (self._place_by_files(case),)
        return _with_places(case, places)

    def _place_by_files(self, case: CaseInfo) -> SuitePlace:
        """Returns the place of a suite that is not recorded: that of a file of the case which a worker has read."""
        end = f"/{case.node_id.partition('::')[0]}"
        folder = next((os.path.dirname(path) for path in self._files_of_workers if path.endswith(end)), "")
        return SuitePlace(suite=case.suite, path=folder, store=self._here)

    @functools.cached_property
    def _files_of_workers(self) -> tuple[str, ...]:
        with store_errors(self.store), intact_rows(self.store):
            if not self._has("described"):
                return ()
            rows = self._db.execute("SELECT files_json FROM described ORDER BY variant").fetchall()
            return tuple(str(mark[0]) for (text,) in rows for mark in json.loads(text).get("around", ()))

    @functools.cached_property
    def _places_of_suites(self) -> _Places:
        return self._read_places()

    def _read_places(self) -> _Places:
        found: dict[str, list[SuitePlace]] = {}
        with store_errors(self.store), intact_rows(self.store):
            if not self._has("suites"):
                return {}
            stores = self._locations()
            rows = self._db.execute("SELECT suite, path, baselines FROM suites ORDER BY id DESC")
            for suite, path, text in rows:
                baselines = tuple((str(name), str(sha256)) for name, sha256 in json.loads(text))
                place = SuitePlace(suite=suite, path=path, baselines=baselines, store=self._here, stores=stores)
                found.setdefault(suite, []).append(place)
        return {suite: tuple(places) for suite, places in found.items()}

    def _locations(self) -> tuple[str, ...]:
        if not self._has("locations"):
            return ()
        return tuple(path for (path,) in self._db.execute("SELECT path FROM locations ORDER BY id DESC"))

    def _has(self, table: str) -> bool:
        """Returns whether the ledger has a table, which that of an older lobench may lack."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self._db.execute(query, (table,)).fetchone() is not None

    @property
    def _here(self) -> str:
        return os.path.abspath(self.store)


@functools.lru_cache(maxsize=1024)
def _with_places(case: CaseInfo, places: tuple[SuitePlace, ...]) -> CaseInfo:
    return dataclasses.replace(case, places=places)

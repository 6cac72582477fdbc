"""Locations in a ledger: where the suites, their baseline files and the store itself were."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from lobench.core.case import CaseInfo
from lobench.core.subject import Subject
from lobench.core.suite_place import SuitePlace, possible_paths
from lobench.engine.store.ledger_part import LedgerPart
from lobench.engine.store.restarts import RESTARTED_EVENT, RETURNED_EVENT
from lobench.engine.store.schema import decoding_errors

__all__ = ["DECISIONS_FILE", "Locations"]

DECISIONS_FILE = Path("keep", "decisions.json")  # file of `lobench keep`, below its store

_Places: TypeAlias = dict[str, tuple[SuitePlace, ...]]
_EVENTS_OF_CHECKPOINTS = (RESTARTED_EVENT, RETURNED_EVENT, "expired", "skipped", "unreadable")  # with their paths
_REPLACED_EVENT = "data_replaced"  # event: hash of a data file before it changed, and the last evaluation of that time


class Locations(LedgerPart):
    """Part of a ledger: locations outside the store."""

    def record_suites(self, hashes_by_suite: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Records the current locations of suites, and the baseline files next to them.

        Args:
          hashes_by_suite: Baseline files of each suite, by the suite's name in its cases and the absolute path of its
            folder: SHA-256 (hex) by file name, the file of the score scale first.
        """
        rows = [
            (suite, path, json.dumps(list(baselines.items()))) for (suite, path), baselines in hashes_by_suite.items()
        ]
        query = "SELECT suite, path, baselines FROM suites ORDER BY id DESC LIMIT ?"
        recorded_rows = self._fetch_rows(query, (len(rows),))
        if recorded_rows != rows[::-1] or self._locations()[:1] != (self._absolute_folder,):
            with self.transaction():
                self._db.execute("INSERT OR REPLACE INTO locations (path) VALUES (?)", (self._absolute_folder,))
                self._db.executemany("INSERT OR REPLACE INTO suites (suite, path, baselines) VALUES (?, ?, ?)", rows)
        self.__dict__.pop("_moved_from", None)
        self.__dict__["_places_of_suites"] = self._read_places()  # `placed` is called by other threads

    def record_data(self, digests: Mapping[str, str], folders: Collection[str]) -> list[str]:
        """Records the current data files of suites. Returns the names of files that changed or were removed.

        Args:
          digests: Hashes by name. Names begin with the suite's folder.
          folders: Names of the suites' folders.
        """
        digests_by_suite = self._data_in(folders)
        new_files = {name: digest for name, digest in digests.items() if name not in digests_by_suite}
        changed_names = self.changed_data(digests, folders)
        replaced_names = _differing_files(digests_by_suite, digests)
        if replaced_names or new_files:
            with self.transaction():
                for name in replaced_names:
                    self.record_event(
                        _REPLACED_EVENT, name=name, digest=digests_by_suite[name], last=self._last_evaluation()
                    )
                self._db.executemany("DELETE FROM data_files WHERE name = ?", [(name,) for name in digests_by_suite])
                self._db.executemany("INSERT OR REPLACE INTO data_files VALUES (?, ?)", digests.items())
        return changed_names

    def changed_data(self, digests: Mapping[str, str], folders: Collection[str]) -> list[str]:
        """Returns the same as `record_data`, but records nothing.

        A file that was changed and changed back is left out, unless results were recorded meanwhile.
        """
        changed_names = _differing_files(self._data_in(folders), digests)
        if not changed_names:
            return []
        last_evaluation = self._last_evaluation()
        replacements = self._event_details(_REPLACED_EVENT)
        restored_names = {
            replacement["name"]
            for replacement in replacements
            if replacement["last"] == last_evaluation and replacement["digest"] == digests.get(replacement["name"])
        }
        return [name for name in changed_names if name not in restored_names]

    def _data_in(self, folders: Collection[str]) -> dict[str, str]:
        """Returns the hashes of the recorded data files of these folders, by name."""
        rows = self._fetch_rows("SELECT name, digest FROM data_files") if self._has_table("data_files") else []
        return {name: digest for name, digest in rows if name.partition("/")[0] in folders}

    def _last_evaluation(self) -> int:
        return self._fetch_number("SELECT MAX(id) FROM evaluations")

    def data_names(self) -> list[str]:
        """Returns the names of the recorded data files."""
        return [name for (name,) in self._fetch_rows("SELECT name FROM data_files ORDER BY name")]

    def add_data(self, digests: Mapping[str, str]) -> None:
        """Records data files as `record_data` does, but keeps existing records."""
        recorded_names = set(self.data_names())
        rows = [(name, digest) for name, digest in digests.items() if name not in recorded_names]
        if rows:
            with self.transaction():
                self._db.executemany("INSERT INTO data_files VALUES (?, ?)", rows)

    def update_moved_paths(self, location: str) -> None:
        """Replaces recorded paths of checkpoints by their current, absolute paths.

        Earlier versions recorded relative paths, and a run may have been moved together with its store. Its checkpoints
        are recognized by their new paths, so they are not read or delivered again.

        Args:
          location: Path of the watched run, or of a checkpoint.
        """
        if not location or "://" in location:
            return
        root = os.path.abspath(location)
        query = (
            "SELECT uri FROM subjects WHERE kind = 'checkpoint' UNION SELECT uri FROM fingerprints UNION "
            f"SELECT json_extract(detail, '$.uri') FROM events WHERE kind IN {_EVENTS_OF_CHECKPOINTS}"
        )
        uris = [uri for (uri,) in self._fetch_rows(query) if uri]
        moved_paths = list[tuple[str, str]]()
        for uri in (uri for uri in uris if not _is_in(root, uri)):
            candidates = [path for path in self._candidate_paths(uri) if _is_in(root, path)]
            present_paths = [path for path in candidates if os.path.exists(path)]
            # A trainer may have deleted the file; then its folder identifies the path.
            present_paths += [path for path in candidates if os.path.isdir(os.path.dirname(path))]
            moved_paths += [(path, uri) for path in present_paths[:1]]
        if moved_paths:
            with self.transaction():
                for table in ("subjects", "fingerprints"):
                    self._db.executemany(f"UPDATE OR IGNORE {table} SET uri = ? WHERE uri = ?", moved_paths)
                self._move_events({old: new for new, old in moved_paths})
            self.reset_sightings()

    def reset_sightings(self) -> None:
        """Called after sightings were rolled back, or their paths were changed."""
        for name in ("current_restarts", "_arrival_numbers"):
            self.__dict__.pop(name, None)

    def _move_events(self, paths: Mapping[str, str]) -> None:
        """Replaces paths of checkpoints in recorded events, which identify checkpoints by path."""
        query = f"SELECT id, detail FROM events WHERE kind IN {_EVENTS_OF_CHECKPOINTS}"
        for event_id, detail in self._db.execute(query).fetchall():
            text = json.dumps(_with_new_paths(json.loads(detail), paths), sort_keys=True)
            self._db.execute("UPDATE events SET detail = ? WHERE id = ?", (text, event_id))

    def with_present_path(self, subject: Subject) -> Subject:
        """Returns a subject with the current path of its checkpoint, if that was moved together with the store."""
        uri = subject.uri
        if not subject.has_theta or "://" in uri or (os.path.isabs(uri) and self._moved_from == ()):
            return subject
        present_path = self.present_path(uri)
        return subject if present_path == uri else dataclasses.replace(subject, uri=present_path)

    def present_path(self, path: str) -> str:
        """Returns the first possible current path at which something lies; the recorded path if there is none."""
        return next((candidate for candidate in self._candidate_paths(path) if os.path.exists(candidate)), path)

    def present_paths(self, path: str) -> list[str]:
        """Returns the possible current paths of a recorded absolute path, which may have been moved with the store."""
        return possible_paths(path, self._absolute_folder, self._moved_from)

    def folders_of_suites(self) -> list[str]:
        """Returns the possible current folders of the recorded suites, the latest first."""
        all_places = [suite_place for suite_places in self._places_of_suites.values() for suite_place in suite_places]
        return list(dict.fromkeys(folder for suite_place in all_places for folder in suite_place.candidate_paths()))

    def _candidate_paths(self, uri: str) -> list[str]:
        """Returns possible current paths of a checkpoint. Relative paths are tried from several folders."""
        if os.path.isabs(uri):
            return possible_paths(uri, self._absolute_folder, self._moved_from)
        ancestors = Path(self._absolute_folder).parents
        return [os.path.normpath(folder / uri) for folder in (Path.cwd(), *ancestors)]

    @functools.cached_property
    def _moved_from(self) -> tuple[str, ...]:
        """Earlier paths of the store."""
        return tuple(path for path in self._locations() if path != self._absolute_folder)

    def with_suite_places(self, case: CaseInfo) -> CaseInfo:
        """Returns a case with the locations of its suite, the latest first."""
        places = self._places_of_suites.get(case.suite) or (self._place_by_files(case),)
        return _with_places(case, places)

    def _place_by_files(self, case: CaseInfo) -> SuitePlace:
        """Returns the location of a suite without a record, from the files that a worker has read for the case."""
        path_end = f"/{case.node_id.partition('::')[0]}"
        folder = next((os.path.dirname(path) for path in self._files_of_workers if path.endswith(path_end)), "")
        return SuitePlace(suite=case.suite, path=folder, store=self._absolute_folder)

    @functools.cached_property
    def _files_of_workers(self) -> tuple[str, ...]:
        if not self._has_table("described"):
            return ()
        rows = self._fetch_rows("SELECT files_json FROM described ORDER BY variant")
        with decoding_errors(self.store):
            return tuple(str(stamp[0]) for (text,) in rows for stamp in json.loads(text).get("around", ()))

    def places_marker(self) -> tuple[object, ...]:
        """Returns a value that changes if `placed` may return other locations."""
        return self._places_of_suites, self._files_of_workers, self._absolute_folder

    @functools.cached_property
    def _places_of_suites(self) -> _Places:
        return self._read_places()

    def _read_places(self) -> _Places:
        places_by_suite: dict[str, list[SuitePlace]] = {}
        if not self._has_table("suites"):
            return {}
        stores = self._locations()
        rows = self._fetch_rows("SELECT suite, path, baselines FROM suites ORDER BY id DESC")
        with decoding_errors(self.store):
            for suite, path, text in rows:
                baselines = tuple((str(name), str(sha256)) for name, sha256 in json.loads(text))
                suite_place = SuitePlace(
                    suite=suite, path=path, baselines=baselines, store=self._absolute_folder, stores=stores
                )
                places_by_suite.setdefault(suite, []).append(suite_place)
        return {suite: tuple(places) for suite, places in places_by_suite.items()}

    def _locations(self) -> tuple[str, ...]:
        if not self._has_table("locations"):
            return ()
        return tuple(path for (path,) in self._fetch_rows("SELECT path FROM locations ORDER BY id DESC"))

    def _has_table(self, table: str) -> bool:
        """Returns whether the ledger has a table. Ledgers of an older lobench may lack it."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return bool(self._fetch_rows(query, (table,)))

    @property
    def _absolute_folder(self) -> str:
        return os.path.abspath(self.store)


def _is_in(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}{os.sep}")


def _with_new_paths(value: Any, paths: Mapping[str, str]) -> Any:
    """Returns a JSON value in which each text that is a former path is replaced by the new one."""
    if isinstance(value, dict):
        return {name: _with_new_paths(entry, paths) for name, entry in value.items()}
    if isinstance(value, list):
        return [_with_new_paths(entry, paths) for entry in value]
    return paths.get(value, value) if isinstance(value, str) else value


@functools.lru_cache(maxsize=1024)
def _with_places(case: CaseInfo, places: tuple[SuitePlace, ...]) -> CaseInfo:
    return dataclasses.replace(case, places=places)


def _differing_files(recorded_digests: Mapping[str, str], digests: Mapping[str, str]) -> list[str]:
    """Returns the sorted names of files that have changed or are missing."""
    return sorted(name for name, digest in recorded_digests.items() if digests.get(name) != digest)

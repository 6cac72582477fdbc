"""Writes results to the database of a trackio project, each (name, outer step) exactly once, even if killed.

trackio has a SQLite database for each project, and adds a row for each call of `log`. When the sink opens a run, it
reads the rows of the run back and adds the missing numbers, so that repeated deliveries after a crash are ignored.
Logged values are never changed, as in TensorBoard's files. All rows of a delivery are one transaction.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from lobench.extend import Number, PluginError, RunSink, headline, kept_id, of_another_training, run_label, sync
from lobench.hookspecs import Delivery, SinkContext

__all__ = ["TrackioSink"]

_WHERE = "sink 'trackio'"


class TrackioSink(RunSink["_Run"]):
    """Sink of trackio. `Number.key` defines the names.

    The database is that of the project in trackio's own folder, `TRACKIO_DIR`. There is one trackio run per run and
    generation of the store, so that the curves of lineages do not mix. With `run=NAME` all numbers go into an existing
    run, such as the trainer's own. That run has one training.

    Raises:
      PluginError: trackio is not installed, its folder cannot be written or is on a network file system, it does not
        accept the project's name, or the project has no such run.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        project, run = context.given_run
        self._project = project or context.name or "lobench"
        self._storage = _storage()
        self._given_run: tuple[str, str] | None = None
        try:
            self._storage.validate_project_name(self._project)
            if run:
                self._given_run = self._existing_run(run)
            id = self._storage.get_project_metadata(self._project, "lobench.id")
            if id is None:
                id = uuid.uuid4().hex
                self._storage.set_project_metadata(self._project, "lobench.id", id)
        except PluginError:
            raise
        except Exception as error:  # SQLite's, the file system's and trackio's
            raise PluginError(
                "cannot be written", where=_WHERE, got=f"project {self._project!r}: {headline(error)}"
            ) from error
        self._id = str(id)

    @property
    def destination(self) -> str:
        """Ids in the database and in the store, and the given run. If one is new, everything is logged again."""
        return " ".join([self._id, self._store_id, *(self._given_run or ())[:1]])

    @property
    def _store_id(self) -> str:
        return kept_id(self.context.store / "trackio.id")

    def _existing_run(self, name: str) -> tuple[str, str]:
        """Returns the id and the name of the project's newest run of this name."""
        run = self._storage.get_latest_run_record_by_name(self._project, name)
        if run is None:
            names = ", ".join(sorted(self._storage.get_runs(self._project))[:5])
            raise PluginError(
                f"project {self._project!r} has no run {name!r}",
                where=_WHERE,
                got=names or "no runs",
                next_step="trackio:PROJECT,run=NAME, once the trainer has logged a value",
            )
        return str(run["id"]), name

    def run_key(self, delivery: Delivery) -> str:
        generation = delivery.event.checkpoint.generation
        return hashlib.sha256(f"{self._store_id}\0{delivery.run}\0{generation}".encode()).hexdigest()[:32]

    def open_run(self, delivery: Delivery, key: Hashable) -> _Run:
        training = str(key)
        label = run_label(self.context.store, delivery)
        if self._given_run:
            self._claim_given_run(training, label)
            return _Run(self._storage, self._project, *self._given_run, config=None)
        config = {"store": str(self.context.store), "suites": list(self.context.suites)}
        return _Run(self._storage, self._project, training, label, config=config)

    def _claim_given_run(self, training: str, label: str) -> None:
        """Records to which training the run given by `run=NAME` belongs.

        Raises:
          PluginError: The run has the results of another training.
        """
        assert self._given_run is not None
        metadata_key = f"lobench.run.{self._given_run[0]}"
        recorded_training = self._storage.get_project_metadata(self._project, metadata_key)
        if recorded_training is None:
            self._storage.set_project_metadata(self._project, metadata_key, training)
        elif recorded_training != training:
            raise of_another_training(self._given_run[1], label, where=_WHERE, argument="run=NAME")


class _Run:
    """One trackio run: the numbers that it has, and those to log."""

    def __init__(self, storage: Any, project: str, id: str, name: str, *, config: dict[str, Any] | None) -> None:
        self.id = id
        self._storage = storage
        self._project = project
        self._name = name
        self._config = config
        self._new_rows: list[tuple[int, dict[str, float]]] = []
        rows = storage.get_logs(project, run_id=id)
        self._written_keys = {
            (key, int(row["step"])) for row in rows for key in row if key not in ("step", "timestamp")
        }

    def add(self, numbers: Sequence[Number], step: int, *, is_whole: bool) -> None:
        values = dict(value for number in numbers for value in number.values())
        new_values = {key: value for key, value in values.items() if (key, step) not in self._written_keys}
        if new_values:
            self._new_rows.append((step, new_values))
            self._written_keys |= {(key, step) for key in new_values}

    def flush(self) -> None:
        new_rows, self._new_rows = self._new_rows, []
        steps = [step for step, _ in new_rows]
        rows = [row for _, row in new_rows]
        log_arguments: dict[str, Any] = {"steps": steps, "run_id": self.id, "config": self._config}
        self._storage.bulk_log(self._project, self._name, rows, **log_arguments)
        self._config = None
        # trackio's connections leave the transactions to the next checkpoint of the database.
        database = Path(self._storage.get_project_db_path(self._project))
        for path in (database.with_name(f"{database.name}-wal"), database, database.parent):
            with contextlib.suppress(FileNotFoundError):  # another process has moved the log into the database
                sync(path)

    def close(self) -> None:
        """Does nothing: trackio opens its database for each call."""


def _storage() -> Any:
    """Returns trackio's access to its databases.

    Raises:
      PluginError: trackio is not installed, or its folder is on a network file system.
    """
    try:
        from trackio import utils
        from trackio.sqlite_storage import SQLiteStorage
    except ImportError as error:
        raise PluginError(
            "trackio is not installed", where=_WHERE, got=headline(error), next_step="pip install trackio"
        ) from error
    if utils.get_storage_mode() != "sqlite":
        raise PluginError(
            "trackio writes no database on a network file system",
            where=_WHERE,
            got=str(utils.TRACKIO_DIR),
            next_step="TRACKIO_DIR on a local disk, or TRACKIO_STORAGE_MODE=sqlite",
        )
    return SQLiteStorage

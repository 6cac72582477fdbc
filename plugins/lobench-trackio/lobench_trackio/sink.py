"""Writes results to the database of a trackio project, each (name, outer step) exactly once, even if killed.

trackio has a SQLite database for each project, and adds a row for each call of `log`. When the sink opens a run, it
reads the rows of the run back and adds the missing numbers, so that repeated deliveries after a crash are ignored.
Logged values are never changed, as in TensorBoard's files. All rows of a delivery are one transaction.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lobench.extend import Number, PluginError, headline, numbers_of, run_label, sync, write_whole
from lobench.hookspecs import Delivery, SinkContext

__all__ = ["TrackioSink"]

_WHERE = "sink 'trackio'"


class TrackioSink:
    """Sink of trackio. `Number.key` defines the names.

    The database is that of the project in trackio's own folder, `TRACKIO_DIR`. There is one trackio run per run and
    generation of the store, so that the curves of lineages do not mix. With `run=NAME` all numbers go into an existing
    run, such as the trainer's own. That run has one training.

    Raises:
      PluginError: trackio is not installed, its folder cannot be written or is on a network file system, it does not
        accept the project's name, or the project has no such run.
    """

    keeps_first = True

    def __init__(self, context: SinkContext) -> None:
        self._context, self._runs = context, dict[str, _Run]()
        project, given = context.given_run
        self._project = project or context.name or "lobench"
        self._storage = _storage()
        self._given: tuple[str, str] | None = None
        try:
            self._storage.validate_project_name(self._project)
            if given:
                self._given = self._existing(given)
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
        return " ".join([self._id, self._store_id, *(self._given or ())[:1]])

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        try:
            touched: dict[str, _Run] = {}
            for delivery in sorted(deliveries, key=lambda one: one.event.checkpoint.outer_step):
                if numbers := numbers_of(delivery.event, self._context.suites):
                    run = self._run(delivery)
                    run.add(numbers, delivery.event.checkpoint.outer_step)
                    touched[run.id] = run
            for run in touched.values():
                run.flush()
            if touched:
                self._sync()
        except BaseException:
            self._runs.clear()  # it is unknown what was logged; the next attempt reads it back
            raise

    def close(self) -> None:
        self._runs.clear()

    @property
    def _store_id(self) -> str:
        file = self._context.store / "trackio.id"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, uuid.uuid4().hex)
        return file.read_text(encoding="ascii")

    def _existing(self, name: str) -> tuple[str, str]:
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

    def _run(self, delivery: Delivery) -> _Run:
        generation = delivery.event.checkpoint.generation
        key = hashlib.sha256(f"{self._store_id}\0{delivery.run}\0{generation}".encode()).hexdigest()[:32]
        if key not in self._runs:
            label = run_label(self._context.store, delivery)
            if self._given:
                self._take_given(key, label)
                self._runs[key] = _Run(self._storage, self._project, *self._given, config=None)
            else:
                config = {"store": str(self._context.store), "suites": list(self._context.suites)}
                self._runs[key] = _Run(self._storage, self._project, key, label, config=config)
        return self._runs[key]

    def _take_given(self, training: str, label: str) -> None:
        """Records the training that the given run is of.

        Raises:
          PluginError: The run has the results of another training.
        """
        assert self._given is not None
        entry = f"lobench.run.{self._given[0]}"
        taken = self._storage.get_project_metadata(self._project, entry)
        if taken is None:
            self._storage.set_project_metadata(self._project, entry, training)
        elif taken != training:
            raise PluginError(
                f"run {self._given[1]!r} has the results of another training",
                where=_WHERE,
                got=label,
                next_step="run=NAME of its own run; a trainer that starts anew begins a new one",
            )

    def _sync(self) -> None:
        """Waits until the transactions are on the disk: trackio's connections leave that to the next checkpoint."""
        database = Path(self._storage.get_project_db_path(self._project))
        for path in (database.with_name(f"{database.name}-wal"), database, database.parent):
            with contextlib.suppress(FileNotFoundError):  # another process has moved the log into the database
                sync(path)


class _Run:
    """One trackio run: the numbers that it has, and those to log."""

    def __init__(self, storage: Any, project: str, id: str, name: str, *, config: dict[str, Any] | None) -> None:
        self.id, self._storage, self._project, self._name, self._config = id, storage, project, name, config
        self._new: list[tuple[int, dict[str, float]]] = []
        rows = storage.get_logs(project, run_id=id)
        self._written = {(key, int(row["step"])) for row in rows for key in row if key not in ("step", "timestamp")}

    def add(self, numbers: Sequence[Number], step: int) -> None:
        values = dict(value for number in numbers for value in number.values())
        new = {key: value for key, value in values.items() if (key, step) not in self._written}
        if new:
            self._new.append((step, new))
            self._written |= {(key, step) for key in new}

    def flush(self) -> None:
        new, self._new = self._new, []
        steps, rows = [step for step, _ in new], [row for _, row in new]
        log: dict[str, Any] = {"steps": steps, "run_id": self.id, "config": self._config}
        self._storage.bulk_log(self._project, self._name, rows, **log)
        self._config = None


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

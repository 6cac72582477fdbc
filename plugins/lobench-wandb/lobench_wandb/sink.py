"""Writes results to the history of W&B runs, each (key, outer step) exactly once, even if the process is killed.

W&B appends a run's history to a file `run-ID.wandb`. When the sink opens a run, it reads these files back and logs the
missing rows into a further file of the same run; `wandb sync` merges the files of a run. Logged values are never
changed, as in TensorBoard's files.

W&B's step must not decrease, and checkpoints may end in any order. Therefore the step counts rows, and `outer_step` is
a metric, which W&B's page uses as the x-axis of all others. In a trainer's own run, whose step may be far ahead, this
metric is `lobench/outer_step`, the x-axis of the sink's metrics alone.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lobench.extend import (
    Number,
    PluginError,
    RunSink,
    headline,
    kept_id,
    of_another_training,
    run_label,
    sync,
    wandb_rows,
    write_whole,
)
from lobench.hookspecs import Delivery, SinkContext
from lobench_wandb.wandb_settings import (
    WHERE,
    checked_id,
    checked_mode,
    checked_project,
    preserved_process_hooks,
    run_settings,
)

__all__ = ["WandbSink"]

_STEP_METRIC = "outer_step"
_GIVEN_RUN_STEP_METRIC = "lobench/outer_step"  # the trainer may log an `outer_step` of its own
_RUNS_VERSION = "-2"  # version, incremented if the runs change
_PATIENCE_SECONDS = 60.0  # time for W&B's process to write rows
_WRITERS_SECONDS = 15.0  # time for a process of W&B's that outlives ours to write its remaining rows


class WandbSink(RunSink["_Run"]):
    """Sink of W&B. `Number.key` defines the names.

    There is one W&B run per run and generation of the store, so that the curves of lineages do not mix. The files are
    in `STORE/wandb`. With `run=ID` all numbers go into an existing run, such as the trainer's own, whose name,
    configuration and state stay as they are. That run has one training.

    Raises:
      PluginError: wandb is not installed, is not logged in although the mode is online, the folder cannot be written,
        or the name of the project or the id is invalid.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._mode = checked_mode(os.environ)
        project_path, self._given_run = context.given_run
        if self._given_run:
            checked_id(self._given_run)
        project = project_path or os.environ.get("WANDB_PROJECT", "" if self._given_run else "lobench")
        # With `run=ID` and without a project, W&B's default project, which the trainer used too.
        self._entity, self._project = checked_project(project) if project else ("", "")
        self._folder = context.store / "wandb"

    @property
    def destination(self) -> str:
        """Id stored in a file of the folder.

        If the folder was removed, the id is new, and everything is written again.
        """
        try:
            return kept_id(self._folder / "lobench.id") + _RUNS_VERSION
        except OSError as error:
            raise PluginError("cannot be written", where=WHERE, got=headline(error)) from error

    def run_key(self, delivery: Delivery) -> str:
        generation = str(delivery.event.checkpoint.generation)
        identity = (self.destination.removesuffix(_RUNS_VERSION), self._entity, self._project, delivery.run, generation)
        return hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]

    def open_run(self, delivery: Delivery, key: Hashable) -> _Run:
        training_key = str(key)
        label = run_label(self.context.store, delivery)
        init_arguments: dict[str, Any] = {"entity": self._entity or None, "project": self._project or None}
        if self._given_run:
            self._claim_given_run(training_key, label)
            # Several processes write to the run. In shared mode W&B's server numbers the rows.
            init_arguments |= {"mode": "shared"} if self._mode == "online" else {"mode": self._mode, "resume": "allow"}
            return _Run(self._folder, self._given_run, init_arguments, is_owned=False)
        config = {"store": str(self.context.store), "suites": list(self.context.suites)}
        init_arguments |= {"mode": self._mode, "resume": "allow", "name": label, "config": config}
        return _Run(self._folder, training_key, init_arguments, is_owned=True)

    def _claim_given_run(self, training_key: str, label: str) -> None:
        """Records to which training the run given by `run=ID` belongs.

        Raises:
          PluginError: The run has the results of another training.
        """
        file = self._folder / f"{self._given_run}.training"
        if not file.exists():
            write_whole(file, training_key)
        if file.read_text(encoding="ascii") != training_key:
            raise of_another_training(self._given_run, label, where=WHERE)


class _Run:
    """One W&B run: the rows in its files, and a new file for missing rows.

    Args:
      folder: Folder of the files.
      id: W&B's id.
      init_arguments: Arguments of `wandb.init`.
      is_owned: Whether only the sink writes the run.
    """

    def __init__(self, folder: Path, id: str, init_arguments: dict[str, Any], *, is_owned: bool) -> None:
        self.id = id
        self._folder = folder
        self._init_arguments = init_arguments
        self._is_owned = is_owned
        self._step_metric = _STEP_METRIC if is_owned else _GIVEN_RUN_STEP_METRIC
        self._defined_keys: set[str] = set()
        self._written_keys: set[tuple[str, int]] = set()
        self._num_rows = 0
        self._new_rows: list[dict[str, float]] = []
        self._run: Any = None
        self._read_offset = 0  # offset of the last row known to be in the file
        for file in sorted(folder.glob(f"*-{glob.escape(id)}-*/run-{glob.escape(id)}.wandb")):
            _wait_for_writers(file)
            for row, _ in wandb_rows(file):
                self._written_keys |= {(key, int(row[self._step_metric])) for key in row if not key.startswith("_")}
                self._num_rows += 1

    def add(self, numbers: Sequence[Number], step: int, *, is_whole: bool) -> None:
        values = dict(value for number in numbers for value in number.values())
        new_values = {key: value for key, value in values.items() if (key, step) not in self._written_keys}
        if new_values:
            self._new_rows.append({self._step_metric: step, **new_values})
            self._written_keys |= {(key, step) for key in new_values}

    def flush(self) -> None:
        """Logs, and waits until everything is on the disk.

        Raises:
          PluginError: W&B's process did not write it.
        """
        if not self._new_rows:
            return
        self._run = self._run or self._begin_run()
        rows, self._new_rows = self._new_rows, []
        is_shared = self._init_arguments["mode"] == "shared"
        for row in rows:
            for key in () if self._is_owned else sorted(row.keys() - self._defined_keys - {self._step_metric}):
                self._run.define_metric(key, step_metric=self._step_metric)
                self._defined_keys.add(key)
            step = None if is_shared else self._num_rows
            self._run.log(row, step=step, commit=True)
            self._num_rows += 1
        self._wait_for_rows(len(rows))

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def _begin_run(self) -> Any:
        import wandb

        init_arguments = self._init_arguments | {"id": self.id, "dir": str(self._folder.parent)}
        num_folders = len(list(self._folder.glob(f"*-{glob.escape(self.id)}-*")))
        with preserved_process_hooks():
            run = wandb.init(**init_arguments, settings=run_settings(suffix=str(num_folders), owns_run=self._is_owned))
        self._history_file = Path(run.settings.sync_file)
        if self._folder.resolve() not in self._history_file.resolve().parents:  # W&B silently uses a temporary folder
            raise PluginError("W&B cannot write its folder", where=WHERE, got=str(self._folder))
        run.define_metric(self._step_metric, hidden=True)
        if self._is_owned:
            run.define_metric("*", step_metric=self._step_metric)
        return run

    def _wait_for_rows(self, num_missing: int) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            for _, end in wandb_rows(self._history_file, self._read_offset) if self._history_file.exists() else ():
                num_missing, self._read_offset = num_missing - 1, end
            if num_missing <= 0:
                return sync(self._history_file)
            if time.monotonic() > deadline:
                missing_text = f"{num_missing} rows missing in {self._history_file}"
                raise PluginError("W&B's own process does not write", where=WHERE, got=missing_text)
            time.sleep(0.002)


def _wait_for_writers(file: Path) -> None:
    """Waits until no process has the file open. Returns at once on systems that do not list open files.

    Raises:
      PluginError: A process keeps the file open.
    """
    deadline = time.monotonic() + _WRITERS_SECONDS
    while writer := next(_writing_processes(file), ""):
        if time.monotonic() > deadline:
            raise PluginError(
                "somebody writes W&B's file", where=WHERE, got=f"{file} is open in process {writer}", next_step="end it"
            )
        time.sleep(0.01)


def _writing_processes(file: Path) -> Iterator[str]:
    target = str(file.resolve())
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) == target for link in (process / "fd").iterdir()):
                yield process.name
        except OSError:  # it has ended, or belongs to another user
            continue

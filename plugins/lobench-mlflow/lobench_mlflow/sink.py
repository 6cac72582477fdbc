"""Writes results as metrics of MLflow, each (name, outer step) exactly once, even if the process is killed.

MLflow only appends to metrics. When the sink opens a run, it reads the run's metrics back and logs the missing ones, so
that repeated deliveries after a crash are ignored. Logged values are never changed, as in TensorBoard's files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lobench.extend import (
    Number,
    PluginError,
    RunSink,
    environment_with,
    headline,
    kept_id,
    of_another_training,
    run_label,
    sync,
)
from lobench.hookspecs import Delivery, SinkContext

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

__all__ = ["MlflowSink"]

_WHERE = "sink 'mlflow'"
_KEY_TAG = "lobench.key"  # tag that identifies the sink's runs
_RUNS_VERSION = "-2"  # version, incremented if the runs change
_ABANDONED_SECONDS = 60.0
_BATCH_SIZE = 1000  # MLflow's limit of metrics per call
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_. -]")  # Windows does not allow colons
_RESERVED_SUITES = {
    "score",
    "verdicts_passed",
    "score_of",
    "intervals",
    "diagnostics",
}  # suites of these names are renamed
_MAX_LENGTH = 250
# MLflow needs permission to use a file store. No telemetry and few retries, because a watch retries itself.
_ENVIRONMENT = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}


class MlflowSink(RunSink["_Run"]):
    """Sink of MLflow. `Number.key` defines the names, with characters that MLflow does not accept replaced.

    The experiment has the name of the watch. There is one MLflow run per run and generation of the store, so that
    stores may share an MLflow folder, and the curves of lineages do not mix. With `run=ID` all metrics go into an
    existing run, such as the trainer's own, whose status and name stay as they are.

    Raises:
      PluginError: mlflow is not installed, the folder cannot be written, it is not a valid tracking URI, or it has no
        such run.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        address, self._given_run = context.given_run
        if self._given_run and not address:
            raise PluginError(
                "run=ID without a tracking URI", where=_WHERE, next_step=f"mlflow:DIR,run={self._given_run}"
            )
        argument = address.removeprefix("file://").removeprefix("file:") or str(context.store / "mlruns")
        self._folder = None if "://" in argument else Path(argument).expanduser().absolute()
        with contextlib.ExitStack() as environment:  # closed together with the sink
            environment.enter_context(environment_with(_ENVIRONMENT, as_defaults=True))
            try:
                self._client = _client(argument if self._folder is None else self._folder.as_uri())
                if self._given_run:
                    self._experiment = str(self._client.get_run(self._given_run).info.experiment_id)
                else:
                    self._experiment = self._experiment_id(context.name.replace("'", "_") or "lobench")
            except PluginError:
                raise
            except Exception as error:
                cause_text = f"{argument}: {headline(error)}"
                advice = "mlflow:DIR names another folder"
                problem = f"run {self._given_run!r} cannot be read" if self._given_run else "cannot be written"
                raise PluginError(problem, where=_WHERE, got=cause_text, next_step=advice) from error
            self._environment = environment.pop_all()

    @property
    def destination(self) -> str:
        """Ids of the experiment or the given run, and of the store. If one is new, everything is logged again."""
        return f"{self._given_run or self._experiment} {self._store_id}{_RUNS_VERSION}"

    def close(self) -> None:
        with self._environment:
            for run in self.runs.values():
                if not self._given_run:
                    self._client.set_terminated(run.id)
            self.runs.clear()

    @property
    def _store_id(self) -> str:
        return kept_id(self.context.store / "mlflow.id")

    def _experiment_id(self, name: str) -> str:  # MLflow's search does not support quotes in names
        for experiment in self._client.search_experiments():
            if experiment.name == name:
                return str(experiment.experiment_id)
        return str(self._client.create_experiment(name))

    def run_key(self, delivery: Delivery) -> str:
        generation = delivery.event.checkpoint.generation
        return hashlib.sha256(f"{self._store_id}\0{delivery.run}\0{generation}".encode()).hexdigest()

    def open_run(self, delivery: Delivery, key: Hashable) -> _Run:
        store = self.context.store
        experiment = self._experiment
        client = self._client
        experiment_folder = None if self._folder is None else self._folder / experiment
        name = run_label(store, delivery)
        tag = str(key)
        if self._given_run:
            self._claim_given_run(tag, name)
            return _Run(client, experiment_folder, self._given_run)
        tags = {_KEY_TAG: tag, "lobench.store": str(store), "mlflow.source.name": "lobench"}
        existing_id = (
            _run_with_key(client, experiment, tag)
            if experiment_folder is None
            else _recovered_run(experiment_folder, client, tag, name)
        )
        for tag_name, value in tags.items() if existing_id else ():
            client.set_tag(existing_id, tag_name, value)
        id = existing_id or client.create_run(experiment, run_name=name, tags=tags).info.run_id
        client.update_run(id, status="RUNNING")
        return _Run(client, experiment_folder, id)

    def _claim_given_run(self, key: str, label: str) -> None:
        """Marks the run given by `run=ID` as the run of a training.

        Raises:
          PluginError: It has the results of another training.
        """
        recorded_key = self._client.get_run(self._given_run).data.tags.get(_KEY_TAG, key)
        if recorded_key != key:
            raise of_another_training(self._given_run, label, where=_WHERE)
        self._client.set_tag(self._given_run, _KEY_TAG, key)


class _Run:
    """One MLflow run: its metrics so far, and those to log."""

    def __init__(self, client: MlflowClient, experiment_folder: Path | None, id: str) -> None:
        self.id, self._client = id, client
        self._folder = None if experiment_folder is None else experiment_folder / id / "metrics"
        self._new_metrics: list[Any] = []
        metrics = client.get_run(id).data.metrics
        self._written_keys = {
            (name, logged_metric.step) for name in metrics for logged_metric in client.get_metric_history(id, name)
        }

    def add(self, numbers: Sequence[Number], step: int, *, is_whole: bool) -> None:
        from mlflow.entities import Metric

        milliseconds = round(1000 * time.time())
        for name, value in _metrics_of(numbers):
            if (name, step) not in self._written_keys:
                self._written_keys.add((name, step))
                self._new_metrics.append(Metric(name, value, milliseconds, step))

    def flush(self) -> None:
        """Logs, and waits until everything is on the disk, if MLflow writes to files."""
        new_metrics, self._new_metrics = self._new_metrics, []
        for start in range(0, len(new_metrics), _BATCH_SIZE):
            self._client.log_batch(self.id, metrics=new_metrics[start : start + _BATCH_SIZE])
        if self._folder is not None:
            files = {self._folder / metric.key for metric in new_metrics}
            for path in sorted({*files, *(file.parent for file in files)}):
                sync(path)

    def close(self) -> None:
        """Does nothing, because only closing the sink ends the run, and not a failed delivery."""


def _client(uri: str) -> MlflowClient:
    try:
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise PluginError(
            "mlflow is not installed", where=_WHERE, got=headline(error), next_step="pip install mlflow-skinny"
        ) from error
    return MlflowClient(tracking_uri=uri)


def _run_with_key(client: MlflowClient, experiment: str, key: str) -> str:
    """Returns the id of the run with a key, or ""."""
    runs = client.search_runs([experiment], f"tags.`{_KEY_TAG}` = '{key}'", max_results=1)
    return str(runs[0].info.run_id) if runs else ""


def _recovered_run(experiment_folder: Path, client: MlflowClient, key: str, name: str) -> str:
    """Returns the id of the run with a key, or of one whose creation was interrupted; "" if there is neither.

    Only this run is repaired. Files of other runs are not read, since they may be damaged too.
    """
    for folder in sorted(path.parent for path in experiment_folder.glob("*/meta.yaml")):
        tag = folder / "tags" / _KEY_TAG
        if tag.is_file():
            if tag.read_text(encoding="utf-8").strip() != key:
                continue
            _remove_partial_lines(folder / "metrics")
        elif any(path.is_file() for path in (folder / "metrics").rglob("*")):
            continue
        try:
            info = client.get_run(folder.name).info
        except Exception:  # whatever MLflow raises for a file that is empty or cut off
            if tag.is_file():
                raise
            _remove_if_abandoned(folder)
            continue
        if info.lifecycle_stage == "active" and (tag.is_file() or info.run_name == name):
            return folder.name
    return ""


def _remove_if_abandoned(run: Path) -> None:
    """Removes a run without tags and numbers whose `meta.yaml` cannot be read, left by a kill while MLflow created it.

    MLflow cannot search an experiment with such a run. A process that creates one now takes less than a second.
    """
    if time.time() - (run / "meta.yaml").stat().st_mtime > _ABANDONED_SECONDS:
        shutil.rmtree(run)


def _remove_partial_lines(metrics: Path) -> None:
    """Removes incomplete lines, left by a kill or a full disk, because MLflow cannot read a run with such a file."""
    for file in (path for path in metrics.rglob("*") if path.is_file()):
        content = file.read_bytes()
        complete_size = content.rfind(b"\n") + 1
        if not complete_size:
            file.unlink()
        elif complete_size < len(content):
            os.truncate(file, complete_size)


def _metrics_of(numbers: Sequence[Number]) -> Iterator[tuple[str, float]]:
    """Yields (name, value) of numbers: `Number.key`, with characters that MLflow does not accept replaced.

    MLflow's page shows names without a slash first, and then a section for each prefix before the last slash of a name.
    In a file store a name is a file and its prefix a folder, so no name may be the prefix of another.
    """
    for number in numbers:
        suite = _valid_name(number.suite)
        suite = _with_hash(suite, suite) if suite in _RESERVED_SUITES else suite
        name = "/".join(map(_valid_name, number.name.split("/")))
        for key, value in replace(number, suite=suite, case=_valid_name(number.case), name=name).values():
            yield key if len(key) <= _MAX_LENGTH else _with_hash(key[: _MAX_LENGTH - 9], key), value


def _valid_name(text: str) -> str:
    """Returns a part of a name with invalid characters replaced. Different parts stay different."""
    valid_text = _INVALID_CHARACTERS.sub("_", text)
    return valid_text if not text or (valid_text == text and text.strip(". ")) else _with_hash(valid_text, text)


def _with_hash(text: str, original: str) -> str:
    return f"{text}-{hashlib.sha256(original.encode()).hexdigest()[:8]}"

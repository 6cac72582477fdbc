"""The sink against MLflow's own client, with real kills."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from commands import lobench
from lobench_mlflow.sink import MlflowSink
from report_store import NASTY, deliveries_of, make_baseline, make_store
from shown import texts_of

from lobench.extend import PluginError, environment_with, numbers_of
from lobench.hookspecs import CheckpointFinished, SinkContext
from lobench.testing.sinks import SinkContract, sample_deliveries

SHOWN = texts_of("mlflow")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")

Logged = tuple[str, str, int, float]  # run, metric, step, value


@pytest.fixture(autouse=True)
def _file_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's client, which reads here what the sink wrote, wants to be allowed to."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def logged(folder: Path) -> list[Logged]:
    """Everything that MLflow's client reads, each as often as it is there."""
    from mlflow.tracking import MlflowClient

    with environment_with({"MLFLOW_DISABLE_TELEMETRY": "true"}):
        client = MlflowClient(tracking_uri=folder.as_uri())
        return [
            (run.info.run_name, metric.key, metric.step, metric.value)
            for experiment in client.search_experiments()
            for run in client.search_runs([experiment.experiment_id])
            for name in run.data.metrics
            for metric in client.get_metric_history(run.info.run_id, name)
        ]


def deliver(context: SinkContext, deliveries: list) -> None:
    sink = MlflowSink(context)
    sink.deliver(deliveries)
    sink.close()


class TestContract(SinkContract):
    factory = "lobench_mlflow.sink:MlflowSink"

    def contents(self, store: Path) -> list[Logged]:
        label = store.name  # each of the contract's stores has a name of its own
        return [(run.removeprefix(label), *rest) for run, *rest in logged(store / "mlruns")]

    def value_of(
        self, store: Path, run: str, generation: int, step: int, suite: str, case: str, metric: str
    ) -> float | None:
        label = "/".join(filter(None, (store.name, run))) + (f" generation {generation}" if generation else "")
        place = (label, f"{suite}/{case}/{metric}", step)
        files = tuple((str(file), file.stat().st_size) for file in sorted((store / "mlruns").rglob("metrics/**/*")))
        return _values(store / "mlruns", files).get(place)


@functools.cache
def _values(folder: Path, files: tuple[tuple[str, int], ...]) -> dict[tuple[str, str, int], float]:
    """Reads all numbers of a folder; once for the same files, since MLflow's client is slow."""
    return {one[:3]: one[3] for one in logged(folder)}


def test_results_go_into_the_run_of_a_trainer(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    store, folder = make_store(tmp_path), tmp_path / "ml"
    client = MlflowClient(tracking_uri=folder.as_uri())
    run = client.create_run(client.create_experiment("training"), run_name="mine").info.run_id
    client.log_metric(run, "train/loss", 2.0, step=10_000)
    deliveries = deliveries_of(store)
    for _ in range(2):
        deliver(SinkContext(store=store, argument=f"{folder},run={run}", name="x", suites=()), deliveries)
    found = logged(folder)
    assert {one[0] for one in found} == {"mine"} and ("mine", "train/loss", 10_000, 2.0) in found
    assert max(Counter(one[:3] for one in found).values()) == 1 and len(found) > 1
    assert client.get_run(run).info.status == "RUNNING", "the trainer ends its run"
    assert all(one[2] < 10_000 for one in found if one[1] != "train/loss"), "evaluations that come late are logged"


def test_run_of_a_trainer_takes_the_results_of_one_training(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    store, folder = make_store(tmp_path), tmp_path / "ml"
    client = MlflowClient(tracking_uri=folder.as_uri())
    run = client.create_run(client.create_experiment("training")).info.run_id
    context = SinkContext(store=store, argument=f"{folder},run={run}", name="x", suites=())
    deliveries = deliveries_of(store)
    deliver(context, deliveries)
    others = [dataclasses.replace(delivery, run=f"{delivery.run}-other") for delivery in deliveries]
    with pytest.raises(PluginError, match=SHOWN["has-the-results-of-another"]):
        MlflowSink(context).deliver(others)
    with pytest.raises(PluginError, match=SHOWN["run-nothere-cannot-be-read"]):
        MlflowSink(dataclasses.replace(context, argument=f"{folder},run=nothere"))
    with pytest.raises(PluginError, match=SHOWN["run-id-without-a-tracking"]):
        MlflowSink(dataclasses.replace(context, argument=f"run={run}"))


@pytest.mark.parametrize("age", [0.0, 3600.0])
@pytest.mark.parametrize("content", ["", "artifact_uri: file:///a\nend_time: nu"])
def test_run_that_mlflow_was_killed_while_creating_keeps_no_result_back(
    tmp_path: Path, content: str, age: float
) -> None:
    store = make_store(tmp_path)
    context = SinkContext(store=store, argument=str(tmp_path / "ml"), name="x", suites=())
    MlflowSink(context).close()
    (experiment,) = {file.parent for file in (tmp_path / "ml").glob("*/meta.yaml") if file.parent.name != "0"}
    file = experiment / "0123/meta.yaml"
    file.parent.mkdir()
    file.write_text(content)
    os.utime(file, (time.time() - age,) * 2)
    deliver(context, deliveries_of(store))
    assert [*experiment.glob("*/metrics/**/loss")]
    assert file.exists() == (age == 0.0), "another process may be creating it"
    if age:
        assert logged(tmp_path / "ml"), "MLflow reads the experiment again"


def test_numbers_and_hostile_names_read_back(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path, with_last=True)
    deliveries = deliveries_of(store)
    deliver(SinkContext(store=store, argument=str(tmp_path / "ml"), name="it's", suites=(str(suite),)), deliveries)
    found = {(metric, step): value for _, metric, step, value in logged(tmp_path / "ml")}
    for event in (delivery.event for delivery in deliveries if isinstance(delivery.event, CheckpointFinished)):
        for number in numbers_of(event, [str(suite)]):
            if number.case != NASTY:
                value = found[number.key, event.checkpoint.outer_step]
                assert value == number.value or (math.isnan(value) and math.isnan(number.value))
    nasty = {name for name, _ in found if "script" in name and name.endswith("test/loss")}
    assert len(nasty) == 1 and NASTY not in nasty.pop()


def test_what_the_sink_logged_is_imported_as_it_was(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path, with_last=True)
    deliver(SinkContext(store=store, argument=str(tmp_path / "ml"), suites=(str(suite),)), deliveries_of(store))
    target = tmp_path / "imported"
    lobench("import", tmp_path / "ml", "--metric", "score", "--maximize", "score", "--case", "outer", "--store", target)
    printed = lobench("results", "--store", target, "--format", "json", "--curves").stdout
    (row,) = json.loads(printed)
    scores = sorted((step, value) for _, name, step, value in logged(tmp_path / "ml") if name == "score")
    assert len(scores) == 4
    assert row["eval_steps"] == [step for step, _ in scores]
    assert row["curves"]["score"] == [pytest.approx([value for _, value in scores])]


def test_two_stores_share_a_folder(tmp_path: Path) -> None:
    for name, argument in (("one", str(tmp_path / "ml")), ("two", (tmp_path / "ml").as_uri())):
        deliver(SinkContext(store=tmp_path / name, argument=argument, name="quick"), sample_deliveries(1))
    found = logged(tmp_path / "ml")
    assert {run for run, *_ in found} == {SHOWN["one-generation-1"], SHOWN["two-generation-1"]}
    assert set(Counter(found).values()) == {1}


KILLED = """
import os, signal, sys
from pathlib import Path
from lobench_mlflow.sink import MlflowSink
from lobench.hookspecs import SinkContext
from lobench.testing.sinks import sample_deliveries
from mlflow.store.tracking import file_store
def run(store, place):
    append, left = file_store.append_to, [place]
    def dying(path, line):
        left[0] -= 1
        if left[0] == 0:
            append(path, line[:len(line) // 2])  # what a full disk leaves of it
            os.kill(os.getpid(), signal.SIGKILL)
        append(path, line)
    file_store.append_to = dying
    MlflowSink(SinkContext(store=store)).deliver(sample_deliveries(2))
root = Path(sys.argv[1])
for place in map(int, sys.argv[2:]):
    child = os.fork()
    if child == 0:
        run(root / f"at_{place}" / "store", place)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, place
"""


def test_killed_at_any_line_each_is_there_once(tmp_path: Path) -> None:
    deliver(SinkContext(store=tmp_path / "whole" / "store"), sample_deliveries(2))
    expected = Counter(map(repr, logged(tmp_path / "whole" / "store" / "mlruns")))
    places = ["1", "2", "9", "20", str(expected.total())]
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), *places], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for place in places:
        store = tmp_path / f"at_{place}" / "store"
        deliver(SinkContext(store=store), sample_deliveries(2))
        assert Counter(map(repr, logged(store / "mlruns"))) == expected, place


def test_a_run_that_a_kill_left_half_made_is_completed(tmp_path: Path) -> None:
    deliver(SinkContext(store=tmp_path / "store"), sample_deliveries(1)[:1])
    (folder,) = (path.parent for path in (tmp_path / "store" / "mlruns").glob("*/*/metrics"))
    for file in (path for name in ("metrics", "tags") for path in (folder / name).rglob("*") if path.is_file()):
        file.unlink()
    deliver(SinkContext(store=tmp_path / "store"), sample_deliveries(1))
    assert len(list((tmp_path / "store" / "mlruns").glob("*/*/metrics"))) == 1


def test_an_experiment_that_is_made_anew_gets_everything_again(tmp_path: Path) -> None:
    context = SinkContext(store=tmp_path / "store", argument=str(tmp_path / "ml"))

    def destination() -> str:
        with contextlib.closing(MlflowSink(context)) as sink:
            return sink.destination

    first = destination()
    assert destination() == first
    (tmp_path / "ml" / first.split()[0]).rename(tmp_path / "gone")
    assert destination() != first


def test_nobody_is_phoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: tried.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **_: tried.append(address))
    with contextlib.closing(MlflowSink(SinkContext(store=tmp_path))) as sink:
        sink.deliver(sample_deliveries(1))
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert tried == []


def test_two_sinks_at_once_leave_nothing_behind_whoever_is_closed_first(tmp_path: Path) -> None:
    before = dict(os.environ)
    first, second = (MlflowSink(SinkContext(store=tmp_path / name)) for name in ("first", "second"))
    first.close()
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true", "the other one is still told"
    second.close()
    assert dict(os.environ) == before


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PluginError, match=SHOWN["sink-mlflow-cannot-be-written"]) as caught:
        MlflowSink(SinkContext(store=tmp_path, argument=str(tmp_path / "file")))
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(PluginError, match=SHOWN["mlflow-is-not-installed-pip"]):
        MlflowSink(SinkContext(store=tmp_path))

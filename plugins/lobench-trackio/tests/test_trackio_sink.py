"""The sink against trackio's own reader, with real kills."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from commands import lobench
from lobench_trackio.sink import TrackioSink
from report_store import NASTY, deliveries_of, make_baseline, make_store
from shown import texts_of

from lobench.extend import PluginError, numbers_of
from lobench.hookspecs import SinkContext
from lobench.testing.sinks import SinkContract, sample_deliveries

SHOWN = texts_of("trackio")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")

Logged = tuple[str, str, int, float]  # run, key, outer step, value


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of trackio's for this test, in this process and in those that it starts."""
    from trackio import sqlite_storage, utils

    folder = tmp_path / "of_trackio"
    monkeypatch.setenv("TRACKIO_DIR", str(folder))
    monkeypatch.setattr(utils, "TRACKIO_DIR", folder)
    monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", folder)
    return folder


def logged(project: str) -> list[Logged]:
    """Every number that trackio reads in a project, each as often as it is there."""
    from trackio.sqlite_storage import SQLiteStorage

    return [
        (str(run["name"]), key, row["step"], float(row[key]))
        for run in SQLiteStorage.get_run_records(project)
        for row in SQLiteStorage.get_logs(project, run_id=str(run["id"]))
        for key in row
        if key not in ("step", "timestamp")
    ]


def deliver(context: SinkContext, deliveries: list) -> None:
    sink = TrackioSink(context)
    sink.deliver(deliveries)
    sink.close()


class TestContract(SinkContract):
    factory = "lobench_trackio.sink:TrackioSink"
    argument = "contract"

    def contents(self, store: Path) -> list[Logged]:
        """The numbers of a store's runs, since several stores of a test share a project."""
        own = [one for one in logged("contract") if re.split("[/ ]", one[0])[0] == store.name]
        return [(run.removeprefix(store.name), *rest) for run, *rest in own]

    def value_of(
        self, store: Path, run: str, generation: int, step: int, suite: str, case: str, metric: str
    ) -> float | None:
        label = "/".join(filter(None, (store.name, run))) + (f" generation {generation}" if generation else "")
        place = (label, f"{suite}/{case}/{metric}", step)
        return next((value for *found, value in logged("contract") if tuple(found) == place), None)


def test_results_go_into_the_run_of_a_trainer_and_are_imported(tmp_path: Path, folder: Path) -> None:
    import trackio

    store, suite = make_store(tmp_path), make_baseline(tmp_path, with_last=True)
    trainer = trackio.init(project="learning", name="mine", config={"seed": 3}, embed=False)
    for step in (0, 10_000):
        trainer.log({"train/loss": 1.0 + step}, step=step)
    trainer.finish()
    deliveries = deliveries_of(store)
    context = SinkContext(store=store, argument="learning,run=mine", suites=(str(suite),))
    for part in (deliveries[:7], deliveries, deliveries):
        deliver(context, part)
    found = {one[:3]: one[3] for one in logged("learning")}
    assert len(found) == len(logged("learning")), "each number is there once"
    assert {run for run, *_ in found} == {"mine"} and found["mine", "train/loss", 10_000] == 10_001.0
    expected = {
        ("mine", key, delivery.event.checkpoint.outer_step): value
        for delivery in deliveries
        for number in numbers_of(delivery.event, [str(suite)])
        for key, value in number.values()
    }
    trained = {("mine", "train/loss", 0): 1.0, ("mine", "train/loss", 10_000): 10_001.0}
    assert repr(sorted(found.items())) == repr(sorted((expected | trained).items()))
    assert any(NASTY in key for _, key, _ in found)

    others = sample_deliveries(1, run="other")
    with pytest.raises(PluginError, match=SHOWN["run-mine-has-the-results"]):
        TrackioSink(context).deliver(others)
    with pytest.raises(PluginError, match=SHOWN["project-learning-has-no-run"]):
        TrackioSink(SinkContext(store=store, argument="learning,run=yours"))

    target = tmp_path / "imported"
    lobench(
        "import", folder / "learning.db", "--metric", "score", "--maximize", "score", "--case", "x", "--store", target
    )
    (row,) = json.loads(lobench("results", "--store", target, "--format", "json", "--curves").stdout)
    scores = sorted((step, value) for (_, key, step), value in found.items() if key == "score")
    assert row["eval_steps"] == [step for step, _ in scores] and len(scores) == 4
    assert row["curves"]["score"] == [pytest.approx([value for _, value in scores])]


def test_database_that_was_removed_is_filled_again(tmp_path: Path, folder: Path) -> None:
    context = SinkContext(store=tmp_path, argument="p")
    before = TrackioSink(context).destination
    assert TrackioSink(context).destination == before
    (folder / "p.db").unlink()
    assert TrackioSink(context).destination != before


def test_projects_and_folders_that_trackio_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PluginError, match=SHOWN["cannot-be-written-got-project"]) as caught:
        TrackioSink(SinkContext(store=tmp_path, argument="a_configs"))
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
    with pytest.raises(PluginError, match=SHOWN["no-database-on-a-network"]):
        TrackioSink(SinkContext(store=tmp_path))
    monkeypatch.setitem(sys.modules, "trackio.sqlite_storage", None)
    with pytest.raises(PluginError, match=SHOWN["trackio-is-not-installed-pip"]):
        TrackioSink(SinkContext(store=tmp_path))

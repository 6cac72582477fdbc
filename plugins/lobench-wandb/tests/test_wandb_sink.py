"""The sink against W&B's own process and reader, with real kills. Nothing leaves the machine."""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from lobench_wandb.sink import WandbSink
from lobench_wandb.wandb_settings import checked_mode, checked_project
from report_store import NASTY, deliveries_of, make_baseline, make_store
from shown import texts_of

from lobench.extend import PluginError, numbers_of, wandb_rows
from lobench.hookspecs import CheckpointFinished, SinkContext
from lobench.testing.sinks import SinkContract, sample_deliveries

SHOWN = texts_of("wandb")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")

Logged = tuple[str, str, int, float]  # run, key, outer step, value


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no_netrc"))


def records(file: Path) -> list[dict]:
    """What `wandb leet inspect --json FILE` prints, without the second that its command line takes to start."""
    from wandb.util import get_core_path

    folder = str(file.parent.parent)
    command = [get_core_path(), "leet", "inspect", "--no-observability", "--json", "--run-file", str(file), folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]


def logged(store: Path) -> list[Logged]:
    """Every number that W&B's reader finds in the files of a store's runs."""
    found: list[Logged] = []
    for file in sorted((store / "wandb").glob("*-run-*/run-*.wandb")):
        read = records(file)
        run = next(one["run"]["display_name"] for one in read if one["type"] == "run")
        for item in (one["history"]["item"] for one in read if one["type"] == "history"):
            own = {key: value for key, value in item.items() if key[0] != "_" and key != "outer_step"}
            found += [(run, key, item["outer_step"], float(value)) for key, value in own.items()]
    return found


def deliver(context: SinkContext, deliveries: list) -> None:
    sink = WandbSink(context)
    sink.deliver(deliveries)
    sink.close()


class TestContract(SinkContract):
    factory = "lobench_wandb.sink:WandbSink"
    argument = "project"

    def contents(self, store: Path) -> list[Logged]:
        return [(run.removeprefix(store.name), *rest) for run, *rest in logged(store)]

    def value_of(
        self, store: Path, run: str, generation: int, step: int, suite: str, case: str, metric: str
    ) -> float | None:
        label = "/".join(filter(None, (store.name, run))) + (f" generation {generation}" if generation else "")
        files = tuple((str(file), file.stat().st_size) for file in (store / "wandb").glob("*-run-*/run-*.wandb"))
        return _values(store, files).get((label, f"{suite}/{case}/{metric}", step))


@functools.cache
def _values(store: Path, files: tuple[tuple[str, int], ...]) -> dict[tuple[str, str, int], float]:
    """Reads all numbers of a store; once for the same files, since W&B's reader is a program."""
    return {one[:3]: one[3] for one in logged(store)}


def test_numbers_read_back_and_steps_do_not_fall(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path, with_last=True)
    deliveries = deliveries_of(store)
    context = SinkContext(store=store, argument="team/learned optimizers", suites=(str(suite),))
    deliver(context, deliveries[:7])
    deliver(context, deliveries)
    found = {(key, step): value for _, key, step, value in logged(store)}
    for event in (delivery.event for delivery in deliveries if isinstance(delivery.event, CheckpointFinished)):
        for number in numbers_of(event, [str(suite)]):
            value = found[number.key, event.checkpoint.outer_step]
            assert value == number.value or (math.isnan(value) and math.isnan(number.value))
    assert (f"digits/{NASTY}/train/loss", 3) in found
    files = sorted((store / "wandb").glob("*-run-*/run-*.wandb"))
    assert len(files) == 2 and len({file.name for file in files}) == 1
    steps = [row["_step"] for file in files for row, _ in wandb_rows(file)]
    assert steps == list(range(len(steps)))
    described = next(record["run"] for record in records(files[0]) if record["type"] == "run")
    assert (described["entity"], described["project"]) == ("team", "learned optimizers")


def test_outer_step_is_the_axis_of_all(tmp_path: Path) -> None:
    deliver(SinkContext(store=tmp_path, argument="p"), sample_deliveries(1))
    (file,) = (tmp_path / "wandb").glob("*-run-*/run-*.wandb")
    metrics = [record["metric"] for record in records(file) if record["type"] == "metric"]
    assert ("*", "outer_step") in {(metric.get("glob_name"), metric.get("step_metric")) for metric in metrics}


TRAINER = """
import sys
import wandb
silent = wandb.Settings(silent=True)
run = wandb.init(project="training", id="abc", name="mine", mode="offline", dir=sys.argv[1], settings=silent)
for step in range(300):
    run.log({"train/loss": 1 / (step + 1), "outer_step": -step})
print(flush=True)
input()  # the evaluations arrive
run.log({"train/loss": 0.0, "outer_step": -300})
run.finish()
"""


def test_results_go_into_the_run_of_a_trainer_that_is_far_ahead(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    deliveries = deliveries_of(store)
    command = [sys.executable, "-c", TRAINER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline()
        for part in (deliveries[:7], deliveries):
            deliver(SinkContext(store=store, argument="training,run=abc"), part)
        trainer.communicate("go on\n")
    (trained,) = (tmp_path / "wandb").glob("offline-run-*-abc/run-abc.wandb")
    assert len(list(wandb_rows(trained))) == 301, "the trainer goes on in its own file"
    files = sorted((store / "wandb").glob("offline-run-*-abc-*/run-abc.wandb"))
    runs = [record["run"] for file in files for record in records(file) if record["type"] == "run"]
    assert [(run["run_id"], run["project"], run.get("display_name", "")) for run in runs] == [
        ("abc", "training", "")
    ] * 2
    rows = [row for file in files for row, _ in wandb_rows(file)]
    axis = "lobench/outer_step"
    found = [(key, int(row[axis]), row[key]) for row in rows for key in row if key[0] != "_" and key != axis]
    expected = {
        (key, event.checkpoint.outer_step): value
        for event in (delivery.event for delivery in deliveries)
        for number in numbers_of(event)
        for key, value in number.values()
    }
    assert Counter(one[:2] for one in found) == Counter(expected.keys())
    assert all(value == expected[key, step] or math.isnan(value) for key, step, value in found)
    metrics = [record["metric"] for record in records(files[-1]) if record["type"] == "metric"]
    defined = {metric["name"]: metric.get("step_metric") for metric in metrics if metric.get("name")}
    assert set(defined) == {axis, *(key for row in wandb_rows(files[-1]) for key in row[0] if key[0] != "_")}
    assert {step for name, step in defined.items() if name != axis} == {axis}
    assert not any(metric.get("glob_name") for metric in metrics), "the trainer's own metrics keep their axis"


def test_run_of_a_trainer_takes_the_results_of_one_training(tmp_path: Path) -> None:
    context = SinkContext(store=tmp_path, argument="run=abc")
    deliver(context, sample_deliveries(1))
    with pytest.raises(PluginError, match=SHOWN["run-abc-has-the-results"]):
        WandbSink(context).deliver(sample_deliveries(1, run="other"))
    with pytest.raises(PluginError, match=SHOWN["no-id-of-a-w"]):
        WandbSink(SinkContext(store=tmp_path, argument="p,run=a/b"))


def test_a_file_that_was_cut_off_is_completed_in_another(tmp_path: Path) -> None:
    deliver(SinkContext(store=tmp_path / "whole"), sample_deliveries(2))
    expected = Counter(map(repr, [rest for _, *rest in logged(tmp_path / "whole")]))
    deliver(SinkContext(store=tmp_path / "cut"), sample_deliveries(2))
    for file in (tmp_path / "cut" / "wandb").glob("*-run-*/run-*.wandb"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    deliver(SinkContext(store=tmp_path / "cut"), sample_deliveries(2))
    assert Counter(map(repr, [rest for _, *rest in logged(tmp_path / "cut")])) == expected


def test_a_folder_that_was_removed_is_filled_by_a_run_of_its_own(tmp_path: Path) -> None:
    sink = WandbSink(SinkContext(store=tmp_path / "one"))
    assert sink.destination == WandbSink(SinkContext(store=tmp_path / "one")).destination
    assert sink.destination != WandbSink(SinkContext(store=tmp_path / "two")).destination


PHONED = """
import socket, sys
from pathlib import Path
real, tried = socket.socket.connect, []
def connect(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "localhost", "::1"):
        tried.append(address)
    return real(self, address)
socket.socket.connect = connect
from lobench_wandb.sink import WandbSink
from lobench.hookspecs import SinkContext
from lobench.testing.sinks import sample_deliveries
sink = WandbSink(SinkContext(store=Path(sys.argv[1])))
sink.deliver(sample_deliveries(1))
sink.close()
import wandb
wandb.teardown()
print(tried)
"""


def test_nobody_is_phoned(tmp_path: Path) -> None:
    """Python's own connections are looked at; W&B's other process would come through the proxy that it is told of."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        came: list[object] = []

        def listen() -> None:
            try:
                while True:
                    came.append(proxy.accept())
            except OSError:  # closed
                return

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY")
        kept = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
        environment = {**kept, **dict.fromkeys(names, address), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", PHONED, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
        assert done.stdout == "[]\n", done.stdout + done.stderr
        assert not came
    assert logged(tmp_path)


def test_a_mode_that_cannot_be_is_said_in_a_line(tmp_path: Path) -> None:
    assert [checked_mode({}), checked_mode({"WANDB_MODE": "offline"})] == ["offline", "offline"]
    assert checked_mode({"WANDB_MODE": "online", "WANDB_API_KEY": "k" * 40}) == "online"
    with pytest.raises(PluginError, match=SHOWN["wandb-mode-online-without-a"]):
        checked_mode({"WANDB_MODE": "online"})
    with pytest.raises(PluginError, match=SHOWN["wandb-mode-got-disabled-expected"]):
        checked_mode({"WANDB_MODE": "disabled"})


def test_names_that_wandb_takes_for_no_project(tmp_path: Path) -> None:
    assert checked_project("team/quick") == ("team", "quick")
    for name in ("a:b", "a?", "x" * 129, "team/", "new\nline"):
        with pytest.raises(PluginError, match=SHOWN["no-name-of-a-w"]) as caught:
            checked_project(name)
        assert "\n" not in str(caught.value)


def test_a_folder_or_package_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").write_text("in the way")
    with pytest.raises(PluginError, match=SHOWN["sink-wandb-cannot-be-written"]):
        _ = WandbSink(SinkContext(store=tmp_path)).destination
    monkeypatch.setitem(sys.modules, "wandb.sdk.lib", None)
    with pytest.raises(PluginError, match=SHOWN["wandb-is-not-installed-pip"]):
        WandbSink(SinkContext(store=tmp_path))


KILLED = """
import os, signal, sys
from pathlib import Path
import lobench_wandb.sink as module
from lobench.hookspecs import SinkContext
from lobench.testing.sinks import sample_deliveries
module._Run._wait_for_rows = lambda self, count: os.kill(os.getpid(), signal.SIGKILL)
module.WandbSink(SinkContext(store=Path(sys.argv[1]))).deliver(sample_deliveries(2)[:-3])
"""


def test_killed_while_wandbs_process_still_writes(tmp_path: Path) -> None:
    """That process outlives the kill and writes what it was given: whoever opens the run waits for its end."""
    deliver(SinkContext(store=tmp_path / "whole"), sample_deliveries(2))
    expected = Counter(map(repr, [rest for _, *rest in logged(tmp_path / "whole")]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    assert subprocess.run(command, env=environment, timeout=120).returncode == -signal.SIGKILL
    deliver(SinkContext(store=tmp_path / "killed"), sample_deliveries(2))
    assert Counter(map(repr, [rest for _, *rest in logged(tmp_path / "killed")])) == expected

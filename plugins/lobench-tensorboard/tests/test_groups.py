"""What TensorBoard makes of the tags: the order of its groups, and the layout of its tab Custom Scalars."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest
from lobench_tensorboard.sink import EventFile, TensorBoardSink, written_scalars
from report_store import deliveries_of, make_baseline, make_store
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin

from lobench.hookspecs import CheckpointFinished, Delivery, SinkContext


def delivered(folder: Path) -> tuple[Path, list[Delivery], SinkContext]:
    store, suite = make_store(folder), make_baseline(folder, with_last=True)
    return store, deliveries_of(store), SinkContext(store=store, argument=str(folder / "logs"), suites=(str(suite),))


def deliver(context: SinkContext, deliveries: list[Delivery]) -> None:
    sink = TensorBoardSink(context)
    sink.deliver(deliveries)
    sink.close()


def layout(folder: Path) -> dict[str, list[dict]]:
    """Returns the series of each category, as TensorBoard's own plugin gives them to the page."""
    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(folder))
    plugin = CustomScalarsPlugin(TBContext(logdir=str(folder), data_provider=provider, plugin_name_to_instance={}))

    found = json.loads(plugin.layout_impl(RequestContext(), "experiment"))
    return {one["title"]: [chart["margin"]["series"][0] for chart in one["chart"]] for one in found["category"]}


def test_the_score_comes_first_and_trouble_after_the_suites(tmp_path: Path) -> None:
    _, deliveries, context = delivered(tmp_path)
    deliver(context, deliveries)
    tags = sorted({tag for tag, _ in written_scalars(tmp_path / "logs")})  # TensorBoard's order: figures, then letters
    assert tags[0] == "0_headline/score"
    groups = list(dict.fromkeys(tag.partition("/")[0] for tag in tags if "/" in tag))
    assert groups == ["0_headline", "digits", "zz_diagnostics", "zz_intervals"]


def test_one_layout_draws_every_interval_around_its_value(tmp_path: Path) -> None:
    _, deliveries, context = delivered(tmp_path)
    deliver(context, deliveries)
    found = layout(tmp_path / "logs")
    assert list(found) == ["Scores", "digits"]
    (score,) = found["Scores"]
    assert score == {
        "value": "0_headline/score",
        "lower": "zz_intervals/score_lower",
        "upper": "zz_intervals/score_upper",
    }
    written = {tag for tag, _ in written_scalars(tmp_path / "logs")}
    assert len(found["digits"]) == 6  # score and primary metric of three cases
    assert {tag for series in found.values() for one in series for tag in one.values()} <= written


@pytest.mark.parametrize("number", [3, 9, 99])
def test_a_layout_that_grows_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Without baselines at first: the scores come to the layout with the first checkpoint that has them."""
    # Both files are of one second, and the second one's number may sort before the first one's.
    monkeypatch.setattr("lobench_tensorboard.sink._FILE_NUMBERS", itertools.count(number))
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    _, deliveries, context = delivered(tmp_path)
    end = next(index for index, delivery in enumerate(deliveries) if isinstance(delivery.event, CheckpointFinished)) + 1
    deliver(SinkContext(store=context.store, argument=context.argument), deliveries[:end])
    assert list(layout(tmp_path / "logs")) == ["digits"]
    deliver(context, deliveries[end:])
    assert list(layout(tmp_path / "logs")) == ["Scores", "digits"]
    assert len(layout(tmp_path / "logs")["digits"]) == 6
    steps = [step for tag, step in written_scalars(tmp_path / "logs") if tag.startswith("custom_scalars")]
    assert len(steps) == 2


def test_a_folder_of_an_earlier_version_is_gone_on_with(tmp_path: Path) -> None:
    _, deliveries, context = delivered(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "lobench.id").write_text("abc")
    old = EventFile(logs)
    for tag in ("digits/mean/train/loss", "digits/case1/train/loss", "digits/diverged"):
        old.add([Summary.Value(tag=tag, simple_value=0.5)], 0)
    old.flush()
    old.close()
    # Its place in the ledger goes with the id: with another one everything comes again, and what is there stays.
    assert TensorBoardSink(context).destination not in ("", "abc")
    deliver(context, deliveries)
    found = list(written_scalars(logs))
    assert len(found) == len(set(found))
    of_case = [step for tag, step in found if tag == "digits/case1/train/loss"]
    assert sorted(of_case) == [0, 1, 2, 3]
    assert sorted(step for tag, step in found if tag == "0_headline/score") == [0, 1, 2, 3]
    assert [step for tag, step in found if tag == "digits/mean/train/loss"] == [0]


@pytest.mark.parametrize("name", ["digits", "0_headline", "zz_diagnostics"])
def test_no_two_numbers_have_one_tag(tmp_path: Path, name: str) -> None:
    from lobench_tensorboard.scalars import scalars_of

    from lobench.extend import Group, Number

    numbers = [
        Number(group=Group.HEADLINE, name="score", value=1.0),
        Number(group=Group.HEADLINE, name="score", suite=name, value=1.0),
        Number(group=Group.CASES, name="score", suite=name, case="score", value=1.0),
        Number(group=Group.DIAGNOSTICS, name="diverged", suite=name, value=1.0),
        Number(group=Group.DIAGNOSTICS, name="diverged", suite=name, case="diverged", value=1.0),
    ]
    tags = [tag for tag, _ in scalars_of(numbers)]
    assert len(set(tags)) == len(tags)

"""A mean with its interval is one number wherever it is shown, of any store: to the last digit that is printed."""

from __future__ import annotations

import io
import math
import re
import tempfile
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lobench_tensorboard.sink import TensorBoardSink
from report_store import deliveries_of
from stores import add
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lobench.analysis.comparisons.event_numbers import Group, numbers_of
from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.comparisons.viewer_index import ViewerIndex
from lobench.analysis.tables.notebook import html_of_results
from lobench.analysis.tables.table import TableSpec
from lobench.analysis.tables.tabulate import tabulate
from lobench.cli.command_records import verdict_record
from lobench.core.wording import significant_text
from lobench.hookspecs import EvaluationFinished, SinkContext
from lobench.report.live.methods import MethodCounts, PlainMethods
from lobench.report.page.page import render_page
from lobench.report.tables.latex import latex_table
from lobench.report.tables.method_table import method_records, method_text
from lobench.report.tables.verdict import score_text

Store = dict[str, dict[str, dict[str, list[float]]]]  # by method, case and metric
METRICS = ("train/loss", "test/accuracy", "test/success")


def cells() -> st.SearchStrategy[dict[str, list[float]]]:
    """Final values of a method on a case, four seeds: losses of both signs, rounded or not; shares; trials."""
    loss = st.one_of(st.floats(1e-6, 50.0), st.sampled_from([0.25, 0.5, -0.5]), st.just(math.nan))
    share = st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 1.0, 0.97]))
    strategies = {"train/loss": loss, "test/accuracy": share, "test/success": st.sampled_from([0.0, 1.0])}
    return st.fixed_dictionaries({name: st.lists(one, min_size=4, max_size=4) for name, one in strategies.items()})


STORES = st.dictionaries(
    st.sampled_from(["adam", "sgd", "lion"]),
    st.dictionaries(st.sampled_from(["a", "b"]), cells(), min_size=1),
    min_size=2,
)


@settings(max_examples=20)
@given(STORES)
def test_every_place_that_shows_an_interval_shows_the_same_one(
    store: dict[str, dict[str, dict[str, list[float]]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        for method, found in store.items():
            add(place, 0, found, optimizer=method, directions=dict.fromkeys(METRICS[1:], "max"))
        summary = summary_of(place, [])
        check_values(summary, place)
        check_scores(summary)
        check_live_lines(summary)
        check_event_files(place)


def check_values(summary: Summary, place: Path) -> None:
    """Seed means on a case: JSON, text, LaTeX and notebook of the table, TensorBoard, the page's explorer."""
    spec = TableSpec(metrics=METRICS)
    table = tabulate(summary, spec)
    cells = {(one["metric"].removeprefix("s, "), one["method"], one["case"]): one for one in method_records(table)}
    written = {
        (number.name, event.subject.label, number.case): (number.value, number.lower, number.upper)
        for delivery in deliveries_of(place)
        if isinstance(event := delivery.event, EvaluationFinished)
        for number in numbers_of(event)
        if number.group is Group.CASES
    }
    viewer_index = ViewerIndex(summary)
    latex, text = latex_table(summary, spec), method_text(table)
    for (metric, method, case), cell in cells.items():
        if case not in ("a", "b"):
            continue
        own = [math.nan if cell[key] is None else cell[key] for key in ("mean", "lower", "upper")]
        assert own == pytest.approx(written[metric, method, case], rel=1e-6, nan_ok=True), (metric, method, case)
        places = summary.snapshot.labels.index(method), [info.name for info in summary.snapshot.cases].index(case)
        assert own == pytest.approx(viewer_index.finals[metric][places].tolist(), rel=1e-6, nan_ok=True)
        if cell["diverged"]:
            continue
        printed = [significant_text(value, 3) for value in own]
        assert f"[{printed[1]}, {printed[2]}]" in text
        assert " ".join(f"{float(number):.3g}" for number in printed) in flat(latex)


def check_scores(summary: Summary) -> None:
    """Mean scores: the table, the verdict's record, the page, the notebook."""
    table = tabulate(summary)
    shown = {one["method"]: one for one in method_records(table) if one["case"].startswith("mean score")}
    page, notebook = render_page(summary), html_of_results(summary.snapshot, "")
    for one in verdict_record(summary, [])["subjects"]:
        found = one["scores"]["train/loss"]
        if math.isnan(found.mean):
            continue
        cell = shown[one["label"]]
        own = [math.nan if cell[key] is None else cell[key] for key in ("mean", "lower", "upper")]
        assert own == pytest.approx([found.mean, found.lower, found.upper], nan_ok=True)
        if not math.isnan(own[1]):
            printed = f"{own[0]:z.3f}", f"[{own[1]:z.3f}, {own[2]:z.3f}]"  # nothing prints -0.000
            assert all(part in notebook and part in page for part in printed), printed


def check_live_lines(summary: Summary) -> None:
    """What a run says of a method that is through: the number of the table, to the last digit."""
    output, labels = io.StringIO(), summary.snapshot.labels
    methods = MethodCounts(lambda subject: [subject.label], lambda rows: summary.snapshot)
    methods.plan({one.label: len(one.cells) for one in summary.snapshot.subjects}, summary.snapshot.rows)
    progress = PlainMethods(output, methods)
    for state in methods.states(refresh_scores=True):
        progress.report_state(state)
    for place, label in enumerate(labels):
        found = summary.mean_score(place, "primary")
        (line,) = (one for one in output.getvalue().splitlines() if one.startswith(f"{label}: "))
        assert (f", score {score_text(found)}" in line) if found.num_cases else "score" not in line, line


def check_event_files(place: Path) -> None:
    """TensorBoard's own reader finds every number of the events, with the bounds of those that have a chart."""
    context = SinkContext(store=place, name="test", suites=())
    sink, deliveries = TensorBoardSink(context), deliveries_of(place)
    sink.deliver(deliveries)
    sink.close()
    expected: dict[tuple[str, str], float] = {}
    for delivery in deliveries:
        for number in numbers_of(delivery.event):
            if number.group is Group.CASES:
                tag = f"{number.suite}/{number.case}/{number.name}"
                expected[delivery.run, tag] = number.value
                if number.has_chart:
                    expected[delivery.run, f"zz_intervals/{tag}_lower"] = number.lower
                    expected[delivery.run, f"zz_intervals/{tag}_upper"] = number.upper
    found: dict[tuple[str, str], float] = {}
    for folder in {file.parent for file in (place / "tensorboard").rglob("events.*")}:
        events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        events.Reload()
        for tag in events.Tags()["tensors"]:
            if tag.startswith(("s/", "zz_intervals/s/")):
                (one,) = events.Tensors(tag)
                found[unquote(folder.name), tag] = one.tensor_proto.float_val[0]
    assert found == pytest.approx(expected, rel=1e-6, nan_ok=True)


def flat(latex: str) -> str:
    """Returns the numbers of a table as they would be without LaTeX, in the shortest form."""
    bare = re.sub(r"\\(?:mathbf|,)|[{}$\[\],&]", " ", latex)
    bare = re.sub(r"(\S+) \\times 10\^\s*(-?\d+)", r"\1e\2", bare)
    return " ".join(f"{float(word):.3g}" if is_number(word) else word for word in bare.split())


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True

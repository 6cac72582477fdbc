"""The line of a finished checkpoint: the number that the other pages of the store show, and what moved."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from commands import lobench
from report_store import make_baseline, make_store
from shown import texts_of
from stores import add
from tiny import make_run, make_suite, watch

from lobench.core.result import Outcome
from lobench.engine.store.ledger import Ledger
from lobench.report.live.checkpoint_lines import CheckpointLines

SHOWN = texts_of("report")


def lines_of(store: Path, *suites: Path, only: slice = slice(None)) -> list[str]:
    """Returns what a watch says that finishes these checkpoints of a store, one after another."""
    output: list[str] = []
    with Ledger.open(store) as ledger:
        chosen = list(ledger.sightings().items())[only]
        for position, _ in chosen:
            ledger.reopen_checkpoint(position)
        lines = CheckpointLines(ledger.open_reader, list(map(str, suites)), lambda line, colour: output.append(line))
        for _, subject in chosen:
            lines.completed(subject, "")
        lines.close()
    return output


def test_the_last_lines_score_is_that_of_the_report(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path, with_last=True)
    output = lines_of(store, suite)
    assert len(output) == 5 and output.pop(0) == SHOWN["scores-0-is-untrained-1"]
    score = re.search(r"score (\S+ \[\S+, \S+\])", output[-1]).group(1)
    mean, bounds = score.split(" ", 1)
    report = lobench("report", "--store", store, "--baseline", suite, "--format", "text").stdout
    assert f"{mean} (95% {bounds}" in report
    assert output[-1].startswith(SHOWN["outer-step-3"])
    assert SHOWN["of-12-seeds-diverged-1"] in output[-1]


def test_what_many_looks_do_is_said_once_by_lines_and_by_the_page(tmp_path: Path) -> None:
    store = make_store(tmp_path, num_checkpoints=12)
    output = [line for line in lines_of(store, tmp_path) if "alarms falsely in 2 to 17 of 100 runs" in line]
    assert len(output) == 1 and output[0].startswith(SHOWN["checkpoints-the-best-of-many"])
    report = lobench("report", "--store", store, "--format", "text").stdout
    assert SHOWN["it-is-one-of-12"] in report


def test_the_change_is_to_the_best_before(tmp_path: Path) -> None:
    output = lines_of(make_store(tmp_path), make_baseline(tmp_path, with_last=True))[1:]
    assert SHOWN["the-best-so-far"] not in output[0]
    means = [float(re.search(r"score (-?[\d.]+)", line).group(1)) for line in output]
    for index, line in enumerate(output[1:], 1):
        change, where, step = re.search(r", ([\d.]+) (above|below) the best so far \(outer step (\d)\)", line).groups()
        best = max(means[:index])
        assert int(step) == means.index(best)
        assert abs(float(change) * (1 if where == "above" else -1) - (means[index] - best)) < 0.0021


@pytest.mark.parametrize("has_some", [False, True])
def test_without_a_baseline_a_line_says_losses_and_their_trend_on_the_scale_of_reports(
    has_some: bool, tmp_path: Path
) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path) if has_some else tmp_path
    output = lines_of(store, suite)
    lacking = f"no baseline{' for 1 of 3 cases' if has_some else ''}: "
    assert [lacking in line and SHOWN["lobench-baseline"] in line for line in output] == [True, False, False, False]
    assert all(re.match(SHOWN["outer-step-train-loss-na"], line) for line in output), output
    assert "; score" not in output[0]  # beside nothing
    # The last line's score is that of a report of the same store.
    score, bounds = re.search(r"; score (\S+) (\[\S+, \S+\])", output[-1]).groups()
    baseline = ["--baseline", suite] if has_some else []
    report = lobench("report", "--store", store, *baseline, "--format", "text", cwd=tmp_path).stdout
    assert f"{score} (95% {bounds}" in report
    found = re.search(r"(\S+) below the best so far \(outer step \d, now (\S+)\)  scores [▁-█x]{4}", output[-1])
    assert found is not None, output
    assert float(found[2]) - float(found[1]) == pytest.approx(float(score), abs=0.0011), "both are on today's scale"


def test_a_quiet_watch_says_a_line_a_checkpoint_and_no_more(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.0)
    done = watch(run, suite, "--once", "--quiet", "--checkpoints", "all", "--executor", "inline")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line for line in done.stdout.splitlines() if line.startswith("outer step")]
    assert [line.partition(":")[0] for line in steps] == [SHOWN["outer-step-1"], SHOWN["outer-step-2"]]
    assert done.stdout.count("tiny/a") == 1  # the list of the cases


def test_the_best_so_far_is_the_stores_at_a_restart_too(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path, with_last=True)
    first, last = lines_of(store, suite), lines_of(store, suite)
    assert first == last
    last = lines_of(make_store(tmp_path / "again"), suite, only=slice(3, 4))
    assert last[0].startswith(SHOWN["scores-0-is-untrained-1-tuned"])
    change = re.search(r"the best so far \(.*?\)", first[-1])
    assert change is not None and change[0] in last[1]


def test_scores_that_cannot_be_made_leave_a_line_that_says_why(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path)
    next(suite.rglob("*.json")).write_text("{")
    output = lines_of(store, suite)
    assert len(output) == 4 and all(SHOWN["no-score"] in line for line in output)


def test_best_so_far_is_no_checkpoint_that_lacks_a_seed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for step, loss in ((1, 0.4), (2, 0.1), (3, 0.3)):
        add(store, step, {"a": {"train/loss": [loss, 1.1 * loss]}})
    add(store, 2, {"a": Outcome.ERROR}, start=2)
    assert SHOWN["above-the-best-so-far-outer-step-1"] in lines_of(store, tmp_path)[-1]


@pytest.mark.parametrize("has_baseline", [False, True])
def test_best_so_far_is_no_checkpoint_with_former_bindings(has_baseline: bool, tmp_path: Path) -> None:
    store = make_store(tmp_path, former_steps=(0, 2))
    output = lines_of(store, make_baseline(tmp_path, with_last=True) if has_baseline else tmp_path)[-4:]
    best_steps = [re.findall(r"the best so far \(outer step (\d)", line) for line in output]
    assert best_steps == [[], [], [], ["1"]]
    assert re.search(r"scores [▁-█]{2}  ", output[-1]), output


def test_line_of_a_case_without_value_tells_divergence_from_no_result(tmp_path: Path) -> None:
    diverged = {"train/loss": [math.nan, math.nan]}
    add(tmp_path / "store", 1, {"a": {"train/loss": [0.5, 0.5]}, "b": diverged, "c": Outcome.POISONED})
    (line,) = lines_of(tmp_path / "store", tmp_path)
    assert SHOWN["a-0-5-b-diverged-c"] in line


def test_a_line_counts_exploded_seeds_beside_diverged_ones(tmp_path: Path) -> None:
    add(tmp_path / "store", 1, {"a": {"train/loss": [0.5, 90.0, math.nan, 0.6]}})
    output = lines_of(tmp_path / "store", tmp_path)
    assert SHOWN["case-1-of-4-seeds"] in output[-1], output

"""Cases whose values are of items of a data set, through a watch and what reads its store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import lobench
from scipy.stats import binomtest
from tiny import results

EVAL = """
import csv, json, pathlib, sys
checkpoint, out = map(pathlib.Path, sys.argv[1:])
answers = json.loads((checkpoint / "answers.json").read_text())
if answers is None: sys.exit("no such data")
with (out / "answers.csv").open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["item", "correct", "seconds"])
    writer.writerows([name, value, 1.5] for name, value in answers.items())
"""
GIN = """
Case.num_seeds = 4  # of other cases
qa/Case.command = "python eval.py {checkpoint} {out}"
qa/Case.curves = "{out}/answers.csv"
qa/Case.primary_metric = "correct"
qa/Case.metric_directions = {"correct": "max"}
qa/Case.replicates = "items"
"""


def write_run(folder: Path, checkpoints: list[dict[str, int] | None]) -> tuple[Path, Path]:
    suite, run = folder / "lm", folder / "run"
    suite.mkdir()
    (suite / "eval.py").write_text(EVAL)
    (suite / "lm.gin").write_text(GIN)
    for step, answers in enumerate(checkpoints):
        (run / f"checkpoint-{step}").mkdir(parents=True)
        (run / f"checkpoint-{step}/answers.json").write_text(json.dumps(answers))
        (run / f"checkpoint-{step}/trainer_state.json").write_text("{}")
    return suite, run


def answers(gains: int, losses: int, *, step: int, extra: str = "") -> dict[str, int]:
    """Returns 40 answers of which some differ between step 0 and step 1, and one further item."""
    found = {f"q{place}": int(place % 2) for place in range(40)}
    found |= {f"gain{place}": step for place in range(gains)} | {f"loss{place}": 1 - step for place in range(losses)}
    return found | ({extra: 1} if extra else {})


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("items")
    checkpoints = [answers(9, 1, step=0, extra="old"), answers(9, 1, step=1, extra="new"), None]
    suite, run = write_run(folder, checkpoints)
    how = ("--checkpoints", "all", "--once", "--executor", "inline")
    done = lobench("watch", run, "--suite", suite, "--store", folder / "store", *how)
    assert done.returncode == 3, done.stdout + done.stderr
    return folder / "store", run


def test_watch_stores_a_value_for_each_item(watched: tuple[Path, Path]) -> None:
    store, _ = watched
    by_step = {one["checkpoint"]["outer_step"]: one for one in results(store, "--curves")}
    found = by_step[1]
    assert found["seeds"] == []
    values = dict(zip(found["items"], (row[-1] for row in found["curves"]["correct"]), strict=True))
    assert values == answers(9, 1, step=1, extra="new")
    assert by_step[2]["outcome"] == "error" and "no such data" in by_step[2]["message"]


def test_compare_pairs_common_items_with_mcnemars_test(watched: tuple[Path, Path]) -> None:
    store, run = watched
    names = [str(run / f"checkpoint-{step}") for step in (0, 1)]
    done = lobench("compare", *names, "--store", store, "--format", "json")
    case = json.loads(done.stdout)[0]["metrics"]["correct"]["cases"]["lm/qa"]
    assert case["p_value"] == pytest.approx(binomtest(9, 10).pvalue) and case["method"] == "mcnemar"
    assert case["effect"] == "better"
    text = lobench("compare", *names, "--store", store).stdout
    assert "1 case x 50 items" in text and "50 common items of 51 and 51; McNemar's exact test" in text

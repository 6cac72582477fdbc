"""Cases whose values are of items of a data set, through a watch and what reads its store."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from commands import lobench, lobench_here
from scipy.stats import binomtest
from shown import texts_of
from tiny import results

from lobench import open_results
from lobench.core.errors import LobenchError
from lobench.pytest_plugin.tested import MetricRecorder
from lobench.report.tables.failures import curve_lines

SHOWN = texts_of("lobench")

REAL = {"a": 0.1, "b": 0.5, "c": 0.3}
EVAL = """
import csv, json, pathlib, sys
checkpoint, out = map(pathlib.Path, sys.argv[1:])
answers = json.loads((checkpoint / "answers.json").read_text())
if answers is None: sys.exit("no such data")
with (out / "answers.csv").open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["item", "correct", "seconds"])
    writer.writerows([name, value, 1.5] for name, value in answers.items())
(out / "one.json").write_text(json.dumps({"loss": 1.0 + len(answers)}))
"""
TEST = """
import json

def test_answers(checkpoint, record):
    for name, value in json.loads((checkpoint.path / "answers.json").read_text()).items():
        record("accuracy", value, item=name)
        record("seconds", 1.5, item=name)
"""
GIN = """
Case.num_seeds = 4  # of other cases
qa/Case.command = "python eval.py {checkpoint} {out}"
qa/Case.curves = "{out}/answers.csv"
qa/Case.primary_metric = "correct"
qa/Case.metric_directions = {"correct": "max"}
qa/Case.replicates = "items"
one/Case.command = "python eval.py {checkpoint} {out}"
one/Case.curves = "{out}/one.json"
one/Case.primary_metric = "loss"
one/Case.num_seeds = 1
"""


def write_run(folder: Path, checkpoints: list[dict[str, int] | None]) -> tuple[Path, Path]:
    suite, run = folder / "lm", folder / "run"
    suite.mkdir()
    (suite / "eval.py").write_text(EVAL)
    (suite / "lm.gin").write_text(GIN)
    (suite / "test_lm.py").write_text(TEST)
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
    found = {(one["checkpoint"]["outer_step"], one["primary_metric"]): one for one in results(store, "--curves")}
    for metric in ("correct", "accuracy"):  # of the command, and of the ordinary test
        one = found[1, metric]
        values = dict(zip(one["items"], (row[-1] for row in one["curves"][metric]), strict=True))
        assert values == answers(9, 1, step=1, extra="new") and one["seeds"] == []
    assert found[2, "correct"]["outcome"] == "error" and SHOWN["no-such-data"] in found[2, "correct"]["message"]


def test_compare_pairs_common_items_with_mcnemars_test(watched: tuple[Path, Path]) -> None:
    store, run = watched
    names = [str(run / f"checkpoint-{step}") for step in (0, 1)]
    done = lobench("compare", *names, "--store", store, "--format", "json")
    cases = json.loads(done.stdout)[0]["metrics"]["primary"]["cases"]
    for name in ("lm/qa", "lm/test_answers"):
        case = cases[name]
        assert case["p_value"] == pytest.approx(binomtest(9, 10).pvalue) and case["method"] == "mcnemar"
    text = lobench("compare", *names, "--store", store, "--case", "qa", "--case", "test_answers").stdout
    assert SHOWN["2-cases-x-50-items"] in text and SHOWN["common-items-of-51-and"] in text


def test_readers_of_the_store_count_items(watched: tuple[Path, Path], tmp_path: Path) -> None:
    store, run = watched
    said = lobench("results", "--store", store, "--evaluations").stdout
    assert "items" in said and SHOWN["of-2-seeds-and-0"] in said
    assert lobench("report", store, "--output", tmp_path / "page.html").returncode == 0
    assert '"accuracy"' in (tmp_path / "page.html").read_text()
    found = lobench("bisect", run, "--suite", run.parent / "lm", "--case", "qa", "--store", store)
    assert found.returncode in (0, 4) and "diverged" not in found.stdout.partition("scores:")[0], found.stdout
    assert SHOWN["no-fresh-seeds-of-lm"] in found.stderr
    assert SHOWN["cost-2-evaluations-of-50"] in found.stdout, found.stdout
    assert SHOWN["change-in-1-run"] in lobench("history", store, "--case", "qa", "--subject", "checkpoint-1").stdout
    appendix = lobench("report", "--store", store, "--format", "appendix").stdout
    assert re.search(SHOWN["lm-qa-items-of-a"], appendix), appendix
    found_rows = open_results(store)
    row = next(row for row in found_rows.rows if row.case.name == "qa" and row.curves is not None)
    assert re.search(SHOWN["by-item-01"], curve_lines(row.case, [row.curves])[0])
    assert {"q1", "new"} <= set(found_rows.frame()["seed"])


def test_imported_items_belong_to_an_evaluated_case(watched: tuple[Path, Path], tmp_path: Path) -> None:
    store, run = watched
    shutil.copytree(store, tmp_path / "store")
    rows = [{"item": name, "correct": value} for name, value in answers(9, 1, step=0).items()]
    (tmp_path / "theirs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = lobench("import", tmp_path / "theirs.jsonl", "--case", "qa", "--store", tmp_path / "store")
    assert made.returncode == 0 and SHOWN["case-qa-is-lm-qa"] in made.stdout + made.stderr, made.stderr
    names = ("theirs", str(run / "checkpoint-1"))
    done = lobench("compare", *names, "--store", tmp_path / "store", "--format", "json")
    (metric,) = json.loads(done.stdout)[0]["metrics"].values()
    assert metric["cases"]["lm/qa"]["p_value"] == pytest.approx(binomtest(9, 10).pvalue)


def test_checkpoints_without_a_common_item_say_so(tmp_path: Path) -> None:
    suite, run = write_run(
        tmp_path,
        [{"a": 1, "b": 0}, {"c": 1, "d": float("nan")}, REAL, {"a": 0.05, "b": 0.48, "c": 0.25}],
    )
    names = [run / f"checkpoint-{step}" for step in (0, 1)]
    done = lobench("compare", *names, "--suite", suite / "lm.gin", "--case", "qa", cwd=tmp_path)
    assert (
        done.returncode == 3 and SHOWN["no-common-item"] in done.stdout and SHOWN["no-item-has-results"] in done.stderr
    )
    assert SHOWN["of-2-items-diverged"] in done.stderr, done.stderr
    few = [run / f"checkpoint-{step}" for step in (2, 3)]
    details = lobench("compare", *few, "--suite", suite / "lm.gin", "--case", "qa", "--details", cwd=tmp_path).stdout
    assert re.search(SHOWN["items-would-decide-n-items"], details) and SHOWN["seeds-would-decide"] not in details
    counts = lobench("results", "--store", tmp_path / ".lobench/compare/lm", "--evaluations").stdout
    assert SHOWN["item-diverged-0-exploded"] in counts, counts
    ranking = lobench("results", "--store", tmp_path / ".lobench/compare/lm").stdout
    assert SHOWN["a-diverged-item-scores"] in ranking and "seed" not in ranking, ranking
    page = lobench("report", ".lobench/compare/lm", "--format", "text", cwd=tmp_path).stdout
    assert SHOWN["diverged-or-exploded-items"] in page and "seed" not in page, page
    assert SHOWN["time-of-all-evaluations"] in page and SHOWN["lobench-baseline"] not in page, page


def test_watch_of_some_cases_evaluates_these_and_a_later_one_the_others(tmp_path: Path) -> None:
    suite, run = write_run(tmp_path, [answers(1, 0, step=0)])
    words = ("watch", run, "--suite", suite, "--once", "--executor", "inline", "--store", tmp_path / "store")
    found = []
    for options in (("--case", "lm/qa", "--case", "test_lm.py::test_answers"), ()):
        assert lobench(*words, *options).returncode == 0
        found.append({one["case"]["name"] for one in results(tmp_path / "store")})
    assert found == [{"qa", "test_answers"}, {"qa", "one", "test_answers"}]


def test_bundle_of_items_has_no_contradiction(watched: tuple[Path, Path], tmp_path: Path) -> None:
    store, _ = watched
    assert lobench("publish", store, "--output", tmp_path / "x.lobench").returncode == 0
    told = json.loads(lobench("audit", tmp_path / "x.lobench", "--format", "json").stdout)
    assert told["contradictions"] == [] and SHOWN["commands-which-an-audit-does"] in told["not_auditable"]
    # A command that failed for its author is not said to fail here, too: it was not run.
    assert {one["verdict"] for one in told["checked"]} == {SHOWN["not-auditable"]}
    assert any(SHOWN["in-a-format-of-its"] in one for one in told["not_auditable"])


def test_recorder_refuses_a_value_that_belongs_to_no_item() -> None:
    record = MetricRecorder("test_qa.py::test_qa", (0,), has_items=True)
    record("correct", True, item=17)
    for arguments, message in (
        ({}, SHOWN["correct-has-no-item"]),
        ({"item": "17"}, SHOWN["recorded-twice-for-item-17"]),
    ):
        with pytest.raises(LobenchError, match=message):
            record("correct", 1, **arguments)
    with pytest.raises(LobenchError, match=SHOWN["item-of-correct-got-q1"]):
        MetricRecorder("test_qa.py::test_qa", (0,))("correct", 1, item="q1")


def test_two_single_values_have_no_verdict_and_the_reason(watched: tuple[Path, Path]) -> None:
    store, run = watched
    names = [str(run / f"checkpoint-{step}") for step in (0, 1)]
    done = lobench("compare", *names, "--store", store, "--case", "one")
    assert SHOWN["single-value-of-each-shows"] in done.stdout, done.stdout + done.stderr


def test_race_of_items_is_refused_and_leaves_them_out_beside_seeds(tmp_path: Path) -> None:
    suite, run = write_run(tmp_path, [answers(9, 1, step=0), answers(9, 1, step=1)])
    (suite / "test_lm.py").unlink()
    race = ("compare", run / "checkpoint-0", run / "checkpoint-1", "--suite", suite, "--race", "--seeds", "4")
    done = lobench_here(*race, "--store", tmp_path / "refused")
    assert done.returncode == 2 and SHOWN["a-race-needs-a-case"] in done.stderr, done.stderr
    (suite / "seeds.py").write_text(
        "import json, pathlib, sys; seed, step, out = sys.argv[1:4]; "
        "pathlib.Path(out, 'm.json').write_text(json.dumps({'loss': 1 + int(step) + int(seed) / 8}))"
    )
    (suite / "s.gin").write_text(
        's/Case.command = "python seeds.py {seed} {step} {out} {checkpoint}"\ns/Case.curves = "{out}/m.json"\n'
        's/Case.primary_metric = "loss"\n'
    )
    done = lobench_here(*race, "--store", tmp_path / "both")
    assert done.returncode == 0 and SHOWN["lm-qa-nor-of-lm-one"] in done.stderr, done.stdout + done.stderr


def test_bisect_of_items_without_any_result_is_one_line(tmp_path: Path) -> None:
    suite, run = write_run(tmp_path, [None, None])
    (run / "checkpoint-1/trainer_state.json").write_text('{"global_step": 1}')  # another checkpoint than the first
    done = lobench(
        "bisect", run, "--suite", suite, "--case", "qa", "--executor", "inline", "--store", tmp_path / "store"
    )
    assert done.returncode == 2 and SHOWN["no-such-data"] in done.stderr.splitlines()[-1], done.stdout + done.stderr

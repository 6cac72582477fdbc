"""`lobench results` on real stores."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gc
import io
import json
import math
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from commands import Done, lobench
from imported import curve, write_csv
from report_store import make_store
from shown import texts_of
from stores import add

from lobench import import_curves, open_results
from lobench.analysis.comparisons import listed_part
from lobench.analysis.comparisons.run_history import run_history
from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.tables import frames
from lobench.cli import results_output
from lobench.cli.results_output import csv_chunks, json_chunks
from lobench.core.program import PROGRAM_VERSION, Program
from lobench.core.result import Curves, Outcome
from lobench.core.step_cost import StepCost
from lobench.drawing.curves import sparkline
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.report.tables.ranking import MOST_ROWS

SHOWN = texts_of("results")


def run(*arguments: str | Path) -> Done:
    return lobench("results", *arguments)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    add(folder, 1, {"a": {"train/loss": [1.0, 0.5], "test/loss": [1.5, 1.25]}, "b": {"train/loss": [0.5, math.nan]}})
    add(folder, 2, {"a": {"train/loss": [0.25, 0.25], "test/loss": [1.75, 1.75]}, "b": Outcome.TIMEOUT}, revision="r2")
    return folder


def test_the_table_has_train_and_test_side_by_side_and_counts_what_diverged(store: Path) -> None:
    lines = run("--store", store, "--evaluations").stdout.splitlines()
    assert lines[0].split("  ")[0] == "case" and SHOWN["train-final-test-final"] in lines[0]
    assert [line.split()[:2] for line in lines[1:5]] == [["s/a", "1"], ["s/a", "2"], ["s/b", "1"], ["s/b", "2"]]
    assert "0.75" in lines[1] and "1.375" in lines[1]
    assert "nan" in lines[3] and lines[3].split()[7] == "1"
    assert "timeout" in lines[4] and lines[4].endswith(SHOWN["it-hung"])
    assert SHOWN["evaluations-of-2-checkpoints-3"] in lines[-1]


def test_sorting_puts_nan_last_and_a_pattern_picks_cases(store: Path) -> None:
    lines = run("--store", store, "--sort", "train").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["s/a", "2"], ["s/a", "1"]]
    assert len(run("--store", store, "--case", "s/a").stdout.splitlines()) == 5
    refused = run("--store", store, "--case", "zz*")
    assert refused.returncode == 2 and SHOWN["expected-one-of-s-a"] in refused.stderr


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_output_that_cannot_be_written_leaves_the_earlier_file(store: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"results.{kind}"
    path.write_bytes(b"before")
    # A file may have 1 KiB in this process, as on a disk that is full.
    done = subprocess.run(
        [sys.executable, "-m", "lobench.cli", "results", "--store", store, "--format", kind, "--output", path],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10)),
    )
    assert done.returncode == 2 and path.name in done.stderr, done.stderr
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]


def test_csv_and_parquet_hold_the_tidy_frame(store: Path, tmp_path: Path) -> None:
    expected = open_results(store).frame()
    frame = pd.read_csv(io.StringIO(run("--store", store, "--format", "csv").stdout), dtype={"sha256": str})
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)
    path = tmp_path / "results.parquet"
    assert run("--store", store, "--format", "parquet", "--output", path).returncode == 0
    pd.testing.assert_frame_equal(pd.read_parquet(path), expected, check_dtype=False)
    refused = run("--store", store, "--format", "parquet")
    assert refused.returncode == 2 and SHOWN["give-output-file"] in refused.stderr


def test_json_goes_to_a_file(store: Path, tmp_path: Path) -> None:
    run("--store", store, "--format", "json", "--curves", "--output", tmp_path / "r.json")
    found = json.loads((tmp_path / "r.json").read_text())
    assert len(found) == 4 and found[0]["curves"]["train/loss"][0] == [2.0, 1.5, 1.0]


def test_json_of_a_store_whose_last_row_is_damaged_is_an_error_alone(tmp_path: Path) -> None:
    for step in range(2):
        add(tmp_path, step, {"a": {"train/loss": [1.0]}})
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE evaluations SET payload = substr(payload, 1, 40) WHERE id = 2")
    done = run("--store", tmp_path, "--format", "json")
    assert done.returncode == 2 and json.loads(done.stdout)["schema"] == "lobench/error/1"


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_json_and_csv_are_written_row_by_row_and_no_row_is_kept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(10):
        add(tmp_path, step, {"a": {"train/loss": [1.0]}})
    read, counts = Ledger.evaluations, list[int]()

    def counted(ledger: Ledger) -> Iterator[EvaluationRow]:
        for number, row in enumerate(read(ledger)):
            if number in (0, 9):  # a look at all objects takes a quarter of a second
                counts.append(sum(type(one) is EvaluationRow for one in gc.get_objects()))
            yield row

    monkeypatch.setattr(Ledger, "evaluations", counted)
    monkeypatch.setattr(frames, "_ROWS_OF_PART", 1)
    with json_chunks(tmp_path, "*", curves=False) if kind == "json" else csv_chunks(tmp_path, "*") as parts:
        text = "".join(parts)
    assert (len(json.loads(text)) if kind == "json" else len(text.splitlines()) - 1) == 10
    assert len(counts) == 2 and abs(counts[1] - counts[0]) <= 2, counts


@pytest.mark.parametrize("name", ["a", "a\rb"])
def test_a_csv_file_is_the_same_whatever_its_parts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, 0, {"c": Outcome.ERROR}, optimizer="=adam()")
    add(tmp_path, 1, {name: {"train/loss": [1.0, math.nan]}, "c": Outcome.TIMEOUT})
    frame = open_results(tmp_path).frame()
    frame["label"] = frame["label"].replace("=adam()", "'=adam()")
    frame["checkpoint"] = frame["checkpoint"].replace("=adam()", "'=adam()")
    whole = frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC if "\r" in name else csv.QUOTE_MINIMAL)
    for num_rows in (1, 500):
        monkeypatch.setattr(frames, "_ROWS_OF_PART", num_rows)
        with csv_chunks(tmp_path, "*") as parts:
            assert "".join(parts) == whole


def test_history_reads_no_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step, revision in ((1, "r1"), (2, "r2")):
        add(tmp_path, step, {"a": {"train/loss": [1.0 / step, 0.5]}}, revision=revision)
    expected = run_history([tmp_path])
    monkeypatch.setattr(Curves, "from_payload", lambda payload: pytest.fail("curves were read"))
    assert run_history([tmp_path]) == expected and [one.git_revision for one in expected] == ["r1", "r2"]


def test_history_has_a_run_for_each_store_and_revision_on_one_scale(store: Path) -> None:
    table = run("--store", store.parent, "--history").stdout.splitlines()
    assert [line.split()[3] for line in table[1:3]] == ["r1", "r2"]
    found = json.loads(run("--store", store.parent, "--history", "--format", "json").stdout)
    first, second = found
    assert (first["num_checkpoints"], first["last_checkpoint"], first["num_diverged"]) == (1, "theta_1.npz", 1)
    # train: ln 2 and ln 4 of ln 8 on case a, (1 - 1) / 2 on case b, whose second seed diverged.
    assert first["scores"]["train/loss"]["mean"] == pytest.approx((0.5 + 0.0) / 2)
    assert second["scores"]["train/loss"]["mean"] == pytest.approx(1.0)
    # test: the first run's checkpoint is the best here.
    best = (math.log(2 / 1.5) + math.log(2 / 1.25)) / 2
    assert second["scores"]["test/loss"]["mean"] == pytest.approx(math.log(2 / 1.75) / best)


def test_the_history_of_one_seed_and_of_nothing(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "empty").close()
    assert SHOWN["no-evaluation-yet"] in run("--store", tmp_path / "empty", "--history").stdout
    add(tmp_path / "one", 1, {"a": {"train/loss": [1.0]}})
    text = run("--store", tmp_path, "--history", "--format", "json").stdout
    (found,) = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["scores"]["train/loss"] == {"mean": 1.0, "lower": None, "upper": None, "degrees": None, "method": "t"}


@pytest.mark.parametrize("options", [("--format", "csv"), ("--case", "a")])
def test_what_a_history_cannot_do_is_refused(store: Path, options: tuple[str, str]) -> None:
    done = run("--store", store, "--history", *options)
    assert done.returncode == 2 and SHOWN["history-has-no"] in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        (("--cases", "--case", "a"), ("--cases", "--case")),
        (("--by", "method", "--sort", "step"), ("--by method", "--sort")),
        (("--metric", "test/loss", "--curves"), ("--metric", "--curves")),
        (("--cases", "--format", "csv"), ("--cases", "--format csv")),
    ],
)
def test_what_a_table_of_methods_cannot_do_is_refused_by_the_options_that_were_given(
    store: Path, options: tuple[str, ...], flags: tuple[str, str]
) -> None:
    done = run("--store", store, *options)
    assert done.returncode == 2 and not done.stdout
    assert SHOWN["table-of-methods-has-no"].format(table=flags[0], other=flags[1]) in done.stderr


@pytest.mark.parametrize("kind", ["table", "json", "csv"])
def test_output_to_a_dash_is_printed(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("--store", store, "--format", kind)
    assert run(*words, "--output", "-").stdout == run(*words).stdout != ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["table", "json", "csv", "parquet"])
def test_an_output_gets_its_folder_or_one_clear_line(store: Path, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "new" / "folder" / "results"
    assert run("--store", store, "--format", kind, "--output", output).returncode == 0 and output.stat().st_size
    done = run("--store", store, "--format", kind, "--output", output / "below")
    assert done.returncode == 2 and SHOWN["cannot-write-this-file"] in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_sparkline_shows_a_fall_a_hundredfold_fall_and_what_diverged() -> None:
    assert sparkline([8, 4, 2, 1]) == "█▄▂▁"
    assert sparkline([1000, 100, 10, 1]) == "█▆▃▁"
    assert sparkline([1, math.nan]) == "▁x" and sparkline([math.nan] * 2) == "xx"
    assert sparkline([1, 1]) == "▁▁"


def test_a_store_of_two_programs_says_so_wherever_it_is_shown(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for step, jax in ((1, "0.7.0"), (2, "0.7.1")):
        made = Program(jax=jax, jaxlib=jax, device="cpu: x86-64-v3")
        add(store, step, {"a": {"train/loss": [1.0, 0.5, 0.25, 0.5]}}, program_version=made.key)
        with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as database, database:
            parts = json.dumps(dataclasses.asdict(made))
            database.execute("INSERT INTO programs VALUES (?, ?)", (made.key, parts))
    version = f"version {PROGRAM_VERSION}"
    first, second = f"{version}, jax 0.7.0, cpu: x86-64-v3", f"{version}, jax 0.7.1, cpu: x86-64-v3"
    both = SHOWN["results-of-2-programs-which"].format(first=first, second=second)
    assert both in lobench("results", "--store", store).stdout
    assert both in lobench("compare", "1", "2", "--store", store).stdout
    add(tmp_path / "other", 2, {"a": {"train/loss": [1.0, 0.5, 0.25, 0.5]}}, program_version=PROGRAM_VERSION)
    assert f"jax 0.7.1, cpu: x86-64-v3; {version}, jax ?, cpu" in run("--store", tmp_path, "--history").stdout
    assert "of 2 programs" not in lobench("compare", "1", "1", "--store", store).stdout
    assert lobench("report", "--store", store, "--output", tmp_path / "report.html").returncode == 0
    assert both in (tmp_path / "report.html").read_text()
    assert both in lobench("report", "--store", store, "--format", "text").stdout
    records = json.loads(lobench("results", "--store", store, "--format", "json").stdout)
    assert [record["program"] for record in records] == [first, second]


def test_checkpoints_evaluated_with_other_bindings_of_their_optimizer_have_a_note(tmp_path: Path) -> None:
    finals = {"a": {"train/loss": [1.0, 0.5, 0.25, 0.5]}}
    for step, bindings in ((1, "before"), (2, "before"), (3, "today")):
        add(tmp_path / "store", step, finals, bindings=bindings)
    report = ("report", "--store", tmp_path / "store", "--format")
    for command in (("results", "--store", tmp_path / "store"), (*report, "text")):
        shown = " ".join(lobench(*command).stdout.split())
        assert SHOWN["2-different-bindings-of-their"] in shown, shown
    assert SHOWN["2-different-bindings-of-their"] in json.loads(lobench(*report, "json").stdout)["notes"][0]
    assert lobench(*report, "html", "--output", tmp_path / "report.html").returncode == 0
    assert (tmp_path / "report.html").read_text().count(SHOWN["2-different-bindings-of-their"]) == 1
    for step in (1, 2):
        add(tmp_path / "store", step, finals, bindings="today")
    assert SHOWN["different-bindings"] not in lobench("results", "--store", tmp_path / "store").stdout


def test_two_checkpoints_of_one_outer_step_are_told_apart(tmp_path: Path) -> None:
    for place in ("left", "right"):
        add(tmp_path, 100, {"a": {"train/loss": [1.0]}}, uri=f"{place}/theta.npz", sha256=place[0].encode().hex() * 32)
    add(tmp_path, 200, {"a": {"train/loss": [1.0]}})
    lines = run("--store", tmp_path, "--evaluations").stdout.splitlines()
    tails = sorted(" ".join(line.split()[1:3]) for line in lines[1:4])
    assert tails == ["100 (left/theta.npz)", "100 (right/theta.npz)", "200 0-0"]  # the last has no need of it
    add(tmp_path, 0, {"a": {"train/loss": [1.0]}}, uri="last.pt", sha256="1" * 64)
    header, *lines = run("--store", tmp_path, "--evaluations").stdout.splitlines()
    assert "outer step" in header and "last.pt" in {line.split()[1] for line in lines if line}


def test_the_final_value_of_a_primary_metric_of_its_own_stands_in_every_table(tmp_path: Path) -> None:
    losses = {"train/loss": [0.5, 0.6], "val/loss": [0.7, 0.75]}
    add(tmp_path / "store", 1, {"a": losses}, primary_metric="val/loss")
    add(tmp_path / "store", 2, {"b": {"train/loss": [0.5, 0.6]}})
    header, first, second, *_ = run("--store", tmp_path / "store", "--evaluations").stdout.splitlines()
    assert SHOWN["train-final-val-loss-final"] in header
    assert "0.55           0.725" in first and "0.55               -" in second
    assert lobench("report", "--store", tmp_path / "store", "--output", tmp_path / "r.html").returncode == 0
    assert SHOWN["val-loss-final"] in (tmp_path / "r.html").read_text()


def test_a_metric_of_a_task_is_named_and_shown_by_metric_in_any_spelling(tmp_path: Path) -> None:
    finals = {"a": {"train/loss": [0.5, 0.6], "test/hit": [0.25, 0.75], "test/accuracy": [0.5, 0.5]}}
    add(tmp_path, 1, finals, directions={"hit": "max"}, optimizer="adam()")
    assert SHOWN["other-metrics-by-metric-test"] in run("--store", tmp_path).stdout
    lines = run("--store", tmp_path, "--metric", "test_hit").stdout.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("test/hit"))
    assert (
        lines[place + 1].split()[:2] == ["adam()", "0.500"] and SHOWN["other-metrics-by-metric-test-accuracy"] in lines
    )
    header, row = run("--store", tmp_path, "--evaluations", "--metric", "test/hit").stdout.splitlines()[:2]
    assert row[header.index("test/hit") :].split()[0] == "0.5"
    wrong = run("--store", tmp_path, "--metric", "test/hits")
    assert wrong.returncode == 2 and SHOWN["expected-test-accuracy-test-hit"] in wrong.stderr


def test_what_a_step_costs_is_in_the_table_and_in_json_and_empty_where_nobody_measured_it(tmp_path: Path) -> None:
    samples = {"m x 1": (1e-3, 1.01e-3, 0.99e-3), "n x 1": (2e-3, 4e-3, 2e-3, 4e-3), "untimed x 1": ()}
    costs = [StepCost(machine=name, num_together=2, samples=own, state_bytes=24) for name, own in samples.items()]
    for step, cost in enumerate([None, *costs]):
        add(tmp_path, step, {"a": {"train/loss": [1.0, 0.5]}}, cost=cost)
    found = json.loads(run("--store", tmp_path, "--format", "json").stdout)
    timings = [(one["step_seconds"], one["step_unsteady"], one["state_bytes"], one["machine"]) for one in found]
    assert timings == [
        (None, None, None, None),
        (5e-4, False, 24, "m x 1"),
        (1.5e-3, True, 24, "n x 1"),
        (None, None, 24, "untimed x 1"),
    ]
    lines = run("--store", tmp_path, "--evaluations").stdout.splitlines()
    cells = [line.split() for line in lines[1:4]]
    assert [cell[-3:-1] for cell in cells] == [["-", "-"], ["0.0005", "24"], ["~0.0015", "24"]]
    assert lines[-1].endswith(SHOWN["not-to-be-compared-m"]) and lines[-2].startswith("~: ")


def test_the_default_is_a_ranking_with_the_best_in_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for place in range(9):
        finals = {case: {"train/loss": [0.5 + 0.1 * place + 0.01 * seed for seed in range(4)]} for case in "abcdef"}
        add(tmp_path, 0, finals, optimizer=f"adam(); adam.learning_rate = {place}", sha256=f"{place:064d}")
    lines = run("--store", tmp_path).stdout.splitlines()
    assert lines[0].startswith(SHOWN["adam-adam-learning-rate-0"])
    assert len(lines) <= 20 and max(map(len, lines)) <= 100
    rows = [line.split()[:5] for line in lines if "adam.learning_rate" in line and line.lstrip()[:1].isdigit()]
    assert rows == [[str(rank), "adam();", "adam.learning_rate", "=", str(rank - 1)] for rank in range(1, 10)]
    assert "s/a" in run("--store", tmp_path, "--evaluations").stdout
    assert run("--store", tmp_path, "--cases").stdout == run("--store", tmp_path, "--by", "method").stdout
    assert run("--store", tmp_path, "--cases", "--sort", "train").returncode == 2


def test_by_method_of_many_methods_prints_the_best_and_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_part, "MOST_METHODS", 2)
    for name, loss in {"adam()": 0.5, "sgd()": 0.25, "lion()": 0.75, "adamw()": 1.0}.items():
        add(tmp_path, 0, {"a": {"train/loss": [loss, loss + 0.01]}}, optimizer=name)
    words = ("--store", tmp_path, "--by", "method")
    best, every = run(*words).stdout, run(*words, "--all").stdout
    assert "sgd()" in best and "adamw()" not in best
    assert best.rstrip().endswith(SHOWN["best-2-of-4-methods"])
    assert all(name in every for name in ("adam()", "sgd()", "lion()", "adamw()")) and "of 4 methods" not in every
    assert len({record["method"] for record in json.loads(run(*words, "--format", "json").stdout)}) == 4


def test_a_ranking_of_200_methods_fits_a_screen_and_counts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for place in range(200):
        add(
            tmp_path,
            0,
            {"a": {"train/loss": [0.5 + 0.01 * place, 0.5]}},
            optimizer=f"m{place}()",
            sha256=f"{place:064d}",
        )
    lines = run("--store", tmp_path).stdout.splitlines()
    assert len(lines) <= 40 and f"{200 - MOST_ROWS} more: --all" in lines
    assert sum(" m1" in line for line in run("--store", tmp_path, "--all").stdout.splitlines()) >= 111


def test_a_checkpoint_of_two_labels_is_one_row_of_the_ranking(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.5, 0.51]}}, sha256="a" * 64)
    add(tmp_path, 2, {"a": {"train/loss": [0.7, 0.71]}}, sha256="b" * 64)
    add(tmp_path, 3, {"a": {"train/loss": [0.5, 0.51]}}, sha256="a" * 64)
    lines = run("--store", tmp_path).stdout.splitlines()
    assert lines[0].startswith(SHOWN["outer-step-1-outer-step"])
    assert sum("outer step" in line for line in lines[1:]) == 2


def test_a_ranking_has_no_rank_for_what_lacks_a_case_or_a_seed(store: Path) -> None:
    lines = run("--store", store).stdout.splitlines()
    rows = {line.split()[3]: line.split()[0] for line in lines if " outer step " in line and "best" not in line}
    assert rows == {"1": "1", "2": "-"} and any("1 timeout" in line for line in lines)


@pytest.fixture
def rounded(tmp_path: Path) -> Path:
    """A store of two imported methods, each with one loss of two decimals on all of its seeds."""
    ends = {"a": 3.28, "b": 3.21}
    rows = [row for name, end in ends.items() for seed in range(3) for row in curve(name, seed, [9, 4, end])]
    import_curves(write_csv(tmp_path / "x.csv", rows), store=tmp_path / "store", metrics=["val_loss"])
    return tmp_path / "store"


def test_losses_that_agree_on_all_seeds_have_intervals_of_their_rounding(rounded: Path) -> None:
    records = json.loads(lobench("results", "--store", rounded, "--by", "method", "--format", "json").stdout)
    widths = {(one["method"], one["case"]): one["upper"] - one["lower"] for one in records if one["lower"] is not None}
    half = 4.303 * 0.01 / math.sqrt(12 * 3)  # t of 2 degrees
    losses = {case: width for case, width in widths.items() if case[1] != "mean score"}
    assert list(losses.values()) == pytest.approx([2 * half] * 2, rel=1e-3)
    scores = {case: width for case, width in widths.items() if case[1] == "mean score"}
    gain = math.log(9 / 3.21)
    assert scores["b (imported)", "mean score"] == pytest.approx(2 * half / 3.21 / gain, rel=1e-3), scores
    text = lobench("results", "--store", rounded).stdout
    assert "1.000 [1.000, 1.000]" not in text and "1.000 [0.99" in text, text
    report = lobench("report", "--store", rounded, "--format", "text").stdout
    assert SHOWN["interquartile-mean"] in report and "[1.000, 1.000]" not in report, report


def test_steps_to_a_target_are_known_up_to_the_evaluation_before(rounded: Path) -> None:
    done = lobench("compare", "a", "b", "--store", rounded, "--target", "4.5", "--format", "json")
    (found,) = json.loads(done.stdout)[0]["steps_to_target"].values()
    half = 4.303 * 100 / math.sqrt(12 * 3)
    assert found["a"]["mean"]["upper"] - 100 == pytest.approx(half, rel=1e-3), found
    assert found["difference"]["upper"] > 50 and found["difference"]["p_value"] == 1.0, found


def test_every_eval_ever_has_a_file_for_each_subject_with_the_scores_of_the_report(tmp_path: Path) -> None:
    store, folder = make_store(tmp_path), tmp_path / "records"
    done = lobench("results", "--store", store, "--format", "every-eval-ever", "--output", folder)
    assert done.returncode == 0, done.stderr
    summary = summary_of(store)
    written = [json.loads(path.read_text()) for path in sorted(folder.iterdir())]
    assert [one["model_info"]["name"] for one in written] == list(summary.snapshot.labels)
    for place, record in enumerate(written):
        who = summary.snapshot.subjects[place].subject
        assert record["model_info"]["additional_details"]["sha256"] == who.sha256
        found = {
            (one["source_data"]["additional_details"]["case_identity"], one["metric_config"]["metric_name"]): one
            for one in record["evaluation_results"]
        }
        for case, info in enumerate(summary.snapshot.cases):
            finding = summary.case_finding(place, case, None)
            if finding is None:
                continue
            score = found[info.identity, "score"]["score_details"]
            interval = finding.scores["primary"]
            assert score["score"] == interval.mean
            assert score["uncertainty"]["confidence_interval"]["lower"] == interval.lower
            assert score["details"]["diverged_seeds"] == str(finding.num_diverged)
            final = finding.final_means[info.primary_metric]
            assert ((info.identity, "train/loss") in found) == math.isfinite(final)
            if math.isfinite(final):
                loss = found[info.identity, "train/loss"]
                assert loss["score_details"]["score"] == final and loss["metric_config"]["lower_is_better"]
    again = lobench("results", "--store", store, "--format", "every-eval-ever", "--output", folder)
    assert again.returncode == 2 and SHOWN["folder-missing-or-empty"] in again.stderr


def test_json_of_a_large_store_is_buffered_on_disk_and_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    class Buffer(tempfile.SpooledTemporaryFile[str]):
        def rollover(self) -> None:
            sizes.append(self.tell())
            super().rollover()

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", Buffer)
    monkeypatch.setattr(results_output, "_MAX_BYTES_IN_MEMORY", 1)
    for step in range(4):
        add(tmp_path / "store", step, {"a": {"train/loss": [1.0, 2.0]}})
    with json_chunks(tmp_path / "store", "*", curves=False) as chunks:
        text = "".join(chunks)
    assert len(json.loads(text)) == 4
    # Records differ in length by some digits of a time, so that the first may be the longest.
    assert len(sizes) == 1 and sizes[0] < len(text) / 2

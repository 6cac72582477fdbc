"""Tables of methods: nine of them are nine rows, whatever their width; names, groups, digits, intervals and bold."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from shown import texts_of
from stores import add

from lobench.analysis.comparisons.run_history import experiment_history
from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.store.methods import read_methods
from lobench.analysis.tables.table import TableSpec, read_table
from lobench.analysis.tables.tabulate import tabulate
from lobench.core.errors import ConfigError
from lobench.core.experiment import SessionMember
from lobench.core.planner import EvaluationId
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.config.origin import Revision
from lobench.engine.store.ledger import Ledger
from lobench.report.charts.runs_chart import methods_section
from lobench.report.page.page import render_page
from lobench.report.tables.history_tables import experiments_table
from lobench.report.tables.latex import latex_table
from lobench.report.tables.verdict import cards

SHOWN = texts_of("report")

NAMES = [f"adam(); adam.learning_rate = {rate:g}" for rate in (1, 2, 3, 4, 5, 6, 7, 8, 9)]
CASES = [f"case{index}" for index in range(6)]
TABLE = """
Table.rows = "method"
Table.metrics = ["train/loss", "test/accuracy"]
Table.groups = {{"slow": {slow!r}, "fast & wild": {fast!r}}}
Table.names = {{{first!r}: "Adam_1", "case0": "first", "test/accuracy": "accuracy"}}
Table.precision = {{"test/accuracy": 2}}
Table.interval = {{"train/loss": False}}
Table.bold = "best"
"""


def make(store: Path, names: list[str] = NAMES, cases: list[str] = CASES) -> Path:
    """Method k has a training loss of about k + 1, and gets (8 - k) of 10 right, give or take: the first is best."""
    rng = np.random.default_rng(0)
    for place, name in enumerate(names):
        noise = rng.normal(0, 0.01, (len(cases), 2, 4))
        add(
            store,
            0,
            {
                case: {
                    "train/loss": (0.1 * (place + 1) + noise[index, 0]).tolist(),
                    "test/accuracy": np.clip(0.97 - 0.1 * place + noise[index, 1], 0, 1).tolist(),
                }
                for index, case in enumerate(cases)
            },
            optimizer=name,
        )
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("methods"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.gin"
    path.write_text(TABLE.format(slow=NAMES[:3], fast=NAMES[3:], first=NAMES[0]))
    return path


def rows_of(latex: str) -> list[str]:
    return [line for line in latex.splitlines() if re.match(r"(\\quad )?(adam|Adam)", line)]


def test_nine_methods_on_six_cases_in_two_groups_are_all_there(store: Path, table: Path) -> None:
    latex = latex_table(summary_of(store, []), read_table(table))
    rows = rows_of(latex)
    assert len(rows) == 18 and len({row.split(" & ")[0] for row in rows}) == 9
    assert all(row.count(" & ") == 8 for row in rows)  # six cases, the mean score and the mean rank
    assert SHOWN["first-case1-case2-case3-case4"] in latex
    assert SHOWN["is-best-over-the-6"] in latex
    titles = re.findall(r"\\multicolumn\{9\}\{l\}\{(.*)\} \\\\", latex)
    assert titles == [r"\emph{train/loss}", "slow", r"fast \& wild", r"\emph{accuracy}", "slow", r"fast \& wild"]
    # The least loss, and the greatest accuracy, of each case: the same method, whose name the table gives.
    bold = [row for row in rows if "mathbf" in row]
    assert [row.split(" & ")[0] for row in bold] == [SHOWN["uad-adam-1"]] * 2
    assert [row.count("mathbf") for row in bold] == [7, 6]  # these accuracies have no score
    assert "[" not in rows[0].rsplit("&", 2)[0] and re.search(r"0\.9\d\}\\,\[0\.9\d, 0\.9\d\]", rows[9])


def test_width_turns_a_table_around_and_drops_nobody(store: Path, tmp_path: Path) -> None:
    assert len(rows_of(latex_table(summary_of(store, [])))) == 9
    few = make(tmp_path / "few", NAMES[:6])
    header = next(line for line in latex_table(summary_of(few, [])).splitlines() if line.startswith(" & "))
    assert header.count("adam") == 12  # six texts, with their names in them twice


@pytest.mark.parametrize(("bold", "count"), [("best", 1), ("indistinct", 2), ("none", 0)])
def test_bold_is_the_best_alone_or_what_is_told_apart_from_it_or_nothing(tmp_path: Path, bold: str, count: int) -> None:
    for name, values in {"a()": [0.1, 0.2, 0.3], "b()": [0.11, 0.19, 0.31], "c()": [1.0, 1.1, 1.2]}.items():
        add(tmp_path, 0, {"c": {"train/loss": values}}, optimizer=name)
    latex = latex_table(summary_of(tmp_path, []), TableSpec(bold=bold))  # type: ignore[arg-type]
    assert next(line for line in latex.splitlines() if "quad c" in line).count("mathbf") == count


@pytest.mark.parametrize(
    ("sizes", "tests"),
    [
        ({"b()": (0, 3)}, "a paired t test"),
        ({"b()": (FIRST_REPORT_SEED, 5)}, "Welch's t test"),
        ({"b()": (FIRST_REPORT_SEED, 7)}, "a permutation test"),
        ({"b()": (0, 3), "c()": (FIRST_REPORT_SEED, 5)}, "a paired t test or Welch's t test"),
    ],
)
def test_the_legend_names_the_tests_that_were_used(
    tmp_path: Path, sizes: dict[str, tuple[int, int]], tests: str
) -> None:
    for name, (start, size) in {"a()": (0, 3), **sizes}.items():
        values = [0.1 * (ord(name[0]) - 96) + 0.01 * (seed % 4) for seed in range(size)]
        add(tmp_path, 0, {"c": {"train/loss": values}}, optimizer=name, start=start)
    output = SHOWN["the-best-or-not-significantly"].format(tests=tests)
    summary = summary_of(tmp_path, [])
    assert tabulate(summary).bold == output
    assert output in latex_table(summary) and output in html.unescape(render_page(summary))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Table.row = 'method'", SHOWN["nothing-reads-table-row"]),
        ("Table.rows = 'seed'", SHOWN["table-rows-got-seed-expected"]),
        ("Table.precision = {'train/loss': 0}", "Table.precision"),
        ("Table.methods = ['adm()']", SHOWN["table-methods-there-is-no"]),
        ("Table.metrics = ['test/los']", SHOWN["table-metrics-there-is-no"]),
        ("Table.groups = {'a': ['case0', 'nobody']}", SHOWN["table-groups-there-is-no"]),
        ("Table.names = {'nobody': 'x'}", SHOWN["table-names-there-is-no"]),
        ("adam.b1 = 3", SHOWN["nothing-reads-adam-b1"]),
    ],
)
def test_a_table_that_names_what_is_not_there_is_one_clear_line(
    store: Path, tmp_path: Path, line: str, message: str
) -> None:
    (tmp_path / "t.gin").write_text(line + "\n")
    with pytest.raises(ConfigError) as error:
        latex_table(summary_of(store, []), read_table(tmp_path / "t.gin"))
    assert message in str(error.value) and "\n" not in str(error.value)


def experiment(store: Path, names: Sequence[str] = NAMES[:2]) -> Path:
    """Methods of a store, two by default, on sessions 0 and 1, as `lobench run` would record them."""
    scopes = dict(zip(names, "abcdefghijklmno", strict=False))
    config = "".join(f"{scope}/Method.optimizer = @adam()\n" for scope in scopes.values()) + "a/Method.label = 'Adam'\n"
    ledger = Ledger.open(store)
    number = ledger.record_experiment("mine", config, revision=Revision(), versions={})
    members = [
        SessionMember(
            trial=0,
            method=scopes[row.sightings[0].uri],
            session=session,
            evaluation=EvaluationId(row.key.checkpoint_sha256, row.case.key, row.key.seed_block),
        )
        for row in ledger.evaluations()
        if row.sightings[0].uri in scopes
        for session in (0, 1)
    ]
    ledger.add_memberships(number, members, programs={row.key.program_version for row in ledger.evaluations()})
    ledger.close()
    return store


def test_an_experiments_methods_are_its_members_and_their_sessions(tmp_path: Path) -> None:
    store = experiment(make(tmp_path / "store", NAMES[:3], CASES[:2]))
    snapshot = read_methods(store)
    assert (snapshot.labels, snapshot.experiment.method_names) == (("Adam", "b"), ("a", "b"))
    assert [cell.seeds for subject in snapshot.subjects for cell in subject.cells.values()] == [(0, 1)] * 4
    assert len(read_methods(store, include_all=True).subjects) == 3
    shown = lobench("results", "--store", store, "--by", "method")
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["Adam", "b"] and "*" in lines[1] and "*" not in lines[2]
    assert f"Adam: {NAMES[0]}" in lines and f"b: {NAMES[1]}" in lines  # what they were trained with
    records = json.loads(lobench("results", "--store", store, "--by", "method", "--format", "json").stdout)
    assert {record["method"] for record in records} == {"Adam", "b"}
    assert {record["seeds"] for record in records if record["case"] == "case0"} == {2}
    refused = lobench("results", "--store", store, "--by", "method", "--experiment", "yours")
    assert refused.returncode == 2 and SHOWN["no-experiment-yours"] in refused.stderr and "mine" in refused.stderr


def test_a_case_that_was_changed_between_two_runs_is_there_once_as_it_is_now(tmp_path: Path) -> None:
    store = tmp_path / "store"
    add(store, 0, {"case0": {"train/loss": [9.0] * 4}}, optimizer=NAMES[0], identities={"case0": "former"})
    snapshot = read_methods(experiment(make(store, NAMES[:2], CASES[:2])))
    assert [snapshot.case_name(place) for place in range(len(snapshot.cases))] == ["s/case0", "s/case1"]
    assert snapshot.left_out.former_cases == (("s/case0", 1),)
    assert "former" not in {case.identity for case in snapshot.cases}
    assert {len(subject.cells) for subject in snapshot.subjects} == {2}


def test_a_commands_sessions_are_meta_trainings_and_their_last_checkpoints(tmp_path: Path) -> None:
    for session, step, losses in ((0, 1, [9.0] * 4), (0, 2, [0.1, 0.3, 5.0, 5.0]), (1, 2, [0.5, 0.7, 5.0, 5.0])):
        name = f"runs/{session}/theta_{step}.npz"
        add(tmp_path, step, {"c": {"train/loss": losses}}, uri=name, sha256=f"{session}{step}".ljust(64, "0"))
    ledger = Ledger.open(tmp_path)
    config = "mine/Method.command = 'python train.py --seed {session} --out {folder}'\n"
    number = ledger.record_experiment("mine", config, revision=Revision(), versions={})
    rows = list(ledger.evaluations())
    members = [
        SessionMember(
            method="mine",
            trial=int(row.sightings[0].uri.split("/")[1]),
            session=seed,
            evaluation=EvaluationId(row.key.checkpoint_sha256, row.case.key, row.key.seed_block),
        )
        for row in rows
        for seed in (0, 1)
    ]
    ledger.add_memberships(number, members, programs={row.key.program_version for row in rows})
    ledger.close()
    snapshot = read_methods(tmp_path)
    (subject,) = snapshot.subjects
    assert subject.cells["s/c"].final_values["train/loss"] == pytest.approx({0: 0.2, 1: 0.6})
    assert (snapshot.labels, subject.cells["s/c"].seeds) == (("mine",), (0, 1))


def test_what_methods_were_trained_with_stands_beside_tables_and_plots(tmp_path: Path) -> None:
    store = experiment(make(tmp_path / "store", NAMES[:3], CASES[:2]))
    summary = summary_of(store, [], snapshot=read_methods(store))
    assert f"\\emph{{Adam}}: {NAMES[0].replace('_', chr(92) + '_')}" in latex_table(summary)
    page = render_page(summary)
    assert page.count(NAMES[0]) >= 3 and 'id="h-methods"' in page and SHOWN["trained-with-adam"] in page
    assert isinstance(summary, Summary)


def test_charts_of_many_methods_leave_what_these_were_trained_with_to_the_table(tmp_path: Path) -> None:
    names = [f"adam(); adam.learning_rate = {rate}" for rate in range(15)]
    store = experiment(make(tmp_path / "store", names, CASES[:1]), names)
    page = render_page(summary_of(store, [], snapshot=read_methods(store)))
    assert SHOWN["trained-with-15-methods-the"] in page
    assert all(f"<dd><code>{name}</code></dd>" in page for name in names)


def test_a_mean_score_without_a_baseline_says_what_its_scale_is(tmp_path: Path) -> None:
    done = lobench("results", "--store", make(tmp_path / "store"), "--by", "method")
    assert done.returncode == 0, done.stderr
    assert SHOWN["mean-score-0-is-untrained"] in (done.stdout.splitlines())


def test_a_method_without_one_of_the_cases_wins_by_the_others_alone_and_the_table_says_which(tmp_path: Path) -> None:
    """`lucky` has no curve of the hard case, on which all others score less: its mean was the best."""
    for name, easy, hard in (("good()", 0.10, 1.0), ("worse()", 0.11, 1.1), ("lucky()", 0.12, None)):
        cases = {"easy": easy} if hard is None else {"easy": easy, "hard": hard}
        losses = {case: {"train/loss": [value, value * 1.01, value * 0.98]} for case, value in cases.items()}
        add(tmp_path / "store", 0, losses, optimizer=name)
    found = tabulate(summary_of(tmp_path / "store", []))
    (means,) = (line for panel in found.panels for line in panel.lines if line.heading.label.startswith("mean score"))
    by_name = dict(zip([column.label for column in found.columns], means.entries, strict=True))
    assert by_name["good()"].interval.mean > by_name["worse()"].interval.mean > by_name["lucky()"].interval.mean
    assert by_name["good()"].is_bold and not by_name["lucky()"].is_bold
    assert any(SHOWN["over-the-1-of-2"] in note and SHOWN["not-of-lucky"] in note for note in found.notes)
    summary = summary_of(tmp_path / "store", [])
    output = SHOWN["over-the-1-of-2-2"]
    assert any(output in figure.note for figure in methods_section(summary).figures), "the chart of the same means"
    assert cards(summary, None)[0].note.endswith(SHOWN["the-1-of-2-cases"])
    assert SHOWN["seeds-of-the-1-of"] in render_page(summary)
    assert all(one.scores for one in summary.shown_cases(None)), "of its own on each case that it has"
    assert len(summary.shown_cases(None)) == 2


def test_the_best_of_the_history_is_that_of_the_table_where_a_method_lacks_a_case(tmp_path: Path) -> None:
    """The one that lacks a case is best on those that all have: it stays in, as in the table."""
    store = tmp_path / "store"
    for name, losses in ((NAMES[0], {"easy": 0.5}), (NAMES[1], {"easy": 0.9, "hard": 0.1}), (NAMES[2], {"easy": 0.2})):
        add(store, 0, {case: {"train/loss": [one, 1.01 * one]} for case, one in losses.items()}, optimizer=name)
    experiment(store)
    found = tabulate(summary_of(store, [], snapshot=read_methods(store)))
    (means,) = (line for panel in found.panels for line in panel.lines if line.heading.label.startswith("mean score"))
    by_name = {column.label: entry.interval.mean for column, entry in zip(found.columns, means.entries, strict=True)}
    (one,) = experiment_history([store])
    assert one.best == max(by_name, key=by_name.__getitem__) == "Adam"
    assert one.over == SHOWN["of-2-cases-that-all"]
    assert SHOWN["mine-id-best-is-over"].format(id=one.id, over=one.over) in experiments_table([one])


@pytest.mark.parametrize("bold", ["best", "indistinct"])
def test_the_best_mean_that_is_printed_is_bold(tmp_path: Path, bold: str) -> None:
    """The other has the better seed, median and score, and one seed that spoils its mean."""
    for name, values in (("spoilt()", [1e-9, 1e-9, 1e-9, 19e-9]), ("steady()", [5.1e-9, 4.9e-9, 5.2e-9, 4.8e-9])):
        add(tmp_path, 0, {"c": {"train/loss": values}}, optimizer=name)
    found = tabulate(summary_of(tmp_path, []), TableSpec(bold=bold))
    cells = next(line for panel in found.panels for line in panel.lines if line.heading.label == "c").entries
    entries = dict(zip([column.label for column in found.columns], cells, strict=True))
    assert entries["steady()"].interval.mean < entries["spoilt()"].interval.mean and entries["steady()"].is_bold
    assert not (bold == "best" and entries["spoilt()"].is_bold)


@pytest.mark.parametrize("num_seeds", [2, 3, 6])
@pytest.mark.parametrize("bold", ["indistinct", "best"])
def test_tabulate_method_without_a_finite_seed_is_never_bold(tmp_path: Path, num_seeds: int, bold: str) -> None:
    good = [0.5, 0.9, 0.6, 0.8, 0.7, 0.75][:num_seeds]
    for case in ["a", "b"]:
        add(tmp_path, 0, {case: {"train/loss": good}}, optimizer="good()")
        add(tmp_path, 0, {case: {"train/loss": [np.nan] * num_seeds}}, optimizer="lost()")
        add(tmp_path, 0, {case: {"train/loss": [[2.0, np.nan]] * num_seeds}}, optimizer="gone()")
    summary = summary_of(tmp_path, [])
    table = tabulate(summary, TableSpec(rows="method", bold=bold))  # type: ignore[arg-type]
    bold_labels = {
        line.heading.label
        for panel in table.panels
        for line in panel.lines
        for entry in line.entries
        if entry is not None and entry.is_bold
    }
    assert bold_labels == {"good()"}
    assert summary.snapshot.labels[summary.headline_index] == "good()"
    records = json.loads(lobench("results", "--store", tmp_path, "--by", "method", "--format", "json").stdout)
    assert {one["method"] for one in records if one["bold"]} == {"good()"}

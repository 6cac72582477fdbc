"""What values show of themselves in a notebook: HTML, axes, long frames, and a display while something runs."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from report_store import NASTY, make_store
from shown import texts_of
from stores import add, case_info, curves

import lobench
from lobench.core.case import SeedBlock
from lobench.core.errors import UsageError
from lobench.core.experiment import SessionMember
from lobench.core.planner import EvaluationId, RemainingWork
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.drawing.html import table
from lobench.engine.config.origin import Revision
from lobench.engine.store.experiments import TrialRow
from lobench.engine.store.ledger import Ledger
from lobench.evaluation.result import Result
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.methods import MethodCounts
from lobench.report.live.notebook_progress import NotebookProgress, default_progress, in_notebook
from lobench.report.live.progress import SilentProgress

SHOWN = texts_of("report")

ADAM = "adam(); adam.learning_rate = 0.01"


@pytest.fixture(autouse=True)
def _without_a_screen() -> None:
    mpl.use("Agg")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for step, loss in ((10, 1.0), (20, 0.5)):
        finals = {"train/loss": [loss, loss + 0.1], "test/loss": [loss + 0.2, loss + 0.3]}
        add(tmp_path, step, {"a": finals, "b": {"train/loss": [loss, np.nan]}})
    add(tmp_path, 0, {"a": {"train/loss": [0.7, 0.8]}, "c": Outcome.ERROR}, optimizer=ADAM)
    return tmp_path


class Rows(HTMLParser):
    """The cells of all tables, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._inside = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def test_the_long_frame_has_a_row_for_each_step_and_an_optimizer_at_no_outer_step(store: Path) -> None:
    found = lobench.open_results(store)
    frame = found.curves_frame()
    assert list(frame.columns) == [
        *("suite", "case", "kind", "label", "outer_step", "generation", "checkpoint", "sha256", "optimizer"),
        "case_identity",
        *("seed", "metric", "step", "value"),
    ]
    assert len(frame) == 3 * 2 * (2 * 2 + 2 + 1)  # steps x seeds x (checkpoints x metrics of a, b's, adam's)
    (curve,) = found.curves("train/loss", case="a", outer_step=20)
    own = frame[(frame.outer_step == 20) & (frame.case == "a") & (frame.metric == "train/loss")]
    np.testing.assert_array_equal(own.pivot(index="seed", columns="step", values="value").to_numpy(), curve.values)
    adam = frame[frame.kind == "optimizer"]
    assert set(adam.label) == {ADAM} and adam.outer_step.isna().all()
    assert found.frame().query("kind == 'optimizer'").outer_step.isna().all()
    assert found.evaluations().query("kind == 'optimizer'").outer_step.isna().all()
    assert not found.curves("train/loss", outer_step=0) and len(found.curves("train/loss", case="s/a")) == 3
    assert len(found.curves_frame("test/loss", case="a")) == 2 * 2 * 3
    with pytest.raises(UsageError, match=SHOWN["did-you-mean-test-loss"]):
        found.curves_frame("tests/loss")


def test_results_are_a_table_of_methods_and_cases(store: Path) -> None:
    html = lobench.open_results(store)._repr_html_()
    rows = [row for row in Rows(html).rows if row[0] in ("a", "b")]
    assert [row[0] for row in rows] == ["a", "b", "a"]  # train/loss of both, test/loss of one
    assert [cell.partition(" ")[0] for cell in rows[0][1:]] == ["0.750*", "1.05*", "0.550*"]
    assert rows[1][1:] == ["-", "diverged (1/2)", "diverged (1/2)"]
    assert "6 evaluations, 2 checkpoints, 1 optimizer, 3 cases" in html
    text = lobench_text(store, "results", "--by", "method")
    assert all(cell in text for row in rows for cell in row)
    assert any("*" in cell for cell in rows[0]) and SHOWN["the-best"] in html
    assert "StoredResults" in lobench.open_results(empty(store))._repr_html_()


def test_of_an_experiment_the_best_trial_of_a_search_is_shown_and_on_request_all_trials(store: Path) -> None:
    config = "tuned/Method.optimizer = @adam()\ntuned/Method.search = @random()\nfixed/Method.optimizer = @adam()\n"
    trials = {f"adam(); adam.learning_rate = {rate}": fitness for rate, fitness in ((0.1, 0.5), (0.2, 0.9))}
    for optimizer, fitness in trials.items():
        add(store, 0, {"a": {"train/loss": [1 - fitness, 1 - fitness]}}, optimizer=optimizer)
    with Ledger.open(store) as ledger:
        experiment = ledger.record_experiment("x", config, revision=Revision(), versions={})
        for number, (optimizer, fitness) in enumerate(trials.items()):
            (row,) = ledger.evaluations(Subject.of_optimizer(optimizer).sha256)
            evaluation = EvaluationId(row.key.checkpoint_sha256, row.case.key, row.key.seed_block)
            roles = [("tuned", number)] + [("fixed", 0)] * (number == 0)  # with the text of the first trial
            members = [
                SessionMember(method=method, trial=trial, session=s, evaluation=evaluation)
                for method, trial in roles
                for s in (0, 1)
            ]
            assert ledger.add_memberships(experiment, members, programs=[row.key.program_version]) == len(members)
            trial = TrialRow(method="tuned", number=number, parameters={"x": number}, state="done", fitness=fitness)
            ledger.record_trial(experiment, trial)
    found = lobench.open_results(store)
    html = found._repr_html_()
    rows = Rows(html).rows
    assert rows[0][1:3] == ["tuned", "fixed"] and rows[1][1].startswith("0.100 [") and rows[1][1].endswith(" (s)")
    text = lobench_text(store, "results", "--by", "method")
    assert all(cell in text for cell in rows[1])
    assert "(s): optimistic" in text and "fresh seeds" not in text, "no number is of fresh seeds"
    assert {line.get_label() for line in found.plot().get_lines()} == {"tuned", "fixed"}
    assert {*trials, ADAM} < set(found.frame().label), "the frames have all subjects"

    for name, label, end in (("tuned", "tuned", 0.1), ("fixed", "fixed", 0.5), (ADAM, ADAM, None)):
        (named,) = found.curves("train/loss", case="a", checkpoint=name)
        assert named.subject.label == label and (end is None or named.values[:, -1].tolist() == [np.float32(end)] * 2)
    with pytest.raises(UsageError, match=SHOWN["did-you-mean-fixed"]):
        found.curves("train/loss", checkpoint="fixd")

    whole = lobench.open_results(store, include_all=True)
    assert {*trials, ADAM} < {*Rows(whole._repr_html_()).rows[0]}
    with pytest.raises(UsageError, match=SHOWN["no-experiment-y"]):
        lobench.open_results(store, experiment="y")


def empty(folder: Path) -> Path:
    Ledger.open(folder / "empty").close()
    return folder / "empty"


def test_names_from_outside_are_escaped_wherever_they_stand(tmp_path: Path) -> None:
    html = lobench.open_results(make_store(tmp_path))._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html
    assert "<script" not in table([NASTY, "\x1b[31m"], [[NASTY, NASTY]]) and r"\x1b" in table(["\x1b"], [])


def test_plots_have_a_line_for_each_subject_and_a_panel_for_each_case(store: Path) -> None:
    found = lobench.open_results(store)
    axes = found.plot(case="a")
    assert [line.get_label() for line in axes.get_lines()] == [SHOWN["outer-step-20"], SHOWN["outer-step-10"], ADAM]
    (curve,) = found.curves("train/loss", case="a", outer_step=20)
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), curve.values.mean(axis=0))
    assert (axes.get_title(), axes.get_ylabel()) == ("s/a", "train/loss")
    several = found.plot()
    assert [one.get_title() for one in several] == ["s/a", "s/b", "s/c"]
    with pytest.raises(UsageError, match=SHOWN["no-case-z"]):
        found.plot(case="z")
    with pytest.raises(UsageError, match=SHOWN["several-cases"]):
        found.plot(ax=axes)
    axes.figure.savefig(store / "plot.png")
    assert (store / "plot.png").stat().st_size > 5000


def test_one_result_shows_itself() -> None:
    result = Result([curves({"train/loss": [0.5, np.nan], "test/loss": [0.1, 0.001]})])
    rows = {row[0]: row for row in Rows(result._repr_html_()).rows}
    assert rows["train/loss"][1:3] == ["diverged", "0.5 to 0.5"] and rows["test/loss"][1:3] == [
        "0.0505",
        "0.001 to 0.1",
    ]
    assert "2 seeds, 1 diverged" in result._repr_html_()
    frame = result.curves_frame()
    assert list(frame.columns) == ["seed", "metric", "step", "value"] and len(frame) == 2 * 2 * 3
    assert frame.query("seed == 1 and metric == 'test/loss' and step == 10").value.item() == pytest.approx(0.001)
    axes = result.plot("test/loss")
    assert axes.get_yscale() == "log" and axes.get_ylabel() == "test/loss"
    assert result.plot(ax=axes) is axes
    with pytest.raises(KeyError, match=SHOWN["no-metric-x"]):
        result.plot("x")


def test_a_comparison_shows_what_the_command_prints(store: Path) -> None:
    found = lobench.compare("10", "20", store=store)
    rows = Rows(found._repr_html_()).rows
    text = lobench_text(store, "compare", "10", "20", "--details")
    for row in rows:
        # The command has notes in lines below the table.
        assert [cell for cell in row if cell not in text and cell != "note"] == []
    axes = found.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["s/b", "s/a", SHOWN["mean-over-cases"]]
    assert SHOWN["difference-of-the-score-to"] in axes.get_xlabel()


def lobench_text(store: Path, *words: str) -> str:
    from commands import lobench as command

    return command(*words, "--store", store).stdout


class Kernel:
    """A shell with a kernel, as Jupyter has it, and what it was told to show."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.kernel = object()

    def module(self) -> types.ModuleType:
        module = types.ModuleType("IPython")
        display = types.SimpleNamespace(HTML=str, display=lambda text, display_id: self)
        module.get_ipython, module.display = (lambda: self), display  # type: ignore[attr-defined]
        return module

    def update(self, text: str) -> None:
        self.shown.append(text)


def test_in_a_notebook_and_nowhere_else_there_is_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook() and type(default_progress()) is SilentProgress
    kernel = Kernel()
    monkeypatch.setitem(sys.modules, "IPython", kernel.module())
    progress = default_progress(MethodCounts(lambda subject: [subject.label]))
    assert isinstance(progress, NotebookProgress)
    subject, case = Subject.of_optimizer(ADAM, label=NASTY), case_info("a", 2)
    progress.cases_known([case])
    progress.evaluation_leased(1, subject, case)
    progress.evaluation_finished(
        EvaluationFinished(
            case=case,
            subject=subject,
            seed_block=SeedBlock(start=0, size=2),
            outcome=Outcome.ERROR,
            message="it hung",
            curves=None,
        ),
        1,
    )
    progress.subject_finished(subject, RemainingWork(evaluations={}, num_admitted=0, num_waiting=0, num_cores=1))
    assert SHOWN["1-case-s-a"] in kernel.shown[0] and "it hung" in kernel.shown[-1]
    assert "<script" not in kernel.shown[-1] and re.search(r"<td>1</td>", kernel.shown[-1])


def test_a_display_is_drawn_four_times_a_second_at_most() -> None:
    now, shown = [0.0], list[str]()
    progress = NotebookProgress(shown.append, clock=lambda: now[0])
    progress.evaluation_leased(1, Subject.of_optimizer(ADAM), case_info("a"))
    for step in range(100):
        now[0] += 0.01
        progress.training_progressed(1, step)
    assert 4 <= len(shown) <= 6 and "99/10" not in shown[0]


def test_plots_are_an_extra() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
from lobench.core.errors import LobenchError
from lobench.drawing.axes import new_axes
try:
    new_axes(1)
except LobenchError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == SHOWN["plots-need-matplotlib-pip-install"]

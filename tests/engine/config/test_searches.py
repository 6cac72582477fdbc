"""Search spaces in an experiment's file: what is read, and what is refused when it is planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.core.experiment import Search
from lobench.core.search.space import Kind, Scale
from lobench.engine.config.experiment.file import read_experiment
from lobench.engine.config.space_syntax import is_same_method, search_identity, without_searches
from lobench.engine.config.syntax import parse_file

SHOWN = texts_of("config")

FILE = """
Experiment.suites = ["suite"]
adam/Method.optimizer = @adam()
adam/Method.search = @tpe/optuna()
adam/Method.num_trials = 9
adam/adam.learning_rate = @rate/Real()
adam/outer/adam.learning_rate = @slow/rate/Real()
adam/adam.b1 = @Categorical()
adam/Categorical.values = [0.5, 0.9]
adam/Categorical.when = {"adam.learning_rate": [0.01]}
Real.scale = "log"
rate/Real.low = 1e-4
rate/Real.high = %highest
slow/Real.low = 1e-6
slow/rate/Real.high = 1e-3
highest = 0.1
tpe/optuna.sampler = "tpe"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "s.gin").write_text("a/Case.task = @Bowl()\n")
    path = tmp_path / "x.gin"
    path.write_text(FILE)
    return path


def test_spaces_stand_where_values_do_by_path_and_nobody_else_sees_them(file: Path) -> None:
    found = read_experiment(file)
    method = found.method("adam")
    assert method.search == Search(name="optuna", keywords=(("sampler", "tpe"),)) and method.num_trials == 9
    rate, slow, b1 = method.space
    assert (rate.path, rate.kind, rate.low, rate.high) == ("adam.learning_rate", Kind.REAL, 1e-4, 0.1)
    assert (slow.path, slow.low, slow.high) == ("outer/adam.learning_rate", 1e-6, 1e-3)
    assert rate.scale is slow.scale is Scale.LOG and b1.values == (0.5, 0.9)
    assert method.bindings[0] == "adam.learning_rate = @rate/Real()" and len(method.bindings) == 3
    assert found.shared_lines == ("highest = 0.1",), "no worker binds a space or a search"


def test_a_value_over_a_space_is_that_value_and_a_space_over_a_value_that_space(file: Path) -> None:
    written = read_experiment(file, ["adam/adam.learning_rate = 0.01", "adam/Categorical.when = {}"]).method("adam")
    assert "adam.learning_rate = 0.01" in written.bindings and len(written.space) == 2
    file.write_text(FILE.replace("adam/adam.learning_rate", "adam/adam.learning_rate = 3.0\nadam/adam.learning_rate"))
    assert read_experiment(file).method("adam").bindings == (
        "adam.learning_rate = @rate/Real()",
        "outer/adam.learning_rate = @slow/rate/Real()",
        "adam.b1 = @Categorical()",
    )


def test_a_file_that_has_cases_too_gives_workers_the_cases_alone(file: Path) -> None:
    file.write_text(FILE + "a/Case.task = @Bowl()\na/Bowl.dim = 3\n")
    texts = [f"{one.scope}/{one.selector}.{one.parameter}" for one in without_searches(parse_file(file))]
    assert texts == [
        "/Experiment.suites",
        "adam/Method.optimizer",
        "/highest.",
        "a/Case.task",
        "a/Bowl.dim",
    ]
    (file.parent / "plain.gin").write_text("a/Case.task = @Bowl()\na/Bowl.kind = @Discrete()\nDiscrete.x = 1\n")
    assert len(without_searches(parse_file(file.parent / "plain.gin"))) == 3, "somebody's own name is left alone"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("adam/Method.search = @random", SHOWN["got-random-expected-a-call"]),
        (
            "adam/adm.rate = @rate/Real()",
            SHOWN["rate-real-is-bound-to"],
        ),
        (
            "adam/Method.optimizer = @adamm()",
            SHOWN["is-bound-to-adam-learning"],
        ),
        ("rate/Real.hig = 2", SHOWN["real-takes-no-hig-did"]),
        ("rat/Real.high = 2", SHOWN["rat-is-neither-a-method"]),
        ("rate/Real.low = 1", SHOWN["reversed-expected-low-high"]),
        ("rate/Real.low = 0.1", SHOWN["range-is-empty"]),
        ("rate/Real.low = 0", SHOWN["log-scale-needs-low-0"]),
        ("rate/Real.high = %highes", SHOWN["no-macro-highes-did-you"]),
        ("rate/Real.high = @adam()", SHOWN["no-plain-value-got-rate"]),
        ("a/Case.x = @rate/Real()", SHOWN["space-stands-where-no-value"]),
        ("adam/adam.b2 = [@rate/Real()]", SHOWN["space-stands-where-no-value-of"]),
        ("adam/adam.b2 = @rate/Real", SHOWN["space-is-a-call-expected"]),
        ('rate/Real.when = {"adam.b1": [0.5]}', SHOWN["conditions-form-a-cycle"]),
        ('rate/Real.when = {"adam.b": [0.5]}', SHOWN["adam-b-which-is-not"]),
        ("adam/Method.num_trials = 0", SHOWN["got-0-expected-an-integer"]),
        ("adam/Method.report_sessions = -1", SHOWN["got-1-expected-an-integer"]),
        ("adam/Method.median_stopping = 1.5", SHOWN["got-1-5-expected-a"]),
        (
            "adam/Method.stop_hopeless = 0.5",
            SHOWN["nothing-reads-adam-method-stop"],
        ),
        ("sgd/Method.optimizer = @sgd()\nsgd/Method.median_stopping = 0.5", SHOWN["nothing-reads-sgd-method-median"]),
        (
            'run/Method.command = "python {folder}"\nrun/Method.median_stopping = 0.5',
            SHOWN["nothing-reads-run-method-median"],
        ),
        ("sgd/Method.optimizer = @sgd()\nsgd/Method.search = @grid()", SHOWN["sgd-has-a-search-and"]),
        ("sgd/Method.optimizer = @sgd()\nsgd/Method.wave = 3", SHOWN["nothing-reads-sgd-method-wave"]),
        ("sgd/Method.optimizer = @sgd()\nsgd/sgd.learning_rate = @rate/Real()", SHOWN["sgd-has-a-space-and"]),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_runs(file: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read_experiment(file, [line])
    assert "\n" not in str(error.value)


def test_trials_hang_on_what_is_said_of_their_own_method(file: Path) -> None:
    before = search_identity(FILE, "adam")
    same = FILE + 'adam/Method.label = "A"\nsgd/Method.optimizer = @sgd()\nsgd/sgd.learning_rate = 0.1\n'
    assert search_identity(same.replace("num_trials = 9", "num_trials = 12"), "adam") == before
    changes = (
        "rate/Real.low = 1e-5",
        "adam/Method.median_stopping = 0.5",
        "adam/adam.b2 = 0.9",
        "Case.num_inner_steps = 3",
    )
    for line in (*changes, 'tpe/optuna.sampler = "gp"'):
        assert search_identity(f"{FILE}{line}\n", "adam") != before
    assert search_identity(f"{FILE}adam/adam.b2 = 0.8\n{FILE}", "adam") != before
    assert search_identity(FILE + FILE, "adam") == before, "--gin-param may repeat what the file has"


def test_a_search_is_the_same_in_a_file_of_another_folder() -> None:
    suites = ('["quick", "../suites/mine"]', '["quick", "mine"]', '["quick", "other"]')
    here, there, other = (search_identity(f"{FILE}Experiment.suites = {text}\n", "adam") for text in suites)
    assert here == there != other


def test_results_of_a_method_stay_while_nothing_of_it_changes() -> None:
    text = f"{FILE}Experiment.num_sessions = 3\nsgd/Method.optimizer = @sgd()\nsgd/sgd.learning_rate = 0.1\n"

    def same(earlier_line: str, line: str) -> tuple[bool, bool]:
        texts = f"{text}{earlier_line}\n", f"{text}{line}\n"
        return is_same_method("sgd", *texts), is_same_method("adam", *texts)

    assert same("", 'sgd/Method.label = "S"') == same("# code of sgd: 1", "") == (True, True)
    assert same("", "adam/adam.b2 = 0.9") == same("", 'tpe/optuna.sampler = "gp"') == (True, False)
    assert same("", "Experiment.num_sessions = 5") == (True, True), "the results are of the first of these sessions"
    assert same("", "Experiment.num_sessions = 2") == same("", "Case.num_inner_steps = 3") == (False, False)
    assert same("", "Experiment.first_session = 1") == (False, False)
    assert same("Experiment.first_session = 1", "Experiment.num_sessions = 4") == (True, True)
    assert same("", "Experiment.first_session = 0\nExperiment.num_sessions = 3\nsgd/sgd.learning_rate = 0.1") == (
        True,
        True,
    )
    assert same("", "sgd/sgd.momentum = 0.9") == same("# code of sgd: 1", "# code of sgd: 2") == (False, True)
    assert not is_same_method("sgd", FILE, text) and not is_same_method("sgd", text, FILE)
    sessions_of_cases = text.replace("Experiment.num_sessions = 3\n", "")
    assert is_same_method("sgd", sessions_of_cases, text, {0, 1})
    assert not is_same_method("sgd", sessions_of_cases, text, {1, 5}) and not is_same_method("sgd", text, FILE, {0})


def test_a_search_of_an_older_store_goes_on_under_the_new_name_of_its_key() -> None:
    line = "adam/Method.median_stopping = 0.5\n"
    older = search_identity(FILE + line.replace("median_stopping", "stop_hopeless"), "adam")
    assert older == search_identity(FILE + line, "adam") != search_identity(FILE, "adam")

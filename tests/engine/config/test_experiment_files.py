"""What an experiment's file says, and one clear line for each way to say it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of
from tiny import make_suite

from lobench.core.errors import ConfigError
from lobench.engine.config.experiment.file import ExperimentFile, read_experiment

SHOWN = texts_of("config")

GOOD = """
import optax_extras
Experiment.suites = ["tiny"]
Experiment.num_sessions = 3
shared_rate = 0.5
adam/Method.optimizer = @adam()
adam/adam.learning_rate = @rates/cosine()
adam/rates/cosine.peak = %shared_rate
rates/cosine.final = 1e-3
adam/Method.label = "Adam"
sgd/Method.optimizer = @sgd
sgd/sgd.learning_rate = 0.1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    (tmp_path / "theta.npz").touch()
    return tmp_path


def read(folder: Path, text: str, *params: str) -> ExperimentFile:
    (folder / "x.gin").write_text(text)
    return read_experiment(folder / "x.gin", params)


def refused(folder: Path, text: str, *params: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text, *params)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_methods_have_the_bindings_of_their_scopes_and_the_rest_is_for_all(folder: Path) -> None:
    found = read(folder, GOOD, "Experiment.num_sessions = 10", "adam/adam.b1 = 0.8", "Case.num_inner_steps = 4")
    experiment = found.experiment
    assert (experiment.name, experiment.num_sessions, experiment.sessions) == ("x", 10, range(10))
    assert experiment.suites == (str(folder / "tiny"),)
    adam, sgd = experiment.methods
    assert (adam.title, adam.kind, adam.optimizer, sgd.optimizer) == ("Adam", "optimizer", "@adam()", "@sgd()")
    assert adam.bindings == (
        "adam.learning_rate = @rates/cosine()",
        "rates/cosine.peak = %shared_rate",
        "adam.b1 = 0.8",
    )
    assert sgd.bindings == ("sgd.learning_rate = 0.1",)
    assert found.shared_lines == (
        SHOWN["import-optax-extras"],
        "shared_rate = 0.5",
        "rates/cosine.final = 0.001",
        "Case.num_inner_steps = 4",
    )


def test_root_bindings_of_a_file_with_cases_are_its_cases_defaults(folder: Path) -> None:
    text = "import tiny_tasks\nCase.num_seeds = 1\nown/Case.task = @Bowl()\nsgd/Method.optimizer = @sgd()\n"
    found = read(folder, text, "Case.num_seeds = 2")
    assert found.experiment.suites == (str(folder / "x.gin"),)
    assert found.shared_lines == (SHOWN["import-tiny-tasks"], "Case.num_seeds = 2")


def test_a_command_has_bindings_for_its_trainer_and_for_its_cases(folder: Path) -> None:
    text = """
Experiment.suites = ["tiny"]
mine/Method.command = "python train.py --seed {session} --out {folder} {gin}"
mine/Method.num_cpus = 2
mine/Case.learned_optimizer = @MLPLOpt()
mine/MLPLOpt.hidden_size = 4
mine/train.sigma = 0.1
"""
    (mine,) = read(folder, text).experiment.methods
    assert (mine.kind, mine.num_cpus, mine.checkpoints) == ("command", 2, "last")
    assert mine.bindings == ("Case.learned_optimizer = @MLPLOpt()", "MLPLOpt.hidden_size = 4")
    assert mine.trainer_bindings == (*mine.bindings, "train.sigma = 0.1")
    line = refused(folder, text.replace(" {gin}", ""))
    assert SHOWN["nothing-reads-train-sigma-of"] in line and SHOWN["put-into-its-command"] in line


def test_knobs_are_beside_what_a_method_binds_and_reach_what_they_call(folder: Path) -> None:
    knobs = '["adam.b1=0.8", "adam.learning_rate = @slow/cosine(); slow/cosine.peak = 0.1"]'
    text = f"{ADAM}adam/adam.b2 = 0.9\nadam/Method.knobs = {knobs}"
    (adam,) = read(folder, text).experiment.methods
    assert adam.knobs == ("adam.b1 = 0.8", "adam.learning_rate = @slow/cosine(); slow/cosine.peak = 0.1")
    assert adam.bindings == adam.trainer_bindings == ("adam.b2 = 0.9",)


SUITE = 'Experiment.suites = ["tiny"]\n'
ADAM = SUITE + "adam/Method.optimizer = @adam()\n"
KNOBS = ADAM + "adam/Method.knobs = "


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            SUITE + "adam/Method.label = 'Adam'",
            ["x.gin:2", SHOWN["method-adam-has-settings-and"], "Method.optimizer"],
        ),
        (SUITE + "adam/adam.learning_rate = 1", [SHOWN["experiment-has-no-method"]]),
        (ADAM + "adam/Method.optimizer = @sgd()", ["x.gin:3", SHOWN["two-methods-are-called-adam"]]),
        (ADAM + "b/Method.optimizer = @sgd()\nb/Method.label = 'adam'", [SHOWN["adam-and-b-have-the"]]),
        (ADAM + "adam/Method.checkpoint = 'theta.npz'", [SHOWN["has-optimizer-and-checkpoint"]]),
        (SUITE + "c/Method.checkpoint = 'no.npz'", ["x.gin:2", "method 'c'", SHOWN["no-such-checkpoint"], "no.npz"]),
        (SUITE + "c/Method.command = 'nosuchprogram {folder}'", [SHOWN["command-is-not-found"], "'nosuchprogram'"]),
        (SUITE + "c/Method.command = './train {folder}'", [SHOWN["command-is-not-found"], "'./train'"]),
        (
            SUITE + "c/Method.command = 'cd a && python b {folder}'",
            [SHOWN["no-shell"], "'cd'", "sh -c"],
        ),
        (SUITE + "c/Method.command = 'A=1 python b {folder}'", [SHOWN["no-shell"], "'A=1'", "sh -c"]),
        (
            SUITE + "c/Method.command = 'python b {folder} > log.txt'",
            [SHOWN["no-shell"], "'>'", "sh -c"],
        ),
        (
            SUITE + "c/Method.command = 'python b {folder}; ls'",
            [SHOWN["no-shell"], "'{folder};'", "sh -c"],
        ),
        (SUITE + "c/Method.command = 'python train.py'", [SHOWN["does-not-say"]]),
        (
            SUITE + "c/Method.command = 'python {folder} {sesion}'",
            [SHOWN["unknown-placeholder"], SHOWN["did-you-mean-session"]],
        ),
        (SUITE + "c/Method.command = 'python \"{folder}'", [SHOWN["no-command-line"]]),
        ("adam/Method.optimizer = @adam()", [SHOWN["experiment-has-no-case"], "Experiment.suites"]),
        (ADAM + "Experiment.num_session = 3", ["Experiment.num_session", SHOWN["did-you-mean-num-sessions"]]),
        (ADAM + "Experiment.num_sessions = 0", ["Experiment.num_sessions", "got 0", SHOWN["integer-1"]]),
        (ADAM + "Experiment.suites = 'tiny'", ["Experiment.suites", SHOWN["list-of-texts"]]),
        (ADAM + "Experiment.suites = ['none']", [SHOWN["no-such-suite"]]),
        (ADAM + "adam/Method.lable = 'A'", ["adam/Method.lable", SHOWN["did-you-mean-label"]]),
        (ADAM + "adam/Method.num_cpus = 2", ["adam/Method.num_cpus", SHOWN["method-command-alone"], "Case.num_cpus"]),
        (ADAM + "Method.label = 'A'", [SHOWN["method-is-a-scope"]]),
        (ADAM + "adam/Methd.label = 'A'", [SHOWN["nothing-reads-methd"], SHOWN["did-you-mean-method"]]),
        (ADAM + "adm/adam.learning_rate = 1", ["adm/adam.learning_rate", SHOWN["did-you-mean-adam"]]),
        (ADAM + "c/adam.b1 = 0.8", [SHOWN["c-is-neither-a-method"], SHOWN["such-as-c-method-optimizer"]]),
        (ADAM + "adam/adm.learning_rate = 1", [SHOWN["its-optimizer-is-adam-not"]]),
        (ADAM + "adam/adam.b1 = Real(0.8, 0.9)", ["x.gin:3", SHOWN["b1-real-with-lines-such"]]),
        (ADAM + "include 'none.gin'", [SHOWN["none-gin-cannot-read-the"], "x.gin:3"]),
        (ADAM + "adam/sgd.learning_rate = 1", [SHOWN["nothing-reads-sgd-learning-rate"]]),
        (ADAM + "adam/Case.num_inner_steps = 3", [SHOWN["method-adam-binds-case-num"], "Experiment.fixed = []"]),
        (ADAM + "adam/Bowl.dim = 3", [SHOWN["method-adam-binds-bowl-dim"]]),
        (SUITE + "adam/Method.optimizer = 'adam()'", ["adam/Method.optimizer", SHOWN["reference-such-as-adam"]]),
        (SUITE + "adam/Method.optimizer = @adam(", [SHOWN["gin-syntax-error"]]),
        (KNOBS + "'adam.b1 = 0.8'", ["adam/Method.knobs", SHOWN["list-of-texts"]]),
        (KNOBS + "['adam.b1 0.8']", [SHOWN["x-gin-3-knob-adam"], SHOWN["gin-syntax-error"]]),
        (KNOBS + "['']", ["x.gin:3: knob ''", SHOWN["knob-binds-values"]]),
        (KNOBS + "['import os']", [SHOWN["x-gin-3-knob-import"], SHOWN["knob-binds-values"]]),
        (
            KNOBS + "['sgd.learning_rate = 1']",
            [SHOWN["knob-sgd-rate"], SHOWN["nothing-reads-rate-of-knob"]],
        ),
        (KNOBS + "['Bowl.dim = 3']", [SHOWN["method-adam-binds-bowl-dim"]]),
        (KNOBS + "['adam.b1 = @Real()']", [SHOWN["knob-adam-b1-real"], SHOWN["space-stands-where"]]),
        (KNOBS + "['adam.b1 = 1', 'adam.b2 = 1; adam.b1 = 2']", [SHOWN["adam-b1-is-bound-twice"], "'adam.b1 = 1' too"]),
        (
            SUITE + "c/Method.command = 'python {folder}'\nc/Method.knobs = ['a.b = 1']",
            [SHOWN["nothing-reads-c-method-knobs"]],
        ),
        (
            KNOBS + "['adam.b1 = 1']\nadam/adam.b2 = @Real()\nReal.low = 0.1\nReal.high = 1\n"
            "adam/Method.search = @random()",
            [SHOWN["nothing-reads-adam-method-knobs"], SHOWN["got-method-search"]],
        ),
    ],
)
def test_bad_input_is_one_clear_line(folder: Path, text: str, parts: list[str]) -> None:
    line = refused(folder, text)
    assert [part for part in parts if part not in line] == [], line


def test_a_scope_is_no_method_and_case_at_once(folder: Path) -> None:
    assert SHOWN["scope-is-a-method-and"] not in refused(folder, ADAM + "adam/Case.task = @Bowl()")
    assert "'adam'" in refused(folder, ADAM + "adam/Case.task = @Bowl()")


def test_what_is_not_fixed_may_differ(folder: Path) -> None:
    text = ADAM + "Experiment.fixed = []\nadam/Case.num_inner_steps = 3\nadam/Bowl.dim = 3\n"
    (adam,) = read(folder, text).experiment.methods
    assert adam.bindings == ("Case.num_inner_steps = 3", "Bowl.dim = 3")


def test_a_parameter_binds_over_the_file(folder: Path) -> None:
    found = read(folder, ADAM, "adam/Method.optimizer = @sgd()", "adam/Method.label = 'SGD'")
    assert [(one.optimizer, one.label) for one in found.experiment.methods] == [("@sgd()", "SGD")]

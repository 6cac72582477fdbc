"""A study that cannot run is refused when it is created, in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import lobench
from lobench_pbt.study import study_from_json, study_to_json
from lobench_pbt.study_file import load_study, read_study
from shown import texts_of

from lobench import ConfigError

SHOWN = texts_of("pbt")

TRAINER = """
import gin
@gin.configurable
def outer(learning_rate=0.1, layers=2, momentum=0.9, name="sgd"):
    pass
"""
GOOD = """
import pbt_trainer
Study.population = 3
Study.generations = 2
Study.n_steps = 4
Study.objectives = [@loss/Objective()]
loss/Objective.metric = "train/loss"
loss/Objective.direction = "min"
Study.parameters = [@rate/Real(), @layers/Int(), @kind/Categorical(), @momentum/Discrete()]
rate/Real.path = "outer.learning_rate"
rate/Real.low = 1e-4
rate/Real.high = 1e-1
rate/Real.scale = "log"
layers/Int.path = "outer.layers"
layers/Int.low = 1
layers/Int.high = 4
kind/Categorical.path = "outer.name"
kind/Categorical.values = ["sgd", "sgdm"]
momentum/Discrete.path = "outer.momentum"
momentum/Discrete.values = [0.5, 0.9, 0.99]
momentum/Discrete.when = {"outer.name": ["sgdm"]}
"""
BAD = {
    "a reversed range": ("rate/Real.low = 1.0", SHOWN["outer-learning-rate-the-range"]),
    "an unknown gin path": ("rate/Real.path = 'outer.learning_rte'", "'outer.learning_rte'"),
    "an unknown configurable": ("rate/Real.path = 'inner.learning_rate'", "'inner.learning_rate'"),
    "a leaf name": ("rate/Real.path = 'learning_rate'", "'learning_rate'"),
    "0 in a multiplicative range": ("layers/Int.low = 0", SHOWN["multiplicative-rule-over-a-domain"]),
    "a log scale from 0": ("rate/Real.low = 0.0", SHOWN["log-scale-needs-low-0"]),
    "a cycle": ("kind/Categorical.when = {'outer.momentum': [0.9]}", SHOWN["conditions-form-a-cycle"]),
    "a condition on nothing": (
        "rate/Real.when = {'outer.depth': [1]}",
        SHOWN["depends-on-outer-depth-which"],
    ),
    "a condition on no value": ("rate/Real.when = {'outer.name': ['adam']}", SHOWN["no-value-of-outer-name"]),
    "no direction": ("loss/Objective.direction = ''", SHOWN["objective-train-loss-has-no"]),
    "another direction": ("loss/Objective.direction = 'down'", SHOWN["expected-one-of-min-max"]),
    "no objective": ("Study.objectives = []", SHOWN["at-least-one-metric-with"]),
    "two objectives in a tournament": (
        "Study.strategy = 'tournament'\nStudy.objectives = [@loss/Objective(), @loss/Objective()]",
        SHOWN["one-value"],
    ),
    "two objectives in tournaments of one's own line": (
        "Study.strategy = 'single_worker'\nStudy.objectives = [@loss/Objective(), @loss/Objective()]",
        SHOWN["study-strategy-single-worker-a"],
    ),
    "a value that is none": (SHOWN["kind-categorical-values-none-sgdm"], SHOWN["got-none-expected-texts"]),
    "a value of several": ("kind/Categorical.values = [(1, 2), 'sgdm']", SHOWN["got-1-2-expected-texts"]),
    "a value that is a function": (SHOWN["kind-categorical-values-outer-sgdm"], SHOWN["expected-texts-booleans"]),
    "an integer of more than 64 bits": ("momentum/Discrete.values = [1, 9223372036854775808]", "of 64 bits"),
    "a bound of more than 64 bits": ("layers/Int.high = 9223372036854775808", SHOWN["integers-of-64-bits"]),
    "a value that is not finite": ("momentum/Discrete.values = [0.5, 1e999]", SHOWN["finite-numbers"]),
    "a lease that is over as it begins": (
        "Study.lease_seconds = 0",
        SHOWN["study-lease-seconds-got-0"],
    ),
    "no time for fitness": ("Study.fitness_seconds = 0.0", SHOWN["study-fitness-seconds-got-0"]),
    "a text that would be true": ("Study.budget = 'no'", SHOWN["study-budget-got-no-expected"]),
    "no members": ("Study.population = 0", "Study.population"),
    "no population": ("Study.population = None", "Study.population"),
    "an unknown strategy": ("Study.strategy = 'lottery'", SHOWN["expected-one-of-exploit-explore"]),
    "an argument that the strategy refuses": ("Study.strategy = 'tournament:3'", SHOWN["takes-no-argument"]),
    "the same path twice": ("momentum/Discrete.path = 'outer.learning_rate'", SHOWN["two-parameters-have-one-path"]),
    "values that do not grow": ("momentum/Discrete.values = [0.9, 0.5]", SHOWN["expected-increasing-numbers"]),
    "an unknown binding": ("Study.popluation = 3", "popluation"),
    "a syntax error": ("Study.population = = 3", "study.gin"),
    "a schedule that is not there": ("Study.schedule = 'none.json'", SHOWN["cannot-read-the-schedule"]),
    "a strategy without its schedule": ("Study.strategy = 'fixed_schedule'", SHOWN["got-0-segments-expected-3"]),
    "a module that is not there": (SHOWN["import-no-such-module"], "no_such_module"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pbt_trainer.py").write_text(TRAINER)
    (tmp_path / "study.gin").write_text(GOOD)
    return tmp_path


def test_a_good_study_is_read_and_crosses_as_json(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pbt_trainer", raising=False)  # another test's may have been imported here
    study = read_study(folder / "study.gin")
    assert (study.name, study.population, len(study.parameters)) == ("study", 3, 4)
    assert study_from_json(study_to_json(study)) == study
    assert "pbt_trainer" not in sys.modules, "what the study imports stays out of the process that serves"


# Reads each study in a process of its own, and writes down why it is refused.
READ = f"""
import os, sys
from pathlib import Path
from lobench import LobenchError
from {load_study.__module__} import load_study
for study in sorted(Path(sys.argv[1]).glob("*/study.gin")):
    if os.fork() == 0:
        try:
            load_study(study)
        except LobenchError as error:
            study.with_suffix(".error").write_text(str(error))
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns the file with the refusal of each bad study; it is not there if the study was read."""
    top = tmp_path_factory.mktemp("bad")
    files = {what: top / str(number) / "study.error" for number, what in enumerate(BAD)}
    for what, file in files.items():
        file.parent.mkdir()
        (file.parent / "pbt_trainer.py").write_text(TRAINER)
        file.with_suffix(".gin").write_text(f"{GOOD}{BAD[what][0]}\n")
    subprocess.run([sys.executable, "-c", READ, top], check=True)
    return files


@pytest.mark.parametrize("what", BAD)
def test_a_bad_study_is_refused_in_one_line(refusals: dict[str, Path], what: str) -> None:
    refusal = refusals[what].read_text()
    assert BAD[what][1] in refusal and str(refusals[what].parent) in refusal
    assert len(refusal.splitlines()) == 1


def test_the_command_says_so_and_exits_with_2(folder: Path) -> None:
    (folder / "study.gin").write_text(GOOD + BAD["a reversed range"][0])
    done = lobench("pbt", "serve", folder / "study.gin", "--store", folder / "s")
    assert done.returncode == 2
    assert done.stderr.startswith("lobench: ") and len(done.stderr.splitlines()) == 1
    assert not (folder / "s").exists()


def test_a_schedule_follows_the_winners(folder: Path) -> None:
    params = [{"outer.learning_rate": rate} for rate in (0.1, 0.05, 0.01)]
    segments = [
        {"trial": 1, "parents": [], "start_step": 0, "n_steps": 4, "params": params[0], "seed": 1},
        {"trial": 2, "parents": [], "start_step": 0, "n_steps": 4, "params": params[1], "seed": 2},
        {"trial": 4, "parents": [1, 2], "start_step": 4, "n_steps": 4, "params": params[2], "seed": 4},
    ]
    (folder / "replay.json").write_text(json.dumps({"segments": segments}))
    lines = [
        "Study.parameters = [@rate/Real()]",
        "Study.strategy = 'fixed_schedule'",
        "Study.generations = None",
        "Study.schedule = 'replay.json'",
    ]
    (folder / "study.gin").write_text(GOOD + "\n".join(lines))
    study = read_study(folder / "study.gin")
    assert study.generations == 1
    assert [segment.seed for segment in study.schedule] == [1, 4]
    (folder / "replay.json").write_text(json.dumps({"segments": segments[2:]}))  # as `--from-step 4` prints it
    with pytest.raises(ConfigError, match=SHOWN["no-beginning-got-a-first"]):
        read_study(folder / "study.gin")


@pytest.mark.parametrize("text", ["", "{}", '{"version": 99}', "[]", "null"])
def test_what_is_no_study_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=SHOWN["not-a-study"]):
        study_from_json(text)

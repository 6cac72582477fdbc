"""`pytest SUITE --lobench-against REF` of commands, ordinary tests and items: the verdicts of `lobench compare`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from commands import Done, lobench, pytest_session
from pytest_plugin.test_gating import verdicts
from shown import texts_of
from test_items import answers, write_run

SHOWN = texts_of("pytest")

_TESTS = """

def test_step(checkpoint):
    assert checkpoint.outer_step < 2

def test_plain():
    assert True
"""
_SEEDS = """
loss/Case.command = "python loss.py {checkpoint} {seed} {out}"
loss/Case.curves = "{out}/loss.json"
loss/Case.primary_metric = "loss"
loss/Case.num_seeds = 4
"""
_LOSS = """
import json, pathlib, sys
values = json.loads((pathlib.Path(sys.argv[1]) / "answers.json").read_text()).values()
loss = 2.0 + 0.01 * int(sys.argv[2]) + 0.4 * (sum(values) < 40)
pathlib.Path(sys.argv[3], "loss.json").write_text(json.dumps({"loss": loss}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of commands, items and tests, three checkpoints, and a store with results of the first two."""
    folder = tmp_path_factory.mktemp("place")
    suite, run = write_run(
        folder, [answers(0, 30, step=0), answers(0, 30, step=0, extra="new"), answers(0, 30, step=1)]
    )
    with (suite / "test_lm.py").open("a") as file:
        file.write(_TESTS)
    text = (suite / "lm.gin").read_text()
    (suite / "lm.gin").write_text(text[: text.index("one/Case.command")] + _SEEDS)
    (suite / "loss.py").write_text(_LOSS)
    for step in (0, 1):
        done = session(folder, "--lobench-checkpoint", run / f"checkpoint-{step}")
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def session(folder: Path, *words: str | Path, store: str = "store") -> Done:
    return pytest_session("-q", "lm", "-p", "no:randomly", "--lobench-store", store, *words, cwd=folder)


def gate(folder: Path, step: int, against: str, *words: str | Path, store: str = "store") -> Done:
    checkpoint = f"run/checkpoint-{step}"
    how = ("--lobench-checkpoint", checkpoint, "--lobench-against", against, "--junitxml", folder / "junit.xml")
    return session(folder, *how, *words, store=store)


def compared(folder: Path, *names: str) -> dict:
    done = lobench("compare", *names, "--store", "store", "--format", "json", cwd=folder)
    return json.loads(done.stdout)[0]


def test_gate_of_commands_and_tests_has_the_verdicts_of_compare(folder: Path) -> None:
    done = gate(folder, 2, "run/checkpoint-1")
    assert done.returncode == 1, done.stdout + done.stderr
    found = compared(folder, "run/checkpoint-1", "run/checkpoint-2")
    expected = {name: one["gate"]["verdict"] for name, one in found["metrics"]["primary"]["cases"].items()}
    assert expected["lm/qa"] == "REGRESSED" and expected["lm/loss"] == "REGRESSED"
    told = {
        name.removeprefix("gate[").removesuffix("]"): one for name, (one, _) in verdicts(folder / "junit.xml").items()
    }
    assert {name: told[name] for name in expected} == expected
    assert told["lm/test_step"] == "REGRESSED" and told["lm/test_plain"] == "PASS"
    assert told["mean over the cases"] == found["metrics"]["primary"]["gate"]["verdict"]
    assert SHOWN["regressed-checkpoint-2-b"] in done.stdout
    assert SHOWN["passed-under-checkpoint-1-a"] in done.stdout
    shown = done.stdout.partition("lobench compare ")[2].partition("\n")[0]
    details = lobench("compare", *shlex.split(shown), cwd=folder)
    assert details.returncode == 1 and SHOWN["bounds-of-cases-hold"] in details.stdout, details.stderr


def test_gate_of_a_store_keeps_its_reference_and_passes_if_nothing_is_worse(folder: Path) -> None:
    for _ in range(2):
        done = gate(folder, 1, "store", "-k", "loss or plain")
        assert done.returncode == 0 and "PASS" in done.stdout, done.stdout + done.stderr
        assert "checkpoint-0" in done.stdout.partition(SHOWN["lobench-gate"])[2], done.stdout
    assert {name for name, _ in verdicts(folder / "junit.xml").items()} == {"gate[lm/loss]", "gate[lm/test_plain]"}


def test_reference_without_results_is_refused_before_anything_runs_and_the_advice_works(folder: Path) -> None:
    done = gate(folder, 1, "run/checkpoint-0", store="other")
    assert done.returncode == 4 and SHOWN["store-has-no-results-of"] in done.stderr, done.stderr
    assert not (folder / "other").exists()
    advice = shlex.split(done.stderr.partition("run `pytest ")[2].partition("` first")[0])
    assert pytest_session("-q", *advice, "-k", "plain", cwd=folder).returncode == 0
    done = gate(folder, 1, "run/checkpoint-0", "-k", "plain", store="other")
    assert done.returncode == 0 and SHOWN["passed-on-both-sides"] in done.stdout, done.stdout + done.stderr
    done = gate(folder, 1, "run/checkpoint-0", "-k", "loss", store="other")
    assert done.returncode == 4 and SHOWN["reference-has-no-results-on"] in done.stderr, done.stderr


def test_gate_of_commands_refuses_what_is_of_trainings_alone(folder: Path) -> None:
    done = gate(folder, 1, "baseline")
    assert done.returncode == 4 and SHOWN["for-commands-and-ordinary-tests"] in done.stderr
    done = gate(folder, 1, "run/checkpoint-0", "--lobench-adaptive-seeds", "16")
    assert done.returncode == 4 and SHOWN["adaptive-seeds-is-of-trainings"] in done.stderr

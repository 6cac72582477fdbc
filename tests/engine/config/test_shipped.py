"""Suites by name: a folder here wins over lobench's own, and what is there is said where nothing has the name."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import lobench
from reference import ROOT
from shown import texts_of
from tiny import make_run

import lobench as package
from lobench.core.errors import ConfigError, UsageError
from lobench.engine.config.experiment.file import read_experiment
from lobench.engine.config.shipped import find_suite, shipped_suites, suite_name
from lobench.experiments.tune import TuneSettings, tune_text

SHOWN = texts_of("config")

OWN = ROOT / "suites"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_name_is_a_folder_here_or_else_one_of_lobenchs_own() -> None:
    assert find_suite("quick") == OWN / "quick"
    assert find_suite("digits/mlp.gin") == OWN / "digits" / "mlp.gin"
    Path("quick").mkdir()
    assert find_suite("quick") == Path("quick")
    assert find_suite(str(OWN / "digits")) == OWN / "digits"
    assert {"quick", "digits", "reference"} <= set(shipped_suites())


@pytest.mark.parametrize("name", ["quik", "suites/quik", "../suites/quick", "/quick", "", ".."])
def test_a_name_that_is_none_lists_those_that_are(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "far" / "away"
    folder.mkdir(parents=True)
    if name in ("", ".."):
        assert find_suite(name, folder) == folder / name
        return
    with pytest.raises(UsageError, match=SHOWN["did-you-mean-quick-lobench"]):
        find_suite(name, folder)


def test_what_lies_beside_a_path_is_suggested_before_what_is_shipped() -> None:
    Path("mine/quicker").mkdir(parents=True)
    with pytest.raises(UsageError, match=SHOWN["did-you-mean-mine-quicker"]):
        find_suite("mine/quickre")


def test_lobenchs_own_are_called_by_their_names_and_others_by_their_paths() -> None:
    assert suite_name(OWN / "digits" / "mlp.gin") == "digits/mlp.gin"
    assert suite_name(Path("suites/quick")) == "suites/quick"
    done = lobench("list", "suites")
    assert SHOWN["bare-digits-bare-gin-relu32"] in done.stdout
    Path("suites").mkdir()
    Path("suites/mine.gin").write_text("x/Case.task = @Bowl()\n")
    assert lobench("list", "suites").stdout.startswith(SHOWN["suites-mine-gin-x-bare"])


def test_an_experiment_and_a_search_name_them_too(tmp_path: Path) -> None:
    (tmp_path / "e.gin").write_text('Experiment.suites = ["quick"]\na/Method.optimizer = @adam()\n')
    assert read_experiment(tmp_path / "e.gin").experiment.suites == (str(OWN / "quick"),)
    (tmp_path / "e.gin").write_text('Experiment.suites = ["quik"]\na/Method.optimizer = @adam()\n')
    with pytest.raises(ConfigError, match=SHOWN["experiment-suites-no-such-suite"]):
        read_experiment(tmp_path / "e.gin")
    text = tune_text(TuneSettings(suites=("quick",), optimizer="adam"), tmp_path / "far")
    assert "Experiment.suites = ['quick']" in text


def test_a_watch_a_baseline_and_a_notebook_name_them(tmp_path: Path) -> None:
    run = make_run(tmp_path, -3.0)
    done = lobench("watch", run, "--suite", "quadratik", "--once")
    assert done.returncode == 2 and SHOWN["did-you-mean-quadratic"] in done.stderr
    assert lobench("baseline", "quadratic", "--check").returncode == 0
    with pytest.raises(package.LobenchError, match=SHOWN["expected-one-of-relu32-tanh64x2"]):
        package.evaluate("bare/digits_bare.gin", case="x", optimizer="adam()")

"""Each tutorial of the site, followed to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import follow
from shown import texts_of

SHOWN = texts_of("lobench")


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """An empty folder of the name that pages show."""
    (tmp_path / "trial").mkdir()
    return tmp_path / "trial"


def test_a_first_suite_ends_in_gates(trial: Path) -> None:
    output = follow("tutorials/first-suite.md", trial)
    assert "2 passed" in output and "REGRESSED" in output and SHOWN["exit-code-1"] in output
    assert (trial / "mysuite" / "baselines" / "adam-velo.json").exists()


def test_a_run_is_watched_by_the_side_of_its_trainer(trial: Path) -> None:
    output = follow("tutorials/watch.md", trial)
    assert SHOWN["done-nothing-new"] in output and (trial / "report.html").exists()


def test_two_optimizers_are_compared(trial: Path) -> None:
    output = follow("tutorials/compare.md", trial)
    assert "Verdict.INCONCLUSIVE" in output


def test_an_experiment_is_planned_run_and_shown(trial: Path) -> None:
    output = follow("tutorials/experiment.md", trial)
    assert SHOWN["adam-tuned"] in output and (trial / "report.html").exists() and (trial / "table.tex").exists()


def test_a_plugin_is_installed_keeps_its_contract_and_is_used(trial: Path) -> None:
    output = follow("tutorials/plugin.md", trial)
    assert "journal: " in output and SHOWN["outer-step-1-1-of"] in output
    assert len((trial / "run/lobench_results/bowl/journal.jsonl").read_text().splitlines()) == 1

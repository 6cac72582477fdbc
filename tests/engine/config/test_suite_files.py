"""Edits of the files from which the cases of a watch come."""

from __future__ import annotations

from pathlib import Path

import pytest

from lobench.engine.config.run_configs import trainer_config_at
from lobench.engine.config.suite_files import SuiteFiles

BEFORE = "Case.learned_optimizer = @LearnableSGD()\n"


def suite_files(folder: Path) -> SuiteFiles:
    (folder / "suite").mkdir()
    (folder / "run").mkdir()
    (folder / "run" / "config.gin").write_text(BEFORE)
    found = SuiteFiles(
        [str(folder / "suite")],
        run=str(folder / "run"),
        run_config=lambda: trainer_config_at(str(folder / "run")),
    )
    found.record_state()
    return found


@pytest.mark.parametrize(
    ("text", "is_change"),
    [
        (f"# 12:00\n\n{BEFORE}", False),
        ("", False),
        (f"{BEFORE}LearnableSGD.initial_lr = 0.5\n", True),
        (f"{BEFORE}LearnableSGD.initial_lr = (", False),  # the trainer has not written all of it
        (f"{BEFORE}include 'more.gin'\n", False),  # or not the other file
        (None, False),
    ],
)
def test_changed_after_the_runs_config_was_written_anew_is_its_path(
    tmp_path: Path, text: str | None, is_change: bool
) -> None:
    files, config = suite_files(tmp_path), tmp_path / "run" / "config.gin"
    config.unlink()
    if text is not None:
        config.write_text(text)
    assert files.changed_file() == (config if is_change else None)
    config.write_text(BEFORE)
    assert files.changed_file() is None


@pytest.mark.parametrize("text", ["", None])
def test_a_config_that_had_statements_and_is_gone_or_empty_is_waited_for_also_after_a_restart(
    tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "config.gin").write_text("LearnableSGD.initial_lr = 0.5\n")  # of a folder of several runs
    files, config = suite_files(tmp_path), tmp_path / "run" / "config.gin"
    config.unlink()
    if text is not None:
        config.write_text(text)
    restarted = SuiteFiles([], run_config=lambda: trainer_config_at(str(tmp_path / "run")), former=files)
    for watched in (files, restarted):
        assert str(config) in watched.config_problem()
        assert watched.changed_file() is None
    assert SuiteFiles([], run_config=lambda: trainer_config_at(str(tmp_path / "run"))).config_problem() == ""
    config.write_text(BEFORE)
    assert files.config_problem() == restarted.config_problem() == ""


def test_changed_after_a_config_was_written_late_is_its_path(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    files = SuiteFiles([str(tmp_path)], run=str(tmp_path), run_config=lambda: trainer_config_at(str(tmp_path / "run")))
    files.record_state()
    (tmp_path / "run" / "config.gin").write_text(BEFORE)
    assert files.changed_file() == tmp_path / "run" / "config.gin"

"""The composite action's shell, run as a runner runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from report_store import make_store
from shown import texts_of

SHOWN = texts_of("examples")

ACTION = Path(__file__).parents[2] / "examples/github/action.yml"


def run_step(number: int, folder: Path, **values: str) -> tuple[int, dict[str, str], str]:
    """Runs a step's shell with GitHub's own flags; returns its exit code, its outputs, and what it printed."""
    step: dict[str, Any] = yaml.safe_load(ACTION.read_text())["runs"]["steps"][number]
    assert set(values) == set(step["env"]), "an input of the step is not given"
    outputs, summary = folder / "outputs", folder / "summary.md"
    outputs.touch()
    environment = {
        **os.environ,
        **values,
        "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_STEP_SUMMARY": str(summary),
        "RUNNER_TEMP": str(folder),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    outputs_by_name = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    return done.returncode, outputs_by_name, done.stdout + done.stderr


@pytest.mark.parametrize("option", ["", "--margin\n0.5\n--strict"])
def test_a_comparison_becomes_a_comment_a_summary_and_a_badge(tmp_path: Path, option: str) -> None:
    store = make_store(tmp_path)
    code, outputs_by_name, printed = run_step(
        *(0, tmp_path), A="0", B="3", SUITE="", STORE=str(store), OPTIONS=option, BADGE=str(tmp_path / "badge.svg")
    )
    assert code == 0, printed
    assert outputs_by_name["exit-code"] in ("0", "1")
    comment = Path(outputs_by_name["comment-file"]).read_text()
    assert comment.startswith("### ") and comment.endswith(SHOWN["lobench-compare"])
    assert (tmp_path / "summary.md").read_text() == comment
    assert (tmp_path / "badge.svg").read_text().startswith("<svg")


def test_a_name_is_a_word_and_no_shell(tmp_path: Path) -> None:
    name = "$(touch hacked); `touch hacked`"
    code, outputs_by_name, printed = run_step(
        *(0, tmp_path), A=name, B="3", SUITE="", STORE=str(make_store(tmp_path)), OPTIONS="", BADGE=""
    )
    assert (code, outputs_by_name["exit-code"]) == (0, "2"), printed
    assert SHOWN["no-result"] in Path(outputs_by_name["comment-file"]).read_text()
    assert not (tmp_path / "hacked").exists()


def test_the_comment_is_posted_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    gh = tmp_path / "bin/gh"
    gh.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > called\n')
    gh.chmod(0o755)
    code, _, printed = run_step(1, tmp_path, GH_TOKEN="t", PULL_REQUEST="7", COMMENT="a comment.md")
    assert code == 0, printed
    words = ["pr", "comment", "7", "--body-file", "a comment.md", "--edit-last", "--create-if-none"]
    assert (tmp_path / "called").read_text().splitlines() == words


@pytest.mark.parametrize("code", ["0", "1", "2"])
def test_the_job_ends_as_the_comparison_did(tmp_path: Path, code: str) -> None:
    assert run_step(2, tmp_path, CODE=code)[0] == int(code)


def test_what_steps_read_is_an_input_or_an_output() -> None:
    action = yaml.safe_load(ACTION.read_text())
    text = ACTION.read_text()
    for name in action["inputs"]:
        assert f"inputs.{name}" in text
    assert [step.get("shell") for step in action["runs"]["steps"]] == ["bash"] * 3

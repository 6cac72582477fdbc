"""The recipe of a leaderboard, run on bundles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import lobench
from report_store import make_store
from shown import texts_of

SHOWN = texts_of("examples")

FOLDER = Path(__file__).parents[2] / "examples/leaderboard"


def check(folder: Path, *arguments: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}
    command = [FOLDER / "check.sh", folder / "bundles", folder / "public", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bundles").mkdir()
    lobench("publish", make_store(tmp_path), "--output", tmp_path / "bundles/one run.lobench")
    return tmp_path


def test_a_new_bundle_is_audited_and_has_pages(folder: Path) -> None:
    done = check(folder, SAMPLE="0")
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "bundles/one run.lobench.audit.json").read_text())["passed"] is True
    assert SHOWN["not-audited-none-of-12"] in (folder / "public/index.html").read_text()
    again = check(folder, SAMPLE="0")
    assert (again.returncode, "auditing" in again.stdout) == (0, False)


def test_a_bundle_that_fails_ends_it_before_a_page_is_written(folder: Path) -> None:
    bundle = folder / "bundles/one run.lobench"
    bundle.write_bytes(bundle.read_bytes()[:-100])
    done = check(folder, SAMPLE="0")
    assert done.returncode == 2
    assert SHOWN["failed-its-audit"] in done.stderr
    assert not (folder / "public").exists()
    assert list(folder.glob("bundles/*.json*")) == []


def test_the_workflow_audits_without_secrets() -> None:
    found = yaml.safe_load((FOLDER / "workflow.yml").read_text())
    assert found["permissions"] == {"contents": "read"}
    steps = [step.get("run", "") for step in found["jobs"]["audit"]["steps"]]
    assert any(SHOWN["examples-leaderboard-check-sh-bundles"] in step for step in steps)
    assert "secrets." not in (FOLDER / "workflow.yml").read_text()

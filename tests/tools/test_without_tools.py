"""A tool is a plugin of lobench's own: without its folder the rest works, and its command is gone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from reference import ROOT
from tiny import PATIENCE, make_run, make_suite

_TOOLS = sorted(path.parent.name for path in (ROOT / "lobench" / "tools").glob("*/__init__.py"))


def _lobench(tree: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "lobench.cli", *map(str, arguments)]
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def _works_without(tools: list[str], folder: Path) -> None:
    """Removes tools, and runs `--help`, a watch and a report."""
    shutil.copytree(ROOT / "lobench", folder / "lobench")  # with what Python compiled of it
    for tool in tools:
        shutil.rmtree(folder / "lobench" / "tools" / tool)
    output = _lobench(folder, "--help")
    assert output.returncode == 0, output.stderr
    shown = {
        line.split()[0] for line in output.stdout.partition("Commands:")[2].splitlines() if line[:2] == "  " != line[:3]
    }
    gone = {"curve_import": "import", "viewer": "view"}
    assert not shown & {gone.get(tool, tool) for tool in tools} and {"watch", "report", "run"} <= shown
    suite, run = make_suite(folder), make_run(folder, -1.0)
    done = _lobench(folder, "watch", run, "--suite", suite, "--store", "store", "--once", "--executor", "inline")
    assert done.returncode == 0, done.stdout + done.stderr
    done = _lobench(folder, "report", "--store", "store", "--output", "report.html")
    assert done.returncode == 0 and (folder / "report.html").stat().st_size > 10_000, done.stdout + done.stderr


def test_without_any_tool_the_rest_works(tmp_path: Path) -> None:
    _works_without(_TOOLS, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("tool", _TOOLS)
def test_without_a_tool_the_rest_works(tool: str, tmp_path: Path) -> None:
    _works_without([tool], tmp_path)

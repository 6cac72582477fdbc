"""A tool is a plugin of lobench's own: without its folder the rest works, and its command is gone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from reference import ROOT
from tiny import PATIENCE, make_run, make_suite

_TOOLS = sorted(path.parent.name for path in (ROOT / "lobench" / "tools").glob("*/__init__.py"))


def _lobench(tree: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "lobench.cli", *map(str, arguments)]
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_without_any_tool_the_rest_works(tmp_path: Path) -> None:
    """The import contracts show that no tool needs another one."""
    shutil.copytree(ROOT / "lobench", tmp_path / "lobench")  # with what Python compiled of it
    for tool in _TOOLS:
        shutil.rmtree(tmp_path / "lobench" / "tools" / tool)
    output = _lobench(tmp_path, "--help")
    assert output.returncode == 0, output.stderr
    listed = output.stdout.partition("\nRun:\n")[2].partition("Plugins add commands")[0]
    shown = {line.split()[0] for line in listed.splitlines() if line[:2] == "  " != line[:3]}
    gone = {"curve_import": "import", "viewer": "view"}
    assert not shown & {gone.get(tool, tool) for tool in _TOOLS} and {"watch", "report", "run"} <= shown
    suite, run = make_suite(tmp_path), make_run(tmp_path, -1.0)
    done = _lobench(tmp_path, "watch", run, "--suite", suite, "--store", "store", "--once", "--executor", "inline")
    assert done.returncode == 0, done.stdout + done.stderr
    done = _lobench(tmp_path, "report", "--store", "store", "--output", "report.html")
    assert done.returncode == 0 and (tmp_path / "report.html").stat().st_size > 10_000, done.stdout + done.stderr

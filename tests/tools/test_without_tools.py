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

_IMPORT_COMMANDS = """
import lobench
from lobench.cli.group import cli, own_commands

for name in own_commands():
    cli.get_command(None, name)
print(lobench.__file__)
"""


def _lobench(tree: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "lobench.cli", *map(str, arguments)]
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def _removed(tools: list[str], folder: Path) -> None:
    """Copies lobench without some tools, with what Python compiled of it, and looks at its commands."""
    shutil.copytree(ROOT / "lobench", folder / "lobench")
    for tool in tools:
        shutil.rmtree(folder / "lobench" / "tools" / tool)
    output = _lobench(folder, "--help")
    assert output.returncode == 0, output.stderr
    listed = output.stdout.partition("\nRun:\n")[2].partition("Plugins add commands")[0]
    shown = {line.split()[0] for line in listed.splitlines() if line[:2] == "  " != line[:3]}
    gone = {"curve_import": "import", "viewer": "view"}
    assert not shown & {gone.get(tool, tool) for tool in tools} and {"watch", "report", "run"} <= shown


def test_without_any_tool_the_rest_works(tmp_path: Path) -> None:
    _removed(_TOOLS, tmp_path)
    suite, run = make_suite(tmp_path), make_run(tmp_path, -1.0)
    done = _lobench(tmp_path, "watch", run, "--suite", suite, "--store", "store", "--once", "--executor", "inline")
    assert done.returncode == 0, done.stdout + done.stderr
    done = _lobench(tmp_path, "report", "--store", "store", "--output", "report.html")
    assert done.returncode == 0 and (tmp_path / "report.html").stat().st_size > 10_000, done.stdout + done.stderr


@pytest.mark.parametrize("tool", _TOOLS)
def test_without_a_tool_the_other_commands_are_imported(tool: str, tmp_path: Path) -> None:
    """Watch and report need no tool, as the test above shows: the other tools might need this one."""
    _removed([tool], tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_COMMANDS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0 and str(tmp_path) in done.stdout, done.stdout + done.stderr

"""A command in a worker's slot: how it ends is one line, and what it prints is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lobench.engine.workers.command import command_words, run_command


def test_words_stand_for_session_folder_and_gin() -> None:
    values = {"session": "3", "folder": "/a b", "gin": "/g"}
    words = command_words(["python", "t.py", "--out={folder}/x", '{"a": {session}}', "{gin}"], values)
    assert words == (sys.executable, "t.py", "--out=/a b/x", '{"a": 3}', "/g")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('fine')", ""),
        (
            "import sys; sys.stderr.write('a\\nno such data\\n\\n'); sys.exit(3)",
            "exited with status 3: no such data",
        ),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
        ("raise SystemExit(1)", "exited with status 1"),
    ],
)
def test_an_end_is_one_line(tmp_path: Path, code: str, expected: str) -> None:
    log = tmp_path / "logs" / "mine-0"
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "mine-0.err").write_text("said by an earlier start\n")
    assert run_command([sys.executable, "-c", code], folder=str(tmp_path), log=str(log)) == expected
    assert (tmp_path / "logs" / "mine-0.out").read_text() == ("fine\n" if "fine" in code else "")


def test_a_command_that_cannot_start_is_a_line_too(tmp_path: Path) -> None:
    line = run_command([str(tmp_path / "none")], folder=str(tmp_path), log=str(tmp_path / "log"))
    assert "could not be run: " in line and "No such file" in line

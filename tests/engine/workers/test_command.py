"""A command in a worker's slot: how it ends is one line, and what it prints is kept."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from shown import texts_of

from lobench.engine.workers.command import CommandRunner
from lobench.engine.workers.placeholders import command_words, fill_placeholders
from lobench.engine.workers.protocol import Command

SHOWN = texts_of("workers")


def test_words_stand_for_session_folder_and_gin() -> None:
    values = {"session": "3", "folder": "/a b", "gin": "/g"}
    words = command_words(["python", "t.py", "--out={folder}/x", '{"a": {session}}', "{gin}"], values)
    assert words == (sys.executable, "t.py", "--out=/a b/x", '{"a": 3}', "/g")


@pytest.mark.parametrize("shell", [("bash", "-euo", "pipefail", "-c"), ("env", "A=1", "sh", "-e", "-c")])
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat {checkpoint}/m > {out}", ["cat", "{checkpoint}/m", ">", "{out}"]),
        (
            """cat "{checkpoint}/$A" '{out}' {flags} {other}""",
            ["cat", "{checkpoint}/$A", "{out}", "-a", "-b", "{other}"],
        ),
    ],
)
def test_path_in_the_script_of_a_shell_stays_one_word(shell: tuple[str, ...], script: str, expected: list[str]) -> None:
    values = {"checkpoint": "/my run's", "out": 'a "b" $c', "flags": "-a -b"}
    *before, filled_script = command_words([*shell, script], values)
    assert tuple(before) == shell
    paths = {"{checkpoint}": values["checkpoint"], "{out}": values["out"]}
    for name, value in paths.items():
        expected = [word.replace(name, value) for word in expected]
    assert shlex.split(filled_script) == expected


def run(words: Sequence[str], folder: Path, log: Path) -> str:
    return CommandRunner().run(Command(lease=1, words=tuple(words), folder=str(folder), log=str(log))).message


def test_a_value_is_filled_in_once_and_a_brace_of_something_else_stays() -> None:
    values = {"lr": "{out}", "out": "/x", "train.rate": "0.1"}
    assert fill_placeholders("{lr} {train.rate} {other} {}", values) == "{out} 0.1 {other} {}"


def test_a_command_that_is_stopped_before_it_begins_does_not_begin(tmp_path: Path) -> None:
    runner = CommandRunner()
    runner.stop(1)
    asked = Command(lease=1, words=(sys.executable, "-c", "open('x', 'w')"), folder=str(tmp_path), log=f"{tmp_path}/l")
    assert runner.run(asked).message == SHOWN["stopped-before-it-began"] and not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('fine')", ""),
        (
            "import sys; sys.stderr.write('a\\nno such data\\n\\n'); sys.exit(3)",
            SHOWN["exited-with-status-3-no"],
        ),
        ("import os; os.kill(os.getpid(), 9)", SHOWN["killed-by-signal-9"]),
        ("raise SystemExit(1)", SHOWN["exited-with-status-1"]),
    ],
)
def test_an_end_is_one_line(tmp_path: Path, code: str, expected: str) -> None:
    log = tmp_path / "logs" / "mine-0"
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "mine-0.err").write_text("said by an earlier start\n")
    assert run([sys.executable, "-c", code], tmp_path, log) == expected
    assert (tmp_path / "logs" / "mine-0.out").read_text() == ("fine\n" if "fine" in code else "")


def test_a_command_that_cannot_start_is_a_line_too(tmp_path: Path) -> None:
    line = run([str(tmp_path / "none")], tmp_path, tmp_path / "log")
    assert SHOWN["could-not-be-run"] in line and SHOWN["no-such-file"] in line

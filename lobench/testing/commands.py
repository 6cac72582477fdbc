"""Contract of commands: a plugin's test module subclasses `CommandContract`.

class TestHello(CommandContract):
    factory = "mypackage.cli:hello"
    arguments = ("--name", "you")
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import click
from click.testing import CliRunner, Result

from lobench.core.errors import LobenchError
from lobench.core.lazy import loaded

__all__ = ["CommandContract"]

_EXIT_CODES = (0, 1, 2, 3, 4, 130)


class CommandContract:
    """Tests that every command must pass.

    Attributes:
      factory: "module:attribute", as in the command's declaration.
      arguments: Arguments of a call that succeeds in an empty folder.
      wrong_arguments: Arguments of wrong calls that a user might type by mistake.
    """

    factory: ClassVar[str]
    arguments: ClassVar[Sequence[str]]
    wrong_arguments: ClassVar[Sequence[Sequence[str]]] = ()

    def command(self) -> click.Command:
        command: click.Command = loaded(self.factory)
        return command

    def run_command(self, *words: str) -> Result:
        return CliRunner().invoke(self.command(), list(words), prog_name="lobench contract")

    def test_it_is_a_command_with_a_line_of_help(self) -> None:
        assert isinstance(self.command(), click.Command)
        assert self.command().get_short_help_str(), "its function has no docstring"
        for parameter in self.command().params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, f"{parameter.opts[0]} has no help"

    def test_help_is_printed(self) -> None:
        result = self.run_command("--help")
        assert result.exit_code == 0 and result.output.startswith("Usage: "), result.output

    def test_a_wrong_option_is_a_usage_error(self) -> None:
        assert self.run_command(*self.arguments, "--no-such-option").exit_code == 2

    def test_a_wrong_call_is_one_clear_line(self, tmp_path: Path) -> None:
        for arguments in self.wrong_arguments:
            with contextlib.chdir(tmp_path):
                result = self.run_command(*arguments)
            assert not os.listdir(tmp_path), f"{arguments}: it wrote something first"
            if isinstance(result.exception, LobenchError):
                assert "\n" not in str(result.exception), f"{arguments}: {result.exception}"
            else:
                assert result.exit_code == 2, f"{arguments}: {result.exception!r}"

    def test_it_does_its_work_and_ends_with_a_documented_code(self, tmp_path: Path) -> None:
        with contextlib.chdir(tmp_path):
            result = self.run_command(*self.arguments)
            assert Path.cwd() == tmp_path, "it left the working directory"
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code in _EXIT_CODES, f"{result.exit_code} is not an exit code of lobench"
        assert result.exit_code == 0, result.output

    def test_importing_it_imports_no_jax(self) -> None:
        """`lobench --help` imports each command to show its summary."""
        code = f"import sys, {self.factory.partition(':')[0]}\nsys.exit('jax' in sys.modules)"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        completed = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert completed.returncode == 0, completed.stderr or "it imports jax, which takes seconds"

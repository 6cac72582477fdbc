"""Command line: the main command, options, output, exit codes, and the commands that are not tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lobench.core.lazy import on_first_use

if TYPE_CHECKING:
    from lobench.cli.group import cli, main, own_commands

__all__ = ["cli", "main", "own_commands"]

__getattr__ = on_first_use(__name__)

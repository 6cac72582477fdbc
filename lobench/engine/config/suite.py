"""Suites as pytest sees them: `cases("x.gin")` and which gin files hold cases of their own."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from lobench.core.case import CaseSpec
from lobench.core.errors import LobenchError
from lobench.engine.config.axes import cells_of
from lobench.engine.config.syntax import case_scopes, parse_file

if TYPE_CHECKING:
    import pytest

__all__ = ["cases", "claimed_gin_files", "specs_in"]


def specs_in(path: Path) -> list[CaseSpec]:
    """Returns the cases of a gin file in order; parses it without importing what it names.

    Raises:
      ConfigError: not readable, a syntax error.
    """
    path = path.resolve()
    root = path.parent.parent
    statements = parse_file(path)
    return [
        CaseSpec(path=str(path), scope=scope, root=str(root), cell=cell)
        for scope in case_scopes(statements)
        for cell in cells_of(statements, scope)
    ]


def cases(path: str | Path) -> pytest.MarkDecorator:
    """Parametrizes a test with the cases of a gin file, one for each scope that binds `Case.task`.

    Args:
      path: Relative to the file that calls.
    Returns:
      An ordinary `pytest.mark.parametrize` of the argument `case`; the ids are the scopes, or the
      cells of a scope that has axes.
    """
    import pytest  # a chief reads suites too, and runs no test

    caller = inspect.stack()[1].filename
    file = Path(caller).parent / path
    try:
        specs = specs_in(file)
    except LobenchError as error:
        # pytest shows this kind as its message alone.
        raise pytest.Collector.CollectError(str(error)) from error
    if not specs:
        raise pytest.Collector.CollectError(
            f"{file}: the file holds no case; expected a scope that binds Case.task, such as `x/Case.task = @MyTask()`"
        )
    return pytest.mark.parametrize("case", specs, ids=[spec.name for spec in specs])


def claimed_gin_files(folder: Path) -> set[Path]:
    """Returns the gin files that the folder's `test_*.py` name in a string, by reading, not by running them."""
    claimed: set[Path] = set()
    for file in folder.glob("test_*.py"):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue  # pytest reports it when it collects the file
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".gin"):
                claimed.add((folder / node.value).resolve())
    return claimed

"""Suites by name: a folder in the working directory, or a suite that ships with lobench."""

from __future__ import annotations

import ast
import os
from pathlib import Path, PurePath

from lobench.core.errors import UsageError, suggestion
from lobench.engine.paths import path_exists

__all__ = ["find_suite", "shipped_folder", "shipped_suite", "shipped_suites", "suite_name"]

_PACKAGE = Path(__file__).resolve().parents[2]


def shipped_folder() -> Path | None:
    """Returns the folder of lobench's own suites: in the installed package, or at the top of a checkout."""
    if (_PACKAGE / "suites").is_dir():
        return _PACKAGE / "suites"
    checkout_folder = _PACKAGE.parent
    return (
        checkout_folder / "suites"
        if (checkout_folder / "pyproject.toml").is_file() and (checkout_folder / "suites").is_dir()
        else None
    )


def shipped_suites() -> list[str]:
    """Returns the names of lobench's own suites."""
    folder = shipped_folder()
    return sorted(path.name for path in folder.iterdir() if any(path.glob("*.gin"))) if folder is not None else []


def shipped_suite(name: str) -> Path | None:
    """Returns the path of a shipped suite by name, such as `quick` or `digits/mlp.gin`, or None."""
    folder = shipped_folder()
    path_parts = PurePath(name).parts
    if folder is None or not path_parts or os.path.isabs(name) or path_parts[0] in ("..", ".") or ".." in path_parts:
        return None
    path = folder.joinpath(*path_parts)
    return path if path_exists(path) else None


def suite_name(suite: Path) -> str:
    """Returns the name of a suite if lobench ships it, otherwise its path."""
    folder = shipped_folder()
    is_own = folder is not None and suite.is_absolute() and suite.is_relative_to(folder)
    return suite.relative_to(folder).as_posix() if folder is not None and is_own else str(suite)


def find_suite(suite: str, folder: Path | None = None) -> Path:
    """Returns the path of a suite, given its path or the name of a shipped suite.

    Args:
      suite: `suites/quick`, `quick`, `digits/mlp.gin`. A path in the folder takes precedence over a shipped suite.
      folder: Folder that paths are relative to. None: the working directory.
    Raises:
      UsageError: The suite does not exist; the message names similar ones. Or the path is a file that is neither a
        gin file nor a test file.
    """
    path = Path(suite) if folder is None else folder / suite
    if path_exists(path):
        if path_exists(path, kind="file") and path.suffix != ".gin" and not _is_test_file(path):
            expected = "a folder, a .gin file, or a file of tests"
            is_checkpoint = path.suffix in (".npz", ".safetensors", ".pt", ".msgpack", ".pkl")
            advice = "if it is a checkpoint, name its folder, or one checkpoint, in front of the suite"
            raise UsageError(
                "this file is not a suite", where=suite, expected=expected, next_step=advice if is_checkpoint else ""
            )
        return path
    shipped_path = shipped_suite(suite)
    if shipped_path is not None:
        return shipped_path
    file, _, case = suite.rpartition(":") if ":" in path.name else suite.rpartition("/")
    if file.endswith(".gin") and path_exists(Path(file) if folder is None else folder / file, kind="file"):
        next_step = f"give {file!r}, and --case {case} if the command has this option"
        raise UsageError("this is a case, and not a suite", where=suite, next_step=next_step)
    try:
        neighbours = sorted(entry.name for entry in path.parent.iterdir() if entry.is_dir() or entry.suffix == ".gin")
    except OSError:
        neighbours = []
    suite_names = shipped_suites()
    names_by_shown_path = {str(Path(suite).parent / name): name for name in neighbours} | {
        name: name for name in suite_names
    }
    suggestion_text = suggestion(path.name, names_by_shown_path.values())
    advice = next(
        (
            f"did you mean {shown_path!r}? "
            for shown_path, name in names_by_shown_path.items()
            if repr(name) in suggestion_text
        ),
        "",
    )
    shipped_hint = f"lobench's own are {', '.join(suite_names)}: " if suite_names and not advice else ""
    raise UsageError(
        "no such suite", where=suite, next_step=f"{advice}{shipped_hint}`lobench list suites` shows lobench's suites"
    )


def _is_test_file(path: Path) -> bool:
    """Returns whether a Python file defines tests, without importing it.

    pytest would import any file, even a training script.
    """
    if path.suffix != ".py":
        return False
    try:
        statements = ast.parse(path.read_text(encoding="utf-8", errors="replace")).body
    except (OSError, SyntaxError, ValueError):
        return path.name.startswith("test_")  # pytest reports it
    definitions = (
        statement
        for statement in statements
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )
    return any(definition.name.lower().startswith("test") for definition in definitions)

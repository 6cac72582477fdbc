"""`lobench new`: a working skeleton of a suite, a task, an optimizer, a sink or a plugin, and a skill for agents.

Skeletons are copies of the working examples in `templates/KIND`, with `skeleton` replaced by the given name in contents
and paths.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import keyword
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from lobench.core.errors import UsageError
from lobench.core.wording import convert_errors
from lobench.engine.config.shipped import shipped_folder
from lobench.plugins import load_plugins

__all__ = ["KINDS", "NewRecord", "Skeleton", "SkeletonKind", "new"]

SkeletonKind: TypeAlias = Literal["suite", "task", "optimizer", "sink", "plugin", "skill"]
KINDS: tuple[SkeletonKind, ...] = get_args(SkeletonKind)

_TEMPLATES = Path(__file__).parent / "templates"
_MAX_CHARACTERS = 60  # characters; some file systems reject longer paths
_COMMANDS = "command_suite"  # templates of a suite of commands
_TESTS = "test_suite"  # templates of a suite of ordinary tests
_HOOKS = {"sink": "lobench_result_sinks", "plugin": "lobench_metrics"}
_NEXT_COMMANDS = {
    "suite": "pytest {folder} --lobench-optimizer 'adam(); adam.learning_rate = 0.01'",
    _COMMANDS: "lobench watch {folder}/example --suite {folder} --once",
    _TESTS: "lobench watch {folder}/example --suite {folder} --once",
    "task": "pytest {folder} --lobench-optimizer 'adam(); adam.learning_rate = 0.01'",
    "optimizer": "python {file} && pytest {folder} --lobench-checkpoint {theta}",
    "sink": "pytest {folder}",
    "plugin": "pip install -e {folder} && lobench plugins && pytest {folder}",
    "skill": "lobench keep --help",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """Written files of a skeleton.

    Attributes:
      kind: Kind of the skeleton.
      name: Name of its module.
      folder: Folder of the files.
      files: Paths, sorted.
      next_command: Command that runs its tests.
    """

    kind: SkeletonKind
    name: str
    folder: Path
    files: tuple[Path, ...]
    next_command: str


NewRecord: TypeAlias = Annotated[Skeleton, "`lobench new`: the written files."]


def new(
    kind: SkeletonKind, name: str, *, into: str | Path | None = None, command: bool = False, test: bool = False
) -> Skeleton:
    """Writes the files of a new suite, task, optimizer, sink, plugin or skill, to be filled in.

    Example:
        skeleton = new("task", "my_task")
        skeleton.next_command

    Args:
      kind: "suite", "task", "optimizer", "sink", "plugin" or "skill".
      name: Name of the module and the folder. A class gets it in CamelCase (`my_task`, `MyTask`). For a skill, any
        folder, such as `.claude/skills/lobench-keep`.
      into: Existing folder for the files, such as a suite. None: a new folder, NAME or lobench-NAME.
      command: Whether the cases of a suite are commands that evaluate a checkpoint, in place of tasks.
      test: Whether the cases of a suite are ordinary tests.
    Raises:
      UsageError: The name is invalid or taken, or a file would be overwritten. Nothing is written then.
    """
    if command and test:
        raise UsageError("--command and --test exclude each other", expected="one of them")
    if (command or test) and kind != "suite":
        option = "--command" if command else "--test"
        raise UsageError(f"{option} applies to a suite only", got=kind, expected=f"lobench new suite NAME {option}")
    if kind == "skill":
        return _write_skill(name, into)
    template = _COMMANDS if command else _TESTS if test else kind
    module, class_name = _module_and_class(kind, name)
    folder = Path(into) if into is not None else Path(_distribution_name(module) if kind == "plugin" else module)
    if into is None and _exists(folder):
        raise UsageError("this exists already", where=str(folder), next_step="take another name, or remove it")
    if into is not None and not folder.is_dir():
        raise UsageError("--into is not a folder", where=str(folder), expected="an existing folder")
    contents = {folder / path: text for path, text in _file_texts(template, module, class_name).items()}
    _check_absent(contents)
    _check_name_unused(kind, module, class_name)
    new_folder = folder if into is None else None
    _write_files(contents, new_folder=new_folder)
    named_paths = {"folder": folder, "file": folder / f"{module}.py", "theta": folder / "theta_0.npz"}
    line = _NEXT_COMMANDS[template].format(**{key: shlex.quote(str(path)) for key, path in named_paths.items()})
    return Skeleton(kind=kind, name=module, folder=folder, files=tuple(sorted(contents)), next_command=line)


def _write_skill(name: str, into: str | Path | None) -> Skeleton:
    """Writes the files of the skill into a folder, which may exist."""
    if into is not None:
        raise UsageError("--into does not apply to a skill", expected="lobench new skill FOLDER")
    folder = Path(name)
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            expected = "a new or an existing folder for SKILL.md, such as .claude/skills/lobench-keep"
            raise UsageError("this is a file, not a folder", where=str(path), expected=expected)
    contents = {folder / path: text for path, text in _file_texts("skill", "", "").items()}
    _check_absent(contents)
    _write_files(contents, new_folder=None)
    return Skeleton(
        kind="skill",
        name=folder.name,
        folder=folder,
        files=tuple(sorted(contents)),
        next_command=_NEXT_COMMANDS["skill"],
    )


def _module_and_class(kind: SkeletonKind, name: str) -> tuple[str, str]:
    """Returns the names of a module and of its class.

    Raises:
      UsageError: The names are invalid.
    """
    if kind not in KINDS:
        raise UsageError("no such skeleton", got=repr(kind), expected=f"one of {', '.join(KINDS)}")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    class_name = "".join(part[:1].upper() + part[1:] for part in module.split("_"))
    expected_name = ""
    if not (name.isascii() and name.isidentifier() and name[0].isalpha()):
        expected_name = "letters, digits and _, with a letter first, such as my_task"
    elif len(name) > _MAX_CHARACTERS:
        expected_name = f"{_MAX_CHARACTERS} characters at most"
    elif keyword.iskeyword(module) or keyword.iskeyword(class_name):
        expected_name = "no keyword of Python"
    elif module.startswith("test") or module.endswith("_test") or module in ("conftest", "lobench"):
        expected_name = "a name that means nothing to pytest or lobench (no conftest, nothing that begins with test)"
    if expected_name:
        raise UsageError("this cannot be the name", got=_shorten(name), expected=expected_name)
    return module, class_name


def _shorten(name: str) -> str:
    """Formats any name for an error of one line."""
    text = ascii(name)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."


def _check_absent(paths: Iterable[Path]) -> None:
    for path in paths:
        if _exists(path):
            raise UsageError(
                "this exists already", where=str(path), next_step="nothing was written: rename or remove it"
            )


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _check_name_unused(kind: SkeletonKind, module: str, class_name: str) -> None:
    """Checks that no module, built-in or configurable has the name. The new one would hide it or be rejected."""
    if used_names := {module, class_name} & _used_names(kind):
        raise UsageError(
            "Python or the skeleton has this name", got=repr(min(used_names)), next_step="take another name"
        )
    package = f"lobench_{module}" if kind == "plugin" else module
    shipped_suites = shipped_folder()
    if kind == "suite" and shipped_suites is not None and (shipped_suites / module).exists():
        raise UsageError("lobench has a suite of this name", got=repr(module), next_step="take another name")
    if kind in _HOOKS and module in load_plugins().declarations(_HOOKS[kind]):
        raise UsageError("a plugin has this name already", got=repr(module), next_step="take another name")
    if kind != "suite" and (package in sys.stdlib_module_names or importlib.util.find_spec(package) is not None):
        raise UsageError("a module of this name is installed", got=repr(package), next_step="take another name")
    if kind in ("task", "optimizer"):
        from lobench.engine.config.binding import is_registered
        from lobench.engine.config.bound import bind_case  # noqa: F401  (it makes names of its own: Case, Phase, ...)

        for module_of_names in load_plugins().gin_modules():
            importlib.import_module(module_of_names)
        if is_registered(class_name):
            raise UsageError("gin has this name already", got=repr(class_name), next_step="take another name")


def _used_names(kind: SkeletonKind) -> set[str]:
    """Returns the names of Python's built-ins, and the names that the skeleton imports."""
    names = set(dir(builtins))
    for path in (_TEMPLATES / kind).rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
        names |= {alias.asname or alias.name for node in imports for alias in node.names}
    return names - {"skeleton", "Skeleton"}


def _file_texts(kind: str, module: str, class_name: str) -> dict[Path, str]:
    """Returns the texts of the files by path in the folder."""
    folder = _TEMPLATES / kind
    return {
        Path(_fill_in_names(path.relative_to(folder).as_posix(), module, class_name)): _fill_in_names(
            path.read_text(encoding="utf-8"), module, class_name
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _fill_in_names(text: str, module: str, class_name: str) -> str:
    names = {"lobench-skeleton": _distribution_name(module), "skeleton": module, "Skeleton": class_name}
    return re.sub("|".join(names), lambda match: names[match[0]], text)


def _distribution_name(module: str) -> str:
    return f"lobench-{module.replace('_', '-')}"


def _write_files(contents: dict[Path, str], *, new_folder: Path | None) -> None:
    """Writes new files. If one fails, all are removed."""
    written_paths = list[Path]()
    with convert_errors(OSError, UsageError, "cannot write this", where=next(iter(contents)).parent):
        try:
            for path, text in contents.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("x", encoding="utf-8") as file:
                    written_paths.append(path)
                    file.write(text)
        except OSError:
            if new_folder is not None:
                shutil.rmtree(new_folder, ignore_errors=True)
            for path in written_paths:
                path.unlink(missing_ok=True)
            raise

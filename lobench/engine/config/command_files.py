"""Files of a command: the scripts that it names, their imports, and further files; and their fingerprint.

Scripts and modules are searched in the folder in which the command runs. Folders below it are searched too if the
command changes to them (`cd tools`, `make -C tools`) or puts them on the import path (`PYTHONPATH=src`). If a package
installs the command, such as `mytrain`, the modules that its entry point imports count.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from lobench.core.code import CodeFingerprint
from lobench.core.errors import ConfigError
from lobench.engine.config.source_files import CODE_SUFFIXES, IMPORT_PATTERN
from lobench.engine.config.user_code import code_fingerprint
from lobench.engine.retries import is_transient, retried_briefly

__all__ = ["CommandFiles", "check_no_shell_syntax"]

_SHELL_SUFFIXES = (".sh", ".bash", ".zsh")
_MAKEFILES = ("GNUmakefile", "Makefile", "makefile")
_PYTESTS = ("pytest", "py.test")
_TASKFILES = ("Taskfile.yml", "Taskfile.yaml", "taskfile.yml", "taskfile.yaml")
_DOCKERFILES = ("Dockerfile", "Containerfile", "compose.yaml", "compose.yml", "docker-compose.yml")
# Build tools and task runners, with the files that they read in their working directory without an argument.
_BUILD_TOOL_FILES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("make", "gmake"), _MAKEFILES),
    **dict.fromkeys(("inv", "invoke"), ("tasks.py", "tasks/__init__.py")),
    **dict.fromkeys(("npm", "npx", "yarn", "pnpm"), ("package.json",)),
    **dict.fromkeys(("task", "go-task"), _TASKFILES),
    **dict.fromkeys(_PYTESTS, ("conftest.py",)),
    **dict.fromkeys(("docker", "podman"), _DOCKERFILES),
    "cargo": ("Cargo.toml", "Cargo.lock", "build.rs", "src/**/*.rs"),
    "cmake": ("CMakeLists.txt",),
    "go": ("go.mod", "go.sum", "*.go", "*/*.go", "*/*/*.go"),
    "meson": ("meson.build",),
    "doit": ("dodo.py",),
    "just": ("justfile", "Justfile", ".justfile"),
    "ninja": ("build.ninja",),
    "nox": ("noxfile.py",),
    "scons": ("SConstruct",),
    "snakemake": ("Snakefile", "workflow/Snakefile"),
    "tox": ("tox.ini",),
}
# Suffixes of files in `_MAKERS` that have no lines of shell.
_NON_SHELL_SUFFIXES = (".py", ".rs", ".go", ".sum", ".lock")
_SHELL_FILES = frozenset(
    os.path.basename(file)
    for files in _BUILD_TOOL_FILES.values()
    for file in files
    if PurePath(file).suffix not in _NON_SHELL_SUFFIXES
)
_PATTERNS = frozenset(file for files in _BUILD_TOOL_FILES.values() for file in files if "*" in file)
_MAX_SOURCES = 1000  # files that match one pattern of `_MAKERS`
# Tables of entry points.
_ENTRY_POINT_TABLES = (("project", "scripts"), ("project", "gui-scripts"), ("tool", "poetry", "scripts"))
_FOLDER_CHANGE = re.compile(r"(?:\b(?:cd|pushd)|(?:^|\s)(?:-C|--directory|--chdir|--project))(?:\s+|=)([^;&|\n]*)")
_ASSIGNMENT = re.compile(r"(?:^|[\s;&|\"'])[A-Za-z_]\w*=([^\s;&|]*)")
_VARIABLE = re.compile(r"\$\w+")
# The command writes these: `> log.txt`, `| tee log.txt`.
_OUTPUT_FILE = re.compile(r"&?>{1,2}\|?\s*[^\s;&|<>()]+|\|&?\s*tee\b[^;&|<>()\"'`\n]*")
_PROGRAM_NAME = re.compile(r"[A-Za-z_][\w.-]*")
# If the path of Python is long or has a space, pip writes `#!/bin/sh` and starts Python in the second line.
_PYTHON_HEADER = re.compile(r"#!(?:/bin/sh\n'''exec' )?.*\bpython")
_MAX_SCRIPT_BYTES = 100_000  # largest size of a script that pip wrote for an entry point
_QUOTED_TEXT = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)  # parts that a shell takes as they are
_OPERATOR = re.compile(r"&&|\|\|?|&|;|.*;|(\d|&)?>.*|<.*", re.DOTALL)  # operators between the words of a shell command
_SHELL_BUILTIN = re.compile(
    r"cd|export|source|\.|set|ulimit|if|for|while|case|exec|eval|trap|umask|\(.*|!|[A-Za-z_]\w*=.*"
)
_PROGRAM_PREFIX = re.compile(r"env|[A-Za-z_]\w*=.*", re.DOTALL)


def check_no_shell_syntax(command: str, called: str, where: str) -> None:
    """Checks that a command is a program with its arguments, since no shell runs it.

    Args:
      command: The command, without unmatched quotes.
      called: Name of the command in messages.
      where: Location of the command in messages.
    Raises:
      ConfigError: It has a word without quotes that only a shell understands: `a && b`, `cd tools`, `a > log.txt`.

    >>> check_no_shell_syntax("sh -c 'cd tools && python train.py'", "method 'mine'", "x.gin:1")
    """
    masked_command = _QUOTED_TEXT.sub(lambda quoted: "q" * len(quoted[0]), command)
    words = list(re.finditer(r"\S+", masked_command))
    shell_words = [word for word in words[:1] if _SHELL_BUILTIN.fullmatch(word[0])]
    shell_words += [word for word in words if _OPERATOR.fullmatch(word[0])]
    if shell_words:
        raise ConfigError(
            f"{called}: no shell runs the command",
            where=where,
            got=repr(command[slice(*shell_words[0].span())]),
            expected="a program and its arguments",
            next_step="start a shell, sh -c 'cd tools && python train.py {out}', or write a script",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFiles:
    """Code of a command that runs in a folder.

    Attributes:
      command: The command, with placeholders `{NAME}`.
      folder: Folder in which it runs.
      placeholder_values: Values of placeholders that are equal in all runs.
      files: Patterns of further files, relative to the folder.
      files_label: Name of `files` in messages, such as `Method.files`, with the method or case before it.
    """

    command: str
    folder: Path
    placeholder_values: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()
    files_label: str = "files"

    def fingerprint(self) -> CodeFingerprint:
        """Returns the fingerprint of the present content of the files, and of everything that they import.

        Raises:
          ConfigError: A pattern of `files` names no file.
        """
        named_files = retried_briefly(self._named_files)
        further_files = retried_briefly(self._further_files)
        files = {**named_files.files, **dict.fromkeys(further_files)}
        modules = [*self._modules_run(), *named_files.modules]
        folders = [str(folder) for folder in named_files.folders]
        return code_fingerprint(
            files, modules=modules, folders=[str(self.folder)], added_folders=folders, as_imported=False
        )

    def _named_files(self) -> _NamedFiles:
        """Returns the files, folders and modules named by the words of the command, except its program."""
        named_files = _NamedFiles(self.folder)
        words = self._filled_words()
        program_index = next((index for index, word in enumerate(words) if not _PROGRAM_PREFIX.fullmatch(word)), -1)
        if program_index >= 0 and _is_installed(words[program_index]):
            named_files.add_entry_point(words[program_index])
            name = os.path.basename(words.pop(program_index))
            words[program_index:program_index] = [name] if name in _BUILD_TOOL_FILES else []
        for index, word in enumerate(words):
            if index > 0 and words[index - 1] == "-c" and IMPORT_PATTERN.search(word):  # Python
                named_files.modules |= dict.fromkeys(_imported_modules(word))
            named_files.add_word(word)
        named_files.add_line(shlex.join(words))
        return named_files

    def _filled_words(self) -> list[str]:
        """Returns the words of the command with values in place of `{NAME}`, if these are equal in all runs."""
        filled_words = (
            re.sub(r"\{([\w./]+)\}", lambda match: self.placeholder_values.get(match[1], match[0]), word)
            for word in shlex.split(self.command)
        )
        return [word for word in filled_words if "{" not in word or " " in word]

    def _further_files(self) -> list[Path]:
        further_files: dict[Path, None] = {}
        for pattern in self.files:
            files = sorted(path for path in self.folder.glob(pattern) if path.is_file()) if pattern else []
            if not files:
                raise ConfigError(
                    f"{self.files_label} names no file",
                    where=str(self.folder),
                    got=repr(pattern),
                    expected="a path or a pattern relative to this folder, such as 'lib/*.py'",
                )
            further_files.update(dict.fromkeys(files))
        return list(further_files)

    def _modules_run(self) -> list[str]:
        """Returns the module of `python -m my_package.train`, and its `__main__` in case it is a package."""
        words = [word for word in self._filled_words() if " " not in word]
        module_names = [words[index + 1] for index, word in enumerate(words[:-1]) if word == "-m" and index > 0]
        return [*module_names, *(f"{name}.__main__" for name in module_names)]


class _NamedFiles:
    """Files, folders and modules that the words of a command name.

    Shell lines and shell scripts are searched for further names, relative to the working directory, to the script's
    folder, and to folders to which they change. Folders outside of the working directory are not searched.

    Args:
      folder: Working directory of the command.
    Attributes:
      files: Files.
      folders: Folders to which the command changes, or that may be on its import path.
      modules: Modules that Python's option `-c` or the script of an entry point imports.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: dict[Path, None] = {}
        self.folders: dict[Path, None] = {}
        self.modules: dict[str, None] = {}

    def add_word(self, word: str, near_folders: Sequence[Path] = ()) -> None:
        """Adds the files named by a word: a path, `--config=FILE`, or a shell line.

        Args:
          word: Word or line.
          near_folders: Folders of the scripts in which the word occurs.
        """
        is_path = False
        for name in dict.fromkeys([word, word.partition("=")[2], word.removeprefix("@")]):
            for folder in (
                dict.fromkeys([self._folder, *near_folders, *self.folders]) if name and "{" not in name else ()
            ):
                path = Path(os.path.normpath(folder / name))
                for file in (path, path / "__main__.py"):  # `python tools` runs tools/__main__.py
                    if _is_file(file):
                        is_path = True
                        self._add_file(file, near_folders)
                if word in _PATTERNS:
                    for file in itertools.islice(sorted(filter(_is_file, folder.glob(word))), _MAX_SOURCES):
                        self._add_file(file, near_folders)
        if not is_path and re.search(r"\s", word):  # words have no spaces
            self.add_line(word, near_folders)

    def add_line(self, shell_text: str, near_folders: Sequence[Path] = ()) -> None:
        """Adds the files named by shell lines, except files written by redirection or by `tee`."""
        shell_text = "\n".join(line for line in shell_text.splitlines() if not line.lstrip().startswith("#"))
        shell_text = _OUTPUT_FILE.sub(" ", shell_text)
        folder_words = [word for matched_text in _FOLDER_CHANGE.findall(shell_text) for word in _words_in(matched_text)]
        folder_words += [
            word
            for matched_text in _ASSIGNMENT.findall(shell_text)
            for word in _words_in(matched_text.replace(os.pathsep, " "))
        ]
        words = _words_in(shell_text)
        num_folders = -1
        while len(self.folders) != num_folders:  # again from the folders that were found
            num_folders = len(self.folders)
            for word in folder_words:
                self._add_folder(word, near_folders)
            for word in words:
                self.add_word(word, near_folders)
        for word in words:
            self.add_entry_point(word)

    def add_entry_point(self, word: str) -> None:
        """Adds the modules of a command that is an entry point of an installed package or of the user's project."""
        if not _PROGRAM_NAME.fullmatch(word):
            return
        if (module := self._entry_points.get(word)) is not None:
            self.modules[module] = None
            source = self._folder / "src"
            if _is_folder(source):
                self.folders[source] = None
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        program_path = shutil.which(word, path=path)
        if program_path and os.path.getsize(program_path) < _MAX_SCRIPT_BYTES:
            text = Path(program_path).read_text(encoding="utf-8", errors="replace")
            if _PYTHON_HEADER.match(text):
                self.modules |= dict.fromkeys(_imported_modules(text))

    @functools.cached_property
    def _entry_points(self) -> Mapping[str, str]:
        """Module of each command that the pyproject.toml of the working directory declares, by its name."""
        try:
            project = tomllib.loads((self._folder / "pyproject.toml").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:  # a broken file is the concern of its own program
            if isinstance(error, OSError) and is_transient(error, retries_forbidden=False):
                raise
            return {}
        tables = [_table_in(project, names) for names in _ENTRY_POINT_TABLES]
        targets = {name: target for table in tables for name, target in table.items() if isinstance(target, str)}
        return {name: target.partition(":")[0].strip() for name, target in targets.items()}

    def _add_file(self, file: Path, near_folders: Sequence[Path]) -> None:
        is_script = file not in self.files and _is_script(file)
        is_elsewhere = not file.is_relative_to(self._folder) and file.suffix not in CODE_SUFFIXES
        is_user_code = is_script or (bool(_python_text(file)) and not _is_on_program_path(file))
        if is_elsewhere and not is_user_code and os.access(file, os.X_OK):
            return  # a program of this machine, such as its python
        if file not in self.files:
            self.files[file] = None
            if is_script:
                text = file.read_text(encoding="utf-8", errors="replace")
                self.add_line(text, [*dict.fromkeys([*near_folders, file.parent])])
            elif not file.suffix and (text := _python_text(file)):  # `./train`, which begins with `#!` and Python
                self.modules |= dict.fromkeys(_imported_modules(text))
                if file.parent != self._folder:
                    self.folders[file.parent] = None

    def _add_folder(self, word: str, near_folders: Sequence[Path]) -> None:
        for folder in dict.fromkeys([self._folder, *near_folders, *self.folders]) if word.strip("./") else ():
            candidate = Path(os.path.normpath(folder / word))
            if candidate != self._folder and candidate.is_relative_to(self._folder) and _is_folder(candidate):
                self.folders[candidate] = None


def _words_in(text: str) -> list[str]:
    """Returns the words of shell lines that may name files. `$HERE/x.py` becomes `x.py`."""
    text = _VARIABLE.sub(" ", text)
    words = re.findall(r"[^\s\"'`;&|()<>$={}]+", text)
    module_names = [name.replace(".", "/") for name in re.findall(r"\s-m\s+([\w.]+)", text)]
    modules = [f"{name}{suffix}" for name in module_names for suffix in (".py", "/__init__.py", "/__main__.py")]
    makefiles = [file for word in words for file in _BUILD_TOOL_FILES.get(os.path.basename(word), ())]
    return [*dict.fromkeys([*words, *(word.lstrip("/") for word in words), *modules, *makefiles, *_conftests(words)])]


def _conftests(words: Sequence[str]) -> list[str]:
    """Returns the conftest.py files of all folders around the tests, if the words call pytest."""
    if not any(os.path.basename(word) in _PYTESTS for word in words):
        return []
    test_paths = [PurePath(word.partition("::")[0]) for word in words if not word.startswith("-")]
    return [f"{folder}/conftest.py" for test_path in test_paths for folder in (test_path, *test_path.parents)]


def _imported_modules(text: str) -> list[str]:
    """Returns the modules that the text after Python's option `-c` imports."""
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError):
        return []
    module_names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return [*module_names, *(node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module)]


def _is_file(file: Path) -> bool:
    return _is_true_of_path(file.is_file)


def _is_folder(path: Path) -> bool:
    return _is_true_of_path(path.is_dir)


def _is_true_of_path(check: Callable[[], bool]) -> bool:
    """Returns the result of a check of a path; False if the text cannot be a path, such as a whole shell line.

    Raises:
      OSError: The disk fails at the moment.
    """
    try:
        return check()
    except (OSError, ValueError) as error:
        if is_transient(error, retries_forbidden=False):
            raise
        return False


def _is_installed(program: str) -> bool:
    """Returns whether the program of a command is installed on this machine and is not a script of the user.

    A program with a path is the user's if it is a script in a folder that is not on the path of programs.
    """
    if "/" not in program:
        return True
    file = Path(program)
    if not file.is_absolute():
        return False
    is_code = file.suffix in CODE_SUFFIXES or (_is_file(file) and (_is_script(file) or bool(_python_text(file))))
    return not is_code or _is_on_program_path(file)


def _is_on_program_path(file: Path) -> bool:
    """Returns whether a program is in a folder of PATH, or in the same folder as a Python."""
    folders = [os.path.dirname(sys.executable), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return str(file.parent) in folders or (file.parent / "python").exists()


def _python_text(file: Path) -> str:
    """Returns the text of an executable Python script; "" for other files."""
    text = _script_text(file)
    return text if _PYTHON_HEADER.match(text) else ""


def _is_script(file: Path) -> bool:
    has_script_name = file.suffix in _SHELL_SUFFIXES or file.name in _SHELL_FILES
    return has_script_name or re.match(r"#!.*\b(ba|da|z|k)?sh\b", _script_text(file)) is not None


def _script_text(file: Path) -> str:
    """Returns the text of a file that begins with `#!`; "" for other files."""
    try:
        with file.open("rb") as script_file:
            content = script_file.read(_MAX_SCRIPT_BYTES) if script_file.read(2) == b"#!" else b""
    except OSError as error:
        if is_transient(error, retries_forbidden=False):
            raise
        return ""
    return f"#!{content.decode('utf-8', 'replace')}" if content else ""


def _table_in(document: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Returns a table of a TOML document by its keys; {} if there is none."""
    table: Any = document
    for name in names:
        table = table.get(name, {}) if isinstance(table, dict) else {}
    return table if isinstance(table, dict) else {}

"""Files of a command: the scripts that it names, what they import, and further files; and their fingerprint."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lobench.core.code import CodeFingerprint
from lobench.core.errors import ConfigError
from lobench.engine.config.user_code import fingerprint_of

__all__ = ["CommandFiles"]

_SHELL_SUFFIXES = (".sh", ".bash", ".zsh")
_MAKEFILES = ("GNUmakefile", "Makefile", "makefile", "justfile")
_MAKERS = ("make", "gmake", "just")  # programs that read these without a word that names one


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFiles:
    """Code of a command that runs in a folder.

    Attributes:
      command: The command, with placeholders `{NAME}`.
      folder: Folder in which it runs.
      values: Values of placeholders that are equal in all runs.
      files: Patterns of further files, relative to the folder.
      called: Name of `files` in messages, such as `Method.files`, with the method or case before it.
    """

    command: str
    folder: Path
    values: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()
    called: str = "files"

    def fingerprint(self) -> CodeFingerprint:
        """Returns the fingerprint of the files as they are now, and of everything that they import.

        Raises:
          ConfigError: A pattern of `files` names no file.
        """
        files, places = self._named()
        return fingerprint_of(
            files, modules=self._modules(), folders=[str(self.folder)], added=[*map(str, places)], as_imported=False
        )

    def _words(self) -> list[str]:
        """Returns the words of the command with values in place of `{NAME}`, if these are equal in all runs."""
        filled = (
            re.sub(r"\{([\w./]+)\}", lambda found: self.values.get(found[1], found[0]), word)
            for word in shlex.split(self.command)
        )
        return [word for word in filled if "{" not in word or " " in word]

    def _named(self) -> tuple[list[Path], list[Path]]:
        """Returns the files that the command names with those of `files`, and the folders that it names.

        A folder may be one that the command changes to, or one of its `PYTHONPATH`.
        """
        found, places = dict[Path, None](), dict[Path, None]()
        for place, word in enumerate(self._words()):
            is_program = place == 0 and ("/" not in word or word.startswith("/"))
            if not is_program:
                _add_named(word, [self.folder], found, places)
        if any(maker in re.split(r"[\s/;&|]", self.command) for maker in _MAKERS):
            for name in _MAKEFILES:
                _add_named(name, [self.folder], found, places)
        for pattern in self.files:
            files = sorted(one for one in self.folder.glob(pattern) if one.is_file()) if pattern else []
            if not files:
                raise ConfigError(
                    f"{self.called} names no file",
                    where=str(self.folder),
                    got=repr(pattern),
                    expected="a path or a pattern relative to this folder, such as 'lib/*.py'",
                )
            found.update(dict.fromkeys(files))
        return list(found), list(places)

    def _modules(self) -> list[str]:
        """Returns the module of `python -m my_package.train`, and the one that runs if it is a package."""
        words = [word for word in self._words() if " " not in word]
        named = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "-m" and place > 0]
        return [*named, *(f"{name}.__main__" for name in named)]


def _add_named(text: str, folders: Sequence[Path], found: dict[Path, None], places: dict[Path, None]) -> None:
    """Adds the files and folders that a word of a command names: a path, `--config=FILE`, or a line for a shell.

    A shell's line or script is read for those that it names itself, from the working directory, from the script's own
    folder, and from the folders that it names.

    Args:
      text: Word or line.
      folders: Folders from which paths count.
      found: Files that are known, which get those of the text.
      places: Folders that are known, which get those of the text.
    """
    is_path, value = False, text.partition("=")[2]
    for name in dict.fromkeys([text, value, *value.split(os.pathsep)]):
        for folder in dict.fromkeys([*folders, *places]) if name and "{" not in name else ():
            file = Path(os.path.normpath(folder / name))
            if _is_file(file):
                is_path = True
                if file not in found:
                    found[file] = None
                    lines = file.read_text(encoding="utf-8", errors="replace") if _is_script(file) else ""
                    _add_words(lines, [*dict.fromkeys([*folders, file.parent])], found, places)
            elif name.strip("./") and _is_folder(file) and file not in folders:
                places[file] = None
    if not is_path and re.search(r"\s", text):  # words have no spaces
        _add_words(text, folders, found, places)


def _add_words(lines: str, folders: Sequence[Path], found: dict[Path, None], places: dict[Path, None]) -> None:
    """Adds what the words of a shell's lines name; a second time from the folders that were named the first time."""
    words, num_before = _words_in(lines), -1
    while len(places) != num_before:
        num_before = len(places)
        for word in words:
            _add_named(word, folders, found, places)


def _words_in(text: str) -> list[str]:
    """Returns the words of a shell script that may name files, without comments; of `$HERE/x.py`, the last part."""
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = re.findall(r"[^\s\"'`;&|()<>$={}]+", text)
    named = [name.replace(".", "/") for name in re.findall(r"\s-m\s+([\w.]+)", text)]
    modules = [f"{name}{end}" for name in named for end in (".py", "/__main__.py")]
    parts = [part for word in words for part in (word, word.lstrip("/"), *word.split(os.pathsep))]
    return [*dict.fromkeys([*parts, *modules, *(_MAKEFILES if any(one in words for one in _MAKERS) else ())])]


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except (OSError, ValueError):  # a whole line for a shell is no name of a file
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _is_script(file: Path) -> bool:
    if file.suffix in _SHELL_SUFFIXES or file.name in _MAKEFILES:
        return True
    try:
        with file.open("rb") as opened:
            return re.match(rb"#!.*\b(ba|da|z|k)?sh\b", opened.readline(200)) is not None
    except OSError:
        return False

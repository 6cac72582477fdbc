"""Files of a command: the scripts that it names, their imports, and further files; and their fingerprint."""

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
_MAKEFILES = ("Makefile", "makefile", "justfile")


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
        """Returns the fingerprint of the present content of the files, and of everything that they import.

        Raises:
          ConfigError: A pattern of `files` names no file.
        """
        return fingerprint_of(self._files(), modules=self._modules(), folders=[str(self.folder)], as_imported=False)

    def _words(self) -> list[str]:
        """Returns the words of the command with values in place of `{NAME}`, if these are equal in all runs."""
        filled = (
            re.sub(r"\{([\w./]+)\}", lambda found: self.values.get(found[1], found[0]), word)
            for word in shlex.split(self.command)
        )
        return [word for word in filled if "{" not in word or " " in word]

    def _files(self) -> list[Path]:
        """Returns the files that the command names, and those of `files`."""
        found: dict[Path, None] = {}
        for place, word in enumerate(self._words()):
            is_program = place == 0 and ("/" not in word or word.startswith("/"))
            found.update({} if is_program else _files_named(word, [self.folder]))
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
        return list(found)

    def _modules(self) -> list[str]:
        """Returns the module of `python -m my_package.train`."""
        words = [word for word in self._words() if " " not in word]
        return [words[place + 1] for place, word in enumerate(words[:-1]) if word == "-m" and place > 0]


def _files_named(text: str, folders: Sequence[Path], seen: dict[Path, None] | None = None) -> dict[Path, None]:
    """Returns the files that a word of a command names: a file, `--config=FILE`, or a line for a shell that names some.

    A shell's script is read for those that it names itself, from the working directory or from its own folder.
    """
    found = {} if seen is None else seen
    for name in (text, text.partition("=")[2]):
        for folder in folders if name and "{" not in name else ():
            file = Path(os.path.normpath(folder / name))
            if not _is_file(file):
                continue
            if file not in found:
                found[file] = None
                inside = [*dict.fromkeys([*folders, file.parent])]
                for word in _words_in(file.read_text(encoding="utf-8", errors="replace")) if _is_script(file) else ():
                    _files_named(word, inside, found)
            return found
    for word in _words_in(text) if re.search(r"\s", text) else ():  # words have no spaces
        _files_named(word, folders, found)
    return found


def _words_in(text: str) -> list[str]:
    """Returns the words of a shell script that may name files, without comments; of `$HERE/x.py`, the last part."""
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = re.findall(r"[^\s\"'`;&|()<>$={}]+", text)
    modules = [f"{name.replace('.', '/')}.py" for name in re.findall(r"\s-m\s+([\w.]+)", text)]
    return [*dict.fromkeys([*words, *(word.lstrip("/") for word in words), *modules])]


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except (OSError, ValueError):  # a shell line may be too long for a file's name
        return False


def _is_script(file: Path) -> bool:
    if file.suffix in _SHELL_SUFFIXES or file.name in _MAKEFILES:
        return True
    try:
        with file.open("rb") as opened:
            return re.match(rb"#!.*\b(ba|da|z|k)?sh\b", opened.readline(200)) is not None
    except OSError:
        return False

"""Code of commands: fingerprints of their scripts, and which stored results of a command are of today's script."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lobench.core.code import CodeFingerprint, changed_code_line
from lobench.core.errors import ConfigError
from lobench.core.experiment import Method
from lobench.engine.config.experiment.file import ExperimentFile
from lobench.engine.config.user_code import fingerprint_of
from lobench.engine.store.ledger import Ledger

__all__ = ["CommandCode", "code_of_commands", "record_command_codes", "with_code"]

_EVENT = "method_code"  # of the ledger: which code a command was run with, in order
_SHOWN = 8  # digits of a fingerprint in the name of a folder
_SHELL_SUFFIXES = (".sh", ".bash", ".zsh")
_MAKEFILES = ("GNUmakefile", "Makefile", "makefile", "justfile")
_MAKERS = ("make", "gmake", "just")  # programs that read these without a word that names one
_OLD_FOLDER = re.compile(r"-[0-9a-f]{8}$")  # of commands of an older lobench, whose code is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCode:
    """Code of a command, and the results that count.

    Attributes:
      method: Method with `Method.code` of the results that count.
      todays: Present fingerprint of the script and its files.
      counted: Fingerprint of the results that count; "" if unknown.
      others: Fingerprints of results made by other code.
      is_kept: Whether results of other code count, by `--keep-results`.
    """

    method: Method
    todays: CodeFingerprint
    counted: str
    others: tuple[str, ...] = ()
    is_kept: bool = False


def code_of_commands(
    file: ExperimentFile, methods: Sequence[Method], ledger: Ledger | None, *, keep_results: bool
) -> list[CommandCode]:
    """Returns the code of each method that is a command.

    Args:
      file: Experiment file.
      methods: Methods of the run.
      ledger: Ledger of the store; None if there is none.
      keep_results: Whether results of other code count.
    Raises:
      ConfigError: A file of `Method.files` does not exist.
    """
    return [_code_of(method, file.path.parent, ledger, keep_results) for method in methods if method.command]


def with_code(file: ExperimentFile, codes: Sequence[CommandCode]) -> ExperimentFile:
    """Returns the experiment with the code of its commands."""
    by_name = {code.method.name: code.method for code in codes}
    methods = tuple(by_name.get(method.name, method) for method in file.experiment.methods)
    return replace(file, experiment=replace(file.experiment, methods=methods))


def record_command_codes(codes: Sequence[CommandCode], ledger: Ledger) -> Iterator[str]:
    """Records which code commands are run with; yields a line for each whose stored results are of other code."""
    for code in codes:
        name, todays = code.method.name, code.todays.id
        ledger.record_code({todays: code.todays.parts} if todays else {})
        if code.is_kept:
            ledger.accept_code([(f":{code.counted}", f":{todays}")])
        last = _recorded(ledger, name)[-1:]
        detail = {"method": name, "code": code.counted or todays, "is_old": code.method.code is None}
        if last != [detail]:
            ledger.record_event(_EVENT, **detail)
        if code.others:
            changes = [(f":{other}", f":{todays}") for other in code.others]
            yield f"{code.method.title}: {changed_code_line(changes, ledger.code_parts, kept=code.is_kept)}"


def _code_of(method: Method, folder: Path, ledger: Ledger | None, keep_results: bool) -> CommandCode:
    files, places = _named_by(method, folder)
    todays = fingerprint_of(
        files, modules=_modules_of(method), folders=[str(folder)], added=[*map(str, places)], as_imported=False
    )
    if ledger is None:
        return CommandCode(method=replace(method, code=todays.id), todays=todays, counted=todays.id)
    recorded, folders = _recorded(ledger, method.name), _folders_done(ledger, method.name)
    if not recorded and any(_OLD_FOLDER.search(one) for one in folders):
        return CommandCode(method=replace(method, code=None), todays=todays, counted="")
    for detail in reversed(recorded):
        if ledger.counts(f":{detail['code']}", f":{todays.id}"):
            code = None if detail["is_old"] else detail["code"]
            return CommandCode(method=replace(method, code=code), todays=todays, counted=detail["code"])
    if not recorded:
        return CommandCode(method=replace(method, code=todays.id), todays=todays, counted=todays.id)
    last = recorded[-1]
    code = None if last["is_old"] else last["code"]
    suffix = re.compile(f"-{code[:_SHOWN]}$") if code else _OLD_FOLDER
    others = tuple(last["code"] for one in folders if suffix.search(one))
    if keep_results:
        return CommandCode(
            method=replace(method, code=code), todays=todays, counted=last["code"], others=others, is_kept=True
        )
    return CommandCode(method=replace(method, code=todays.id), todays=todays, counted=todays.id, others=others)


def _recorded(ledger: Ledger, name: str) -> list[dict[str, Any]]:
    return [detail for _, detail in ledger.events(_EVENT) if detail["method"] == name]


def _folders_done(ledger: Ledger, name: str) -> list[str]:
    """Returns the folder of each session of a command, or of a trial of it, that ended well."""
    rows = [row for form in ledger.experiments() for row in ledger.trials(form.id) if row.state == "done"]
    folders = [str(row.parameters.get("folder", "")).partition("/")[0] for row in rows]
    return [one for one in folders if re.fullmatch(re.escape(name) + r"(-[0-9a-f]{8}){1,2}", one)]


def _words_of(method: Method) -> list[str]:
    """Returns the words of a command with values in place of `{NAME}`, if these are equal in all sessions."""
    values = method.values
    filled = (
        re.sub(r"\{([\w./]+)\}", lambda found: values.get(found[1], found[0]), word)
        for word in shlex.split(method.command)
    )
    return [word for word in filled if "{" not in word or " " in word]


def _named_by(method: Method, folder: Path) -> tuple[list[Path], list[Path]]:
    """Returns the files that a command names with those of `Method.files`, and the folders that it names.

    A folder may be one that the command changes to, or one of its `PYTHONPATH`.
    """
    found, places = dict[Path, None](), dict[Path, None]()
    for place, word in enumerate(_words_of(method)):
        is_program = place == 0 and ("/" not in word or word.startswith("/"))
        if not is_program:
            _add_named(word, [folder], found, places)
    if any(maker in re.split(r"[\s/;&|]", method.command) for maker in _MAKERS):
        for name in _MAKEFILES:
            _add_named(name, [folder], found, places)
    for pattern in method.files:
        files = sorted(one for one in folder.glob(pattern) if one.is_file()) if pattern else []
        if not files:
            raise ConfigError(
                f"method {method.name!r}: Method.files names no file",
                where=str(folder),
                got=repr(pattern),
                expected="a path or a pattern relative to the experiment's file, such as 'lib/*.py'",
            )
        found.update(dict.fromkeys(files))
    return list(found), list(places)


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


def _modules_of(method: Method) -> list[str]:
    """Returns the module of `python -m my_package.train`, and the one that runs if it is a package."""
    words = [word for word in _words_of(method) if " " not in word]
    named = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "-m" and place > 0]
    return [*named, *(f"{name}.__main__" for name in named)]

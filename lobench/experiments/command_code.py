"""Code of commands: fingerprints of their scripts, and selection of stored results from the present script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lobench.core.code import CodeFingerprint, changed_code_line, changed_parts
from lobench.core.errors import ConfigError
from lobench.core.experiment import Method
from lobench.engine.config.command_files import CommandFiles
from lobench.engine.config.experiment.file import ExperimentFile
from lobench.engine.store.codes import METHOD_CODE_EVENT, SHOWN_DIGITS
from lobench.engine.store.data_files import changed_data_of_command
from lobench.engine.store.ledger import Ledger

__all__ = [
    "CommandCode",
    "code_of_commands",
    "edited_file_of",
    "record_command_codes",
    "record_command_data",
    "with_code",
]

_OLD_FOLDER = re.compile(r"-[0-9a-f]{8}$")  # folder of an older lobench's command, whose code is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCode:
    """Code of a command, and the results that count.

    Attributes:
      method: Method with `Method.code` of the results that count.
      current: Present fingerprint of the script and its files.
      counting_code: Fingerprint of the results that count; "" if unknown.
      other_codes: Fingerprints of results made by other code.
      is_kept: Whether results of other code count, by `--keep-results`.
    """

    method: Method
    current: CodeFingerprint
    counting_code: str
    other_codes: tuple[str, ...] = ()
    is_kept: bool = False


def code_of_commands(
    file: ExperimentFile, methods: Sequence[Method], ledger: Ledger | None, *, keep_results: bool
) -> list[CommandCode]:
    """Returns the code of each method that is a command.

    Args:
      file: Experiment file.
      methods: Methods of the run.
      ledger: Ledger of the store; None before the first run.
      keep_results: Whether results of other code count.
    Raises:
      ConfigError: A file of `Method.files` does not exist.
    """
    return [_code_of(method, file.path.parent, ledger, keep_results) for method in methods if method.command]


def with_code(file: ExperimentFile, codes: Sequence[CommandCode]) -> ExperimentFile:
    """Returns the experiment with the code of its commands."""
    methods_by_name = {code.method.name: code.method for code in codes}
    methods = tuple(methods_by_name.get(method.name, method) for method in file.experiment.methods)
    return replace(file, experiment=replace(file.experiment, methods=methods))


def record_command_codes(codes: Sequence[CommandCode], ledger: Ledger) -> Iterator[str]:
    """Records the code that each command runs with; yields a line for each that has results of other code."""
    for code in codes:
        name, current_code = code.method.name, code.current.id
        ledger.record_code({current_code: code.current.parts} if current_code else {})
        if code.is_kept:
            ledger.accept_code([(f":{code.counting_code}", f":{current_code}")])
        last_codes = _recorded_codes(ledger, name)[-1:]
        detail = {"method": name, "code": code.counting_code or current_code, "is_old": code.method.code is None}
        if last_codes != [detail]:
            ledger.record_event(METHOD_CODE_EVENT, **detail)
        if code.other_codes:
            changes = [(f":{other_code}", f":{current_code}") for other_code in code.other_codes]
            yield f"{code.method.title}: {changed_code_line(changes, ledger.code_parts, is_kept=code.is_kept)}"


def record_command_data(codes: Sequence[CommandCode], ledger: Ledger, *, is_recorded: bool = True) -> Iterator[str]:
    """Records the data files that the code of each command names; yields a line for each command whose files changed.

    Results of other code are reported by `record_command_codes`, without such a line.

    Args:
      codes: Code of each method that is a command.
      ledger: Ledger of the store.
      is_recorded: Whether the files are recorded.
    """
    for code in codes:
        data = code.current.data_files - code.current.files.keys()
        line = changed_data_of_command(ledger, code.method.name, data, "Method.files", is_recorded=is_recorded)
        if line and not code.other_codes:
            yield f"{code.method.title}: {line}"


def edited_file_of(code: CommandCode, folder: Path) -> str:
    """Returns the name of a file of a command's code that was edited since `code` was made; "" if none was.

    Args:
      code: Code of the command.
      folder: Folder in which it runs.
    """
    try:
        fingerprint = _fingerprint_of(code.method, folder)
    except ConfigError:  # a file of `Method.files` is gone
        return "Method.files"
    return next(iter(changed_parts(code.current.parts, fingerprint.parts)), "")


def _fingerprint_of(method: Method, folder: Path) -> CodeFingerprint:
    files_label = f"method {method.name!r}: Method.files"
    files = CommandFiles(
        command=method.command,
        folder=folder,
        placeholder_values=method.values,
        files=method.files,
        files_label=files_label,
    )
    return files.fingerprint()


def _code_of(method: Method, folder: Path, ledger: Ledger | None, keep_results: bool) -> CommandCode:
    current_code = _fingerprint_of(method, folder)
    if ledger is None:
        return CommandCode(
            method=replace(method, code=current_code.id), current=current_code, counting_code=current_code.id
        )
    recorded_codes = _recorded_codes(ledger, method.name)
    folders = _finished_folders(ledger, method.name)
    if not recorded_codes and any(_OLD_FOLDER.search(folder) for folder in folders):
        return CommandCode(method=replace(method, code=None), current=current_code, counting_code="")
    for detail in reversed(recorded_codes):
        if current_code.id and not detail["code"]:
            continue  # files of its code have been found since
        if ledger.counts_as_current(f":{detail['code']}", f":{current_code.id}"):
            code = None if detail["is_old"] else detail["code"]
            return CommandCode(method=replace(method, code=code), current=current_code, counting_code=detail["code"])
    if not recorded_codes:
        return CommandCode(
            method=replace(method, code=current_code.id), current=current_code, counting_code=current_code.id
        )
    last_code = recorded_codes[-1]
    code = None if last_code["is_old"] else last_code["code"]
    suffix_pattern = re.compile(f"-{code[:SHOWN_DIGITS]}$") if code else _OLD_FOLDER
    other_codes = tuple(last_code["code"] for folder in folders if suffix_pattern.search(folder))
    if keep_results:
        return CommandCode(
            method=replace(method, code=code),
            current=current_code,
            counting_code=last_code["code"],
            other_codes=other_codes,
            is_kept=True,
        )
    return CommandCode(
        method=replace(method, code=current_code.id),
        current=current_code,
        counting_code=current_code.id,
        other_codes=other_codes,
    )


def _recorded_codes(ledger: Ledger, name: str) -> list[dict[str, Any]]:
    return [detail for _, detail in ledger.events(METHOD_CODE_EVENT) if detail["method"] == name]


def _finished_folders(ledger: Ledger, name: str) -> list[str]:
    """Returns the folders of a command's completed sessions, including those of its trials in a search."""
    rows = [row for form in ledger.experiments() for row in ledger.trials(form.id) if row.state == "done"]
    folders = [str(row.parameters.get("folder", "")).partition("/")[0] for row in rows]
    return [folder for folder in folders if re.fullmatch(re.escape(name) + r"(-[0-9a-f]{8}){1,2}", folder)]

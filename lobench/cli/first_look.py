"""Overview of a folder for `lobench` without arguments: its contents, and the next command for each item.

Only names and the beginnings of gin files are examined, nothing in the folder is imported, and the work is bounded.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from lobench.core.wording import counted, one_line

__all__ = ["first_look"]

_MOST_ENTRIES = 2_000  # entries of a folder
_MOST_LISTED = 3  # items of each kind
_MOST_TEXT = 1 << 16  # characters of a gin file
_STORE_FOLDERS = (".lobench", "lobench_results")  # folders of stores
_CHECKPOINT_SUFFIXES = (".npz", ".safetensors", ".pkl", ".pickle", ".joblib", ".pt", ".pth", ".msgpack", ".flax")
_CURVE_SUFFIXES = (".csv", ".csv.gz", ".jsonl")
_STEP_NAME = re.compile(r"(?:checkpoint|ckpt|step|global_step)?[_-]?\d+")
_BINDINGS = re.compile(r"^\s*(?:[\w/.]+/)?(Experiment|Case)\.\w+\s*=", re.MULTILINE)


def first_look(folder: Path) -> list[str]:
    """Returns two lines for each recognized item: its description and the next command."""
    return [
        line
        for description, command in _recognized_items(folder)
        for line in (one_line(description), f"  {one_line(command)}")
    ]


def _recognized_items(folder: Path) -> Iterator[tuple[str, str]]:
    entries = _sorted_entries(folder)
    inner_entries = list(itertools.islice(_subfolder_entries(entries), _MOST_ENTRIES))
    candidates = dict.fromkeys((folder, *entries, *_store_candidates(entries), *_store_candidates(inner_entries)))
    stores = [location for location in candidates if _is_file(location / "ledger.sqlite")]
    for store in stores[:_MOST_LISTED]:
        name = _relative_text(store, folder)
        yield f"{name} is a store of results", f"lobench view {name}      # or: lobench results --store {name}"
    if len(stores) > _MOST_LISTED:
        yield counted(len(stores) - _MOST_LISTED, "more store"), "lobench results --store STORE"
    kind_by_file = {entry: _gin_kind(entry) for entry in entries if entry.suffix == ".gin"}
    for file in [entry for entry, kind in kind_by_file.items() if kind == "Experiment"][:_MOST_LISTED]:
        yield f"{_relative_text(file, folder)} is an experiment", f"lobench run {_relative_text(file, folder)}"
    suites = [folder] if "Case" in kind_by_file.values() else []
    suites += [entry for entry in (*entries, *inner_entries) if _is_folder(entry) and _is_suite(entry)]
    for suite in suites[:_MOST_LISTED]:
        name = _relative_text(suite, folder)
        yield f"{name} is a suite", f"pytest {name} --collect-only -q      # its cases"
    checkpoint_entries = [entry for entry in entries if _is_checkpoint(entry)]
    suite_name = _relative_text(suites[0], folder) if suites else "quick"
    if checkpoint_entries:
        yield (
            f". is a run's folder with {counted(len(checkpoint_entries), 'checkpoint')}",
            f"lobench watch . --suite {suite_name} --once",
        )
    folders = [entry for entry in entries if _is_folder(entry) and entry not in checkpoint_entries]
    folders += [entry for entry in inner_entries if _is_folder(entry) and not _is_checkpoint(entry)]
    run_folders = [folder for folder in folders if any(map(_is_checkpoint, _sorted_entries(folder)))]
    for run_folder in run_folders[:_MOST_LISTED]:
        name = _relative_text(run_folder, folder)
        yield f"{name} is a run's folder", f"lobench watch {name} --suite {suite_name} --once"
    curve_files = [entry for entry in entries if entry.name.endswith(_CURVE_SUFFIXES) and _is_file(entry)]
    if curve_files:
        curve_names = " ".join(_relative_text(file, folder) for file in curve_files[:_MOST_LISTED])
        omission_note = f" and {len(curve_files) - _MOST_LISTED} more" * (len(curve_files) > _MOST_LISTED)
        yield f"{curve_names}{omission_note} may be curves", f"lobench import {curve_names} --store imported"


def _sorted_entries(folder: Path) -> list[Path]:
    """Returns the sorted entries of a folder; [] if it cannot be read."""
    try:
        return sorted(itertools.islice(folder.iterdir(), _MOST_ENTRIES))
    except OSError:
        return []


def _subfolder_entries(entries: list[Path]) -> Iterator[Path]:
    """Yields the entries of subfolders such as `runs` or `suites`, except stores and hidden folders."""
    for entry in entries:
        if (
            entry.name not in _STORE_FOLDERS
            and not entry.name.startswith(".")
            and _is_folder(entry)
            and not _is_checkpoint(entry)
        ):
            yield from _sorted_entries(entry)


def _store_candidates(entries: list[Path]) -> Iterator[Path]:
    """Yields paths at which there may be a store: in the folder itself, and in the folders of runs below it."""
    for entry in entries:
        if entry.name in _STORE_FOLDERS:
            for subfolder in _sorted_entries(entry):
                yield subfolder
                yield from _sorted_entries(subfolder)  # .lobench/compare/SUITE
        elif _is_folder(entry):
            yield from _sorted_entries(entry / "lobench_results")


def _is_suite(folder: Path) -> bool:
    return any(_gin_kind(entry) == "Case" for entry in _sorted_entries(folder) if entry.suffix == ".gin")


def _is_checkpoint(path: Path) -> bool:
    if path.name.endswith(_CHECKPOINT_SUFFIXES):
        return _is_file(path)
    return _STEP_NAME.fullmatch(path.name) is not None and _is_folder(path)


def _gin_kind(file: Path) -> str:
    """Returns "Experiment" or "Case" by the bindings in a gin file, or ""."""
    try:
        if not file.is_file():  # opening a pipe would block
            return ""
        with file.open(encoding="utf-8", errors="replace") as text:
            bound_names = set(_BINDINGS.findall(text.read(_MOST_TEXT)))
    except OSError:
        return ""
    return "Experiment" if "Experiment" in bound_names else "Case" if bound_names else ""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _relative_text(path: Path, folder: Path) -> str:
    """Returns a path relative to the folder, quoted for a shell.

    A path that begins with - gets `./`, because it would be read as an option.
    """
    relative_path = str(path.relative_to(folder))
    return shlex.quote(f"./{relative_path}" if relative_path.startswith("-") else relative_path)

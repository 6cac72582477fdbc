"""Files with curves in unsupported formats. Each is rejected with the command that converts it."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lobench.engine.csv_files import READ_ERRORS, open_text
from lobench.tools.curve_import.file_kind import read_database
from lobench.tools.curve_import.formats.json_files import STEPS
from lobench.tools.curve_import.points import NotCurves

__all__ = ["refuse_arrays", "refuse_database", "refuse_journal", "refuse_pickle"]

_FROM_OPTUNA = (
    "import optuna, pandas; t = optuna.load_study(study_name={study!r}, storage={storage}).trials; "
    "pandas.DataFrame([({study!r}, i.number, s, v) for i in t for s, v in i.intermediate_values.items()], "
    "columns=['method', 'seed', 'step', 'value']).assign(metric='objective').to_csv({csv!r}, index=False)"
)


def _python_command(code: str) -> str:
    return shlex.join(["python", "-c", code])


def refuse_database(path: Path) -> None:
    """Rejects a database of Optuna.

    Raises:
      NotCurves: The file is a database of Optuna.
    """
    with contextlib.suppress(sqlite3.Error), read_database(path) as database:
        table_names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if {"studies", "trial_intermediate_values"} <= table_names:
            names = [name for (name,) in database.execute("SELECT study_name FROM studies ORDER BY study_id")]
            raise _optuna_error("a database", path, names, repr(f"sqlite:///{path}"))


def refuse_journal(path: Path) -> None:
    """Rejects a journal of Optuna, which has JSON lines with an `op_code`.

    Raises:
      NotCurves: The file is a journal of Optuna.
    """
    with contextlib.suppress(*READ_ERRORS), open_text(path) as file:
        line = file.readline(100_000)
        with contextlib.suppress(ValueError, RecursionError):
            first_row = json.loads(line)
            if isinstance(first_row, dict) and {"op_code", "worker_id"} <= first_row.keys():
                storages = "optuna.storages"
                backend = f"{storages}.JournalStorage({storages}.journal.JournalFileBackend({str(path)!r}))"
                raise _optuna_error("a journal", path, [str(first_row.get("study_name", "NAME"))], backend)


def _optuna_error(description: str, path: Path, studies: Sequence[str], storage: str) -> NotCurves:
    study = studies[0] if studies else "NAME"
    code = _FROM_OPTUNA.format(study=study, storage=storage, csv=f"{path.stem}.csv")
    got = f"studies {', '.join(map(repr, studies))}" if studies else "no study"
    return NotCurves(
        f"this is {description} of Optuna",
        where=str(path),
        got=got,
        next_step=f"a trial's intermediate values are a curve: {_python_command(code)}",
    )


def refuse_pickle(path: Path, first_bytes: bytes) -> None:
    """Rejects pickles, also those of torch.

    Raises:
      NotCurves: The file is a pickle.
    """
    is_torch = first_bytes.startswith(b"PK\x03\x04") and any(
        name.endswith("/data.pkl") for name in _archive_members(path)
    )
    if is_torch or first_bytes[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        module = "torch" if is_torch else "pickle"
        content = f"torch.load({str(path)!r})" if is_torch else f"pickle.load(open({str(path)!r}, 'rb'))"
        code = f"import {module}, pandas; t = pandas.DataFrame({content}); "
        code += "t = t if 'step' in t else t.rename_axis('step').reset_index(); "
        command = _python_command(f"{code}t.to_csv({f'{path.stem}.csv'!r}, index=False)")
        raise NotCurves(
            "this is a pickle, which may run code when it is read",
            where=str(path),
            next_step=f"if you wrote it, and it has a list for each metric: {command}",
        )


def _archive_members(path: Path) -> list[str]:
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return archive.namelist()
    return []


def refuse_arrays(path: Path, first_bytes: bytes) -> None:
    """Rejects arrays of numpy, .npy or .npz.

    Raises:
      NotCurves: The file contains arrays of numpy.
    """
    code = ""
    if first_bytes.startswith(b"\x93NUMPY"):
        description = "an array of numpy"
        code = f"import numpy, pandas; pandas.DataFrame(numpy.load({str(path)!r})).rename_axis('step')"
    elif first_bytes.startswith(b"PK\x03\x04"):
        description = "arrays of numpy"
        names = _array_names(path)
        if not names:
            return
        step = next((name for name in STEPS if name in names), "")
        names_by_column = {**({"step": step} if step else {}), **{name: name for name in names if name != step}}
        columns = ", ".join(f"{column!r}: a[{name!r}]" for column, name in names_by_column.items())
        code = f"import numpy, pandas; a = numpy.load({str(path)!r}); pandas.DataFrame({{{columns}}})"
        code += "" if step else ".rename_axis('step')"
    if code:
        is_indexed = code.endswith("('step')")
        code += f".to_csv({f'{path.stem}.csv'!r}{'' if is_indexed else ', index=False'})"
        raise NotCurves(
            f"this is {description}, which say nothing of steps and runs",
            where=str(path),
            next_step=_python_command(code),
        )


def _array_names(path: Path) -> list[str]:
    """Returns the names of the one-dimensional arrays of a .npz file that have the most common length."""
    lengths: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    read_header = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape = read_header(file)[0]
                    lengths[member.removesuffix(".npy")] = shape[0] if len(shape) == 1 else -1
    array_lengths = [length for length in lengths.values() if length > 0]
    common_length = max(array_lengths, key=array_lengths.count, default=0)
    return [name for name, length in lengths.items() if length == common_length] or list(lengths)

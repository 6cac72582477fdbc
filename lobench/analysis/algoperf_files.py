"""Reads AlgoPerf's logs and targets: CSV, gzipped or not, as people write them; errors are one clear line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lobench.analysis.algoperf import Targets, WorkloadTarget
from lobench.core.errors import UsageError
from lobench.core.headline import cause

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_log", "read_targets"]

_NAMES = ("submission", "study", "workload", "trial")
_NUMBERS = ("global_step", "time", "val_metric")
_HIGHER = {"accuracy", "ssim", "mean_average_precision", "bleu"}
_LOWER = {"loss", "wer", "ppl", "perplexity", "error", "cer", "mse", "mae"}


def read_log(path: Path, targets: Targets) -> pd.DataFrame:
    """Returns a log with one spelling of each name.

    Names that differ in case, spaces, dashes and underscores alone are one: `Schedule-Free AdamW` is
    `schedule_free_adamw`. Workloads take the targets' spelling, with or without a framework's suffix
    (`wmt_jax`). A submission that the log spells in one way keeps it; one of several ways gets the plain one.

    Raises:
      UsageError: no such file, not a CSV, a missing column, a value that is no number; with the line.
    """
    import pandas as pd

    where = str(path)
    text = _text(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            log = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, index_col=False).fillna("")
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError) as error:
        raise UsageError("this is not a CSV of evaluations", where=where, got=cause(error)) from error
    log.columns = [_plain(str(column)) for column in log.columns]
    needed = (*_NAMES, *_NUMBERS)
    missing = [column for column in needed if column not in log.columns]
    if missing:
        raise UsageError(
            f"the log lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}",
            where=where,
            got=", ".join(log.columns)[:200],
            expected=", ".join(needed),
        )
    twice = [column for column in needed if list(log.columns).count(column) > 1]
    if twice:
        raise UsageError(f"the log has the column {twice[0]} twice", where=where, expected="one of each name")
    if log.empty:
        raise UsageError("the log holds no evaluation", where=where)
    log = log[list(needed)]
    for column in _NUMBERS:
        log[column] = _numbers(log[column], where, text)
    for column in _NAMES:
        empty = log.index[log[column].str.strip() == ""]
        if len(empty):
            raise UsageError(f"no {column}", where=f"{where}, line {_line(text, int(empty[0]))}")
    log["submission"] = log["submission"].map(_submission_names(log["submission"]))
    log["workload"] = log["workload"].map(_workload_names(log["workload"], targets))
    for column in ("study", "trial"):
        log[column] = log[column].map({name: _plain(name) for name in set(log[column])})
    return log


def read_targets(path: Path) -> Targets:
    """Returns the targets of a JSON file with base_workloads, held_out_workloads and workloads.

    Raises:
      UsageError: no such file, not such a JSON; a workload without a target; a metric of unknown direction.
    """
    where = str(path)
    try:
        found = json.loads(_text(path))
        bases = [_plain(name) for name in found["base_workloads"]]
        held_out = [_plain(name) for name in found.get("held_out_workloads", [])]
        entries = {_plain(name): entry for name, entry in found["workloads"].items()}
    except json.JSONDecodeError as error:
        raise UsageError("this is not JSON", where=where, got=cause(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        expected = "base_workloads, held_out_workloads and workloads {name: {target_metric_name, ...}}"
        raise UsageError("this is not a file of targets", where=where, got=repr(error), expected=expected) from error
    if not bases:
        raise UsageError("there is no base workload", where=where)
    return Targets(
        base=tuple(bases),
        base_of={variant: _base_of(variant, bases, where) for variant in held_out},
        targets={name: _target(name, entries, where) for name in (*bases, *held_out)},
    )


def _target(name: str, entries: Mapping[str, Any], where: str) -> WorkloadTarget:
    try:
        metric = _plain(entries[name]["target_metric_name"])
        value = float(entries[name]["validation_target_value"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        expected = "target_metric_name and a number validation_target_value"
        raise UsageError(f"workload {name!r} has no target", where=where, got=repr(error), expected=expected) from error
    if not math.isfinite(value):
        raise UsageError(f"the target of {name!r} is no finite number", where=where, got=str(value))
    known = f"one of {', '.join(sorted(_HIGHER | _LOWER))}"
    if metric not in _HIGHER | _LOWER:
        raise UsageError(f"workload {name!r}: is {metric!r} better up or down?", where=where, expected=known)
    return WorkloadTarget(metric=metric, value=value, higher=metric in _HIGHER)


def _base_of(variant: str, bases: list[str], where: str) -> str:
    """Returns the base workload that a variant's name starts with, the longest one."""
    found = [base for base in bases if variant.startswith(base + "_")]
    if not found:
        raise UsageError(f"held-out workload {variant!r} starts with no base workload's name", where=where)
    return max(found, key=len)


def _text(path: Path) -> str:
    """Returns the content of a file, unpacked if it is gzipped, whatever its name."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError("cannot read this file", where=str(path), got=cause(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError("this is not a text file", where=str(path), got=cause(error)) from error


def _numbers(column: pd.Series, where: str, log: str) -> pd.Series:
    """Returns floats; a missing value (empty, NaN, None, ...) is NaN, any other text an error."""
    import pandas as pd

    text = column.str.strip()
    values = pd.to_numeric(text, errors="coerce").astype("float64")
    odd = values.isna() & ~text.str.lower().isin(["", "nan", "+nan", "-nan", "na", "n/a", "none", "null", "<na>"])
    if odd.any():
        row = int(odd.idxmax())
        place = f"{where}, line {_line(log, row)}"
        raise UsageError(f"{column.name} is no number", where=place, got=repr(column[row]))
    return values


def _line(log: str, row: int) -> int:
    """Returns the line on which a row begins; pandas counts neither blank lines nor those inside of quotes."""
    reader, start, place = csv.reader(io.StringIO(log, newline="")), 1, -2
    for record in reader:
        place += "".join(record).strip() != "" or len(record) > 1
        if place == row:
            break
        start = reader.line_num + 1
    return start


def _plain(name: str) -> str:
    """Returns the plain spelling: lower case, words joined by one underscore."""
    return re.sub(r"[\W_]+", "_", str(name).strip().lower()).strip("_")


def _submission_names(column: pd.Series) -> dict[str, str]:
    spellings = sorted(set(column))
    count = Counter(_plain(name) for name in spellings)
    return {name: name if count[_plain(name)] == 1 else _plain(name) for name in spellings}


def _workload_names(column: pd.Series, targets: Targets) -> dict[str, str]:
    found = {}
    for name in set(column):
        plain = _plain(name)
        without = re.sub(r"_(jax|pytorch)$", "", plain)
        found[name] = without if plain not in targets.names and without in targets.names else plain
    return found

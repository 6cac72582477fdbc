"""AlgoPerf's logs and targets as CSV files, gzipped or not; an error is one line."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lobench.analysis.scores.algoperf import Targets, WorkloadTarget
from lobench.core.errors import UsageError
from lobench.core.wording import cause
from lobench.engine.csv_files import plain_name, read_csv, text_of

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
    log = read_csv(path, names=_NAMES, numbers=_NUMBERS, what="evaluation")
    log["submission"] = log["submission"].map(_submission_names(log["submission"]))
    log["workload"] = log["workload"].map(_workload_names(log["workload"], targets))
    for column in ("study", "trial"):
        log[column] = log[column].map({name: plain_name(name) for name in set(log[column])})
    return log


def read_targets(path: Path) -> Targets:
    """Returns the targets of a JSON file with base_workloads, held_out_workloads and workloads.

    Raises:
      UsageError: no such file, not such a JSON; a workload without a target; a metric of unknown direction.
    """
    where = str(path)
    try:
        found = json.loads(text_of(path))
        bases = [plain_name(name) for name in found["base_workloads"]]
        held_out = [plain_name(name) for name in found.get("held_out_workloads", [])]
        entries = {plain_name(name): entry for name, entry in found["workloads"].items()}
        version = str(found.get("benchmark_version", ""))
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
        version=version,
    )


def _target(name: str, entries: Mapping[str, Any], where: str) -> WorkloadTarget:
    try:
        metric = plain_name(entries[name]["target_metric_name"])
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


def _submission_names(column: pd.Series) -> dict[str, str]:
    spellings = sorted(set(column))
    count = Counter(plain_name(name) for name in spellings)
    return {name: name if count[plain_name(name)] == 1 else plain_name(name) for name in spellings}


def _workload_names(column: pd.Series, targets: Targets) -> dict[str, str]:
    found = {}
    for name in set(column):
        plain = plain_name(name)
        without = re.sub(r"_(jax|pytorch)$", "", plain)
        found[name] = without if plain not in targets.names and without in targets.names else plain
    return found

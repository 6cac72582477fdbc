"""AlgoPerf's logs and targets as CSV and JSON files; logs may be gzipped. Errors are one line."""

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
from lobench.engine.csv_files import normalized_name, read_csv, read_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_log", "read_targets"]

_NAMES = ("submission", "study", "workload", "trial")
_NUMBERS = ("global_step", "time", "val_metric")
_HIGHER = {"accuracy", "ssim", "mean_average_precision", "bleu"}
_LOWER = {"loss", "wer", "ppl", "perplexity", "error", "cer", "mse", "mae"}


def read_log(path: Path, targets: Targets) -> pd.DataFrame:
    """Returns a log in which each name has a single spelling.

    Names that differ only in case, spaces, dashes and underscores are equal: `Schedule-Free AdamW` is
    `schedule_free_adamw`. Workloads take the targets' spelling, with or without a framework's suffix (`wmt_jax`). A
    submission with one spelling in the log keeps it; one with several gets the normalised one.

    Args:
      path: CSV file.
      targets: Targets, which give the spelling of workloads.

    Raises:
      UsageError: The file does not exist or is not a CSV file, a column is missing, or a value is not a number. The
        message names the line.
    """
    log = read_csv(path, text_columns=_NAMES, number_columns=_NUMBERS, row_name="evaluation")
    log["submission"] = log["submission"].map(_submission_names(log["submission"]))
    log["workload"] = log["workload"].map(_workload_names(log["workload"], targets))
    for column in ("study", "trial"):
        log[column] = log[column].map({name: normalized_name(name) for name in set(log[column])})
    return log


def read_targets(path: Path) -> Targets:
    """Returns the targets in a JSON file with base_workloads, held_out_workloads and workloads.

    Args:
      path: JSON file.

    Raises:
      UsageError: The file does not exist or is not such a file, a workload has no target, or the direction of a metric
        is not known.
    """
    where = str(path)
    try:
        document = json.loads(read_text(path))
        bases = [normalized_name(name) for name in document["base_workloads"]]
        held_out = [normalized_name(name) for name in document.get("held_out_workloads", [])]
        entries = {normalized_name(name): entry for name, entry in document["workloads"].items()}
        version = str(document.get("benchmark_version", ""))
    except json.JSONDecodeError as error:
        raise UsageError("this is not JSON", where=where, got=cause(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        expected = "base_workloads, held_out_workloads and workloads {name: {target_metric_name, ...}}"
        raise UsageError("this is not a file of targets", where=where, got=repr(error), expected=expected) from error
    if not bases:
        raise UsageError("the base workload is missing", where=where)
    return Targets(
        base_workloads=tuple(bases),
        base_by_variant={variant: _base_of(variant, bases, where) for variant in held_out},
        targets={name: _target(name, entries, where) for name in (*bases, *held_out)},
        version=version,
    )


def _target(name: str, entries: Mapping[str, Any], where: str) -> WorkloadTarget:
    try:
        metric = normalized_name(entries[name]["target_metric_name"])
        value = float(entries[name]["validation_target_value"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        expected = "target_metric_name and a number validation_target_value"
        raise UsageError(f"workload {name!r} has no target", where=where, got=repr(error), expected=expected) from error
    if not math.isfinite(value):
        raise UsageError(f"the target of {name!r} is not a finite number", where=where, got=str(value))
    expected_metrics = f"one of {', '.join(sorted(_HIGHER | _LOWER))}"
    if metric not in _HIGHER | _LOWER:
        raise UsageError(f"workload {name!r}: is {metric!r} better up or down?", where=where, expected=expected_metrics)
    return WorkloadTarget(metric=metric, value=value, higher_is_better=metric in _HIGHER)


def _base_of(variant: str, bases: list[str], where: str) -> str:
    """Returns the longest name of a base workload that a variant's name starts with."""
    matching_bases = [base for base in bases if variant.startswith(base + "_")]
    if not matching_bases:
        raise UsageError(f"held-out workload {variant!r} starts with no base workload's name", where=where)
    return max(matching_bases, key=len)


def _submission_names(column: pd.Series) -> dict[str, str]:
    spellings = sorted(set(column))
    count = Counter(normalized_name(name) for name in spellings)
    return {name: name if count[normalized_name(name)] == 1 else normalized_name(name) for name in spellings}


def _workload_names(column: pd.Series, targets: Targets) -> dict[str, str]:
    names = {}
    for name in set(column):
        plain = normalized_name(name)
        without_framework = re.sub(r"_(jax|pytorch)$", "", plain)
        names[name] = (
            without_framework
            if plain not in targets.workload_names and without_framework in targets.workload_names
            else plain
        )
    return names

"""lobench's own export format, `lobench results --format json --curves`, and AlgoPerf's evaluation logs."""

from __future__ import annotations

import contextlib
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.scores.algoperf import Targets
from lobench.analysis.scores.algoperf_files import read_log, read_targets
from lobench.analysis.store.subjects import LOBENCH_SEEDS
from lobench.core.case import ITEMS, CaseInfo
from lobench.core.errors import UsageError
from lobench.core.metric import Direction, is_of_batch
from lobench.core.wording import cause
from lobench.engine.csv_files import open_text
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.points import CurveRequest, CurveRun, Points, step_numbers

__all__ = ["algoperf", "lobench_records"]

_EXPECTED = "what `lobench results --format json --curves` prints"


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        with open_text(path) as file:
            document = json.load(file)
        records = [dict(record) for record in document if record["metrics"]]
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, RecursionError) as error:
        cause_text = cause(error)
        raise UsageError("not results of lobench", where=str(path), got=cause_text, expected=_EXPECTED) from error
    if not records:
        raise UsageError("the file holds no curve", where=str(path), expected=_EXPECTED)
    return records


@contextlib.contextmanager
def _damage_as_usage_error(path: Path) -> Iterator[None]:
    """Turns errors from records of an unexpected form into a UsageError of one line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        cause_text = f"no {error}" if isinstance(error, KeyError) else cause(error)
        raise UsageError("a record is damaged", where=str(path), got=cause_text, expected=_EXPECTED) from error


def read_records(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the curves of lobench's own results, or the final values if they were printed without `--curves`.

    Raises:
      UsageError: The file has another format.
    """
    records = _records(path)
    if any("curves" not in record for record in records):
        notes.append(f"{path}: without curves (`--curves`), only final values are taken")
    with _damage_as_usage_error(path):
        names = _method_names(records)
        for record in records:
            case = f"{record['case']['suite']}/{record['case']['name']}"
            for metric, values in _values(record).items():
                if is_of_batch(metric) or (request.metrics and metric not in request.metrics):
                    continue
                steps = _steps(record["eval_steps"][-len(values[0]) :], path)
                items = record.get("items")
                for seed, curve in zip(items or record["seeds"], values, strict=True):
                    run = CurveRun(request.method or names[_subject_key(record)], case, str(seed), is_item=bool(items))
                    curve_values = [math.nan if value is None else value for _, value in zip(steps, curve, strict=True)]
                    yield Points.of_curve(run, metric, steps, curve_values)


def _steps(values: Sequence[float], path: Path) -> NDArray[np.int64]:
    return step_numbers(np.asarray(values, np.float64), np.zeros(len(values), np.int64), str(path), "eval_steps")


def _values(record: Mapping[str, Any]) -> Mapping[str, list[list[float | None]]]:
    if "curves" in record:
        return dict(record["curves"])
    return {name: [[value] for value in values["per_seed"]] for name, values in record["metrics"].items()}


def _subject_key(record: Mapping[str, Any]) -> tuple[str, str, str]:
    return record["label"], record["checkpoint"]["sha256"], record["optimizer"]


def _method_names(records: list[dict[str, Any]]) -> dict[tuple[str, str, str], str]:
    """Returns the label of each subject, followed by the start of its hash if several subjects share the label."""
    labels: dict[str, set[str]] = {}
    subjects = dict.fromkeys(map(_subject_key, records))
    for label, sha256, _ in subjects:
        labels.setdefault(label, set()).add(sha256)
    return {
        subject: subject[0].removesuffix(" (imported)") + (f" {subject[1][:6]}" if len(labels[subject[0]]) > 1 else "")
        for subject in subjects
    }


def cases_of_records(path: Path) -> dict[str, CaseInfo]:
    """Returns the cases of lobench's own results by suite and name. Their identities are the same in any store."""
    with _damage_as_usage_error(path):
        return {
            f"{(case := record['case'])['suite']}/{case['name']}": CaseInfo(
                identity=case["identity"],
                optimizer_hash="",
                suite=case["suite"],
                name=case["name"],
                node_id="",
                num_inner_steps=int(record["num_inner_steps"]),
                num_seeds=len(record["seeds"]),
                seed_block=None,
                primary_metric=record["primary_metric"],
                role=record.get("role") or "",
                fixed_seeds=bool(record.get("items")),
                replicates=ITEMS if record.get("items") else "seeds",
            )
            for record in _records(path)
        }


def directions_of_records(path: Path, request: CurveRequest) -> dict[str, Direction]:
    """Returns the directions of the metrics of lobench's own results."""
    with _damage_as_usage_error(path):
        direction_by_metric = {
            name: metric.get("direction") for record in _records(path) for name, metric in record["metrics"].items()
        }
        return {name: Direction(value) for name, value in direction_by_metric.items() if value}


def read_algoperf(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the curves of AlgoPerf's evaluations. A workload is a case, and a trial of a study is a seed.

    Raises:
      UsageError: The file of targets is missing, or the log is invalid (see `read_log`).
    """
    targets = _targets(path, request)
    log = read_log(path, targets)
    for (submission, workload, study, trial), rows in log.groupby(
        ["submission", "workload", "study", "trial"], sort=False, observed=True
    ):
        target = targets.targets.get(workload)
        if target is None:
            notes.append(f"{path}: {workload} has no target, and is left out")
            continue
        is_known = np.isfinite(rows["global_step"].to_numpy())
        run = CurveRun(request.method or str(submission), f"algoperf/{workload}", f"{study}-{trial}")
        steps = rows["global_step"].to_numpy()[is_known]
        steps = step_numbers(steps, np.zeros(len(steps), np.int64), str(path), "global_step")
        yield Points.of_curve(run, f"val/{target.metric}", steps, rows["val_metric"].to_numpy()[is_known])


def algoperf_directions(path: Path, request: CurveRequest) -> dict[str, Direction]:
    """Returns the directions of AlgoPerf's metrics."""
    targets = _targets(path, request).targets.values()
    return {f"val/{target.metric}": Direction.MAX if target.higher_is_better else Direction.MIN for target in targets}


def _targets(path: Path, request: CurveRequest) -> Targets:
    if request.targets is None:
        raise UsageError(
            "the metrics of AlgoPerf and their directions are missing", where=str(path), next_step="--targets FILE"
        )
    return read_targets(request.targets)


def lobench_records() -> FileKind:
    return FileKind(
        read=read_records,
        draws=LOBENCH_SEEDS,
        cases=cases_of_records,
        directions=directions_of_records,
    )


def algoperf() -> FileKind:
    return FileKind(read=read_algoperf, directions=algoperf_directions, last_counts=True)

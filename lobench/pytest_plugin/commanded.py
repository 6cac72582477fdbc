"""Evaluation of a case that is a command. Nothing here imports jax."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from etils import epath

from lobench.api.settings import ImportSettings
from lobench.core.case import ITEMS, CaseSpec, SeedBlock
from lobench.core.errors import CheckpointError, LobenchError
from lobench.core.metric import stored_spelling
from lobench.core.result import Curves, Outcome
from lobench.core.wording import shortened_list
from lobench.engine.checkpoints.spool import files_fingerprint
from lobench.engine.checkpoints.whole_files import identity_of_files
from lobench.engine.config.bound import BoundCase, BoundCommand
from lobench.engine.config.user_code import differing_parts_run
from lobench.engine.item_values import ItemValues, read_items
from lobench.engine.paths import hash_in_copy_path
from lobench.engine.workers.command import CommandRunner
from lobench.engine.workers.last_words import log_tail
from lobench.engine.workers.placeholders import command_words, fill_placeholders
from lobench.engine.workers.protocol import Command
from lobench.evaluation.request import DeadlinePassed, EditedCode, RewrittenCheckpoint
from lobench.evaluation.result import Result
from lobench.pytest_plugin.evaluator_curves import CurvesMaker, MetricCurves
from lobench.pytest_plugin.item_result import CURRENT_JOB, FINISHED_BLOCKS
from lobench.pytest_plugin.items import blocks_of, bound_command, info_of_item, variant_of
from lobench.pytest_plugin.options import loaded_subject, option
from lobench.pytest_plugin.reuse import stored_curves

if TYPE_CHECKING:
    from lobench.tools.curve_import.points import CurveRun
    from lobench.tools.curve_import.spill import Curve

__all__ = ["CheckpointFiles", "evaluate_command", "read_curves"]

_STEP_NAMES = ("step", "global_step", "epoch", "iteration", "iter", "_step")  # names that make a number no final value
_MAX_SHOWN = 5
_PREFIX = "lobench-case-"  # prefix of commands' folders in the folder for temporary files


def evaluate_command(item: pytest.Item, case: CaseSpec) -> Result:
    """Evaluates a command's case for an item: once for each seed that the store lacks."""
    bound_case = bound_command(item, case, variant_of(item))
    job = item.config.stash.get(CURRENT_JOB, None)
    info = info_of_item(bound_case, item)
    finished_blocks = item.stash.setdefault(FINISHED_BLOCKS, [])
    curves_of_blocks = []
    subject = None if job is not None else loaded_subject(item).subject
    for block in blocks_of(item, info):
        block_curves = None if subject is None else stored_curves(item.config, subject, info, block)
        if block_curves is None:
            block_curves = _run_command(bound_case, block, _placeholder_values(item, block))
        curves_of_blocks.append(block_curves)
        finished_blocks.append((block, block_curves))
    if job is None and (edited_parts := differing_parts_run(info)):  # a watch's worker returns the job
        raise EditedCode.of(case, edited_parts)
    if len({block_curves.eval_steps for block_curves in curves_of_blocks}) > 1:
        raise LobenchError(
            "the seeds of a case have curves at different steps, which cannot be one result",
            where=_case_location(bound_case),
            got=", ".join(f"seed {block.seeds[0]}: up to step {block.eval_steps[-1]}" for block in curves_of_blocks),
        )
    return Result(curves_of_blocks, bound_case.case)


def _placeholder_values(item: pytest.Item, block: SeedBlock) -> dict[str, str]:
    """Returns the values of the placeholders that depend on the checkpoint and the seed."""
    job = item.config.stash.get(CURRENT_JOB, None)
    if job is not None:
        checkpoint_path, step, run = job.theta_path, job.outer_step, job.run
    else:
        subject = loaded_subject(item).subject
        checkpoint_path = option(item.config, "checkpoint") if subject.has_theta else ""
        checkpoint_path = str(Path(checkpoint_path).absolute()) if checkpoint_path else ""
        step = subject.outer_step
        run = subject.run
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return {"checkpoint": checkpoint_path, "step": str(step), "run": run, "seed": str(block.start), "devices": devices}


def _run_command(bound_case: BoundCommand, block: SeedBlock, placeholders: Mapping[str, str]) -> Curves:
    """Runs a command for one seed.

    Raises:
      DeadlinePassed: The command ran longer than `Case.timeout_seconds`.
      LobenchError: The command failed, or wrote no curve of the primary metric.
    """
    case = bound_case.case
    where = _case_location(bound_case)
    if "{checkpoint}" in case.command and not placeholders["checkpoint"]:
        raise LobenchError("the command evaluates checkpoints", where=where, got="an optimizer without a checkpoint")
    with _temporary_folder() as temporary_folder:
        output_folder, log_path = temporary_folder / "out", temporary_folder / "log"
        output_folder.mkdir()
        placeholder_values = {**bound_case.values, **placeholders, "out": str(output_folder)}
        argv = command_words(shlex.split(case.command), placeholder_values)
        folder = Path(bound_case.spec.path).parent
        started_at = time.monotonic()
        files = CheckpointFiles(placeholders["checkpoint"]) if placeholders["checkpoint"] else None
        command = Command(lease=0, words=argv, folder=str(folder), log=str(log_path))
        result = CommandRunner().run(command, timeout_seconds=case.timeout_seconds)
        seconds = time.monotonic() - started_at
        if files is not None:
            files.check()
        if result.outcome is not Outcome.PASSED:
            _show_output(shlex.join(argv), log_path)
            error_class = DeadlinePassed if result.outcome is Outcome.TIMEOUT else LobenchError
            raise error_class(f"the command {_ending_text(result.message)}")
        identified_by = files.identified_by if files is not None else ""
        curves_maker = CurvesMaker(bound_case=bound_case, seconds=seconds, identified_by=identified_by, where=where)
        if case.replicates == ITEMS:
            return curves_maker.of_items(_item_values(case.curves, placeholder_values, folder, case.primary_metric))
        return curves_maker.of_seed(block, _metric_curves(case.curves, placeholder_values, folder, case.primary_metric))


class CheckpointFiles:
    """Files of a checkpoint during an evaluation. A trainer may rewrite them, also in a copy that consists of links.

    Args:
      path: Path of the checkpoint.
    Attributes:
      identified_by: `FileIdentity.hash_origin` of a checkpoint in any format; "" for a theta.
    Raises:
      RewrittenCheckpoint: The files are not those of the checkpoint that was kept.
    """

    _checked_stamps: ClassVar[dict[str, tuple[str, str]]] = {}  # by path: its last checked stamp, and `identified_by`

    def __init__(self, path: str) -> None:
        self._path, self._stamp = epath.Path(path), self._fingerprint(path)
        self.identified_by = ""
        if not (sha256 := hash_in_copy_path(path)):
            return
        if self._checked_stamps.get(path, ("", ""))[0] != self._stamp:
            identity = identity_of_files(self._path)
            if identity.sha256 != sha256:
                raise RewrittenCheckpoint("its files were rewritten in place since it was kept", where=path)
            self._checked_stamps[path] = self._stamp, identity.hash_origin
        self.identified_by = self._checked_stamps[path][1]

    def _fingerprint(self, path: str) -> str:
        try:
            return files_fingerprint(epath.Path(path))
        except CheckpointError as error:
            raise RewrittenCheckpoint("it was removed", where=path) from error

    def check(self) -> None:
        """Raises RewrittenCheckpoint if the files have changed since this object was made."""
        if self._fingerprint(str(self._path)) != self._stamp:
            raise RewrittenCheckpoint("its files were rewritten in place during the evaluation", where=str(self._path))


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yields a new folder, which is removed afterwards, and removes those of processes that were killed.

    A folder is in use while its file `lock` is locked.
    """
    temporary_root = Path(tempfile.gettempdir())
    for lock_file in temporary_root.glob(f"{_PREFIX}*/lock"):
        with contextlib.suppress(OSError), lock_file.open("rb") as lock:  # another process has it, or another user
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock_file.parent)
    temporary_folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (temporary_folder / "new").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (temporary_folder / "new").rename(temporary_folder / "lock")
            yield temporary_folder
    finally:
        shutil.rmtree(temporary_folder, ignore_errors=True)


def _ending_text(problem: str) -> str:
    problem = problem.removeprefix("it ")
    return f"was {problem}" if problem.startswith("killed") else problem


def _show_output(command: str, log: Path) -> None:
    """Writes the end of a command's output where the worker's own output goes."""
    with contextlib.suppress(OSError):
        text = "".join(log_tail(Path(f"{log}.{name}"), 0) for name in ("out", "err"))
        sys.stderr.write(f"--- {command}\n{text}\n")
        sys.stderr.flush()


def _item_values(path_template: str, values: Mapping[str, str], folder: Path, primary_metric: str) -> ItemValues:
    """Returns the values of items that a command wrote."""
    path = folder / fill_placeholders(path_template, values)
    if not path.exists():
        raise _no_file_error(path_template, values)
    try:
        return read_items(path, primary_metric)
    except LobenchError as error:
        where = (error.where or path_template).replace(str(path), path_template)
        raise LobenchError(error.what, where=where, got=error.got, expected=error.expected) from error


def _no_file_error(path_template: str, values: Mapping[str, str]) -> LobenchError:
    """Returns the error for a missing file of curves. It names the files that the command wrote instead."""
    output_folder = Path(values["out"])
    written_names = sorted(
        path.relative_to(output_folder).as_posix() for path in output_folder.rglob("*") if path.is_file()
    )
    got = shortened_list([f"{{out}}/{name}" for name in written_names], _MAX_SHOWN)
    return LobenchError("the command wrote no such file", where=path_template, got=got)


def _metric_curves(path_template: str, values: Mapping[str, str], folder: Path, primary_metric: str) -> MetricCurves:
    """Returns the metrics that a command wrote, of which one is the primary one."""
    path = folder / fill_placeholders(path_template, values)
    try:
        curves_by_metric = read_curves(path, primary_metric)
    except LobenchError as error:
        if not glob.glob(str(path)) and not path.exists():
            raise _no_file_error(path_template, values) from error
        # Without `next_step`, which is about `lobench import`.
        raise LobenchError(error.what, where=path_template, got=error.got) from error
    stored_name = stored_spelling(primary_metric, curves_by_metric)
    if stored_name not in curves_by_metric:
        got = shortened_list(sorted(curves_by_metric), _MAX_SHOWN)
        raise LobenchError(
            f"the command wrote no {primary_metric}", where=path_template, got=got, expected=primary_metric
        )
    return {primary_metric if metric == stored_name else metric: curve for metric, curve in curves_by_metric.items()}


def read_curves(path: Path, primary_metric: str) -> MetricCurves:
    """Returns the curves of any format of `lobench import`, or the final values in a JSON object.

    Args:
      path: Absolute path or pattern.
      primary_metric: Metric that is read even if it has no finite value.
    Raises:
      LobenchError: The file is missing or cannot be read.
    """
    from lobench.tools.curve_import.collected_curves import find_curve_files
    from lobench.tools.curve_import.growing import SessionCurves

    final_values = _final_values(path)
    if final_values is not None:
        return final_values
    sources = find_curve_files([path], "")
    problem: LobenchError | None = None
    for metrics in ((), (primary_metric,)):  # a column without numbers is not a metric, unless requested
        try:
            settings = ImportSettings(method="command", seed="0", metrics=metrics, last_counts=True)
            with SessionCurves(sources, settings, until=None) as session_curves:
                return _at_step_0_if_single(_metrics_of_runs(session_curves.points_by_run.curves()))
        except LobenchError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _metrics_of_runs(runs: Iterable[tuple[CurveRun, Mapping[str, Curve]]]) -> MetricCurves:
    """Returns the metrics of all files of an evaluation. Several files may have different metrics.

    Raises:
      LobenchError: A metric has curves of two cases.
    """
    metrics: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    cases: dict[str, str] = {}
    for run, curves in runs:
        for name, curve in curves.items():
            if name in metrics:
                raise LobenchError(
                    f"the metric {name!r} has several curves",
                    got=f"cases {cases[name]!r} and {run.case!r}",
                    expected="the curves of one case: an evaluation has one value of a metric at a step",
                )
            metrics[name] = (curve.steps, curve.values)
            cases[name] = run.case
    return metrics


def _at_step_0_if_single(metrics: MetricCurves) -> MetricCurves:
    """Returns the metrics of a file with one step as final values, at step 0.

    Evaluators often write the step of the checkpoint next to the values. That step is ignored, because the values of
    two checkpoints are compared at the same step.
    """
    if len({step for steps, _ in metrics.values() for step in steps.tolist()}) > 1:
        return metrics
    return {name: (np.zeros_like(steps), values) for name, (steps, values) in metrics.items()}


def _final_values(path: Path) -> MetricCurves | None:
    """Returns the numbers of a JSON object as curves of one point at step 0; None if the file has another format.

    A step or an epoch next to them, such as that of the checkpoint, is left out.
    """
    if path.suffix not in (".json", ".jsonl") or not path.is_file():
        return None
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    numbers_by_name = _numbers_in(document) or {}
    values = {name: value for name, value in numbers_by_name.items() if name not in _STEP_NAMES}
    return {name: (np.zeros(1, np.int64), np.asarray([value], np.float64)) for name, value in values.items()} or None


def _numbers_in(document: Mapping[str, Any]) -> dict[str, float] | None:
    """Returns the numbers of nested objects: `valid/loss` of {"valid": {"loss": 3.1}}; None if it is a table.

    Tables have lists, or objects whose keys are the numbers of rows, as pandas writes them.
    """
    numbers_by_name: dict[str, float] = {}
    for name, value in document.items():
        if isinstance(value, list) or name.isdecimal():
            return None
        if isinstance(value, dict):
            inner_numbers = _numbers_in(value)
            if inner_numbers is None:
                return None
            numbers_by_name |= {f"{name}/{key}": number for key, number in inner_numbers.items()}
        elif type(value) in (int, float):
            numbers_by_name[name] = value
    return numbers_by_name


def _case_location(bound_case: BoundCase) -> str:
    return f"{bound_case.spec.path}: case {bound_case.spec.name!r}"

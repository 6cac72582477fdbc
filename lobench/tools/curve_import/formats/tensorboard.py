"""TensorBoard formats: folders of event files, and csv files exported from its page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lobench.core.errors import UsageError
from lobench.core.metric import split_name
from lobench.core.wording import convert_errors, counted
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.formats.folders import files_below
from lobench.tools.curve_import.formats.tables import read_chunks
from lobench.tools.curve_import.points import CurveRequest, Points, bare_name, named_run, run_folders

__all__ = ["event_files", "events", "page_csv"]

_CSV_NAME = re.compile(r"run-(?P<run>.+)-tag-(?P<tag>.+)")


def event_files(folder: Path) -> list[Path]:
    """Returns TensorBoard's event files in or below a folder, in the order of writing."""
    return sorted((path for path in files_below(folder) if "tfevents" in path.name), key=_writing_order)


def _writing_order(path: Path) -> tuple[Path, list[str | int]]:
    """Returns a sort key for the order of writing. File names end in time, process and number."""
    return path.parent, [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d+)", path.name)]


def read_events(root: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the scalars of TensorBoard's event files. Each folder is a run.

    A file continues the run of an earlier file in its folder if it begins later, or ends later. If a step is logged
    twice the later value counts. Otherwise the file is another run, which is the folder's next seed. The folders of
    `add_scalars` and the folders `train` and `validation` are metrics of one run.

    Raises:
      UsageError: tensorboard is not installed, or a file is not an event file.
    """
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError as error:
        advice = "pip install tensorboard"
        raise UsageError("event files need tensorboard", where=str(root), next_step=advice) from error
    files = event_files(root)
    folders = {file.parent for file in files}
    step_ranges: dict[tuple[Path, str], list[tuple[int, int]]] = {}  # first and last step of each run of a folder
    kinds_of_others = Counter[str]()
    for file in files:
        curves: dict[str, list[tuple[int, float]]] = {}
        kind_names = set[str]()
        with convert_errors((OSError, ValueError), UsageError, "not an event file of TensorBoard", where=file):
            for event in EventFileLoader(str(file)).Load():
                for value in event.summary.value:
                    scalar = _scalar(value)
                    if scalar is not None:
                        curves.setdefault(value.tag, []).append((event.step, scalar))
                    else:
                        kind_names.add(value.metadata.plugin_data.plugin_name or "values of another kind")
        if not curves:
            kinds_of_others.update(kind_names or {"nothing"})
            continue
        run_folder, metric_names = _run_folder_and_names(file.parent, list(curves), folders, root)
        steps = [step for points in curves.values() for step, _ in points]
        number = _run_number(step_ranges.setdefault((run_folder, str(file.parent)), []), min(steps), max(steps))
        requested_curves = {
            metric_names[tag]: points
            for tag, points in curves.items()
            if _is_requested(tag, metric_names[tag], request)
        }
        # Runs without a requested curve, such as the subfolders in which add_hparams logs, need not match `--pattern`.
        if not requested_curves:
            continue
        folder = "/".join(run_folders(run_folder.relative_to(root).parts))
        title = f"{request.prefix}{folder}" if folder else request.name or root.name
        training = f"{run_folder} {number}" if number else str(run_folder)
        run = replace(named_run(title, request), training=training)
        run = replace(run, seed=f"{run.seed} run {number + 1}" if run.seed != "0" else str(number)) if number else run
        yield from Points.of_curves(run, requested_curves)
    restarted_runs = {run_folder: len(runs) for (run_folder, _), runs in step_ranges.items() if len(runs) > 1}
    for run_folder, count in restarted_runs.items():
        notes.append(f"{run_folder}: its event files restart at the first step: {count} runs, which are seeds")
    kinds_text = ", ".join(f"{count} with {kind}" for kind, count in sorted(kinds_of_others.items()))
    if kinds_of_others and not step_ranges:
        advice = "log numbers with add_scalar"
        raise UsageError("the event files hold no scalars", where=str(root), got=kinds_text, next_step=advice)
    if kinds_of_others:
        notes.append(
            f"{root}: {counted(kinds_of_others.total(), 'event file')} without scalars left out ({kinds_text})"
        )


def _is_requested(tag: str, name: str, request: CurveRequest) -> bool:
    return not request.metrics or tag in request.metrics or name in request.metrics


def _run_folder_and_names(
    folder: Path, tags: Sequence[str], folders: Collection[Path], root: Path
) -> tuple[Path, dict[str, str]]:
    """Returns the folder of the run to which a folder's values belong, and the names of metrics by tag.

    `add_scalars("loss", {"a": ...})` writes the tag `loss` into the folder `loss_a` next to the run's file, and Keras
    writes the folders `train` and `validation`.
    """
    if folder == root:
        return folder, {tag: tag for tag in tags}
    split = split_name(folder.name)
    if split:
        return folder.parent, {tag: tag if _has_split(tag) else f"{split}/{tag}" for tag in tags}
    tag_prefix = f"{tags[0].replace('/', '_')}_"
    if len(tags) == 1 and folder.name.startswith(tag_prefix) and folder.parent in folders:
        suffix = folder.name[len(tag_prefix) :]
        split = split_name(suffix)
        return folder.parent, {tags[0]: f"{split}/{tags[0]}" if split else f"{tags[0]}/{suffix}"}
    return folder, {tag: tag for tag in tags}


def _has_split(tag: str) -> bool:
    return bool(split_name(tag.partition("/")[0]) or split_name(tag.partition("_")[0]))


def _run_number(step_ranges: list[tuple[int, int]], first_step: int, last_step: int) -> int:
    """Returns the number of the run to which a file's steps belong, and updates `step_ranges`.

    Args:
      step_ranges: First and last step of each run so far.
      first_step, last_step: First and last step of the file.
    """
    fitting_runs = [number for number, (begin, _) in enumerate(step_ranges) if first_step > begin]
    last_seen_step = max((end for _, end in step_ranges), default=-1)
    if fitting_runs:  # the file resumes the run that it fits best; of several such runs, the latest
        number = min(reversed(fitting_runs), key=lambda candidate: max(0, first_step - step_ranges[candidate][1]))
    elif step_ranges and last_step > last_seen_step:
        number = len(step_ranges) - 1
    else:
        step_ranges.append((first_step, last_step))
        return len(step_ranges) - 1
    begin, end = step_ranges[number]
    step_ranges[number] = min(begin, first_step), max(end, last_step)
    return number


def _scalar(value: Any) -> float | None:
    """Returns the number in a summary value; None for an image, histogram or text."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.tensor_shape.dim or value.tensor.string_val:
        return None
    from tensorboard.util.tensor_util import make_ndarray

    array = make_ndarray(value.tensor)
    return float(array) if array.size == 1 and array.dtype.kind in "fiu" else None


def read_tensorboard_csv(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the points of a csv exported from TensorBoard's page, with run and tag in its name.

    The columns are `Wall time,Step,Value`.

    Raises:
      UsageError: Run and tag are neither in the name nor given by options.
    """
    match = _CSV_NAME.fullmatch(bare_name(path))
    tag = match["tag"] if match else next(iter(request.metrics), "")
    if not tag or not (match or request.method or request.is_one_of_many):
        raise UsageError(
            "a csv of TensorBoard's page has run and tag only in its name",
            where=str(path),
            expected="run-RUN-tag-TAG.csv, or --method and --metric",
        )
    name = f"{request.prefix}{match['run']}" if match else request.name or bare_name(path)
    run = named_run(name, request, is_file=not match)
    if request.metrics and tag not in request.metrics:
        return
    for chunk in read_chunks(path, ["Step", "Value"]):
        yield Points.of_curve(run, tag, chunk.steps("Step"), chunk.values("Value"), chunk.lines)


def events() -> FileKind:
    return FileKind(read=read_events, files=event_files, last_counts=True, may_repeat_runs=True)


def page_csv() -> FileKind:
    return FileKind(read=read_tensorboard_csv, last_counts=True)

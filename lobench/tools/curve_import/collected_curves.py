"""Collected curves of all files before the store is written: points on disk by run, cases, directions, and notes."""

from __future__ import annotations

import dataclasses
import glob
import itertools
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.api.settings import ImportSettings, RunNaming
from lobench.core.errors import UsageError, suggestion
from lobench.core.metric import Direction, direction_of, metric_name, usual_direction
from lobench.core.wording import cause, counted, shortened_list
from lobench.engine.store.imports import ImportedFile
from lobench.tools.curve_import.formats.kinds import (
    content_sha256,
    detect_format,
    formats_by_name,
    table_files,
    unknown_format_error,
)
from lobench.tools.curve_import.points import (
    UNNAMED_CASE,
    CurveRequest,
    CurveRun,
    NotCurves,
    Points,
    RequestedMetrics,
    bare_name,
    run_folders,
)
from lobench.tools.curve_import.spill import PointsByRun

__all__ = ["CollectedCurves", "CurveFile", "find_curve_files"]

_MAX_CHUNKS = 200  # chunks of a file that are read for its metrics
_MAX_SHOWN = 4  # files named in a message
_MAX_PROBLEM_LENGTH = 160  # characters of a file's problem in a list
_CHECKPOINT = re.compile(r"checkpoint-\d+")  # folders of Hugging Face's trainer, each with the curves so far
_GENERIC_NAMES = {
    "curve", "curves", "data", "events", "history", "log", "logs", "loss", "metric", "metrics", "monitor", "output",
    "progress", "result", "results", "run", "scalars", "stdout", "summary", "train", "training", "training_log",
    "trainer_state",
}  # fmt: skip
_SETTINGS_NAMES = {"args", "config", "hparams", "params"}  # names of files with settings, often next to files of curves
_COMMON_DRAWS = "common"  # origin of seeds that the user declared to be paired


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFile:
    """File of curves, or a folder that is read as one file.

    Attributes:
      path: Path of the file.
      format_name: Name of its format.
      sha256: Hash of its content.
      copy: Copy to read instead of a file that is being written. None: the file itself.
      name: Name of its run if the file does not contain one.
      prefix: Folder before the names of its runs if another source has the same name; ends in "/". "": none.
      paths: Spellings of its path that `--pattern` is matched with.
      is_one_of_many: Whether it was found in a folder or by a pattern, or is one of several files.
      is_optional: Whether it was found in a folder, which may contain files without curves.
    """

    path: Path
    format_name: str
    sha256: str
    copy: Path | None = None
    name: str = ""
    prefix: str = ""
    paths: tuple[str, ...] = ()
    is_one_of_many: bool = False
    is_optional: bool = False

    @property
    def readable_path(self) -> Path:
        """Path to read: that of the copy, or of the file."""
        return self.copy or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedPath:
    """Path named by an argument.

    Attributes:
      path: The path.
      root: Folder of the argument, or the fixed part of its pattern. None: the argument is the file itself.
      format_name: Name of the format. "": not known yet.
    """

    path: Path
    root: Path | None = None
    format_name: str = ""


def find_curve_files(
    files: Sequence[str | Path],
    format_name: str,
    notes: list[str] | None = None,
    *,
    earlier: Sequence[ImportedFile] = (),
) -> list[CurveFile]:
    """Returns the sources that paths and patterns name.

    A folder is one source if it contains event files, W&B or MLflow runs, or logs. Any other folder is replaced by the
    tables in and below it.

    Args:
      files: Paths and patterns.
      format_name: Name of the format. "": detect it.
      notes: List to which a line is added for each oddity.
      earlier: Files imported earlier with the same options. The names of new runs are numbered after theirs.
    Raises:
      UsageError: A file does not exist, or its format is unknown.
    """
    notes = notes if notes is not None else []
    problems: list[UsageError] = []
    sources: dict[Path, _NamedPath] = {}
    for text in map(str, files):
        for found_path in _matching_paths(text):
            try:
                found_sources = _sources_of_path(found_path, format_name, notes)
            except UsageError as error:
                problems.append(error)
                continue
            for source in found_sources:
                sources.setdefault(source.path.resolve(), source)
    if problems:
        raise combined_error(problems, "files")
    if not sources:
        raise UsageError("nothing to import", expected="a file, a folder, or a pattern such as 'logs/*.csv'")
    return _named_sources(sources, earlier)


def combined_error(problems: Sequence[UsageError], noun: str) -> UsageError:
    """Combines several errors into one."""
    if len(problems) == 1:
        return problems[0]
    texts_of_problems = shortened_list([str(error) for error in problems], _MAX_SHOWN)
    return UsageError(f"{len(problems)} {noun} cannot be imported", got=texts_of_problems)


def _matching_paths(text: str) -> list[_NamedPath]:
    try:
        path = Path(text)
        if path.exists():
            return [_NamedPath(path=path)]
        matches = [Path(match_path) for match_path in sorted(glob.glob(text, recursive=True))]
    except (OSError, RuntimeError, ValueError) as error:  # the name is too long, or links form a cycle
        raise UsageError("this cannot be a file", where=text[:200], got=cause(error)[:100]) from error
    if not matches:
        raise UsageError("no such file", got=repr(text))
    literal_parts = itertools.takewhile(lambda path_part: not glob.has_magic(path_part), path.parts)
    root = Path(*literal_parts)
    return [_NamedPath(path=match, root=root) for match in matches]


def _sources_of_path(source: _NamedPath, format_name: str, notes: list[str]) -> list[_NamedPath]:
    """Returns a path with its format, or the tables in a folder.

    Raises:
      UsageError: No format matches.
    """
    detected_name = detect_format(source.path, format_name)
    if not source.path.is_dir():
        return [dataclasses.replace(source, format_name=detected_name)]
    table_paths = table_files(source.path)
    if detected_name:
        unread_tables = (
            [path for path in table_paths if path.suffix != ".json"]
            if formats_by_name()[detected_name].files is not None and not format_name
            else []
        )
        if unread_tables and detected_name != "mlflow":
            unread_text = shortened_list([str(path) for path in unread_tables], _MAX_SHOWN)
            notes.append(
                f"{source.path} is read as {detected_name}; "
                f"{counted(len(unread_tables), 'table')} there not read: {unread_text}"
            )
        return [dataclasses.replace(source, format_name=detected_name)]
    sources = list[_NamedPath]()
    read_errors = list[UsageError]()
    for path in table_paths:
        try:
            sources.append(
                _NamedPath(path=path, root=source.root or source.path, format_name=detect_format(path, format_name))
            )
        except UsageError as error:
            read_errors.append(error)
    if not sources:
        raise combined_error(read_errors, "files") if read_errors else unknown_format_error(source.path)
    damage_errors = [error for error in read_errors if not isinstance(error, NotCurves)]
    if damage_errors:
        raise combined_error(damage_errors, "files")
    if read_errors:
        notes.append(left_out_note(read_errors))
    return sources


def left_out_note(errors: Sequence[UsageError]) -> str:
    """Returns the note on files of a folder that contain no curves."""
    verb = "is not a curve and is" if len(errors) == 1 else "are not curves and are"
    return (
        f"{counted(len(errors), 'file')} {verb} left out: "
        f"{shortened_list([_shorten(str(error)) for error in errors], _MAX_SHOWN)}"
    )


def _shorten(text: str) -> str:
    return text if len(text) < _MAX_PROBLEM_LENGTH else f"{text[:_MAX_PROBLEM_LENGTH]}..."


def _named_sources(found_files: Mapping[Path, _NamedPath], earlier_imports: Sequence[ImportedFile]) -> list[CurveFile]:
    """Returns the sources with the names of their runs.

    A file found in a folder is named by its path below the folder. A file given by itself keeps its name, unless files
    in several folders share it. Then each is named by its folder, relative to the common folder.
    """
    files_below_roots = [file.path for file in found_files.values() if file.root is not None and not file.path.is_dir()]
    num_files_by_folder = Counter(path.parent for path in files_below_roots)
    folders_of_run_files = {
        path.parent for path in files_below_roots if bare_name(path).lower() not in _GENERIC_NAMES | _SETTINGS_NAMES
    }
    is_one_of_many = len(found_files) > 1
    sources: list[CurveFile] = []
    for resolved_path, found_file in found_files.items():
        is_below = found_file.root is not None
        is_run = found_file.path.parent not in folders_of_run_files
        name = (
            _name_below(found_file, num_files_by_folder[found_file.path.parent], is_run=is_run)
            if is_below
            else _path_name(found_file.path)
        )
        sources.append(
            CurveFile(
                path=resolved_path,
                format_name=found_file.format_name,
                sha256=content_sha256(found_file.path, formats_by_name()[found_file.format_name]),
                name=name,
                paths=tuple(_path_spellings(found_file)),
                is_one_of_many=is_below or is_one_of_many,
                is_optional=is_below,
            )
        )
    groups: dict[tuple[str, str], list[CurveFile]] = {}
    for source in sources:
        groups.setdefault((source.format_name, source.name), []).append(source)
    earlier_files: dict[tuple[str, str], list[ImportedFile]] = {}
    for file in earlier_imports:
        if file.name:
            earlier_files.setdefault((file.reader, _path_name(Path(file.file))), []).append(file)
    named_sources: dict[Path, CurveFile] = {}
    for (format_name, name), group in groups.items():
        if any(found_files[source.path].root is not None for source in group):
            named_sources |= {source.path: source for source in group}
            continue
        hashes = {source.sha256 for source in group}
        paths_of_group = {str(source.path) for source in group}
        earlier_names = {
            file.file: file.name
            for file in earlier_files.get((format_name, _path_name(group[0].path)), ())
            if file.sha256 not in hashes and file.file not in paths_of_group
        }
        if len(group) + len(earlier_names) == 1:
            named_sources |= {source.path: source for source in group}
            continue
        names = _distinct_names([*(source.path for source in group), *map(Path, earlier_names)])
        keeps_name = any(names[Path(file)] != earlier_name for file, earlier_name in earlier_names.items())
        for source in group:
            folder = name if keeps_name else names[source.path]
            are_named = formats_by_name()[format_name].has_facts  # such trackers name the runs in each of their folders
            prefix = f"{folder}/" if folder != name and not are_named else ""
            named_sources[source.path] = dataclasses.replace(source, name=folder, prefix=prefix)
    return [named_sources[source.path] for source in sources]


def _path_name(path: Path) -> str:
    return path.name if path.is_dir() else bare_name(path)


def _name_below(source: _NamedPath, num_siblings: int, *, is_run: bool) -> str:
    """Returns the name of a file's run below a folder: the file's folder, unless it contains files of several runs.

    Args:
      source: The file.
      num_siblings: Number of files in its folder that may contain curves, including itself.
      is_run: Whether the folder is one run, because its files have generic names: `progress.csv`, `result.json`.
    """
    assert source.root is not None
    inner_path = source.path.relative_to(source.root)
    if source.path.is_dir():
        return inner_path.as_posix() if inner_path.parts else source.path.name
    stem = bare_name(inner_path)
    is_generic = stem.lower() in _GENERIC_NAMES
    folders = [
        folder for folder in inner_path.parent.parts if not (_CHECKPOINT.fullmatch(folder) and stem == "trainer_state")
    ]
    if stem == "trainer_state" and not folders:
        return source.root.resolve().name
    if not folders:
        return source.root.resolve().name if num_siblings == 1 and is_generic else stem
    folders = run_folders(folders)
    return "/".join(folders if num_siblings == 1 or is_run or stem == "trainer_state" else [*folders, stem])


def _distinct_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Returns distinct names for paths with the same file name: their folders relative to the common folder."""
    folders = {path: path if path.is_dir() else path.parent for path in paths}
    common_folder = Path(
        os.path.commonpath([folder.parent if path.is_dir() else folder for path, folder in folders.items()])
    )
    return {
        path: folder.relative_to(common_folder).as_posix() if folder != common_folder else _path_name(path)
        for path, folder in folders.items()
    }


def _path_spellings(source: _NamedPath) -> list[str]:
    """Returns the spellings of a path for `--pattern`: first relative to the argument's folder, then as typed."""
    typed_parts = [path_part for path_part in source.path.parts if path_part not in ("/", "..", ".")]
    parts_below_root = list(source.path.relative_to(source.root).parts) if source.root is not None else []
    if source.path.is_dir():
        return ["/".join(typed_parts[start_index:]) for start_index in reversed(range(len(typed_parts)))]
    starts = [len(typed_parts) - len(parts_below_root)] if parts_below_root else []
    starts += [start_index for start_index in reversed(range(len(typed_parts))) if start_index not in starts]
    names = [] if parts_below_root else [bare_name(source.path)]
    for start in starts:
        *folders, name = typed_parts[start:]
        stem = bare_name(Path(name))
        names += ["/".join([*folders, name]), "/".join([*folders, stem]), *(["/".join(folders)] if folders else [])]
        names += [stem] if start == starts[0] else []
    return list(dict.fromkeys(names))


def _parse_pairs(texts: Sequence[str], option: str, expected: str) -> dict[str, str]:
    pairs = [(text.partition("=")[0].strip(), text.partition("=")[2].strip()) for text in texts]
    for text, (key, value) in zip(texts, pairs, strict=True):
        if not key or not value:
            raise UsageError(option, got=repr(text), expected=expected)
    return dict(pairs)


def _check_roles(source: CurveFile, columns: Mapping[str, str], settings: ImportSettings) -> None:
    """Checks that a file's format has the columns and values that options refer to.

    Raises:
      UsageError: An option has no effect for this format.
    """
    file_kind = formats_by_name()[source.format_name]
    for role in columns.keys() - set(file_kind.columns):
        next_step = f"--{role}-from KEY takes it from the log" if file_kind.has_facts else "--pattern, of names"
        raise UsageError(
            f"--column {role}={columns[role]} does nothing: {source.format_name} has no column of that role",
            where=str(source.path),
            expected=", ".join(f"{column}=COLUMN" for column in file_kind.columns) or "no --column",
            next_step=next_step,
        )
    roles = {"method": settings.method_from, "case": settings.case_from, "seed": ", ".join(settings.seed_from)}
    for role, key in roles.items():
        if key and not file_kind.has_facts:
            next_step = (
                f"--column {role}={key}" if role in file_kind.columns else "--pattern takes it from names of runs"
            )
            raise UsageError(
                f"--{role}-from {key} does nothing: {source.format_name} contains nothing about a run but its name",
                where=str(source.path),
                next_step=next_step,
            )


class CollectedCurves:
    """Points of all sources, with the metadata of their files. A context manager, because the points are on disk."""

    def __init__(self, sources: Sequence[CurveFile], settings: ImportSettings, notes: Sequence[str] = ()) -> None:
        self.sources, self.settings, self.notes = list(sources), settings, list(notes)
        metrics = {text.partition("=")[0]: text.partition("=")[2] for text in settings.metrics}
        columns = _parse_pairs(settings.columns, "--column", "ROLE=COLUMN, such as seed=run")
        roles = ("method", "case", "seed", "step", "metric", "value")
        for role in columns.keys() - set(roles):
            raise UsageError(
                f"--column: unknown role {role!r}", expected=", ".join(roles), next_step=suggestion(role, roles)
            )
        self.request = CurveRequest(
            columns=columns,
            metrics=RequestedMetrics({name: new or metric_name(name) for name, new in metrics.items()}),
            targets=Path(settings.targets) if settings.targets else None,
            **{field.name: getattr(settings, field.name) for field in dataclasses.fields(RunNaming)},
        )
        for source in sources:
            _check_roles(source, columns, settings)
        self.new_names = _parse_pairs(settings.rename, "--rename", "OLD=NEW")
        paths_and_kinds = [(source.readable_path, formats_by_name()[source.format_name]) for source in sources]
        self.cases = {name: case for path, kind in paths_and_kinds for name, case in kind.cases(path).items()}
        directions = {
            name: way for path, kind in paths_and_kinds for name, way in kind.directions(path, self.request).items()
        }
        requested_directions = {metric_name(name): Direction.MAX for name in settings.maximize}
        requested_directions |= {metric_name(name): Direction.MIN for name in settings.minimize}
        self.directions = directions | requested_directions
        draws = {kind.draws for _, kind in paths_and_kinds}
        self.draws = _COMMON_DRAWS if settings.paired_seeds else draws.pop() if len(draws) == 1 else ""
        self.points_by_run = PointsByRun(
            self._paths_text_of,
            sources=[str(source.path) for source in sources],
            last_counts=[settings.last_counts or kind.last_counts for _, kind in paths_and_kinds],
            always_last=settings.last_counts,
        )
        self.files_by_run: dict[CurveRun, list[CurveFile]] = {}
        self._seen_metrics: set[str] = set()

    def __enter__(self) -> CollectedCurves:
        try:
            self._read_all()
        except BaseException:
            self.points_by_run.close()
            raise
        if not self.points_by_run.num_points:
            self.points_by_run.close()
            expected = f"values of {', '.join(self.request.metrics)}" if self.request.metrics else "values"
            metrics_text = ", ".join(sorted(self._seen_metrics or self._metrics_in_first_file())) or "none"
            raise UsageError(
                "there is nothing to import", where=str(self.sources[0].path), got=metrics_text, expected=expected
            )
        undeclared_metrics = [
            name for name in self.points_by_run.metrics if direction_of(name, self.directions) is None
        ]
        self.directions |= {name: way for name in undeclared_metrics if (way := usual_direction(name)) is not None}
        return self

    def _read_all(self) -> None:
        """Reads all sources. Errors are collected and raised at the end."""
        problems = list[UsageError]()
        foreign_errors = list[UsageError]()
        empty_files = list[str]()
        for number, source in enumerate(self.sources):
            num_points_before = self.points_by_run.num_points
            try:
                self._read_source(source, number)
            except NotCurves as error:
                (foreign_errors if source.is_optional else problems).append(error)
            except UsageError as error:
                problems.append(error)
            else:
                empty_files += [str(source.path)] if self.points_by_run.num_points == num_points_before else []
        if problems:
            raise combined_error(problems, "files")
        if foreign_errors and not self.points_by_run.num_points:
            raise foreign_errors[0]
        if foreign_errors:
            self.notes.append(left_out_note(foreign_errors))
        if empty_files and self.points_by_run.num_points:
            restriction = " of the requested metrics" if self.request.metrics else ""
            self.notes.append(
                f"{counted(len(empty_files), 'file')} without values{restriction} left out: "
                f"{shortened_list(empty_files, _MAX_SHOWN)}"
            )

    def _read_source(self, source: CurveFile, number: int) -> None:
        request = dataclasses.replace(
            self.request,
            name=source.name,
            prefix=source.prefix,
            paths=source.paths,
            is_one_of_many=source.is_one_of_many,
        )
        spellings: dict[str, str] = {}
        for points in formats_by_name()[source.format_name].read(source.readable_path, request, self.notes):
            named_points = self._with_metric_names(points, spellings, source)
            self.points_by_run.add(named_points, number)
            for run in named_points.runs:
                sources_of_run = self.files_by_run.setdefault(run, [])
                if source not in sources_of_run:
                    sources_of_run.append(source)

    def files_of_items(self) -> dict[tuple[str, str], list[CurveFile]]:
        """Returns the files with values of items, by method and case."""
        item_files: dict[tuple[str, str], dict[Path, CurveFile]] = {}
        for run, sources in self.files_by_run.items():
            if run.is_item:
                item_files.setdefault((run.method, run.case), {}).update({source.path: source for source in sources})
        return {names: list(files.values()) for names, files in item_files.items()}

    def _paths_text_of(self, run: CurveRun) -> str:
        paths = [str(source.path) for source in self.files_by_run.get(run, self.sources)]
        return " and ".join(paths) if len(paths) < 3 else f"{paths[0]} and {len(paths) - 1} more"

    def _metrics_in_first_file(self) -> set[str]:
        """Returns the metrics in the first file, including metrics that are not requested.

        Reads only the start of long files.
        """
        source = self.sources[0]
        request = dataclasses.replace(self.request, metrics=RequestedMetrics({}))
        first_points = itertools.islice(
            formats_by_name()[source.format_name].read(source.readable_path, request, []), _MAX_CHUNKS
        )
        return {name for points in first_points for name in points.metrics}

    def __exit__(self, *_: object) -> None:
        self.points_by_run.close()

    def _with_metric_names(self, points: Points, spellings: dict[str, str], source: CurveFile) -> Points:
        """Returns points with lobench's names of metrics, and the names given by `--rename`.

        Args:
          points: Points of the source.
          spellings: Name in the source of each metric so far, by lobench's name.
          source: The source.
        Raises:
          UsageError: Two metrics of the source have the same name in lobench.
        """
        metrics = self.request.metrics
        self._seen_metrics.update(points.metrics)
        kept_points = points.of_metrics(metrics) if metrics else points
        names = [metrics.get(name) or metric_name(name) for name in points.metrics]
        for name, foreign_name in zip(names, points.metrics, strict=True):
            if foreign_name in metrics or not metrics:
                first_spelling = spellings.setdefault(name, foreign_name)
                if first_spelling != foreign_name:
                    raise UsageError(
                        f"two metrics are both called {name}",
                        where=str(source.path),
                        got=f"{first_spelling}, {foreign_name}",
                        next_step=f"--metric {first_spelling}={first_spelling.replace('/', '_')}-1 "
                        f"--metric {foreign_name} names them apart",
                    )
        return dataclasses.replace(kept_points, runs=[self._renamed_run(run) for run in points.runs], metrics=names)

    def _renamed_run(self, run: CurveRun) -> CurveRun:
        case = run.case or self.settings.case or UNNAMED_CASE
        names = self.new_names
        return CurveRun(names.get(run.method, run.method), names.get(case, case), run.seed, run.training, run.is_item)

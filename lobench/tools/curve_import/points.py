"""Curve points: the output of all readers, by run and metric, in blocks of any order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lobench.api.settings import RunNaming
from lobench.core.errors import UsageError, suggestion
from lobench.core.metric import Direction, metric_name, stored_spelling
from lobench.core.wording import counted, shortened_list

__all__ = [
    "UNNAMED_CASE",
    "WITH_SEED",
    "CurveRequest",
    "CurveRun",
    "LoggedRun",
    "NotCurves",
    "Points",
    "RequestedMetrics",
    "bare_name",
    "has_seed",
    "named_run",
    "named_runs",
    "recording_request",
    "step_numbers",
]

UNNAMED_CASE = "task"  # name of the case if it is unknown

_FORMAT_SUFFIX = re.compile(
    r"\.(?:csv|tsv|txt|log|out|stdout|json|jsonl|ndjson|parquet|wandb|gz|db|monitor)$", re.IGNORECASE
)
WITH_SEED = re.compile(r"(?P<method>.+?)[-_/. ]seed[-_=: ]?(?P<seed>\d+)")


class NotCurves(UsageError):
    """A file does not contain curves. It is left out of a folder, with a note, if other files there contain curves."""


@dataclass(frozen=True, slots=True)
class CurveRun:
    """One training, identified by the names in its file.

    Attributes:
      method: Name of the method.
      case: Name of the case. "": unknown.
      seed: Name of the seed.
      training: Logger's name or id of the run, if the run may have curves for several cases. "": none.
      is_item: Whether it is an item of a data set, with the item's name in `seed`.

    >>> CurveRun("adam", "mnist", "3").seed
    '3'
    """

    method: str
    case: str
    seed: str
    training: str = field(default="", compare=False)
    is_item: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.is_item:
            return f"method {self.method!r}, case {self.case!r}, item {self.seed!r}"
        return f"method {self.method!r}, case {self.case!r}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """Run as recorded by an experiment tracker.

    Attributes:
      id: Unique id.
      name: Display name; several runs may share it.
      facts: Other logged values by name: `config.lr`, `params.lr`, `tags.NAME`, `group`, `job_type`, `experiment`.
        Options can also refer to `name` and `id`.
    """

    id: str
    name: str
    facts: Mapping[str, str] = field(default_factory=dict)

    def fact(self, key: str) -> str | None:
        """Returns the logged value of a name, or None."""
        return {"id": self.id, "name": self.name, **self.facts}.get(key)

    @property
    def settings(self) -> dict[str, str]:
        """Configuration or parameters of the training."""
        return {key: value for key, value in self.facts.items() if key.startswith(("config.", "params."))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Points of the curves of some runs: one value of a metric at a step each.

    Attributes:
      runs, metrics: Distinct runs and metrics.
      run, metric: int[num_points], indices into `runs` and `metrics`.
      step: int64[num_points], inner steps.
      value: float64[num_points]; NaN and infinities from diverged runs.
      line: int64[num_points], line numbers in the file; 0 if unknown.

    >>> ones = np.ones(1, np.int64)
    >>> runs, values = [CurveRun("adam", "", "0")], 2.0 * ones
    >>> points = Points(
    ...     runs=runs, metrics=["loss"], run=0 * ones, metric=0 * ones, step=ones, value=values, line=ones
    ... )
    >>> points.value
    array([2.])
    """

    runs: Sequence[CurveRun]
    metrics: Sequence[str]
    run: NDArray[np.integer]
    metric: NDArray[np.integer]
    step: NDArray[np.int64]
    value: NDArray[np.float64]
    line: NDArray[np.int64]

    @classmethod
    def of_curve(cls, run: CurveRun, metric: str, steps: ArrayLike, values: ArrayLike, lines: ArrayLike = 0) -> Points:
        """Returns the points of a single curve, as read from one run and metric."""
        step = np.asarray(steps, np.int64)
        zeros = np.zeros(len(step), np.int64)
        return cls(
            runs=(run,),
            metrics=(metric,),
            run=zeros,
            metric=zeros,
            step=step,
            value=np.asarray(values, np.float64),
            line=zeros + np.asarray(lines, np.int64),
        )

    @classmethod
    def of_curves(cls, run: CurveRun, points_by_metric: Mapping[str, Sequence[tuple[int, float]]]) -> Iterator[Points]:
        """Yields the points of a run's curves, given as (step, value) pairs by metric."""
        for metric, points in points_by_metric.items():
            steps, values = zip(*points, strict=True)
            yield cls.of_curve(run, metric, steps, values)

    def of_metrics(self, names: Collection[str]) -> Points:
        """Returns the points of some metrics only."""
        if all(name in names for name in self.metrics):
            return self
        return self.where(np.asarray([name in names for name in self.metrics])[self.metric])

    def where(self, is_kept: NDArray[np.bool_]) -> Points:
        """Returns the points at which a mask, bool[num_points], is true."""
        columns = {name: getattr(self, name)[is_kept] for name in ("run", "metric", "step", "value", "line")}
        return replace(self, **columns)


class RequestedMetrics(Mapping[str, str]):
    """Requested metrics: the name in the store by the name in the file. Keys match in any spelling.

    >>> RequestedMetrics({"train/elbo": "train/elbo"})["train_elbo"]
    'train/elbo'
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._spellings = {metric_name(name): name for name in reversed(list(names))}

    def __getitem__(self, name: str) -> str:
        return self._names[name if name in self._names else self._spellings[metric_name(name)]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def columns(self, names: Sequence[str]) -> list[str]:
        """Returns the columns of a table that are requested, in the order of the request.

        Names without a column stay as they were requested.
        """
        return [stored_spelling(name, names) for name in self._names]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRequest(RunNaming):
    """Options of an import that concern one file. The method, case and seed of its runs are inherited from `RunNaming`.

    Attributes:
      columns: Name of the column by role: `method`, `case`, `seed`, `step`, `metric` or `value`.
      metrics: Requested metrics, the primary one first. Empty: all.
      directions: Directions by lobench's name of the metric.
      targets: AlgoPerf's file of targets.
      name: Name of a source with one unnamed run. "": the file's own name. Files with the same name in several folders
        are named by their folders.
      prefix: Folder that distinguishes the runs of this source from those of another one. "": names are distinct.
      paths: Spellings of the source's path that `--pattern` is matched with, in this order.
      is_one_of_many: Whether the source was found in a folder or by a pattern, or is one of several files, so that its
        name identifies the run. Otherwise a table has to contain the method.

    >>> CurveRequest(method="adam", case="mnist").seed
    ''
    """

    columns: dict[str, str] = field(default_factory=dict)
    metrics: RequestedMetrics = field(default_factory=lambda: RequestedMetrics({}))
    directions: dict[str, Direction] = field(default_factory=dict)
    targets: Path | None = None
    name: str = ""
    prefix: str = ""
    paths: Sequence[str] = ()
    is_one_of_many: bool = False


def recording_request(request: CurveRequest, used_fields: set[str]) -> CurveRequest:
    """Returns a copy of a request that records in `used_fields` which of its fields are read."""

    class Watched(CurveRequest):
        def __getattribute__(self, name: str) -> object:
            used_fields.add(name)
            return super().__getattribute__(name)

    return Watched(**{name: getattr(request, name) for name in CurveRequest.__dataclass_fields__})


def bare_name(path: PurePath) -> str:
    """Returns a file's name without the endings of its format: `lr0.1` for `lr0.1.csv.gz`."""
    name = path.name
    while (suffix := _FORMAT_SUFFIX.search(name)) is not None and suffix.start():
        name = name[: suffix.start()]
    return name


def run_folders(folders: Sequence[str]) -> list[str]:
    """Returns the folders that name a run, without those that Lightning's loggers create below them.

    >>> run_folders(["adam_seed3", "lightning_logs", "version_0"])
    ['adam_seed3']
    """
    names = [folder for folder in folders if folder != "lightning_logs"] or list(folders)
    is_only_version = len(names) > 1 and names[-1] == "version_0" and has_seed(names[-2])
    return names[:-1] if is_only_version else names


def has_seed(name: str) -> bool:
    """Returns whether a run's name contains a seed, such as `adam_seed3`."""
    return WITH_SEED.fullmatch(name) is not None


def named_run(name: str, request: CurveRequest, *, is_file: bool = False) -> CurveRun:
    """Returns the run for a name: `adam_seed3` is seed 3 of adam, unless there is a pattern.

    With `--method`, or a pattern for the method and not for the seed, the runs are seeds of the method.

    Args:
      name: Name of the run.
      request: Options of the import.
      is_file: Whether the name is that of the file.
    Raises:
      UsageError: The pattern does not match, or is invalid.

    >>> run = named_run("adam_seed3", CurveRequest())
    >>> run.method, run.seed
    ('adam', '3')
    """
    name_fields = _name_fields(name, request, is_file=is_file)
    are_seeds = bool(request.method or (request.pattern and "method" in name_fields))
    return CurveRun(
        method=request.method or name_fields.get("method", name),
        case=name_fields.get("case") or request.case,
        seed=name_fields.get("seed") or request.seed or (name if are_seeds else "0"),
        training=name,
    )


def _name_fields(name: str, request: CurveRequest, *, is_file: bool) -> dict[str, str]:
    """Returns the method, case and seed in a name.

    `--pattern` is matched with the path first for names of files, and with the name first for runs inside a file.
    """
    if not request.pattern:
        match = WITH_SEED.fullmatch(name)
        return match.groupdict() if match else {}
    spellings = (
        [*request.paths, name] if is_file else [name, *(f"{path}/{name}" for path in request.paths), *request.paths]
    )
    try:
        pattern = re.compile(request.pattern)
    except re.error as error:
        raise UsageError("--pattern is not a regular expression", got=f"{request.pattern!r}, {error}") from error
    match = next((match_of_text for text in spellings if (match_of_text := pattern.fullmatch(text))), None)
    if match is None:
        raise UsageError(
            "--pattern does not fit a run's name",
            got=f"{request.pattern!r}; the run is {', '.join(map(repr, dict.fromkeys(spellings)))}",
            expected="an expression that matches one of these from its beginning to its end",
        )
    groups = {key: value for key, value in match.groupdict().items() if value}
    if not {"method", "seed"} & pattern.groupindex.keys() and (match_of_seed := WITH_SEED.fullmatch(name)):
        return match_of_seed.groupdict() | groups
    return groups


def named_runs(
    logged_runs: Sequence[LoggedRun], request: CurveRequest, notes: list[str]
) -> Iterator[tuple[str, CurveRun]]:
    """Yields the ids of runs with their methods, cases and seeds.

    Runs with the same method and case are different seeds. The seed is taken from `--seed-from`, the name, the
    parameter `seed`, or the id. Runs that lack a value named by an option are left out if other runs have it.

    Raises:
      UsageError: As for `named_run`; no run has a value named by an option; or seeds of a method have different
        settings.
    """
    logged_runs = _runs_with_values(logged_runs, request, notes)
    groups: dict[tuple[str, str], list[tuple[LoggedRun, CurveRun]]] = {}
    for tracked_run in logged_runs:
        run = named_run(f"{request.prefix}{tracked_run.name}", request)
        run = replace(
            run,
            method=tracked_run.fact(request.method_from) or run.method,
            case=tracked_run.fact(request.case_from) or run.case,
            seed=_seed_of(tracked_run, request),
            training=tracked_run.id,
        )
        groups.setdefault((run.method, run.case), []).append((tracked_run, run))
    runs: dict[str, CurveRun] = {}
    for (method, case), members in groups.items():
        if len(members) > 1:
            _check_pooled_runs(method, case, [logged_run for logged_run, _ in members], request)
            case_text = f" on {case!r}" if case else ""
            notes.append(f"{len(members)} runs are called {method!r}{case_text}: they are its seeds")
        seed_counts = Counter(run.seed for _, run in members)
        runs |= {
            logged_run.id: run if seed_counts[run.seed] == 1 else replace(run, seed=logged_run.id)
            for logged_run, run in members
        }
    yield from ((logged_run.id, runs[logged_run.id]) for logged_run in logged_runs)


def _runs_with_values(logged_runs: Sequence[LoggedRun], request: CurveRequest, notes: list[str]) -> list[LoggedRun]:
    """Returns the runs that have the values named by `--method-from`, `--case-from` and `--seed-from`.

    Other runs are left out with a note.

    Raises:
      UsageError: No run has one of the values.
    """
    runs_with_values = list(logged_runs)
    key_by_option = {
        "--method-from": request.method_from,
        "--case-from": request.case_from,
        "--seed-from": [*request.seed_from, ""][0],
    }
    for option, key in key_by_option.items():
        runs_without_value = [logged_run for logged_run in runs_with_values if key and not logged_run.fact(key)]
        if not runs_without_value:
            continue
        runs_text = shortened_list(
            [f"{logged_run.name!r} ({logged_run.id})" for logged_run in runs_without_value], _MOST_SHOWN
        )
        if len(runs_without_value) == len(runs_with_values):
            names = list(
                dict.fromkeys(name for logged_run in runs_with_values for name in ("name", "id", *logged_run.facts))
            )
            raise UsageError(
                f"{option} {key}: a run has no such value",
                got=f"run {runs_text}",
                expected=f"one of {', '.join(names)}",
                next_step=suggestion(key, names),
            )
        notes.append(
            f"{counted(len(runs_without_value), 'run')} of {len(runs_with_values):,} without {key} left out: "
            f"{runs_text}"
        )
        runs_with_values = [logged_run for logged_run in runs_with_values if logged_run not in runs_without_value]
    return runs_with_values


def _seed_of(run: LoggedRun, request: CurveRequest) -> str:
    if request.seed_from:
        return run.fact(request.seed_from[0]) or run.id
    configured_seed = next((value for key, value in run.settings.items() if key.partition(".")[2] == "seed"), "")
    return _name_fields(run.name, request, is_file=False).get("seed") or configured_seed or request.seed or run.id


def _check_pooled_runs(method: str, case: str, members: Sequence[LoggedRun], request: CurveRequest) -> None:
    """Checks that runs counted as seeds of one method differ only in their seeds.

    Raises:
      UsageError: Their configurations differ in other values too, so they may be different cases or methods.
    """
    keys = dict.fromkeys(key for member in members for key in member.settings)
    values = {key: dict.fromkeys(member.settings.get(key, "(none)") for member in members) for key in keys}
    seed_keys = {key for key in keys if key in request.seed_from or key.rpartition(".")[2].lower().endswith("seed")}
    differing_values = {
        key: sorted(distinct_values)
        for key, distinct_values in values.items()
        if len(distinct_values) > 1 and key not in seed_keys
    }
    if not differing_values:
        return
    differences = [
        f"{key} ({', '.join(distinct_values[:_MOST_SHOWN])}{', ...' * (len(distinct_values) > _MOST_SHOWN)})"
        for key, distinct_values in differing_values.items()
    ]
    first_key = next(iter(differing_values))
    case_text = f" on {case!r}" if case else ""
    raise UsageError(
        f"{len(members)} runs are called {method!r}{case_text}, and differ in more than a seed",
        got=shortened_list(differences, _MOST_SHOWN),
        next_step=f"--case-from {first_key} if these are problems, --method-from {first_key} if they are methods, "
        f"--seed-from {first_key} if they only distinguish seeds",
    )


_MOST_SHOWN = 4  # values, and keys, of one line


def step_numbers(values: NDArray[np.float64], lines: NDArray[np.int64], where: str, column: str) -> NDArray[np.int64]:
    """Returns steps as whole numbers.

    Raises:
      UsageError: A step is negative or not a whole number.
    """
    with np.errstate(invalid="ignore"):
        steps = np.where(np.isfinite(values), values, -1).astype(np.int64)
    is_invalid = (steps < 0) | (steps != values)
    if is_invalid.any():
        row = int(is_invalid.argmax())
        location = f"{where}, line {lines[row]}" if lines[row] else where
        raise UsageError(f"{column} is no step", where=location, got=f"{values[row]:g}", expected="a whole number >= 0")
    return steps

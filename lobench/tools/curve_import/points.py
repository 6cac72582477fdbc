"""Curve points: the output of every reader, by run and metric, in blocks of any order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lobench.core.errors import UsageError, suggestion
from lobench.core.metric import Direction, metric_name, stored_spelling
from lobench.core.wording import counted, first_of

__all__ = [
    "UNNAMED_CASE",
    "CurveRequest",
    "CurveRun",
    "LoggedRun",
    "NotCurves",
    "Points",
    "RequestedMetrics",
    "bare_name",
    "named_run",
    "named_runs",
    "step_numbers",
    "watched_request",
]

UNNAMED_CASE = "task"  # of curves for which nothing names the case

_ENDING = re.compile(r"\.(?:csv|tsv|txt|log|out|stdout|json|jsonl|ndjson|parquet|wandb|gz|db|monitor)$", re.IGNORECASE)
_WITH_SEED = re.compile(r"(?P<method>.+?)[-_/. ]seed[-_=: ]?(?P<seed>\d+)")


class NotCurves(UsageError):
    """A file does not hold curves. It is left out of a folder, with a note, if other files there do."""


@dataclass(frozen=True, slots=True)
class CurveRun:
    """One training: a method on a case with a seed, as a file calls them; "" where it does not say the case.

    Attributes:
      training: Name of the training that these curves are of, if other cases may have curves of it too: the logger's
        name or id of the run; "" if nothing says so.
    """

    method: str
    case: str
    seed: str
    training: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"method {self.method!r}, case {self.case!r}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run as who logged it knows it.

    Attributes:
      id: Its own, which no other run has.
      name: What people call it; several may have one.
      facts: What else was logged of it, by name: `config.lr`, `params.lr`, `tags.NAME`, `group`, `job_type`,
        `experiment`. `name` and `id` are among what options can name, too.
    """

    id: str
    name: str
    facts: Mapping[str, str] = field(default_factory=dict)

    def fact(self, key: str) -> str | None:
        """Returns what is known under a name; None: nothing."""
        return {"id": self.id, "name": self.name, **self.facts}.get(key)

    @property
    def settings(self) -> dict[str, str]:
        """What it was trained with: its config or parameters."""
        return {key: value for key, value in self.facts.items() if key.startswith(("config.", "params."))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Values of runs.

    Attributes:
      runs, metrics: What the numbers below stand for.
      run, metric: int[num_points], places among `runs` and `metrics`.
      step: int64[num_points], inner steps.
      value: float64[num_points]; NaN and infinities are what a diverged run logs.
      line: int64[num_points], lines of the file; 0: it has none.
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
        """Returns the points of one curve."""
        step = np.asarray(steps, np.int64)
        none = np.zeros(len(step), np.int64)
        return cls(
            runs=(run,),
            metrics=(metric,),
            run=none,
            metric=none,
            step=step,
            value=np.asarray(values, np.float64),
            line=none + np.asarray(lines, np.int64),
        )

    @classmethod
    def of_curves(cls, run: CurveRun, found: Mapping[str, Sequence[tuple[int, float]]]) -> Iterator[Points]:
        """Yields the points of a run's curves, by metric steps with their values."""
        for metric, points in found.items():
            steps, values = zip(*points, strict=True)
            yield cls.of_curve(run, metric, steps, values)

    def of_metrics(self, names: Collection[str]) -> Points:
        """Returns the points of some metrics only."""
        if all(name in names for name in self.metrics):
            return self
        kept = np.asarray([name in names for name in self.metrics])[self.metric]
        parts = {name: getattr(self, name)[kept] for name in ("run", "metric", "step", "value", "line")}
        return replace(self, **parts)


class RequestedMetrics(Mapping[str, str]):
    """Requested metrics: by the name in the file, the name in the store. A name is found in any spelling.

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
        """Returns which of a table's columns are requested, in the order of the request; a missing one as requested."""
        return [stored_spelling(name, names) for name in self._names]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRequest:
    """What who imports says of a file that the file does not say.

    Attributes:
      columns: Of a table: by `method`, `case`, `seed`, `step`, `metric` or `value` the column that holds it.
      method, case, seed: Of all rows, where the file has none; "": not said.
      metrics: Requested metrics, the primary one first; empty: all.
      pattern: Of names of runs, with groups `method`, `case`, `seed`.
      method_from, case_from: Name of the fact of a logged run that says it.
      seed_from: Names of facts that tell seeds apart; the first one numbers them.
      directions: By lobench's name of a metric.
      targets: AlgoPerf's file of targets.
      name: Name of the source, for a file that holds one run and does not name it; "": the file's own name. Files of
        one name in several folders are named for their folders.
      prefix: Folder that tells the runs of this source from those of another one; "": their names do.
      paths: Spellings of the source's path that `--pattern` is tried on, in this order.
      is_one_of_many: Whether the source was found in a folder, by a pattern or beside others, so that its name says
        which run it is. Otherwise a table has to say it.
    """

    columns: dict[str, str] = field(default_factory=dict)
    method: str = ""
    case: str = ""
    seed: str = ""
    metrics: RequestedMetrics = field(default_factory=lambda: RequestedMetrics({}))
    pattern: str = ""
    method_from: str = ""
    case_from: str = ""
    seed_from: Sequence[str] = ()
    directions: dict[str, Direction] = field(default_factory=dict)
    targets: Path | None = None
    name: str = ""
    prefix: str = ""
    paths: Sequence[str] = ()
    is_one_of_many: bool = False


def watched_request(asked: CurveRequest, used: set[str]) -> CurveRequest:
    """Returns the same request, which adds the names of the fields that are read to `used`."""

    class Watched(CurveRequest):
        def __getattribute__(self, name: str) -> object:
            used.add(name)
            return super().__getattribute__(name)

    return Watched(**{name: getattr(asked, name) for name in CurveRequest.__dataclass_fields__})


def bare_name(path: PurePath) -> str:
    """Returns a file's name without the endings that say its format: `lr0.1` of `lr0.1.csv.gz`."""
    name = path.name
    while (ending := _ENDING.search(name)) is not None and ending.start():
        name = name[: ending.start()]
    return name


def named_run(name: str, asked: CurveRequest, *, case: str = "", is_file: bool = False) -> CurveRun:
    """Returns the run that a name stands for: `adam_seed3` is seed 3 of adam, unless a pattern says otherwise.

    With `--method` the runs are its seeds, as they are with a pattern that names the method and no seed.

    Args:
      is_file: Whether the name is that of the file.
    Raises:
      UsageError: the pattern does not fit, or is none.
    """
    parts = _parts_of(name, asked, is_file=is_file)
    are_seeds = bool(asked.method or (asked.pattern and "method" in parts))
    return CurveRun(
        method=asked.method or parts.get("method", name),
        case=parts.get("case", case) if asked.pattern else asked.case or case,
        seed=parts.get("seed") or asked.seed or (name if are_seeds else "0"),
        training=name,
    )


def _parts_of(name: str, asked: CurveRequest, *, is_file: bool) -> dict[str, str]:
    """Returns the method, case and seed in a name.

    `--pattern` is tried on the path first for a file's name, and on the name first for a run inside of a file.
    """
    if not asked.pattern:
        found = _WITH_SEED.fullmatch(name)
        return found.groupdict() if found else {}
    texts = [*asked.paths, name] if is_file else [name, *(f"{path}/{name}" for path in asked.paths), *asked.paths]
    try:
        pattern = re.compile(asked.pattern)
    except re.error as error:
        raise UsageError("--pattern is no regular expression", got=f"{asked.pattern!r}, {error}") from error
    found = next((one for text in texts if (one := pattern.fullmatch(text))), None)
    if found is None:
        raise UsageError("--pattern does not fit a run's name", got=f"{texts[0]!r}, {asked.pattern!r}")
    return {key: value for key, value in found.groupdict().items() if value}


def named_runs(known: Sequence[LoggedRun], asked: CurveRequest, notes: list[str]) -> Iterator[tuple[str, CurveRun]]:
    """Yields the ids of runs, and what each is to lobench.

    Runs of one method and case are its seeds: the one of `--seed-from`, of the name, of the parameter `seed`, or the
    id. Runs without a value that an option names are left out, if others have it.

    Raises:
      UsageError: as `named_run`; no run has what an option names; runs that would be seeds differ in more than that.
    """
    known = _with_facts(known, asked, notes)
    groups: dict[tuple[str, str], list[tuple[LoggedRun, CurveRun]]] = {}
    for one in known:
        run = named_run(f"{asked.prefix}{one.name}", asked)
        run = replace(
            run,
            method=one.fact(asked.method_from) or run.method,
            case=one.fact(asked.case_from) or run.case,
            seed=_seed_of(one, asked),
            training=one.id,
        )
        groups.setdefault((run.method, run.case), []).append((one, run))
    runs: dict[str, CurveRun] = {}
    for (method, case), members in groups.items():
        if len(members) > 1:
            _check_pooled(method, case, [one for one, _ in members], asked)
            on = f" on {case!r}" if case else ""
            notes.append(f"{len(members)} runs are called {method!r}{on}: they are its seeds")
        numbers = Counter(run.seed for _, run in members)
        runs |= {one.id: run if numbers[run.seed] == 1 else replace(run, seed=one.id) for one, run in members}
    yield from ((one.id, runs[one.id]) for one in known)


def _with_facts(known: Sequence[LoggedRun], asked: CurveRequest, notes: list[str]) -> list[LoggedRun]:
    """Returns the runs that have what options take from them."""
    kept = list(known)
    firsts = {
        "--method-from": asked.method_from,
        "--case-from": asked.case_from,
        "--seed-from": [*asked.seed_from, ""][0],
    }
    for option, key in firsts.items():
        lacking = [one for one in kept if key and not one.fact(key)]
        if not lacking:
            continue
        shown = first_of([f"{one.name!r} ({one.id})" for one in lacking], _MOST_SHOWN)
        if len(lacking) == len(kept):
            names = list(dict.fromkeys(name for one in kept for name in ("name", "id", *one.facts)))
            raise UsageError(
                f"{option} {key}: a run has no such value",
                got=f"run {shown}",
                expected=f"one of {', '.join(names)}",
                next_step=suggestion(key, names),
            )
        notes.append(f"{counted(len(lacking), 'run')} of {len(kept):,} without {key} left out: {shown}")
        kept = [one for one in kept if one not in lacking]
    return kept


def _seed_of(one: LoggedRun, asked: CurveRequest) -> str:
    if asked.seed_from:
        return one.fact(asked.seed_from[0]) or one.id
    of_config = next((value for key, value in one.settings.items() if key.partition(".")[2] == "seed"), "")
    return _parts_of(one.name, asked, is_file=False).get("seed") or of_config or asked.seed or one.id


def _check_pooled(method: str, case: str, members: Sequence[LoggedRun], asked: CurveRequest) -> None:
    """Checks that runs which would be seeds of one method differ in nothing but seeds.

    Raises:
      UsageError: their configurations differ otherwise: they may be other problems, or other methods.
    """
    keys = dict.fromkeys(key for one in members for key in one.settings)
    values = {key: dict.fromkeys(one.settings.get(key, "(none)") for one in members) for key in keys}
    seeds = {key for key in keys if key in asked.seed_from or key.rpartition(".")[2].lower().endswith("seed")}
    odd = {key: sorted(found) for key, found in values.items() if len(found) > 1 and key not in seeds}
    if not odd:
        return
    shown = [
        f"{key} ({', '.join(found[:_MOST_SHOWN])}{', ...' * (len(found) > _MOST_SHOWN)})" for key, found in odd.items()
    ]
    first = next(iter(odd))
    on = f" on {case!r}" if case else ""
    raise UsageError(
        f"{len(members)} runs are called {method!r}{on}, and differ in more than a seed",
        got=first_of(shown, _MOST_SHOWN),
        next_step=f"--case-from {first} where these are problems, --method-from {first} where they are methods, "
        f"--seed-from {first} where they only tell seeds apart",
    )


_MOST_SHOWN = 4  # values, and keys, of one line


def step_numbers(values: NDArray[np.float64], lines: NDArray[np.int64], where: str, column: str) -> NDArray[np.int64]:
    """Returns steps as whole numbers.

    Raises:
      UsageError: one is none, or negative.
    """
    with np.errstate(invalid="ignore"):
        steps = np.where(np.isfinite(values), values, -1).astype(np.int64)
    odd = (steps < 0) | (steps != values)
    if odd.any():
        row = int(odd.argmax())
        place = f"{where}, line {lines[row]}" if lines[row] else where
        raise UsageError(f"{column} is no step", where=place, got=f"{values[row]:g}", expected="a whole number >= 0")
    return steps

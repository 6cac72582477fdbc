"""Curve points: the output of every reader, by run and metric, in blocks of any order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lobench.core.errors import UsageError, suggestion
from lobench.core.metric import Direction
from lobench.core.wording import first_of

__all__ = ["CurveRequest", "CurveRun", "LoggedRun", "Points", "metric_name", "named_run", "named_runs", "step_numbers"]

_SPLITS = {
    "train": "train", "training": "train", "test": "test", "val": "val", "valid": "val", "validation": "val",
    "eval": "val", "dev": "val",
}  # fmt: skip
_WITH_SPLIT = re.compile(rf"({'|'.join(_SPLITS)})[ _./-]+(.+)", re.IGNORECASE)
_WITH_SEED = re.compile(r"(?P<method>.+?)[-_/. ]seed[-_=: ]?(?P<seed>\d+)")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRequest:
    """What who imports says of a file that the file does not say.

    Attributes:
      columns: Of a table: by `method`, `case`, `seed`, `step`, `metric` or `value` the column that holds it.
      method, case, seed: Of all rows, where the file has none; "": not said.
      metrics: What the file calls those that are taken, the primary one first, by lobench's names for them; empty: all.
      pattern: Of names of runs, with groups `method`, `case`, `seed`.
      method_from, case_from: Name of the fact of a logged run that says it.
      seed_from: Names of facts that tell seeds apart; the first one numbers them.
      directions: By lobench's name of a metric.
      targets: AlgoPerf's file of targets.
    """

    columns: dict[str, str] = field(default_factory=dict)
    method: str = ""
    case: str = ""
    seed: str = ""
    metrics: dict[str, str] = field(default_factory=dict)
    pattern: str = ""
    method_from: str = ""
    case_from: str = ""
    seed_from: Sequence[str] = ()
    directions: dict[str, Direction] = field(default_factory=dict)
    targets: Path | None = None


def metric_name(name: str) -> str:
    """Returns lobench's name of a metric: `val_loss` is `val/loss`, `validation/acc` is `val/accuracy`."""
    found = _WITH_SPLIT.fullmatch(name.strip())
    if found is None:
        return name.strip().replace("batch/", "per_batch/")
    rest = found[2].strip()
    return f"{_SPLITS[found[1].lower()]}/{'accuracy' if rest.lower() == 'acc' else rest}"


def named_run(name: str, asked: CurveRequest, *, case: str = "") -> CurveRun:
    """Returns what the name of a run says: `adam_seed3` is seed 3 of adam, unless a pattern says otherwise.

    With `--method` the runs are its seeds.

    Raises:
      UsageError: the pattern does not fit, or is none.
    """
    try:
        found = re.fullmatch(asked.pattern, name) if asked.pattern else _WITH_SEED.fullmatch(name)
    except re.error as error:
        raise UsageError("--pattern is no regular expression", got=f"{asked.pattern!r}, {error}") from error
    if asked.pattern and found is None:
        raise UsageError("--pattern does not fit a run's name", got=f"{name!r}, {asked.pattern!r}")
    from_name = {key: value for key, value in (found.groupdict() if found else {}).items() if value}
    return CurveRun(
        method=asked.method or from_name.get("method", name),
        case=from_name.get("case", case) if asked.pattern else asked.case or case,
        seed=from_name.get("seed", name if asked.method else asked.seed or "0"),
        training=name,
    )


def named_runs(known: Sequence[LoggedRun], asked: CurveRequest, notes: list[str]) -> Iterator[tuple[str, CurveRun]]:
    """Yields the ids of runs, and what each is to lobench.

    Runs of one method and case are its seeds: the one that `--seed-from` or its parameter `seed` says, or its id.

    Raises:
      UsageError: as `named_run`; a run lacks what an option names; runs that would be seeds differ in more than that.
    """
    groups: dict[tuple[str, str], list[tuple[LoggedRun, CurveRun]]] = {}
    for one in known:
        run = _by_facts(one, named_run(one.name, asked), asked)
        groups.setdefault((run.method, run.case), []).append((one, run))
    seeds: dict[str, CurveRun] = {}
    for (method, case), members in groups.items():
        if len(members) > 1:
            _check_pooled(method, case, [one for one, _ in members], asked)
            on = f" on {case!r}" if case else ""
            notes.append(f"{len(members)} runs are called {method!r}{on}: they are its seeds")
        numbers = Counter(_seed_of(one, asked) for one, _ in members)
        for one, run in members:
            seed = _seed_of(one, asked)
            unique = seed if seed and numbers[seed] == 1 else one.id
            own = replace(run, training=one.id)
            seeds[one.id] = replace(own, seed=unique) if len(members) > 1 or asked.seed_from else own
    yield from ((one.id, seeds[one.id]) for one in known)


def _by_facts(one: LoggedRun, run: CurveRun, asked: CurveRequest) -> CurveRun:
    """Returns what a run is, with the method and the case that options take from what was logged of it."""
    for role, key in (("method", asked.method_from), ("case", asked.case_from)):
        if key:
            run = replace(run, **{role: _fact(one, key, f"--{role}-from")})
    return run


def _fact(one: LoggedRun, key: str, option: str) -> str:
    found = one.fact(key)
    if not found:
        known = ["name", "id", *one.facts]
        raise UsageError(
            f"{option} {key}: a run has no such value",
            got=f"run {one.name!r} ({one.id})",
            expected=f"one of {', '.join(known)}",
            next_step=suggestion(key, known),
        )
    return found


def _seed_of(one: LoggedRun, asked: CurveRequest) -> str:
    if asked.seed_from:
        return _fact(one, asked.seed_from[0], "--seed-from")
    return next((value for key, value in one.settings.items() if key.partition(".")[2] == "seed"), "")


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

"""Collected curves of all files before anything is written: points by run on disk, cases, directions, oddities."""

from __future__ import annotations

import dataclasses
import glob
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.api.settings import ImportSettings
from lobench.core.errors import UsageError, suggestion
from lobench.core.metric import Direction
from lobench.core.wording import cause
from lobench.tools.curve_import.formats.kinds import kind_of, kinds, sha256_of
from lobench.tools.curve_import.points import CurveRequest, CurveRun, Points, metric_name
from lobench.tools.curve_import.spill import Spill

__all__ = ["UNSAID", "CollectedCurves", "CurveFile", "sources_of"]

_LOOKED_AT = 200  # parts of a file
UNSAID = "task"  # the case of what says none
_COMMON = "common"  # draws of seeds that their files' owner says are the same


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFile:
    """A file, or a folder that is read as one.

    Attributes:
      copy: What is read in its place, since it is being written; None: itself.
    """

    path: Path
    kind: str
    sha256: str
    copy: Path | None = None

    @property
    def place(self) -> Path:
        """What is read."""
        return self.copy or self.path


def sources_of(files: Sequence[str | Path], kind: str) -> list[CurveFile]:
    """Returns what paths, and patterns of them, name.

    Raises:
      UsageError: there is none; nothing reads one.
    """
    found: dict[Path, None] = {}
    for text in map(str, files):
        try:
            is_there = Path(text).exists()
            paths = [Path(text)] if is_there else [Path(path) for path in sorted(glob.glob(text, recursive=True))]
            found.update(dict.fromkeys(path.resolve() for path in paths))
        except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, links in a circle
            raise UsageError("this cannot be a file", where=text[:200], got=cause(error)[:100]) from error
        if not paths:
            raise UsageError("there is no such file", got=repr(text))
    if not found:
        raise UsageError("nothing to import", expected="a file, a folder, or a pattern such as 'logs/*.csv'")
    named = {path: kind_of(path, kind) for path in found}
    return [CurveFile(path=path, kind=name, sha256=sha256_of(path, kinds()[name])) for path, name in named.items()]


def _pairs(texts: Sequence[str], option: str, expected: str) -> dict[str, str]:
    pairs = [(text.partition("=")[0].strip(), text.partition("=")[2].strip()) for text in texts]
    for text, (left, right) in zip(texts, pairs, strict=True):
        if not left or not right:
            raise UsageError(option, got=repr(text), expected=expected)
    return dict(pairs)


def _check_roles(source: CurveFile, columns: Mapping[str, str], settings: ImportSettings) -> None:
    """Checks that what is said of a file is something that its reader asks for.

    Raises:
      UsageError: an option does nothing there.
    """
    kind = kinds()[source.kind]
    for role in columns.keys() - set(kind.columns):
        raise UsageError(
            f"--column {role}={columns[role]} does nothing: {source.kind} has no column of that role",
            where=str(source.path),
            expected=", ".join(f"{one}=COLUMN" for one in kind.columns) or "no --column",
            next_step=f"--{role}-from KEY takes it from what was logged" if kind.has_facts else "--pattern, of names",
        )
    roles = {"method": settings.method_from, "case": settings.case_from, "seed": ", ".join(settings.seed_from)}
    for role, key in roles.items():
        if key and not kind.has_facts:
            raise UsageError(
                f"--{role}-from {key} does nothing: {source.kind} says nothing of a run but its name",
                where=str(source.path),
                next_step=f"--column {role}={key}" if role in kind.columns else "--pattern takes it from names of runs",
            )


class CollectedCurves:
    """The points of all sources, and what their files say beside them. A context manager: they lie on disk."""

    def __init__(self, sources: Sequence[CurveFile], settings: ImportSettings) -> None:
        self.sources, self.settings, self.notes = sources, settings, list[str]()
        metrics = {text.partition("=")[0]: text.partition("=")[2] for text in settings.metrics}
        columns = _pairs(settings.columns, "--column", "ROLE=COLUMN, such as seed=run")
        roles = ("method", "case", "seed", "step", "metric", "value")
        for role in columns.keys() - set(roles):
            raise UsageError(
                f"--column: there is no role {role!r}", expected=", ".join(roles), next_step=suggestion(role, roles)
            )
        self.asked = CurveRequest(
            columns=columns,
            method=settings.method,
            case=settings.case,
            seed=settings.seed,
            metrics={name: new or metric_name(name) for name, new in metrics.items()},
            pattern=settings.pattern,
            method_from=settings.method_from,
            case_from=settings.case_from,
            seed_from=settings.seed_from,
            targets=Path(settings.targets) if settings.targets else None,
        )
        for source in sources:
            _check_roles(source, columns, settings)
        self.renamed = _pairs(settings.rename, "--rename", "OLD=NEW")
        read = [(source.place, kinds()[source.kind]) for source in sources]
        self.cases = {name: case for path, kind in read for name, case in kind.cases(path).items()}
        found = {name: way for path, kind in read for name, way in kind.directions(path, self.asked).items()}
        given = {metric_name(name): Direction.MAX for name in settings.maximize}
        given |= {metric_name(name): Direction.MIN for name in settings.minimize}
        self.directions = found | given
        draws = {kind.draws for _, kind in read}
        self.draws = _COMMON if settings.paired_seeds else draws.pop() if len(draws) == 1 else ""
        last_counts = settings.last_counts or any(kind.last_counts for _, kind in read)
        self.spill = Spill(self._where_of, last_counts=last_counts)
        self.of_runs: dict[CurveRun, list[CurveFile]] = {}
        self._seen: set[str] = set()

    def __enter__(self) -> CollectedCurves:
        try:
            for source in self.sources:
                for points in kinds()[source.kind].read(source.place, self.asked, self.notes):
                    named = self._named(points)
                    self.spill.add(named)
                    for run in named.runs:
                        known = self.of_runs.setdefault(run, [])
                        if source not in known:
                            known.append(source)
        except BaseException:
            self.spill.close()
            raise
        if not self.spill.num_points:
            expected = f"values of {', '.join(self.asked.metrics)}" if self.asked.metrics else "values"
            got = ", ".join(sorted(self._seen or self._metrics_there())) or "none"
            raise UsageError("there is nothing to import", where=str(self.sources[0].path), got=got, expected=expected)
        return self

    def _where_of(self, run: CurveRun) -> str:
        paths = [str(source.path) for source in self.of_runs.get(run, self.sources)]
        return " and ".join(paths) if len(paths) < 3 else f"{paths[0]} and {len(paths) - 1} more"

    def _metrics_there(self) -> set[str]:
        """Returns the metrics that the first file has, whatever was asked for; of a long one those of its beginning."""
        source, asked = self.sources[0], dataclasses.replace(self.asked, metrics={})
        parts = itertools.islice(kinds()[source.kind].read(source.place, asked, []), _LOOKED_AT)
        return {name for points in parts for name in points.metrics}

    def __exit__(self, *_: object) -> None:
        self.spill.close()

    def _named(self, points: Points) -> Points:
        """Returns points with lobench's names of metrics, and those that `--rename` gives."""
        metrics = self.asked.metrics
        self._seen.update(points.metrics)
        kept = points.of_metrics(metrics) if metrics else points
        return dataclasses.replace(
            kept,
            runs=[self._renamed(run) for run in points.runs],
            metrics=[metrics.get(name) or metric_name(name) for name in points.metrics],
        )

    def _renamed(self, run: CurveRun) -> CurveRun:
        case = run.case or self.settings.case or UNSAID
        names = self.renamed
        return CurveRun(names.get(run.method, run.method), names.get(case, case), run.seed, run.training)

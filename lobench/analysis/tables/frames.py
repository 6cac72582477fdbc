"""Data frames of a store: tidy pandas frames, and curves as arrays."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.store.names import snapshot_with_name, subject_index_named
from lobench.analysis.store.snapshot import Snapshot, snapshot_maker
from lobench.analysis.store.subjects import StoredSubject
from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import StoreError, UsageError, suggestion
from lobench.core.metric import is_of_batch
from lobench.core.result import Curves
from lobench.core.step_cost import Overhead, StepCost, StepSeconds
from lobench.core.subject import Subject
from lobench.core.wording import counted
from lobench.engine.store.current import CurrentCases
from lobench.engine.store.edited_code import edited_code, edited_code_line
from lobench.engine.store.ledger import EvaluationRow, Ledger

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["CaseCurves", "StoredResults", "open_results", "value_frame", "value_frames"]

_SUBJECT_COLUMNS = (
    "suite", "case", "kind", "label", "outer_step", "generation", "checkpoint", "sha256", "optimizer", "case_identity",
)  # fmt: skip
_STEP_COLUMNS = ("outer_step", "generation")  # only checkpoints have these
_CURVE_COLUMNS = ("seed", "metric", "step", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCurves:
    """One metric of one case and subject, with its seed blocks joined.

    Attributes:
      case: The case.
      subject: Checkpoint, optimizer without theta, or imported method.
      metric: Name of the metric.
      steps: Inner steps, int64[num_evals]. Imported curves may differ in their steps; these are the common ones.
      seeds: Seeds, int64[num_seeds].
      values: Curves, float32[num_seeds, num_evals].
      diverged_at: First inner step with a non-finite loss, int64[num_seeds]; -1 if there was none.

    >>> curves, *_ = lobench.open_results("results").curves("train/loss")
    >>> curves.values.shape
    (3, 3)
    """

    case: CaseInfo
    subject: Subject
    metric: str
    steps: NDArray[np.int64]
    seeds: NDArray[np.int64]
    values: NDArray[np.float32]
    diverged_at: NDArray[np.int64]

    @property
    def checkpoint(self) -> Checkpoint:
        return self.subject.checkpoint


class StoredResults:
    """Content of a store at the time it was opened. Use `open_results` to create it.

    Example:
      results = open_results("lobench_results/quick")
      results.frame().groupby(["label", "case", "metric"])["value"].mean()

    Attributes:
      store: Folder of the store.
      rows: Evaluations, in the order of their recording.

    >>> frame = lobench.open_results("results").frame()
    >>> sorted(frame["case"].unique())
    ['a', 'b']
    """

    def __init__(
        self,
        store: Path,
        rows: tuple[EvaluationRow, ...],
        current: CurrentCases | None = None,
        make_snapshot: Callable[[], Snapshot] | None = None,
        make_store_snapshot: Callable[[], Snapshot] | None = None,
    ) -> None:
        self.store, self.rows = store, rows
        self._current_cases = CurrentCases.of_rows(rows) if current is None else current
        make_store_snapshot = make_store_snapshot or functools.partial(Snapshot.of, store, rows, current=current)
        self._make_store_snapshot = functools.cache(make_store_snapshot)
        self._make_snapshot = functools.cache(make_snapshot or self._make_store_snapshot)

    def evaluations(self) -> pd.DataFrame:
        """Returns a row for each evaluation and each sighting of its checkpoint, including those without curves.

        Columns: those of `frame` up to case_identity, then seed_start, num_seeds, outcome, message, diverged
        and exploded (numbers of seeds; missing without curves), compile_seconds, wall_seconds, step_seconds,
        step_unsteady, gradient_seconds, state_bytes, machine and num_together (compare times only between equal values
        of these two; missing if not measured), num_inner_steps, num_params, primary_metric, program_version,
        experiment, trial, session, recorded_at (UTC), host, device, git_revision, git_dirty, bindings.
        """
        import pandas as pd

        frame = pd.DataFrame([_evaluation_columns(row, subject) for row, subject in self._sightings()])
        if len(frame):
            frame = frame.astype(dict.fromkeys(_STEP_COLUMNS, "Int64"))
            frame["recorded_at"] = pd.to_datetime(frame["recorded_at"], unit="s", utc=True)
            frame["diverged"] = frame["diverged"].astype("Int64")
            frame["exploded"] = frame["exploded"].astype("Int64")
        return frame

    def frame(self) -> pd.DataFrame:
        """Returns a tidy frame with a row for each checkpoint, case, seed and metric.

        Columns: suite, case, kind (checkpoint, optimizer or imported), label, outer_step and generation (missing
        without theta; outer_step also for files without a step beside files with steps), checkpoint, sha256, optimizer,
        case_identity (cases of one name may differ in it), seed, metric,
        value (after the last inner step; NaN if the seed diverged), best (NaN if the metric's direction is not
        declared), mean, diverged_at (-1 if it did not), outcome. A seed whose evaluation gave no curves (error,
        timeout, ...) has one row without a metric, so that it stays visible. Methods of an experiment with the same gin
        text, or that of a search's trial, are one optimizer with one label.
        """
        return value_frame(self.rows)

    def curves_frame(self, metric: str | None = None, *, case: str | None = None) -> pd.DataFrame:
        """Returns the curves in long form: a row for each subject, case, seed, metric and inner step.

        Columns: those of `frame` up to case_identity, then seed, metric, step, value (NaN from the step at which the
        seed diverged). If a seed was evaluated twice, the later evaluation counts.

        Args:
          metric: Name of the metric. None: all metrics, including `batch/<metric>`.
          case: Name of the case. None: all cases.

        Raises:
          UsageError: The store has no such metric.
        """
        import pandas as pd

        metric_names = {name for row in self.rows if (curves := row.curves) is not None for name in curves.metrics}
        if metric is not None:
            self._require_metric(metric)
        blocks = list(self._latest_curves(case=case))
        frames = []
        for name in [metric] if metric is not None else sorted(metric_names):
            for info, subject, latest in blocks:
                curves_by_seed = _curves_by_seed(name, latest)
                if not curves_by_seed:
                    continue
                steps, values = (np.concatenate(arrays) for arrays in zip(*curves_by_seed.values(), strict=True))
                seeds = np.repeat(list(curves_by_seed), [len(seed_steps) for seed_steps, _ in curves_by_seed.values()])
                columns = dict(zip(_SUBJECT_COLUMNS, _subject_cells(info, subject, info.optimizer_hash), strict=True))
                columns |= zip(_CURVE_COLUMNS, (seeds, name, steps, values), strict=True)
                frames.append(pd.DataFrame(columns).astype(dict.fromkeys(_STEP_COLUMNS, "Int64")))
        empty = pd.DataFrame(columns=[*_SUBJECT_COLUMNS, *_CURVE_COLUMNS])
        return pd.concat(frames, ignore_index=True) if frames else empty

    def plot(
        self, metric: str | None = None, *, case: str | None = None, ax: Axes | None = None
    ) -> Axes | NDArray[np.object_]:
        """Draws the curves of each case: the mean over the seeds, with a band from the lowest to the highest.

        It draws the first and the last checkpoint of a run, and every optimizer and method, at most nine in all.

        Args:
          metric: Name of the metric. None: the primary metric of each case.
          case: Name of the case. None: all cases.
          ax: Axes to draw into, for a single case only. None: a new figure.

        Returns:
          matplotlib's axes; for several cases an array of them.

        Raises:
          UsageError: The store has no such metric or case.
          LobenchError: matplotlib is not installed.
        """
        from lobench.analysis.tables.notebook import plot_results

        if metric is not None:
            self._require_metric(metric)
        return plot_results(self._make_snapshot(), metric, case, ax)

    def _repr_html_(self) -> str:
        """Returns the table of methods and cases for a notebook, as in `lobench results --by method`."""
        from lobench.analysis.tables.notebook import html_of_results

        return html_of_results(self._make_snapshot(), repr(self))

    def curves(
        self, metric: str, *, case: str | None = None, outer_step: int | None = None, checkpoint: str | None = None
    ) -> list[CaseCurves]:
        """Returns the curves of a metric, one for each case and checkpoint, with seed blocks joined.

        If a seed was evaluated twice (by another inner program, say), the later evaluation counts.

        Args:
          metric: `<split>/<metric>`, or `batch/<metric>`.
          case: Name of the case (`relu32` or `digits/relu32`). None: all cases.
          outer_step: Outer step of the checkpoints. None: all.
          checkpoint: Name of the subject, as in `lobench.compare`: the label or scope of a method of the experiment, or
            the label, gin text, end of the path, outer step or start of the sha256 of any subject. A method has the
            seeds that its table shows: the best trial of a search those that are fresh, a command the first seed of
            each session's last checkpoint. None: all subjects.

        Raises:
          UsageError: The store has no such metric, no subject has the name, or several have it.
        """
        self._require_metric(metric)
        blocks = self._latest_curves(case=case, outer_step=outer_step, checkpoint=checkpoint)
        joined_curves = (_join_curves(metric, *block) for block in blocks)
        return [curves for curves in joined_curves if curves is not None]

    def _latest_curves(
        self, *, case: str | None = None, outer_step: int | None = None, checkpoint: str | None = None
    ) -> Iterator[tuple[CaseInfo, Subject, _LatestCurves]]:
        """Yields each case and subject with the latest valid evaluation of each seed, sorted by seed.

        Of a method of the experiment, these are the seeds that its table shows.
        """
        found, is_method = None, False
        if checkpoint is not None and self.rows:
            found, is_method = self._find(checkpoint, outer_step)
        if found is not None and is_method:
            subject = dataclasses.replace(found.subject, label=found.label)
            for cell in found.cells.values() if outer_step in (None, subject.known_outer_step) else ():
                if case is None or cell.case.has_name(case):
                    curves_by_seed = cell.curves_by_seed.items()
                    yield cell.case, subject, {seed: (curves.complete(), row) for seed, (curves, row) in curves_by_seed}
            return
        groups: dict[tuple[str, Subject], list[tuple[EvaluationRow, Curves]]] = {}
        for row, subject in self._sightings():
            is_wanted = case is None or row.case.has_name(case)
            is_wanted &= outer_step is None or outer_step == subject.known_outer_step
            is_wanted &= found is None or found.subject.key == subject.key
            curves_of_row = row.curves if is_wanted else None
            if curves_of_row is not None:
                groups.setdefault((row.case.key, subject), []).append((row, curves_of_row))
        for (_, subject), blocks in groups.items():
            curves_by_row = {id(row): curves for row, curves in blocks}
            rows = self._current_cases.by_precedence(subject, [row for row, _ in blocks])
            latest: _LatestCurves = {}
            for curves in [curves_by_row[id(row)] for row in rows]:
                if curves.items:  # items of an earlier evaluation may be of another data set
                    latest.clear()
                latest.update({seed: (curves, index) for index, seed in enumerate(curves.seeds)})
            yield rows[-1].case, subject, dict(sorted(latest.items()))

    def _find(self, name: str, outer_step: int | None) -> tuple[StoredSubject, bool]:
        """Returns the subject that a text names, and whether it is a method of the experiment.

        Args:
          name: Text to look up.
          outer_step: Outer step of the checkpoint, if several have the name. None: any.

        Raises:
          UsageError: No subject has this name, or several have it.
        """
        snapshot = snapshot_with_name(self._make_snapshot(), self._make_store_snapshot, name)
        identities = [subject.subject for subject in snapshot.subjects]
        other_keys = [one.key for one in identities if outer_step not in (None, one.known_outer_step)]
        index = subject_index_named(snapshot, name, other_keys)
        return snapshot.subjects[index], bool(snapshot.experiment.method_names)

    def _require_metric(self, metric: str) -> None:
        stored_metrics = {name for row in self.rows if (curves := row.curves) is not None for name in curves.metrics}
        if stored_metrics and metric not in stored_metrics:
            raise UsageError(
                f"no evaluation has a metric {metric!r}",
                where=str(self.store),
                expected="one of " + ", ".join(sorted(stored_metrics)),
                next_step=suggestion(metric, sorted(stored_metrics)),
            )

    def _sightings(self) -> Iterator[tuple[EvaluationRow, Subject]]:
        for row in self.rows:
            for subject in row.sightings:
                yield row, subject

    def __repr__(self) -> str:
        cases = {row.case.identity for row in self.rows}
        kind_counts = Counter({subject.key: subject.kind for row in self.rows for subject in row.sightings}.values())
        nouns = {"imported": "imported method"}
        subjects = [counted(number, nouns.get(kind, kind)) for kind, number in sorted(kind_counts.items())]
        counts = ", ".join([counted(len(self.rows), "evaluation"), *subjects, counted(len(cases), "case")])
        return f"StoredResults({str(self.store)!r}: {counts})"


def open_results(store: str | Path, *, experiment: str | None = None, include_all: bool = False) -> StoredResults:
    """Reads a store, which may be in use. Later additions are not included.

    Issues a `UserWarning` with the names of the files if current results were computed by other code than the user's
    present code.

    Args:
      store: Folder of the store.
      experiment: Name of the experiment whose methods a notebook's table and `plot` show, and whose names `curves`
        takes. None: the last one that was run, or all subjects of a store without any. The frames and `curves` have all
        subjects.
      include_all: Whether the table and `plot` show all subjects instead, such as each trial of a search.

    Raises:
      StoreError: The folder is not a store, or a newer lobench wrote it.
      UsageError: The store has no such experiment.

    >>> lobench.open_results("results")
    StoredResults('results': 4 evaluations, 2 optimizers, 2 cases)
    """
    from lobench.analysis.store.methods import find_experiment, snapshot_of_experiment  # imports gin

    path = Path(store)
    if path.name == "ledger.sqlite":
        raise StoreError("a store is a folder", where=str(path), next_step=f"open {str(path.parent)!r}")
    with Ledger.open(path, read_only=True) as ledger:
        positions = {subject: position for position, subject in ledger.sightings().items()}
        rows = tuple(ledger.evaluations())
        current = ledger.current_cases(rows)
        changed_files = edited_code(ledger, rows)
        make_store_snapshot = functools.cache(snapshot_maker(path, ledger, rows, positions))
        version = None if include_all else find_experiment(path, ledger, experiment)
    if line := edited_code_line([row for row in rows if current.is_current(row)], changed_files):
        warnings.warn(f"{path}: {line}", stacklevel=2)

    def make_snapshot() -> Snapshot:
        if version is None:
            return make_store_snapshot()
        with Ledger.open(path, read_only=True) as ledger:
            return snapshot_of_experiment(make_store_snapshot(), version, ledger)

    return StoredResults(path, rows, current, make_snapshot, make_store_snapshot)


def value_frames(rows: Iterable[EvaluationRow]) -> Iterator[pd.DataFrame]:
    """Yields `StoredResults.frame` of evaluations in parts, at least one, so that few are in memory at a time."""
    remaining_rows = iter(rows)
    yield value_frame(itertools.islice(remaining_rows, _ROWS_OF_PART))
    while part := list(itertools.islice(remaining_rows, _ROWS_OF_PART)):
        yield value_frame(part)


def value_frame(rows: Iterable[EvaluationRow]) -> pd.DataFrame:
    """Returns `StoredResults.frame` of evaluations, of which one at a time is in memory."""
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [] for name in (*_SUBJECT_COLUMNS, *_VALUE_COLUMNS)}
    for row in rows:
        values = list(_value_rows(row))
        for subject in row.sightings:
            for name, value in zip(
                _SUBJECT_COLUMNS, _subject_cells(row.case, subject, row.key.optimizer_hash), strict=True
            ):
                columns[name] += [value] * len(values)
            for name, column in zip(_VALUE_COLUMNS, zip(*values, strict=True), strict=True):
                columns[name] += column
    return pd.DataFrame(columns).astype(dict.fromkeys(_STEP_COLUMNS, "Int64"))


_ROWS_OF_PART = 500  # evaluations
_VALUE_COLUMNS = ("seed", "metric", "value", "best", "mean", "diverged_at", "outcome")


def _subject_cells(case: CaseInfo, subject: Subject, optimizer_hash: str) -> tuple[Any, ...]:
    return (
        case.suite,
        case.name,
        subject.kind,
        subject.label,
        subject.known_outer_step,
        subject.generation if subject.has_theta else None,
        subject.uri,
        subject.sha256,
        optimizer_hash,
        case.identity,
    )


def _value_rows(row: EvaluationRow) -> Iterator[tuple[Any, ...]]:
    curves = row.curves
    outcome = str(row.outcome)
    if curves is None:
        for seed in row.key.seed_block.seeds:
            yield seed, None, math.nan, math.nan, math.nan, -1, outcome
        return
    for metric in sorted(curves.metrics):
        has_direction = curves.direction(metric) is not None
        columns = zip(
            curves.items or curves.seeds,
            curves.final(metric),
            curves.best(metric) if has_direction else [math.nan] * len(curves.seeds),
            curves.mean(metric),
            curves.diverged_at,
            strict=True,
        )
        for name, final, best, mean, diverged_at in columns:
            yield name, metric, final, best, mean, diverged_at, outcome


def _evaluation_columns(row: EvaluationRow, subject: Subject) -> dict[str, Any]:
    curves = row.curves
    columns_of_subject: dict[str, Any] = dict(
        zip(_SUBJECT_COLUMNS, _subject_cells(row.case, subject, row.key.optimizer_hash), strict=True)
    )
    return columns_of_subject | {
        "seed_start": row.key.seed_block.start,
        "num_seeds": row.key.seed_block.size,
        "outcome": str(row.outcome),
        "message": row.message,
        "diverged": curves.num_diverged if curves else None,
        "exploded": curves.num_exploded(row.case) if curves else None,
        "compile_seconds": curves.compile_seconds if curves else math.nan,
        "wall_seconds": curves.wall_seconds if curves else math.nan,
        **_cost_columns(curves.cost if curves else None),
        "num_inner_steps": row.case.num_inner_steps,
        "num_params": curves.num_params if curves else 0,
        "primary_metric": row.case.primary_metric,
        "program_version": row.key.program_version,
        "experiment": row.labels.experiment,
        "trial": row.labels.trial,
        "session": row.labels.session,
        "recorded_at": row.recorded_at,
        **_provenance_columns(curves),
    }


def _cost_columns(cost: StepCost | None) -> dict[str, Any]:
    costs = [cost] if cost is not None else []
    seconds = StepSeconds.of(costs)
    return {
        "step_seconds": seconds.median,
        "step_unsteady": seconds.is_unsteady if seconds.num_samples else None,
        "gradient_seconds": Overhead.of(costs).gradient.median,
        "state_bytes": cost.state_bytes if cost is not None else None,
        "machine": cost.machine if cost is not None else None,
        "num_together": cost.num_together if cost is not None else None,
    }


def _provenance_columns(curves: Curves | None) -> dict[str, Any]:
    names = ("host", "device", "git_revision", "git_dirty", "bindings")
    values = dataclasses.asdict(curves.provenance) if curves else {}
    return {name: values.get(name) for name in names}


_LatestCurves: TypeAlias = dict[int, tuple[Curves, int]]  # by seed: the curves of its evaluation, and its row in them


def _curves_by_seed(metric: str, latest: _LatestCurves) -> dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Returns the steps and the values of each seed that has the metric."""
    return {
        seed: (
            np.asarray(curves.log_steps if is_of_batch(metric) else curves.eval_steps, np.int64),
            np.asarray(curves.metrics[metric])[index],
        )
        for seed, (curves, index) in latest.items()
        if metric in curves.metrics
    }


def _join_curves(metric: str, case: CaseInfo, subject: Subject, latest: _LatestCurves) -> CaseCurves | None:
    values_by_seed = _curves_by_seed(metric, latest)
    if not values_by_seed:
        return None
    # Imported curves may differ in their steps; use the common ones.
    steps = sorted(set.intersection(*(set(steps.tolist()) for steps, _ in values_by_seed.values())))
    return CaseCurves(
        case=case,
        subject=subject,
        metric=metric,
        steps=np.asarray(steps, np.int64),
        seeds=np.asarray(list(values_by_seed), np.int64),
        values=np.stack([values[np.isin(seed_steps, steps)] for seed_steps, values in values_by_seed.values()]),
        diverged_at=np.asarray([latest[seed][0].diverged_at[latest[seed][1]] for seed in values_by_seed], np.int64),
    )

"""Output of `lobench pbt`, read from the store of a study, served or not."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from lobench import UsageError
from lobench.extend import emit, text_table
from lobench_pbt.fronts import Dominated, Front, front_of
from lobench_pbt.lineage import inheritance_chain, segments
from lobench_pbt.study import Study, study_from_json
from lobench_pbt.study_database import StudyRow, connect, convert_errors, read_studies
from lobench_pbt.trial import State, StudyTrial
from lobench_pbt.trial_table import TrialTable

__all__ = ["ExportRecord", "StatusRecord", "TrialReplayRecord", "show_export", "show_replay", "show_status"]


class TrialRecord(TypedDict):
    """Row of the table of `lobench pbt status`, with a key for each column."""

    id: int
    generation: int
    state: State
    parents: list[int]
    start_step: int
    end_step: int
    metrics: dict[str, float] | None
    parameters: dict[str, Any]
    worker: str
    attempt: int
    note: str
    ended_as_number: Annotated[int | None, "Position in the order in which trials ended, from 1."]
    dominated: Annotated[Dominated | None, "With several objectives: first trial that dominated it, and when."]


class StatusRecord(TypedDict):
    """`lobench pbt status`: a study and its trials."""

    study: str
    is_stopped: bool
    states: dict[str, int]
    objectives: list[str]
    best: Annotated[int | None, "Id of the best trial. null with several objectives."]
    front: Annotated[list[int], "Ids of the trials that no other dominates: the best one, or the Pareto front."]
    trials: list[TrialRecord]


class TrialReplayRecord(TypedDict):
    """`lobench pbt replay TRIAL`: the history of a trial, as segments of training."""

    version: Literal[1]
    study: str
    trial: int
    segments: list[dict[str, Any]]


class MeasurementRecord(TypedDict):
    attempt: int
    step: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTrial(StudyTrial):
    """Row of the trial table with its measurements."""

    measurements: list[MeasurementRecord]


class ExportRecord(TypedDict):
    """`lobench pbt export`: a study with all its trials and measurements."""

    version: Literal[1]
    study: dict[str, Any]
    stopped: bool
    trials: list[ExportedTrial]


_NO_LIMIT = 1 << 62


@contextlib.contextmanager
def _open_study(store: Path, name: str) -> Iterator[tuple[StudyRow, TrialTable]]:
    path = store / "pbt.sqlite"
    db: sqlite3.Connection = connect(path, read_only=True)
    try:
        with convert_errors(path):
            rows = read_studies(db, name)
            if len(rows) != 1:
                names = ", ".join(row.name for row in read_studies(db)) or "none"
                raise UsageError(
                    "the store has several studies",
                    where=str(store),
                    got=repr(name),
                    expected=f"--study, one of: {names}",
                )
            yield rows[0], TrialTable(db, rows[0].name)
    finally:
        db.close()


def show_status(store: Path, name: str, *, tree: bool, output_format: str = "text") -> None:
    """Prints the trials, the front for several objectives, and the lineage tree: as text, JSON or a page."""
    with _open_study(store, name) as (row, table):
        study = study_from_json(row.config)
        trials = table.trials_after(0, _NO_LIMIT)
    states = collections.Counter(str(trial.state) for trial in trials)
    front = front_of(study, trials)
    counts_text = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no trials yet"
    headline = f"study {row.name}{' (stopped)' if row.stopped else ''}: {counts_text}"
    tables = {"Trials": [_HEADER, *(_trial_cells(study, trial) for trial in trials)]}
    if front.has_several_objectives:
        tables |= _front_tables(study, trials, front)
    if output_format == "json":
        emit("pbt.status", _status_record(row, study, trials, states, front))
    elif output_format == "html":
        from lobench_pbt.study_page import status_page

        print(status_page(headline, study, trials, front, tables, _lineage_lines(study, trials, front) if tree else []))
    else:
        print(headline)
        print(text_table(tables.pop("Trials"), left={2, 3, 5, 6, 7, 8}))
        for title, rows in tables.items():
            print(f"\n{title}", text_table(rows), sep="\n")
        if tree:
            print("\n".join(_lineage_lines(study, trials, front)))


def _front_tables(study: Study, trials: list[StudyTrial], front: Front) -> dict[str, list[tuple[str, ...]]]:
    """Returns tables of the front and of former members of it, with their titles."""
    trials_by_id = {trial.id: trial for trial in trials}
    num_ended = sum(trial.is_terminal for trial in trials)
    aims = " and ".join(f"{objective.metric} ({objective.direction})" for objective in study.objectives)
    header = ("trial", "gen", *(objective.metric for objective in study.objectives), "ended")

    def trial_cells(trial: StudyTrial) -> tuple[str, ...]:
        metrics = trial.metrics or {}
        values = (_short_text(metrics.get(objective.metric)) for objective in study.objectives)
        return str(trial.id), str(trial.generation), *values, f"{trial.completed_seq} of {num_ended}"

    def lineage_text(trial: StudyTrial) -> str:
        return " > ".join(str(ancestor.id) for ancestor in inheritance_chain(trials_by_id, trial.id))

    front_rows = [(*trial_cells(trials_by_id[id]), lineage_text(trials_by_id[id])) for id in front.ids]
    former_rows = [
        (
            *trial_cells(trials_by_id[id]),
            f"trial {end.by}",
            f"{end.at} of {num_ended} had ended",
            lineage_text(trials_by_id[id]),
        )
        for id, end in front.dominated.items()
        if end.was_of_front
    ]
    tables = {f"Front of {aims}: what no trial beats": [(*header, "lineage"), *front_rows]}
    if former_rows:
        tables["Earlier on the front"] = [(*header, "dominated by", "when", "lineage"), *former_rows]
    return tables


def _status_record(
    row: StudyRow, study: Study, trials: list[StudyTrial], states: Mapping[str, int], front: Front
) -> StatusRecord:
    return {
        "study": row.name,
        "is_stopped": row.stopped,
        "states": dict(states),
        "objectives": [objective.metric for objective in study.objectives],
        "best": front.best,
        "front": list(front.ids),
        "trials": [
            {
                "id": trial.id,
                "generation": trial.generation,
                "state": trial.state,
                "parents": list(trial.parent_ids),
                "start_step": trial.start_step,
                "end_step": trial.end_step,
                "metrics": dict(trial.metrics) if trial.metrics is not None else None,
                "parameters": dict(trial.params),
                "worker": trial.worker_id if trial.state is State.ACTIVE else "",
                "attempt": trial.attempt,
                "note": trial.reason,
                "ended_as_number": trial.completed_seq,
                "dominated": front.dominated.get(trial.id),
            }
            for trial in trials
        ],
    }


_HEADER = ("trial", "gen", "state", "from", "steps", "fitness", "parameters", "worker", "note")


def _trial_cells(study: Study, trial: StudyTrial) -> tuple[str, ...]:
    return (
        str(trial.id),
        str(trial.generation),
        trial.state,
        ", ".join(map(str, trial.parent_ids)) or "-",
        f"{trial.start_step}-{trial.end_step}",
        _fitness_text(study, trial),
        ", ".join(f"{path.rsplit('.', 1)[-1]}={_short_text(value)}" for path, value in sorted(trial.params.items())),
        trial.worker_id if trial.state is State.ACTIVE else "",
        trial.reason or (f"attempt {trial.attempt + 1}" if trial.attempt else ""),
    )


def _short_text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _fitness_text(study: Study, trial: StudyTrial) -> str:
    if trial.metrics is None or trial.fitness is None:
        return ""
    return ", ".join(_short_text(trial.metrics[objective.metric]) for objective in study.objectives)


def _lineage_lines(study: Study, trials: list[StudyTrial], front: Front) -> list[str]:
    """Returns the tree of warm starts, with each trial below the one it started from.

    The best or the front is marked.
    """
    ids = {trial.id for trial in trials}
    children_by_parent: dict[int | None, list[StudyTrial]] = {}
    for trial in trials:
        parent = trial.parent_ids[0] if trial.parent_ids and trial.parent_ids[0] in ids else None
        children_by_parent.setdefault(parent, []).append(trial)
    lines = ["from scratch"]
    pending_trials = [(1, trial) for trial in reversed(children_by_parent.get(None, []))]
    while pending_trials:
        depth, trial = pending_trials.pop()
        front_mark = ("  *front*" if front.has_several_objectives else "  *best*") if trial.id in front.ids else ""
        fitness = _fitness_text(study, trial) or trial.state
        lines.append(f"{'  ' * depth}{trial.id} (generation {trial.generation}): {fitness}{front_mark}")
        pending_trials += [(depth + 1, child) for child in reversed(children_by_parent.get(trial.id, []))]
    return lines


def show_replay(store: Path, name: str, trial: int, *, from_step: int, to_step: int | None) -> None:
    with _open_study(store, name) as (row, table):

        def find_trial(id: int) -> StudyTrial:
            found_trial = table.trial(id)
            if found_trial is None:
                raise UsageError("no such trial", where=f"study {row.name!r}", got=str(id))
            return found_trial

        replayed_segments = segments(find_trial, trial, from_step=from_step, to_step=to_step)
    emit("pbt.replay", TrialReplayRecord(version=1, study=row.name, trial=trial, segments=replayed_segments))


def show_export(store: Path, name: str) -> None:
    with _open_study(store, name) as (row, table):
        trials = []
        for trial in table.trials_after(0, _NO_LIMIT):
            measurements: list[MeasurementRecord] = [
                {"attempt": attempt, "step": step, "seconds": seconds, "metrics": metrics}
                for attempt, step, seconds, metrics in table.measurements(trial.id)
            ]
            trials.append(ExportedTrial(**dataclasses.asdict(trial), measurements=measurements))
    study = json.loads(row.config)
    emit("pbt.export", ExportRecord(version=1, study=study, stopped=row.stopped, trials=trials))

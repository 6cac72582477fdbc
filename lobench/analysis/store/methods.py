"""Methods of a store: the rows of its tables, made from an experiment's members or from single subjects."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lobench.analysis.store.entrants import StoredRace, entrants_of
from lobench.analysis.store.names import subject_index_named, subject_names
from lobench.analysis.store.reading import StoreReading
from lobench.analysis.store.search_history import best_trial_subject, best_trials, num_infeasible
from lobench.analysis.store.snapshot import (
    ExperimentMethods,
    FormerCounts,
    Snapshot,
    case_names,
    former_counts,
    read_store,
)
from lobench.analysis.store.subjects import Cell, StoredSubject, subject_of
from lobench.core.case import CaseInfo
from lobench.core.errors import ConfigError, UsageError, suggestion
from lobench.core.result import mean_of
from lobench.core.search.space import Parameter
from lobench.core.wording import counted
from lobench.engine.config.space_syntax import race_of, space_of
from lobench.engine.config.syntax import Binding, Reference, last_name, parse_text
from lobench.engine.store.current import CasePlace, CurrentCases, place_of_case
from lobench.engine.store.experiments import ExperimentRow, Membership, TrialRow
from lobench.engine.store.ledger import EvaluationRow, Ledger

__all__ = [
    "check_experiment",
    "check_table_name",
    "find_experiment",
    "hyperparameters_text",
    "index_of_case",
    "index_of_method",
    "pick_methods",
    "read_methods",
    "read_snapshots",
    "select_subjects",
    "snapshot_of_experiment",
    "snapshot_of_members",
    "unknown_name_error",
    "with_race",
]


def read_methods(
    store: Path,
    experiment: str | None = None,
    *,
    include_all: bool = False,
    summarized: bool = False,
    reading: StoreReading | None = None,
) -> Snapshot:
    """Reads a store by methods.

    Args:
      store: Folder of the store.
      experiment: Name of the experiment. None: the last one that was run, or all subjects of a store without any.
      include_all: Whether to return all subjects instead.
      summarized: Whether to read summaries of curves, as in `read_store`.
      reading: Earlier reading of the same store, which is continued. None: reads all of it.

    Raises:
      StoreError: `store` is not a store.
      UsageError: The store has no such experiment.
    """
    snapshot = reading.read() if reading is not None else read_store(store, summarized=summarized)
    if include_all:
        return snapshot
    with Ledger.open(store, read_only=True) as ledger:
        row = find_experiment(store, ledger, experiment)
        return snapshot if row is None else snapshot_of_experiment(snapshot, row, ledger)


def read_snapshots(store: Path) -> list[Snapshot]:
    """Reads all results of a store: one part for each experiment, in the order of their last runs, then the others.

    The last part has the results that belong to no experiment, or only to an earlier version of one. Parts without
    results are left out.

    Args:
      store: Folder of the store, or a bundle.

    Raises:
      StoreError: The path is neither a store nor a bundle.
    """
    store_snapshot = read_store(store)
    with Ledger.open(store, read_only=True) as ledger:
        positions = {subject: position for position, subject in ledger.sightings().items()}
        last_rows = {row.name: row for row in ledger.experiments() if row.config}
        rows = sorted(last_rows.values(), key=lambda row: (row.last_at, row.id))
        snapshots = [
            experiment_part
            for row in rows
            if (experiment_part := snapshot_of_experiment(store_snapshot, row, ledger)).rows
        ]
    # Rows are compared by id, because snapshots may have copies of rows with another identity; see `_CaseIdentities`.
    used_ids = {row.id for snapshot in snapshots for row in snapshot.rows}
    other_rows = [row for row in store_snapshot.rows if row.id not in used_ids]
    if other_rows:
        snapshots.append(
            Snapshot.of(
                store, other_rows, positions=positions, events=store_snapshot.events, current=store_snapshot.current
            )
        )
    return snapshots


def snapshot_of_experiment(store_snapshot: Snapshot, row: ExperimentRow, ledger: Ledger) -> Snapshot:
    """Returns the part of a store's snapshot that belongs to a version of an experiment, with its race."""
    experiment_snapshot = snapshot_of_members(
        store_snapshot, row.config, ledger.memberships(row.id), ledger.trials(row.id)
    )
    named_experiment = dataclasses.replace(experiment_snapshot.experiment, name=row.name)
    return with_race(dataclasses.replace(experiment_snapshot, experiment=named_experiment), row.config, ledger)


def with_race(snapshot: Snapshot, config: str, ledger: Ledger) -> Snapshot:
    """Returns a snapshot with the experiment's race.

    It has none if the methods do not race, or some have no result yet.
    """
    rules = race_of(_parse_bindings(config))
    if rules is None or list(snapshot.experiment.method_names) != list(_bindings_of_methods(config)):
        return snapshot
    subjects_and_labels = [
        (subject.subject, label) for subject, label in zip(snapshot.subjects, snapshot.labels, strict=True)
    ]
    entrants = entrants_of(ledger, subjects_and_labels, rules.first_seed)
    racing_experiment = dataclasses.replace(snapshot.experiment, race=StoredRace(rules=rules, entrants=entrants))
    return dataclasses.replace(snapshot, experiment=racing_experiment)


def check_experiment(store: Path, name: str | None) -> None:
    """Raises UsageError if a store lacks the experiment `name`. None: nothing is checked."""
    if name is not None:
        with Ledger.open(store, read_only=True) as ledger:
            find_experiment(store, ledger, name)


def find_experiment(store: Path, ledger: Ledger, name: str | None) -> ExperimentRow | None:
    """Returns the last version of an experiment. None, if `name` is None and the store has no experiment.

    Args:
      store: Folder of the store.
      ledger: Its ledger.
      name: Name of the experiment. None: the last one that was run.

    Raises:
      UsageError: The store has no such experiment.
    """
    experiments = [row for row in ledger.experiments() if row.config]
    experiment_rows = [row for row in experiments if name in (None, row.name)]
    if name is not None and not experiment_rows:
        names = ", ".join(dict.fromkeys(row.name for row in experiments)) or "none: `lobench run` makes one"
        raise UsageError(f"no experiment {name!r}", where=str(store), expected=f"one of {names}")
    return experiment_rows[-1] if experiment_rows else None


class _SeedRow(NamedTuple):
    """A seed of a method, and the evaluation that contains it."""

    row: EvaluationRow
    seed: int


def snapshot_of_members(
    snapshot: Snapshot, config: str, members: Sequence[Membership], trials: Sequence[TrialRow] = ()
) -> Snapshot:
    """Returns a store's snapshot by the methods of an experiment.

    Args:
      snapshot: Snapshot of the whole store.
      config: Configuration of the experiment.
      members: Members of the experiment.
      trials: Trials of its searches. The best trial of a search represents the method, on fresh seeds if it has some.
    """
    rows: dict[object, EvaluationRow] = {}
    for stored_row in snapshot.rows:
        rows[_evaluation_key(stored_row)] = rows[_evaluation_key(stored_row), stored_row.key.code] = stored_row
    bindings_by_method = _bindings_of_methods(config)
    groups: dict[tuple[str, int | str], dict[int, list[_SeedRow]]] = {}
    latest_members: dict[object, tuple[Membership, EvaluationRow | None]] = {}
    for member in members:
        evaluation_key = (member.evaluation.sha256, member.evaluation.case_key, member.evaluation.block, member.program)
        # If the result of this code was replaced, the result of the edited code counts.
        row_of_member = rows.get((evaluation_key, member.code), rows.get(evaluation_key))
        latest_members[member.method, member.trial, member.session, evaluation_key] = member, row_of_member
    members_and_rows = list(latest_members.values())
    # If the suite was edited between two runs, members have both forms; former forms are in no table.
    case_identities = _CaseIdentities(members_and_rows, snapshot.current, are_per_method=_may_differ(config))
    for member, row in members_and_rows:
        if row is None or not isinstance(member.session, int) or not isinstance(member.trial, int):
            continue
        if (row := case_identities.with_common_identity(member, row)) is None:
            continue
        # Each meta-training of a command is a trial; together they are one method, or one trial of it (`mine/3`).
        method, _, trial_number = member.method.partition("/")
        is_command = _trains_checkpoints(bindings_by_method.get(method, {}))
        key, session = (
            ((method, int(trial_number or 0)), member.trial) if is_command else ((method, member.trial), member.session)
        )
        groups.setdefault(key, {}).setdefault(session, []).append(_SeedRow(row, member.session))
    used_rows = [
        seed_row.row for sessions in groups.values() for seed_rows in sessions.values() for seed_row in seed_rows
    ]
    best_by_method = best_trials(
        trials, groups, [name for name, bindings in bindings_by_method.items() if "search" in bindings]
    )
    groups = {
        (name, trial): sessions
        for (name, trial), sessions in groups.items()
        if best_by_method.get(name, trial) == trial
    }
    method_order = [name for name in bindings_by_method if any(method == name for method, _ in groups)]
    num_trials = Counter(name for name, _ in groups)
    subjects, names, searches = [], [], []
    for method, trial in sorted(
        groups, key=lambda key: (method_order.index(key[0]) if key[0] in method_order else len(method_order), key)
    ):
        bindings = bindings_by_method.get(method, {})
        sessions = groups[method, trial]
        name = f"{method} {trial}" if num_trials[method] > 1 else method
        label = bindings.get("label", method)
        if num_trials[method] > 1:
            label = f"{label} trial {trial}"
        make_subject = functools.partial(
            _method_subject, current=snapshot.current, is_command=_trains_checkpoints(bindings)
        )
        subject, search = (
            best_trial_subject(sessions, make_subject) if method in best_by_method else (make_subject(sessions), None)
        )
        if search is not None:
            search = dataclasses.replace(
                search,
                num_infeasible=num_infeasible(trials, method),
                strategy=bindings["search"],
                space=_search_space(config, method),
                parameters=next(
                    (row.parameters for row in trials if (row.method, row.number) == (method, trial)),
                    search.parameters,
                ),
            )
        if "command" in bindings:
            subject = _with_failed_sessions(subject, trials, [method, f"{method}/{trial}"])
        label_suffix = " (imported)" if subject.subject.is_imported and "command" not in bindings else ""
        subjects.append(subject.with_label(label + label_suffix))
        names.append(name)
        searches.append(search)
    cases: dict[str, CaseInfo] = {}
    for row in used_rows:
        cases.setdefault(row.case.identity, row.case)
    sorted_cases = tuple(sorted(cases.values(), key=lambda case: (case.suite, case.name, case.identity)))
    stored_optimizers = {subject.subject.sha256 for subject in snapshot.subjects if subject.subject.kind == "optimizer"}
    return dataclasses.replace(
        snapshot,
        subjects=tuple(subjects),
        all_stored_subjects=snapshot.all_stored_subjects or snapshot.subjects,
        cases=sorted_cases,
        rows=tuple({id(row): row for row in used_rows}.values()),
        left_out=dataclasses.replace(snapshot.left_out, **case_identities.former_counts()),
        labels=tuple(subject.label for subject in subjects),
        case_names=case_names(sorted_cases),
        experiment=ExperimentMethods(
            method_names=tuple(names),
            searches=tuple(searches),
            trials=tuple(row for row in trials if "folder" not in row.parameters),  # sessions of commands have a folder
            num_other_optimizers=len(stored_optimizers - {member.evaluation.sha256 for member in members}),
        ),
    )


def _trains_checkpoints(bindings: Mapping[str, str]) -> bool:
    """Returns whether a method's command produces checkpoints, so that each of its sessions is a meta-training."""
    return "command" in bindings and "curves" not in bindings


class _CaseIdentities:
    """Identities of an experiment's cases: a case has several if its bindings differ between runs or methods.

    If the suite was edited between two runs, the members have both forms. The form planned last is current, and the
    other form is in no table. If `Experiment.fixed` lets methods bind parts of a case, each method has its own form.
    These forms count as one case with the first method's identity. Example: four methods with different `Case.phases`
    are four rows of a table and one column.

    Args:
      members_and_rows: Members with their evaluations; None if not stored.
      current: Current cases of the store.
      are_per_method: Whether each method may have its own form.
    """

    def __init__(
        self,
        members_and_rows: Sequence[tuple[Membership, EvaluationRow | None]],
        current: CurrentCases,
        *,
        are_per_method: bool,
    ) -> None:
        self._current_cases, self._are_per_method = current, are_per_method
        self._current_identities: dict[tuple[str, CasePlace], str] = {}
        self._common_identities: dict[CasePlace, str] = {}
        self._rows: dict[int, EvaluationRow] = {}
        self._former_rows: dict[int, EvaluationRow] = {}
        recorded_members = [(member, row) for member, row in members_and_rows if row is not None]
        for member, row in sorted(recorded_members, key=lambda pair: current.plan_order(pair[1])):
            self._current_identities[self._identity_key(member, row)] = row.case.identity
        for member, row in recorded_members:
            if self._current_identities[self._identity_key(member, row)] == row.case.identity:
                self._common_identities.setdefault(place_of_case(row.case), row.case.identity)

    def _identity_key(self, membership: Membership, row: EvaluationRow) -> tuple[str, CasePlace]:
        return (membership.method if self._are_per_method else ""), place_of_case(row.case)

    def with_common_identity(self, membership: Membership, row: EvaluationRow) -> EvaluationRow | None:
        """Returns an evaluation with the common identity of its case's forms; None for a former form."""
        has_bindings = any(self._current_cases.has_bindings(row, subject) for subject in row.sightings)
        is_former = self._current_identities[self._identity_key(membership, row)] != row.case.identity
        if is_former or not has_bindings or self._current_cases.is_removed(row.case):
            self._former_rows[id(row)] = row
            return None
        identity = self._common_identities[place_of_case(row.case)]
        if identity == row.case.identity:
            return row
        case = dataclasses.replace(row.case, identity=identity)
        return self._rows.setdefault(id(row), dataclasses.replace(row, case=case))

    def former_counts(self) -> FormerCounts:
        """Returns the numbers of evaluations that are in no table, as keywords of `LeftOut`."""
        current_identities = set(self._current_identities.values())
        return former_counts(self._former_rows.values(), self._current_cases, current_identities)


def _may_differ(config: str) -> bool:
    """Returns whether an experiment lets its methods bind parts of a case."""
    return any(
        binding.selector.rsplit(".", 1)[-1] == "Experiment"
        and binding.parameter == "fixed"
        and binding.value != ["Case.*"]
        for binding in _parse_bindings(config)
    )


def _parse_bindings(config: str) -> list[Binding]:
    """Returns the bindings of an experiment's file; [] if it cannot be parsed."""
    try:
        return [entry for entry in parse_text(config, "the experiment") if isinstance(entry, Binding)]
    except ConfigError:
        return []


def _search_space(config: str, method: str) -> tuple[Parameter, ...]:
    """Returns the parameters that an experiment's file searches for a method; () if it cannot be parsed."""
    bindings = _parse_bindings(config)
    try:
        return space_of(method, [binding for binding in bindings if binding.scope.split("/")[0] == method], bindings)
    except ConfigError:
        return ()


def _evaluation_key(row: EvaluationRow) -> tuple[object, ...]:
    return row.key.checkpoint_sha256, row.case.key, row.key.seed_block, row.key.program_version


def _bindings_of_methods(config: str) -> dict[str, dict[str, str]]:
    """Returns the bindings of `Method.*` by method, in the order of the experiment's file.

    `@random()` becomes `random`.
    """
    bindings_by_method: dict[str, dict[str, str]] = {}
    for binding in _parse_bindings(config):
        if binding.name == "Method":
            value = binding.value
            value_text = (
                last_name(value.scoped_selector.rsplit("/", 1)[-1]) if isinstance(value, Reference) else str(value)
            )
            bindings_by_method.setdefault(binding.scope, {})[binding.parameter] = value_text
    return bindings_by_method


def _method_subject(
    sessions: Mapping[int, Sequence[_SeedRow]], *, current: CurrentCases, is_command: bool
) -> StoredSubject:
    """Returns a method as a subject whose seeds are its sessions.

    A session of an optimizer, or of a checkpoint, is a seed of its evaluations. A session of a command is a whole
    meta-training: its value is the mean over the seeds of the last checkpoint that was evaluated.
    """
    rows = list({id(seed_row.row): seed_row.row for group in sessions.values() for seed_row in group}.values())
    identities = {row.case.identity for row in rows}
    if not is_command:
        sighting = rows[0].sightings[-1]
        subject = subject_of(sighting, current.by_precedence(sighting, rows), identities)
        return dataclasses.replace(
            subject, cells={key: _cell_of_seeds(cell, sessions.keys()) for key, cell in subject.cells.items()}
        )
    cells: dict[str, dict[int, Cell]] = {}
    for session, group in sessions.items():
        sorted_rows = sorted(group, key=lambda seed_row: (seed_row.row.sightings[-1].outer_step, seed_row.row.id))
        last_sha256 = sorted_rows[-1].row.key.checkpoint_sha256
        last_rows = list(
            {
                id(seed_row.row): seed_row.row
                for seed_row in group
                if seed_row.row.key.checkpoint_sha256 == last_sha256
            }.values()
        )
        seeds = {seed_row.seed for seed_row in group}
        sighting = last_rows[0].sightings[-1]
        for identity, cell in subject_of(
            sighting, current.by_precedence(sighting, last_rows), identities
        ).cells.items():
            cells.setdefault(identity, {})[session] = _cell_of_seeds(cell, seeds)
    method_subject = subject_of(rows[-1].sightings[-1], rows, identities)
    return dataclasses.replace(method_subject, cells={key: _cell_of_sessions(cell) for key, cell in cells.items()})


def _with_failed_sessions(
    subject: StoredSubject, trials: Sequence[TrialRow], methods: Collection[str]
) -> StoredSubject:
    """Returns a method of commands whose failed sessions are missing on each of its cases.

    `methods` are the method's names in `trials`: its own name, and its trial's name.
    """
    failed_states = {
        row.number: row.state
        for row in trials
        if row.method in methods and "folder" in row.parameters and row.state in ("failed", "infeasible")
    }
    if not failed_states:
        return subject
    cells = {
        identity: dataclasses.replace(
            cell,
            missing_seeds={
                **cell.missing_seeds,
                **{session: why for session, why in failed_states.items() if session not in cell.curves_by_seed},
            },
        )
        for identity, cell in subject.cells.items()
    }
    return dataclasses.replace(subject, cells=cells)


def _cell_of_seeds(cell: Cell, seeds: Collection[int]) -> Cell:
    """Returns a cell with only the given seeds."""
    kept_seeds = {seed for seed in cell.curves_by_seed if seed in seeds}

    def keep_seeds(values: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
        return {
            name: {seed: value for seed, value in value_by_seed.items() if seed in kept_seeds}
            for name, value_by_seed in values.items()
        }

    return dataclasses.replace(
        cell,
        final_values=keep_seeds(cell.final_values),
        untrained_values=keep_seeds(cell.untrained_values),
        diverged_at={seed: divergence_step for seed, divergence_step in cell.diverged_at.items() if seed in kept_seeds},
        missing_seeds={seed: outcome for seed, outcome in cell.missing_seeds.items() if seed in seeds},
        curves_by_seed={seed: cell.curves_by_seed[seed] for seed in sorted(kept_seeds)},
    )


def _cell_of_sessions(cells: Mapping[int, Cell]) -> Cell:
    """Joins the cells of trained checkpoints. Each session has one value, which is NaN if one of its seeds diverged."""

    def join_values(field: str) -> dict[str, dict[int, float]]:
        values_by_metric: dict[str, dict[int, float]] = {}
        for session, cell in sorted(cells.items()):
            for metric, value_by_seed in getattr(cell, field).items():
                values = [math.nan if seed in cell.diverged_at else value for seed, value in value_by_seed.items()]
                values_by_metric.setdefault(metric, {})[session] = mean_of(values)
        return values_by_metric

    first_cell = next(iter(cells.values()))
    return dataclasses.replace(
        first_cell,
        final_values=join_values("final_values"),
        untrained_values=join_values("untrained_values"),
        diverged_at={
            session: min(cell.diverged_at.values()) for session, cell in sorted(cells.items()) if cell.diverged_at
        },
        missing_seeds={
            session: next(iter(cell.missing_seeds.values()))
            for session, cell in sorted(cells.items())
            if cell.missing_seeds
        },
        curves_by_seed={
            session: next(iter(cell.curves_by_seed.values()))
            for session, cell in sorted(cells.items())
            if cell.curves_by_seed
        },
        failures=tuple(failure for cell in cells.values() for failure in cell.failures),
    )


def hyperparameters_text(snapshot: Snapshot, index: int) -> str:
    """Returns the bindings of a subject that its label does not contain, as text.

    For a search over a checkpoint or a command these are the values of its best trial, because lobench sets the
    subject's bindings to choose seeds. A search without a feasible trial has no best values.
    """
    subject = snapshot.subjects[index]
    search = snapshot.search_of(index)
    if search is not None and search.num_infeasible:
        return f"none of {counted(search.num_infeasible, 'trial')} is feasible, so there are no best values"
    identity = subject.subject
    if search is not None and search.parameters and not identity.is_optimizer:
        return "; ".join(f"{path} = {value!r}" for path, value in search.parameters.items() if path != "folder")
    optimizer_text = identity.uri if identity.is_optimizer else ""
    bindings_text = optimizer_text or "; ".join(identity.variant.bindings)
    return "" if bindings_text == subject.label else bindings_text


def pick_methods(snapshot: Snapshot, methods: Sequence[str], names: Mapping[str, str] | None = None) -> Snapshot:
    """Returns a snapshot with the methods of a table, in its order, and with its names.

    Args:
      snapshot: Snapshot with all methods.
      methods: Names of the methods. Empty: all.
      names: New names of methods and cases, as in `Table.names`.

    Raises:
      ConfigError: The snapshot has no method or case of a given name.
    """
    indices = [index_of_method(snapshot, "methods", name) for name in methods] or range(len(snapshot.subjects))
    titles = {_resolve_name(snapshot, name): title for name, title in (names or {}).items()}
    labels = tuple(titles.get(index, snapshot.labels[index]) for index in indices)
    has_methods = bool(methods or snapshot.experiment.method_names)
    return dataclasses.replace(
        snapshot,
        subjects=tuple(snapshot.subjects[index] for index in indices),
        labels=labels,
        experiment=dataclasses.replace(
            snapshot.experiment,
            method_names=tuple(subject_names(snapshot, index)[0] for index in indices) if has_methods else (),
            searches=tuple(snapshot.search_of(index) for index in indices),
        ),
        case_names={identity: titles.get(identity, name) for identity, name in snapshot.case_names.items()},
    )


def select_subjects(snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
    """Returns a snapshot with only the named subjects, in this order. Without names it returns all.

    Raises:
      UsageError: A name matches no subject, or several.
    """
    if not names:
        return snapshot
    method_names = [subject_names(snapshot, subject_index_named(snapshot, name))[0] for name in names]
    return pick_methods(snapshot, tuple(dict.fromkeys(method_names)))


def _resolve_name(snapshot: Snapshot, name: str) -> int | str:
    """Resolves a key of `Table.names` to a method's index, a case's identity, or a metric's name."""
    for index in range(len(snapshot.subjects)):
        if name in subject_names(snapshot, index):
            return index
    return next((case.identity for case in snapshot.cases if name in _case_names(snapshot, case.identity)), name)


def check_table_name(snapshot: Snapshot, name: str) -> None:
    """Raises ConfigError if a key of `Table.names` is neither a method nor a case."""
    if (
        isinstance(index_or_name := _resolve_name(snapshot, name), str)
        and index_or_name == name
        and index_of_case(snapshot, name) is None
    ):
        index_of_method(snapshot, "names", name)


def index_of_method(snapshot: Snapshot, key: str, name: str) -> int:
    """Returns the index of the method that `Table.KEY` names by its scope, label or text.

    Raises:
      ConfigError: No method has this name.
    """
    for index in range(len(snapshot.subjects)):
        if name in subject_names(snapshot, index):
            return index
    raise unknown_name_error(key, name, [subject_names(snapshot, index)[0] for index in range(len(snapshot.subjects))])


def unknown_name_error(key: str, name: str, known_names: Sequence[str]) -> ConfigError:
    """Returns an error for an unknown name in `Table.KEY`."""
    expected = "one of " + ", ".join(map(repr, known_names))
    return ConfigError(f"Table.{key}: there is no {name!r}", expected=expected, next_step=suggestion(name, known_names))


def index_of_case(snapshot: Snapshot, name: str) -> int | None:
    """Returns the index of the case with a name, with or without the suite's; None if no case has it."""
    indices = (index for index, case in enumerate(snapshot.cases) if name in _case_names(snapshot, case.identity))
    return next(indices, None)


def _case_names(snapshot: Snapshot, identity: str) -> tuple[str, ...]:
    case = next(case for case in snapshot.cases if case.identity == identity)
    return snapshot.case_names[identity], f"{case.suite}/{case.name}", case.name

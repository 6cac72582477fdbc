"""Checks of a bundle's experiments: configuration, trials and methods against the results."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from lobench.analysis.scores.trial_fitness import fitness, fitness_of_sessions
from lobench.core.errors import LobenchError
from lobench.core.experiment import Experiment, Method
from lobench.core.subject import Subject
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.core.wording import headline, shortened_list
from lobench.engine.checkpoints.given import given_method, optimizer_text
from lobench.engine.config.experiment.file import read_experiment
from lobench.engine.config.syntax import gin_text, only_bindings, parse_text
from lobench.engine.store.experiments import ExperimentRow, Membership, TrialRow
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.plans import PlannedSubject
from lobench.tools.audit.findings import AuditFinding, Contradiction, Unaudited

__all__ = ["configured_labels", "experiment_findings", "seed_findings"]

_MOST_NAMED = 4
_TRIAL_STATES = ("waiting", "running", "done", "failed", "infeasible", "stopped")


def experiment_findings(
    ledger: Ledger, rows: Sequence[EvaluationRow], folders: Sequence[Path]
) -> Iterator[AuditFinding]:
    """Yields contradictions between an experiment's configuration and its members and trials.

    Args:
      ledger: Ledger of the bundle.
      rows: Evaluations of the ledger.
      folders: Folders of the suites.
    """
    labels = _read_labels(ledger, folders)
    for experiment_row in ledger.experiments():
        if not experiment_row.config:
            continue
        try:
            experiment = _read_configuration(experiment_row, folders)
        except LobenchError as error:
            yield Unaudited(f"the configuration of experiment {experiment_row.name!r} ({headline(error)})")
            continue
        memberships = ledger.memberships(experiment_row.id)
        trials = ledger.trials(experiment_row.id)
        yield Unaudited(
            f"parts of the configuration of {experiment_row.name!r} that change no method and no seed", is_usual=True
        )
        if experiment.name != experiment_row.name:
            yield Contradiction(
                "plan", f"experiment {experiment_row.name!r} is called {experiment.name!r} by its configuration"
            )
        yield from _method_findings(experiment, memberships, trials, ledger, labels)
        yield from _trial_findings(experiment_row, experiment, memberships, trials, rows, folders)
        yield from _left_out_findings(experiment_row, memberships, rows)
        methods_without_results = [
            method.name
            for method in experiment.methods
            if method.name not in {member.method.partition("/")[0] for member in memberships}
        ]
        if methods_without_results and memberships:
            yield Unaudited(
                f"why experiment {experiment_row.name!r} has no result of "
                f"{shortened_list(methods_without_results, _MOST_NAMED)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    """Labels of subjects, by their hash.

    Attributes:
      recorded: Labels that subjects have, or had when they were planned.
      configured: Labels that the methods and trials of all experiments give them.
    """

    recorded: Mapping[str, Set[str]]
    configured: Mapping[str, Set[str]]

    def label_finding(self, method: Method, sha256: str) -> AuditFinding | None:
        """Returns the finding if a method has another label than its results.

        One subject may be several methods: of this experiment, of an earlier version of it, or a trial of a search. Its
        results then have the label of one of these methods. Labels of the other methods count as second names.
        """
        labels_of_results = self.recorded.get(sha256, frozenset())
        if not labels_of_results or method.title in labels_of_results:
            return None
        names = " and ".join(repr(label) for label in sorted(labels_of_results))
        if labels_of_results & self.configured.get(sha256, frozenset()):
            return Unaudited(f"a second name: method {method.name} is called {method.title!r}, and its results {names}")
        return Contradiction(
            "label", f"method {method.name} is called {method.title!r}, and has the results of {names}"
        )


def _read_labels(ledger: Ledger, folders: Sequence[Path]) -> _Labels:
    labels: dict[str, set[str]] = {}
    for sighting in ledger.sightings().values():
        labels.setdefault(sighting.sha256, set()).add(sighting.label)
    for planned_subject in ledger.planned_subjects():
        labels.setdefault(planned_subject.sha256, set()).add(planned_subject.label)
    return _Labels(recorded=labels, configured=configured_labels(ledger, folders))


def configured_labels(ledger: Ledger, folders: Sequence[Path]) -> Mapping[str, Set[str]]:
    """Returns the labels that all versions of all experiments give to subjects, by hash of the subject.

    Args:
      ledger: Ledger of the bundle.
      folders: Folders of the suites.
    """
    labels: dict[str, set[str]] = {}
    for experiment_row in ledger.experiments():
        try:
            methods = (
                {method.name: method for method in _read_configuration(experiment_row, folders).methods}
                if experiment_row.config
                else {}
            )
        except LobenchError:
            continue  # `experiment_findings` reports it
        for membership in ledger.memberships(experiment_row.id):
            if (method := methods.get(membership.method)) is not None:
                names = {method.title}
                if method.search is not None:  # stores of earlier versions have `adam 7` for `adam trial 7`
                    names = {method.trial_label(membership.trial), f"{method.title} {membership.trial}"}
                labels.setdefault(membership.evaluation.sha256, set()).update(names)
    return labels


def _left_out_findings(
    experiment_row: ExperimentRow, memberships: Sequence[Membership], rows: Sequence[EvaluationRow]
) -> Iterator[AuditFinding]:
    """Yields a finding if results on an experiment's subjects, cases and seeds belong to no experiment."""
    numbered_members = [
        member for member in memberships if isinstance(member.session, int) and isinstance(member.trial, int)
    ]
    member_seeds = {
        (member.evaluation.sha256, member.evaluation.case_key.partition(":")[0], member.session)
        for member in numbered_members
    }
    subject_keys = {
        (sha256, member.program, member.code) for member in numbered_members for sha256 in [member.evaluation.sha256]
    }
    cases = {identity for _, identity, _ in member_seeds}
    sessions = {member.session for member in numbered_members}
    left_out_seeds = [
        f"{row.case.name} (seed {seed})"
        for row in rows
        if row.labels.experiment in ("", experiment_row.name)
        and row.key.case_identity in cases
        and (row.key.checkpoint_sha256, row.key.program_version, row.key.code) in subject_keys
        for seed in row.key.seed_block.seeds
        if seed in sessions and (row.key.checkpoint_sha256, row.key.case_identity, seed) not in member_seeds
    ]
    if left_out_seeds:
        message = f"why experiment {experiment_row.name!r} leaves out results of its methods on its seeds"
        yield Unaudited(f"{message}: {shortened_list(left_out_seeds, _MOST_NAMED)}")


def _read_configuration(experiment_row: ExperimentRow, folders: Sequence[Path]) -> Experiment:
    """Parses a recorded configuration, as a file in a temporary folder.

    Recorded paths of suites are replaced by those of the extracted folders.
    """
    folders_by_name = {folder.name: str(folder) for folder in folders}
    lines = []
    for line in experiment_row.config.splitlines():
        if line.startswith("Experiment.suites = "):
            names = re.findall(r"['\"]([^'\"]+)['\"]", line)
            replaced_names = [
                folders_by_name.get(Path(name).name, folders_by_name.get(Path(name).parent.name, name))
                for name in names
            ]
            line = f"Experiment.suites = {replaced_names!r}"
        lines.append(line)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{experiment_row.name.replace('/', '-')}.gin"
        file.write_text("\n".join(lines) + "\n")
        return read_experiment(file, is_elsewhere=True).experiment


def _method_findings(
    experiment: Experiment,
    memberships: Sequence[Membership],
    trials: Sequence[TrialRow],
    ledger: Ledger,
    labels: _Labels,
) -> Iterator[AuditFinding]:
    methods = {method.name: method for method in experiment.methods}
    sightings = list(ledger.sightings().values())
    trials_by_key = {(trial.method, trial.number): trial for trial in trials}
    checked_members = set[tuple[str, object, str, bool]]()
    sessions: dict[str, set[object]] = {}
    for member in memberships:
        name = member.method.partition("/")[0]
        method = methods.get(name)
        if method is None:
            yield Contradiction("plan", f"a result is of method {name!r}, which the configuration does not have")
            continue
        is_report = (
            isinstance(member.session, int) and member.session >= FIRST_REPORT_SEED and method.search is not None
        )
        if not is_report:
            sessions.setdefault(member.method, set()).add(member.session)
        check_key = (member.method, member.trial, member.evaluation.sha256, is_report)
        if check_key in checked_members or method.kind in ("command", "curves", "script"):
            continue
        checked_members.add(check_key)
        values: tuple[str, ...] = ()
        if method.search is not None:
            trial = trials_by_key.get((member.method, int(member.trial)))
            if trial is None:
                message = f"method {name!r} has results of trial {member.trial}, which does not belong to it"
                yield Contradiction("plan", message)
                continue
            values = tuple(f"{path} = {gin_text(value)}" for path, value in trial.parameters.items())
        yield from _configuration_findings(method, values, member.evaluation.sha256, sightings)
        is_named = method.kind in ("optimizer", "checkpoint") and method.search is None
        if is_named and (problem := labels.label_finding(method, member.evaluation.sha256)) is not None:
            yield problem
    planned_sessions = experiment.sessions
    for name, recorded_sessions in sorted(sessions.items()):
        is_trained_here = methods[name.partition("/")[0]].kind not in ("command", "curves", "script")
        if (
            planned_sessions is not None
            and experiment.race is None
            and is_trained_here
            and recorded_sessions - set(planned_sessions)
        ):
            yield Contradiction("plan", f"method {name!r} has sessions that the configuration does not ask for")
    for trial in trials:
        if trial.method.partition("/")[0] not in methods:
            yield Contradiction("plan", f"trial {trial.number} is of method {trial.method!r}, which does not exist")


def _configuration_findings(
    method: Method, values: Sequence[str], sha256: str, sightings: Sequence[Subject]
) -> Iterator[AuditFinding]:
    """Yields contradictions between a method's configuration and the optimizer or bindings of its results."""
    sightings_of_theta = [sighting for sighting in sightings if sighting.sha256 == sha256]
    if method.kind == "optimizer":
        configured_settings = _parse_settings("; ".join((optimizer_text(method), *values)))
        recorded_settings = [_parse_settings(sighting.uri) for sighting in sightings_of_theta if sighting.is_optimizer]
        if method.python:
            yield Unaudited(f"the environment of method {method.name!r}")
            recorded_settings = [
                (call, {name: text for name, text in bindings.items() if not _is_environment_binding(name)})
                for call, bindings in recorded_settings
            ]
        if not any(_are_same_settings(configured_settings, settings) for settings in recorded_settings):
            yield Contradiction("label", f"method {method.name!r} is configured otherwise than its results were made")
    elif method.kind == "checkpoint":
        bindings = given_method(method, label=method.title, bindings=values).variant.bindings
        if not any(sighting.variant.bindings[: len(bindings)] == bindings for sighting in sightings_of_theta):
            yield Contradiction("label", f"method {method.name!r} is configured otherwise than its results were made")


def _parse_settings(text: str) -> tuple[str, dict[str, str]]:
    """Returns an optimizer's call, and its bindings by path."""
    call, *lines = [piece.strip() for piece in text.split(";") if piece.strip()]
    bindings = only_bindings(parse_text("\n".join(lines), "the optimizer"))
    values = {
        f"{binding.scope}/{binding.name}.{binding.parameter}".lstrip("/"): gin_text(binding.value)
        for binding in bindings
    }
    return call, values


def _is_environment_binding(name: str) -> bool:
    return name.rpartition(".")[2] in ("python", "library")


def _are_same_settings(
    configured_settings: tuple[str, dict[str, str]], recorded_settings: tuple[str, dict[str, str]]
) -> bool:
    """Returns whether the calls and the bindings are equal, except for bindings of `Case`."""
    bindings = [
        {name: value for name, value in settings.items() if not name.startswith("Case.")}
        for _, settings in (configured_settings, recorded_settings)
    ]
    return configured_settings[0] == recorded_settings[0] and bindings[0] == bindings[1]


def _trial_findings(
    experiment_row: ExperimentRow,
    experiment: Experiment,
    memberships: Sequence[Membership],
    trials: Sequence[TrialRow],
    rows: Sequence[EvaluationRow],
    folders: Sequence[Path],
) -> Iterator[AuditFinding]:
    rows_by_key = {(row.key.checkpoint_sha256, row.case.key, row.key.seed_block): row for row in rows}
    methods = {method.name: method for method in experiment.methods}
    for name in sorted(name for name, method in methods.items() if method.search is not None):
        trial_numbers = {trial.number for trial in trials if trial.method == name}
        missing_trials = sorted(set(range(max(trial_numbers, default=0))) - trial_numbers)
        if missing_trials:
            missing_numbers = shortened_list([str(number) for number in missing_trials], _MOST_NAMED)
            yield Contradiction(
                "record",
                f"search {name!r} of {experiment_row.name!r} counts trials from 0, and lacks {missing_numbers}",
            )
    for trial in trials:
        where = f"trial {trial.number} of {trial.method!r} of {experiment_row.name!r}"
        if trial.state not in _TRIAL_STATES:
            yield Contradiction("record", f"{where}: unknown state {trial.state!r}")
        method = methods.get(trial.method.partition("/")[0])
        if "/" in trial.method or (method is not None and method.search is None):
            if trial.fitness is not None:  # it is a session of a command, or of a command's trial
                yield Contradiction("record", f"{where}: a session of a command has no fitness")
            continue
        if method is not None:
            axes_by_path = {axis.path: axis for axis in method.space}
            for path in trial.parameters:
                if path not in axes_by_path:
                    yield Contradiction("record", f"{where}: {path} is not in its space")
        yield Unaudited("waves of searches", is_usual=True)
        evaluations = [
            rows_by_key[key]
            for member in memberships
            if (member.method, member.trial) == (trial.method, trial.number)
            if isinstance(member.session, int) and member.session < FIRST_REPORT_SEED
            if (key := (member.evaluation.sha256, member.evaluation.case_key, member.evaluation.block)) in rows_by_key
        ]
        evaluations = sorted(set(evaluations), key=lambda row: row.id) if evaluations else []
        possible_fitness = _possible_fitness(evaluations, experiment, folders) if trial.state == "done" else []
        if trial.state == "done" and not evaluations:
            if method is not None and method.kind in ("optimizer", "checkpoint"):
                yield Contradiction("record", f"{where}: it is done, and has no result")
        elif trial.state != "done" and evaluations and trial.state in ("waiting", "running"):
            yield Contradiction("record", f"{where}: it is {trial.state}, and has results")
        if trial.fitness is None and not possible_fitness:
            continue
        if not possible_fitness:
            yield Unaudited(f"fitness of {where}")
        elif trial.fitness is None or not any(
            math.isclose(trial.fitness, value, rel_tol=1e-6, abs_tol=1e-9) for value in possible_fitness
        ):
            values = " or ".join(f"{value:.6g}" for value in possible_fitness)
            yield Contradiction("record", f"{where}: its fitness is {trial.fitness}, and its results give {values}")


def _possible_fitness(rows: Sequence[EvaluationRow], experiment: Experiment, folders: Sequence[Path]) -> list[float]:
    """Returns the fitness with the baselines of the suites and without, as before they were tuned, each value once."""
    values = [_repeated_fitness(rows, experiment, suite_folders) for suite_folders in (folders, ())]
    return list(dict.fromkeys(value for value in values if value is not None))


def _repeated_fitness(rows: Sequence[EvaluationRow], experiment: Experiment, folders: Sequence[Path]) -> float | None:
    if len({row.key.checkpoint_sha256 for row in rows}) != 1:
        return None  # each session trains a command's trials again
    cases = list({row.case.identity: row.case for row in rows}.values())
    try:
        if all(sighting.is_imported for row in rows for sighting in row.sightings):  # curves of a script
            return fitness_of_sessions(rows, sorted({row.key.seed_block.start for row in rows}), folders)
        return fitness(rows, cases, experiment.sessions, folders)
    except LobenchError:
        return None


def seed_findings(
    planned_subjects: Sequence[PlannedSubject], rows: Sequence[EvaluationRow], has_gate: bool
) -> Iterator[AuditFinding]:
    """Yields results on unplanned seeds, and cases for which the methods' plans have different seeds."""
    seeds: dict[tuple[str, str, str], set[int]] = {}
    seeds_by_case: dict[tuple[str, str], dict[str, set[int]]] = {}
    for planned_subject in planned_subjects:
        for case in planned_subject.cases:
            seeds_of_case = {seed for block in case.blocks for seed in block.seeds}
            seeds.setdefault((planned_subject.sha256, case.identity, case.optimizer_hash), set()).update(seeds_of_case)
            seeds_by_case.setdefault((case.name, case.identity), {}).setdefault(planned_subject.label, set()).update(
                seeds_of_case
            )
    for row in rows:
        key = (row.key.checkpoint_sha256, row.key.case_identity, row.key.optimizer_hash)
        if key not in seeds or seeds[key].issuperset(row.key.seed_block.seeds):
            continue
        label = row.sightings[0].label
        message = (
            f"{label} on {row.case.suite}/{row.case.name}: seeds {row.key.seed_block.seed_range_text} were not planned"
        )
        yield Unaudited(message) if has_gate else Contradiction("plan", message)
    differing_cases = []
    for (name, _), seeds_of_methods in sorted(seeds_by_case.items()):
        if len({frozenset(planned_seeds) for planned_seeds in seeds_of_methods.values()}) > 1:
            differing_cases.append(name)
    if differing_cases:
        yield Unaudited(f"a common plan: methods were planned on different seeds on {', '.join(differing_cases)}")

"""Snapshot of a store: its content, read once, for all tables, scores and pages."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from lobench.analysis.store.entrants import StoredRace
from lobench.analysis.store.former_code import without_former_code
from lobench.analysis.store.groups import MethodGroups, method_groups_of
from lobench.analysis.store.subjects import (
    Cell,
    StoredSubject,
    last_on_most_cases,
    last_subject,
    subjects_of,
)
from lobench.core.case import CaseInfo, common_replicate_noun
from lobench.core.curve_summary import CurveSummary
from lobench.core.errors import StoreError
from lobench.core.result import Curves
from lobench.core.search.space import Parameter
from lobench.core.subject import Subject
from lobench.core.wording import shortened_list
from lobench.engine.store.current import CurrentCases, place_of_case
from lobench.engine.store.edited_code import edited_code, edited_code_line
from lobench.engine.store.experiments import TrialRow
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.places import DECISIONS_FILE
from lobench.engine.store.series import has_step_in_name

__all__ = [
    "BestTrial",
    "ExperimentMethods",
    "FormerCounts",
    "LeftOut",
    "Snapshot",
    "case_names",
    "distinct_labels",
    "former_counts",
    "read_store",
    "snapshot_maker",
]

_STEP_PREFIXES = ("outer step ", "generation ")  # beginnings of labels that are not names
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTrial:
    """The best trial of a search, on the seeds that chose it.

    Attributes:
      subject: The trial as a subject. If no trial is feasible, it is the first.
      has_fresh_seeds: Whether the method's own results are of fresh seeds.
      num_infeasible: Number of trials, if none of them is feasible; else 0.
      strategy: Name of the strategy that proposed the trials, such as `random`.
      space: Search space in the experiment's file.
      parameters: Values of the trial, by path.
    """

    subject: StoredSubject
    has_fresh_seeds: bool
    num_infeasible: int = 0
    strategy: str = ""
    space: tuple[Parameter, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentMethods:
    """Experiment whose methods are the subjects of a snapshot.

    Attributes:
      name: Name of the experiment; "" if the subjects are not an experiment's methods.
      method_names: Name of each subject in the experiment's file; () if the subjects are not an experiment's methods.
      searches: Search that chose each subject, or None; () if the subjects are not an experiment's methods.
      trials: Trials of the experiment's searches, by method and number.
      race: Race between the experiment's methods. None if they do not race.
      num_other_optimizers: Number of optimizers in the store that are neither a method nor a trial of the experiment.
    """

    name: str = ""
    method_names: tuple[str, ...] = ()
    searches: tuple[BestTrial | None, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    race: StoredRace | None = None
    num_other_optimizers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Content of a store that no score or table uses.

    Attributes:
      num_skipped: Number of checkpoints that `--checkpoints` left out.
      former_cases: Names of the cases that also have a former form in the rows, with the number of its evaluations.
      removed_cases: Names of the cases in the rows that are no longer in their suite, with the numbers of evaluations.
      num_former_bindings: Number of evaluations of current cases with other bindings of the optimizer than the current.
      superseded_subjects: Checkpoints in the rows that a restart in place superseded. They are not among the subjects.
      repeated_cases: Names of cases with the same bits as another case. Only the other case counts.
    """

    num_skipped: int = 0
    former_cases: tuple[tuple[str, int], ...] = ()
    removed_cases: tuple[tuple[str, int], ...] = ()
    num_former_bindings: int = 0
    superseded_subjects: tuple[Subject, ...] = ()
    repeated_cases: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)  # without slots, which cached properties do not allow
class Snapshot:
    """Content of a store, or of a part of one.

    Attributes:
      store: Folder of the store.
      subjects: Subjects, by generation, outer step and first sight.
      cases: Cases in their current form, by suite and name.
      rows: Evaluations in the order of the ledger, including those of former forms.
      current: Current cases of the store; see `lobench.engine.store.current`.
      events: Kind and detail of each event, in order.
      left_out: Content that counts for nothing.
      labels: Label of each subject, which is its outer step if that distinguishes it.
      case_names: Name of each case, by identity.
      experiment: Experiment whose methods are the subjects.
      all_stored_subjects: Every subject of the store if the snapshot is a part of it; else ().
    """

    store: Path
    subjects: tuple[StoredSubject, ...]
    cases: tuple[CaseInfo, ...]
    rows: tuple[EvaluationRow, ...]
    current: CurrentCases = field(default_factory=CurrentCases, compare=False)
    events: tuple[tuple[str, Mapping[str, object]], ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    labels: tuple[str, ...]
    case_names: Mapping[str, str]
    experiment: ExperimentMethods = field(default_factory=ExperimentMethods)
    all_stored_subjects: tuple[StoredSubject, ...] = ()

    @classmethod
    def of(
        cls,
        store: Path,
        rows: Sequence[EvaluationRow],
        *,
        positions: Mapping[Subject, int] | None = None,
        events: Sequence[tuple[str, Mapping[str, object]]] = (),
        num_skipped: int = 0,
        current: CurrentCases | None = None,
        subject_cache: dict[Subject, tuple[int, list[StoredSubject]]] | None = None,
        grouped_rows: Mapping[Subject, list[EvaluationRow]] | None = None,
    ) -> Snapshot:
        """Returns a snapshot of a store's rows.

        Args:
          store: Folder of the store.
          rows: Evaluations in the order of the ledger.
          positions: Order in which the checkpoints were first seen. None: that of their first evaluations.
          events: Kind and detail of each event, in order.
          num_skipped: Number of checkpoints that `--checkpoints` left out.
          current: Current cases of the store. None: those of the rows, without plans.
          subject_cache: Subjects of an earlier snapshot, as in `subjects_of`.
          grouped_rows: Rows by subject, as in `subjects_of`.
        """
        superseded_subjects = tuple(dict.fromkeys(subject for row in rows for subject in row.superseded_sightings))
        if superseded_subjects and not any(row.present_sightings for row in rows):
            # All runs are superseded, so they are shown.
            rows, superseded_subjects = [replace(row, superseded_sightings=()) for row in rows], ()
            grouped_rows = None
        current = CurrentCases.of_rows(rows) if current is None else current
        is_current = current.are_current(rows)
        cases_by_identity = dict[str, CaseInfo]()
        former_rows = list[EvaluationRow]()
        for row, counts_as_current in zip(rows, is_current, strict=True):
            if counts_as_current:
                cases_by_identity[row.case.identity] = row.case
            else:
                former_rows.append(row)
        subjects = tuple(subjects_of(rows, positions, current, subject_cache=subject_cache, grouped_rows=grouped_rows))
        shown_identities = {identity for subject in subjects for identity in subject.cells}
        repeated_identities = {identity for subject in subjects for identity in subject.repeated_identities}
        repeated_cases = [
            case
            for identity, case in cases_by_identity.items()
            if identity in repeated_identities - shown_identities  # others have results of superseded checkpoints only
        ]
        cases_by_identity = {
            identity: case for identity, case in cases_by_identity.items() if identity in shown_identities
        }
        cases = tuple(sorted(cases_by_identity.values(), key=lambda case: (case.suite, case.name, case.identity)))
        labels = _labels_of(subjects)
        return cls(
            store=store,
            subjects=subjects,
            cases=cases,
            rows=tuple(rows),
            current=current,
            events=tuple(events),
            left_out=LeftOut(
                num_skipped=num_skipped,
                **former_counts(former_rows, current, current.identities),
                superseded_subjects=superseded_subjects,
                repeated_cases=tuple(
                    sorted(f"{case.suite}/{case.name} ({place_of_case(case).test})" for case in repeated_cases)
                ),
            ),
            labels=tuple(labels),
            case_names=case_names(cases),
        )

    @functools.cached_property
    def capitalized_labels(self) -> tuple[str, ...]:
        """Labels at the start of a sentence. Names of files and optimizers keep their spelling."""
        return tuple(
            label[:1].upper() + label[1:] if label.startswith(_STEP_PREFIXES) else label for label in self.labels
        )

    @property
    def method_labels(self) -> dict[str, str]:
        """Label of each subject by its name in the experiment's file."""
        return dict(zip(self.experiment.method_names, self.labels, strict=False))

    @property
    def has_decisions(self) -> bool:
        """Whether `lobench keep` decides in the store, so that results decided which seeds were run."""
        return (self.store / DECISIONS_FILE).is_file()

    @property
    def headline_index(self) -> int:
        """Index of the last subject among those with the largest number of evaluated cases.

        For a run with additional optimizers, it is a checkpoint. For an experiment's methods, it is the last one.
        `Summary.headline_index`, the subject of headlines, is the best method.
        """
        last_shown = last_on_most_cases(self.subjects) if self.experiment.method_names else last_subject(self.subjects)
        return next(index for index, subject in enumerate(self.subjects) if subject is last_shown)

    @property
    def no_results_message(self) -> str:
        """Message for a snapshot without rows: the store is empty, or the experiment has no results."""
        if self.all_stored_subjects:
            return "no evaluation of this experiment is in the store, which holds others: --all shows them"
        return "the store holds no evaluation yet"

    def require_rows(self) -> None:
        """Raises StoreError if there are no rows."""
        if not self.rows:
            raise StoreError(self.no_results_message, where=str(self.store))

    @functools.cached_property
    def scale_subjects(self) -> tuple[StoredSubject, ...]:
        """Subjects whose best mean defines the score 1: all subjects of the store, also if only a part is shown.

        Results of former code are left out, as `without_former_code` defines them.
        """
        return without_former_code(self.scale_subjects_of_all_codes, self.events)

    @property
    def scale_subjects_of_all_codes(self) -> tuple[StoredSubject, ...]:
        """All subjects of the store, also if only a part is shown.

        If an experiment counts several forms of a case as one, the methods with the common form are included as well.
        """
        if not self.all_stored_subjects:
            return self.subjects
        stored_keys = {
            (subject.subject.key, identity) for subject in self.all_stored_subjects for identity in subject.all_cells()
        }
        unstored_subjects = [
            dataclasses.replace(
                subject,
                cells={
                    key: cell for key, cell in subject.cells.items() if (subject.subject.key, key) not in stored_keys
                },
                former_cells={},
            )
            for subject in self.subjects
        ]
        return (*self.all_stored_subjects, *(subject for subject in unstored_subjects if subject.cells))

    @functools.cached_property
    def groups(self) -> MethodGroups:
        """Subjects as runs and single subjects."""
        return method_groups_of(self.subjects, are_methods=bool(self.experiment.method_names))

    def part_with(self, is_included: Callable[[Subject], bool]) -> Snapshot:
        """Returns the part with some of the subjects, on the scales of the whole store. Not for experiments."""
        indices = [index for index, subject in enumerate(self.subjects) if is_included(subject.subject)]
        if len(indices) == len(self.subjects):
            return self
        subjects = tuple(self.subjects[index] for index in indices)
        identities = {identity for subject in subjects for identity in subject.cells}
        return dataclasses.replace(
            self,
            subjects=subjects,
            cases=tuple(case for case in self.cases if case.identity in identities),
            labels=tuple(self.labels[index] for index in indices),
            all_stored_subjects=self.all_stored_subjects or self.subjects,
        )

    def cell(self, subject_index: int, case_index: int) -> Cell | None:
        """Returns the results of a subject on a case, given by their indices; None if it was not evaluated."""
        return self.subjects[subject_index].cells.get(self.cases[case_index].identity)

    def has_case_name(self, case_index: int, name: str) -> bool:
        """Returns whether a name is that of a case, or of a case that counts as it; see `Cell.repeated_cases`."""
        cells = (self.cell(subject_index, case_index) for subject_index in range(len(self.subjects)))
        return any(cell.has_name(name) for cell in cells if cell is not None)

    def measured_rows(
        self, rows: Iterable[EvaluationRow] | None = None
    ) -> Iterator[tuple[EvaluationRow, Curves | CurveSummary | None]]:
        """Yields each row with its curves, or their summary. Curves that a cell already has are not read again.

        Args:
          rows: Rows of this snapshot. None: all.
        """
        for row in self.rows if rows is None else rows:
            yield row, self._curves_by_payload.get(id(row.payload)) or row.curves_or_summary

    @functools.cached_property
    def _curves_by_payload(self) -> dict[int, Curves]:
        """Curves of the cells, by the `id` of the payload that they were read from."""
        return {
            id(curves.source_payload): curves
            for subject in self.subjects
            for cell in subject.all_cells().values()
            for curves, _ in cell.curves_by_seed.values()
            if isinstance(curves, Curves) and curves.source_payload is not None
        }

    def edited_code_line(self, sha256: str = "") -> str:
        """Returns a note on current results that were computed by other code than the user's present code; else "".

        Args:
          sha256: Hash of a subject. "": all subjects.
        """
        if not self.edited_codes:
            return ""
        rows = [row for row in self.rows if sha256 in ("", row.key.checkpoint_sha256) and self.current.is_current(row)]
        return edited_code_line(rows, self.edited_codes)

    @functools.cached_property
    def edited_codes(self) -> Mapping[str, tuple[str, ...]]:
        """Codes of results that are not the user's present code, each with the names of the files that differ."""
        if not any(row.key.code or any(subject.is_imported for subject in row.sightings) for row in self.rows):
            return {}
        with Ledger.open(self.store, read_only=True) as ledger:
            return edited_code(ledger, self.rows)

    def num_seeds_line(self) -> str:
        """Returns a note on an experiment's methods if their numbers of seeds on a case differ; else "".

        In a race they always do, and its own notes say why.
        """
        if not self.experiment.method_names or self.experiment.race is not None:
            return ""
        counts_by_case: dict[str, set[int]] = {}
        for subject in self.subjects:
            for identity, cell in subject.cells.items():
                counts_by_case.setdefault(identity, set()).add(cell.num_planned)
        labels_by_count: dict[str, list[str]] = {}
        for label, subject in zip(self.labels, self.subjects, strict=True):
            cells = [cell for identity, cell in subject.cells.items() if len(counts_by_case[identity]) > 1]
            if counts := sorted(cell.num_planned for cell in cells):
                count_text = " to ".join(dict.fromkeys((f"{counts[0]:,}", f"{counts[-1]:,}")))
                labels_by_count.setdefault(count_text, []).append(label)
        if len(labels_by_count) < 2:
            return ""
        texts = [f"{count} of {shortened_list(labels, _MAX_NAMED)}" for count, labels in labels_by_count.items()]
        noun = common_replicate_noun(self.cases)
        return f"methods have different numbers of {noun}s a case: {'; '.join(texts)}"

    def search_of(self, subject_index: int) -> BestTrial | None:
        """Returns the search that chose the subject at an index; None if no search did."""
        return self.experiment.searches[subject_index] if self.experiment.searches else None

    def case_name(self, case_index: int) -> str:
        """Returns the name of the case at an index."""
        return self.case_names[self.cases[case_index].identity]


class FormerCounts(TypedDict):
    """Keywords of `LeftOut`."""

    former_cases: tuple[tuple[str, int], ...]
    removed_cases: tuple[tuple[str, int], ...]
    num_former_bindings: int


def former_counts(
    rows: Iterable[EvaluationRow], current: CurrentCases, current_identities: Collection[str]
) -> FormerCounts:
    """Returns the numbers of evaluations that are not current, by the reason.

    Args:
      rows: Evaluations that are not current.
      current: Current cases of the store.
      current_identities: Identities of the cases that count.
    """
    removed, former = Counter[str](), Counter[str]()
    num_former_bindings = 0
    for row in rows:
        if current.is_removed(row.case):
            removed[f"{row.case.suite}/{row.case.name}"] += 1
        elif row.case.identity in current_identities:
            num_former_bindings += 1
        else:
            former[f"{row.case.suite}/{row.case.name}"] += 1
    return {
        "former_cases": tuple(sorted(former.items())),
        "removed_cases": tuple(sorted(removed.items())),
        "num_former_bindings": num_former_bindings,
    }


def _labels_of(subjects: Sequence[StoredSubject]) -> list[str]:
    """Returns the label of each subject: its outer step, or its name if it has none or the step is not distinct.

    If the step of one content of a file without a number in its name (`last.pt`) is not distinct, all of its contents
    are labelled by the name.
    """
    subjects_with_step = {subject.subject for subject in subjects if subject.subject.known_outer_step is not None}
    steps = Counter(
        (subject.subject.generation, subject.subject.outer_step)
        for subject in subjects
        if subject.subject in subjects_with_step
    )
    files_with_names = {
        subject.uri
        for subject in subjects_with_step
        if steps[subject.generation, subject.outer_step] > 1 and not has_step_in_name(subject.uri)
    }
    has_runs = len({subject.subject.run for subject in subjects if subject.subject.has_theta}) > 1
    labels = []
    for subject in subjects:
        generation = subject.subject.generation
        outer_step = subject.subject.outer_step
        has_own_name = (
            subject.subject not in subjects_with_step
            or subject.subject.uri in files_with_names
            or len(steps) == 1
            or steps[generation, outer_step] > 1
        )
        lineage = f"generation {generation}, " if generation else ""
        lineage = f"{subject.subject.run}, {lineage}" if has_runs and subject.subject.run else lineage
        labels.append(subject.label if has_own_name else f"{lineage}outer step {outer_step}")
    return _make_distinct(labels, subjects)


def distinct_labels(subjects: Sequence[StoredSubject]) -> list[str]:
    """Returns the label of each subject. Equal labels are extended by more of the path, the outer step, or a hash."""
    return _make_distinct([subject.label for subject in subjects], subjects)


def _make_distinct(labels: list[str], subjects: Sequence[StoredSubject]) -> list[str]:
    for label in [label for label, count in Counter(labels).items() if count > 1]:
        indices = [index for index, other_label in enumerate(labels) if other_label == label]
        for index, new_name in zip(indices, _longer_labels([subjects[index] for index in indices]), strict=True):
            labels[index] = new_name
    return labels


def _longer_labels(namesakes: Sequence[StoredSubject]) -> list[str]:
    """Returns distinct labels for subjects with one label, by adding more of the path, the outer step, or a hash."""
    path_parts = [namesake.subject.uri.rstrip("/").split("/") for namesake in namesakes]
    steps = [namesake.subject.known_outer_step for namesake in namesakes]
    step_texts = [f", outer step {step}" if step else "" for step in steps]
    candidates = [
        [
            "/".join(path[-depth:]) + namesake.label.removeprefix(path[-1]) + text
            for path, namesake, text in zip(path_parts, namesakes, texts, strict=True)
        ]
        for texts in ([""] * len(namesakes), step_texts)
        for depth in range(1, max(map(len, path_parts)) + 1)
        if all(namesake.label.startswith(path[-1]) for path, namesake in zip(path_parts, namesakes, strict=True))
    ]
    hashes = (
        [namesake.subject.sha256 for namesake in namesakes],
        ["".join(sorted(namesake.optimizer_hashes)) for namesake in namesakes],
    )
    candidates += [
        [f"{namesake.label} ({text[:8]})" for namesake, text in zip(namesakes, texts, strict=True)] for texts in hashes
    ]
    return next(
        (labels for labels in candidates if len(set(labels)) == len(labels)), [namesake.label for namesake in namesakes]
    )


def case_names(cases: Sequence[CaseInfo]) -> dict[str, str]:
    """Returns the name of each case by identity: suite and name, with its test if several cases have that name.

    Forms of one case, such as those of experiments that bind other values, are distinguished by the start of their
    identity.
    """
    name_counts = Counter(case_place[:2] for case_place in {place_of_case(case) for case in cases})
    names = {
        case.identity: f"{case.suite}/{case.name}"
        + (f" ({place_of_case(case).test})" if name_counts[case.suite, case.name] > 1 else "")
        for case in cases
    }
    counts = Counter(names.values())
    return {identity: f"{name} ({identity[:8]})" if counts[name] > 1 else name for identity, name in names.items()}


def snapshot_maker(
    store: Path, ledger: Ledger, rows: Sequence[EvaluationRow], positions: Mapping[Subject, int]
) -> Callable[[], Snapshot]:
    """Returns a function that makes the snapshot of a store's evaluations, as the ledger is now.

    Args:
      store: Folder of the store.
      ledger: Its ledger.
      rows: Its evaluations.
      positions: Order in which the subjects were first seen.
    """
    return functools.partial(
        Snapshot.of,
        store,
        rows,
        positions=positions,
        events=tuple(ledger.events()),
        num_skipped=ledger.num_skipped(),
        current=ledger.current_cases(rows),
    )


def read_store(store: Path, *, all_codes: bool = False, summarized: bool = False) -> Snapshot:
    """Reads a store, which may be in use.

    Args:
      store: Folder of the store.
      all_codes: Whether to include evaluations of code that the user has edited since.
      summarized: Whether to read summaries instead of curves. Curves are then read one by one on demand.

    Raises:
      StoreError: The folder is not a store.
    """
    with Ledger.open(store, read_only=True) as ledger:
        sightings = ledger.sightings()
        positions = {subject: position for position, subject in sightings.items()}
        rows = tuple(ledger.evaluations(all_codes=all_codes, summarized=summarized, sightings=sightings))
        return snapshot_maker(store, ledger, rows, positions)()

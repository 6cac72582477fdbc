"""Part of a large store that a page lists: the newest, the best and some other checkpoints, and the best methods."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.comparisons.viewer_index import coarse_to_fine
from lobench.analysis.store.snapshot import Snapshot
from lobench.core.wording import counted

__all__ = [
    "MOST_CHECKPOINTS",
    "MOST_METHODS",
    "ListedPart",
    "best_methods",
    "listed_part",
    "listed_with_new",
]

MOST_CHECKPOINTS, MOST_METHODS = 100, 200
_NEWEST, _BEST = 40, 20  # numbers of checkpoints; the others are the ends of runs, and evenly spaced


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPart:
    """Subjects that a page lists. Scores and comparisons are those of the whole store.

    Attributes:
      subjects: Summary of the listed checkpoints and methods.
      methods: Summary of the listed methods and all checkpoints, for tables of methods. Their mean ranks and bold
        entries are among the listed methods.
      note: A sentence on what the page leaves out; "" if it lists everything.
    """

    subjects: Summary
    methods: Summary
    note: str


def listed_part(summary: Summary) -> ListedPart:
    """Returns the subjects of a store that a page lists."""
    snapshot = summary.snapshot
    notes = list[str]()
    checkpoints, methods = _checkpoints_and_methods(snapshot)
    listed_checkpoints = checkpoints
    if len(checkpoints) > MOST_CHECKPOINTS:
        listed_checkpoints = _first_listed(
            MOST_CHECKPOINTS, _checkpoints_by_importance(summary, checkpoints), checkpoints
        )
        count = len(listed_checkpoints)
        notes.append(f"{count} of {counted(len(checkpoints), 'checkpoint')}: the newest, the best and some between")
    listed_methods, note = _listed_methods(summary, methods)
    notes += [note] if note else []
    if not notes:
        return ListedPart(subjects=summary, methods=summary, note="")
    return ListedPart(
        subjects=summary.for_part(_partial_snapshot(snapshot, sorted([*listed_checkpoints, *listed_methods]))),
        methods=summary.for_part(_partial_snapshot(snapshot, sorted([*checkpoints, *listed_methods]))),
        note=f"The lists and tables of this page have {', and '.join(notes)}.",
    )


def listed_with_new(listed_parts: ListedPart, whole_summary: Summary, snapshot: Snapshot) -> Summary | None:
    """Returns the listed subjects of an earlier reading, and all subjects with later evaluations.

    Scores use the earlier scales, so that only new evaluations are scored.

    Args:
      listed_parts: Part that was listed.
      whole_summary: Summary of the earlier reading.
      snapshot: Later reading that continues it, with the same objects for unchanged subjects.

    Returns:
      None if there are cases that the earlier scales do not have, or more changed subjects than a page lists.
    """
    if {case.identity for case in snapshot.cases} - {case.identity for case in whole_summary.snapshot.cases}:
        return None
    ids_of_whole = {*map(id, whole_summary.snapshot.subjects)}
    listed_keys = {(subject.subject, subject.optimizer_hashes) for subject in listed_parts.subjects.snapshot.subjects}
    changed_indices = [index for index, subject in enumerate(snapshot.subjects) if id(subject) not in ids_of_whole]
    if len(changed_indices) > MOST_CHECKPOINTS + MOST_METHODS:
        return None
    listed_indices = [
        index
        for index, subject in enumerate(snapshot.subjects)
        if (subject.subject, subject.optimizer_hashes) in listed_keys
    ]
    return whole_summary.for_later(_partial_snapshot(snapshot, sorted({*listed_indices, *changed_indices})))


def best_methods(summary: Summary) -> tuple[Summary, str]:
    """Returns `ListedPart.methods`, and a text such as "the best 200 of 2,002 methods"; "" if these are all."""
    checkpoints, methods = _checkpoints_and_methods(summary.snapshot)
    listed_indices, note = _listed_methods(summary, methods)
    if not note:
        return summary, ""
    return summary.for_part(_partial_snapshot(summary.snapshot, sorted([*checkpoints, *listed_indices]))), note


def _checkpoints_and_methods(snapshot: Snapshot) -> tuple[list[int], list[int]]:
    """Returns the indices of the checkpoints outside an experiment, and the indices of all other subjects."""
    indices = range(len(snapshot.subjects))
    if snapshot.experiment.method_names:
        return [], [*indices]
    checkpoints = [index for index in indices if snapshot.subjects[index].subject.has_theta]
    return checkpoints, sorted({*indices} - {*checkpoints})


def _listed_methods(summary: Summary, methods: Sequence[int]) -> tuple[Sequence[int], str]:
    # Standings of a race are of all its methods.
    if len(methods) <= MOST_METHODS or summary.snapshot.experiment.race is not None:
        return methods, ""
    listed_indices = _first_listed(
        MOST_METHODS, [*_needed_subjects(summary), *_sorted_by_mean_score(summary, methods)], methods
    )
    return listed_indices, f"the best {len(listed_indices)} of {counted(len(methods), 'method')}"


def _checkpoints_by_importance(summary: Summary, indices: Sequence[int]) -> Iterator[int]:
    """Yields checkpoints, the most important ones first."""
    yield from _needed_subjects(summary)
    yield from indices[: -_NEWEST - 1 : -1]
    yield from _sorted_by_mean_score(summary, indices)[:_BEST]
    # Newest runs come first, because the number of listed checkpoints is limited.
    for run in reversed(summary.snapshot.groups.runs):
        yield from (run[0], run[-1], *_sorted_by_mean_score(summary, run)[:1])
    yield from (indices[position] for position in coarse_to_fine(len(indices)))


def _needed_subjects(summary: Summary) -> list[int]:
    """Returns the subjects that a part needs for the headline and the common cases of the whole."""
    subjects_without_case = list[int]()
    for metric in summary.metrics:
        common_cases = summary.common_cases(metric) if summary.compared else frozenset()
        for case in {case.identity for case in summary.snapshot.cases} - common_cases:
            scores_of_subjects = ((index, summary.own_scores(index, metric)) for index in sorted(summary.compared))
            subjects_without_case += [index for index, scores in scores_of_subjects if scores and case not in scores][
                :1
            ]
    return [summary.headline_index, summary.reference_index, *subjects_without_case]


def _sorted_by_mean_score(summary: Summary, indices: Iterable[int]) -> list[int]:
    """Returns subjects by mean score, the best first. Those with fewer cases follow, then those without a score."""
    means = {index: summary.mean_score(index, "primary") for index in indices}

    def order(index: int) -> tuple[bool, int, float]:
        return math.isnan(means[index].mean), -means[index].num_cases, -means[index].mean

    return sorted(means, key=order)


def _first_listed(max_subjects: int, order: Iterable[int], candidates: Sequence[int]) -> list[int]:
    permitted = set(candidates)
    return [index for index in dict.fromkeys(order) if index in permitted][:max_subjects]


def _partial_snapshot(snapshot: Snapshot, indices: Sequence[int]) -> Snapshot:
    """Returns a snapshot with some of its subjects, and with their evaluations.

    With all subjects it is the same snapshot, whose evaluations include those of former runs.
    """
    if len(indices) == len(snapshot.subjects):
        return snapshot
    subjects = tuple(snapshot.subjects[index] for index in indices)
    hashes = {subject.subject.sha256 for subject in subjects}
    experiment = snapshot.experiment
    experiment = dataclasses.replace(
        experiment,
        method_names=tuple(experiment.method_names[index] for index in indices) if experiment.method_names else (),
        searches=tuple(experiment.searches[index] for index in indices) if experiment.searches else (),
    )
    return dataclasses.replace(
        snapshot,
        subjects=subjects,
        all_stored_subjects=snapshot.all_stored_subjects or snapshot.subjects,
        rows=tuple(row for row in snapshot.rows if row.key.checkpoint_sha256 in hashes),
        labels=tuple(snapshot.labels[index] for index in indices),
        experiment=experiment,
    )

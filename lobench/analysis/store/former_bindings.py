"""Former bindings: results of a run's checkpoints that were made before its `config.gin` was edited.

The scores of such checkpoints differ from those of later ones in more than theta.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lobench.core.subject import Subject
from lobench.core.wording import shortened_list
from lobench.engine.store.current import CurrentCases
from lobench.engine.store.ledger import EvaluationRow
from lobench.engine.store.series import CheckpointRun, run_of

__all__ = [
    "bindings_note",
    "former_bindings_line",
    "subjects_with_former_bindings",
    "subjects_without_present_results",
]

_MOST_STEPS = 6  # outer steps named of each group


def subjects_with_former_bindings(rows: Iterable[EvaluationRow], current: CurrentCases) -> dict[Subject, Subject]:
    """Returns the checkpoints whose results have other bindings than those planned last for their run and generation.

    The bindings are those of the optimizer. An edit of `config.gin` leaves such results behind if the watch does not
    evaluate earlier checkpoints again. Their scores differ from those of later checkpoints in more than theta.

    Returns:
      Each such checkpoint, with one of its run whose results have the bindings planned last.
    """
    former_subjects = dict[Subject, Subject]()
    for row_by_subject in _latest_rows_by_case(rows, current):
        if len({row.case.optimizer_hash for row in row_by_subject.values()}) == 1:
            continue  # as in most runs
        evaluations = [(row, subject) for subject, row in row_by_subject.items()]
        present_row, present_subject = max(evaluations, key=lambda evaluation: current.plan_order_in_run(*evaluation))
        present_hash = present_row.case.optimizer_hash
        former_subjects |= {
            subject: present_subject
            for subject, row in row_by_subject.items()
            if row.case.optimizer_hash != present_hash
        }
    return former_subjects


def subjects_without_present_results(
    former_subjects: Collection[Subject], subjects: Iterable[Subject]
) -> frozenset[Subject]:
    """Returns the checkpoints with former bindings that are not among other subjects with their path and theta.

    After an edit of the `config.gin` of a run below the watched folder, a checkpoint that is evaluated again is another
    subject.

    Args:
      former_subjects: Checkpoints whose results have former bindings.
      subjects: Evaluated subjects.
    """
    present_checkpoints = {(subject.uri, subject.sha256) for subject in subjects if subject not in former_subjects}
    return frozenset(subject for subject in former_subjects if (subject.uri, subject.sha256) not in present_checkpoints)


def former_bindings_line(subjects: Collection[Subject]) -> str:
    """Returns a line that names checkpoints whose results have former bindings of their optimizer; "" without any."""
    steps = sorted({subject.outer_step for subject in subjects if subject.known_outer_step is not None})
    names = sorted({subject.label for subject in subjects if subject.known_outer_step is None})
    if steps:
        listed_steps = shortened_list(list(map(str, steps)), _MOST_STEPS)
        names.insert(0, f"outer step{'s' if len(steps) > 1 else ''} {listed_steps}")
    return f"results of {' and '.join(names)} were made with other bindings of the optimizer" if names else ""


def bindings_note(rows: Iterable[EvaluationRow], current: CurrentCases) -> str:
    """Returns a line on checkpoints of one run that were evaluated with different bindings of their optimizer.

    They then differ in more than their thetas.

    Returns:
      The line, on the run with the most such checkpoints, or "".
    """
    subjects_by_bindings: dict[str, list[Subject]] = {}
    latest_rows = _latest_rows_by_case(rows, current)
    for row_by_subject in latest_rows:
        subjects_of_case: dict[str, list[Subject]] = {}
        for subject, row in row_by_subject.items():
            subjects_of_case.setdefault(row.case.optimizer_hash, []).append(subject)
        if len(subjects_of_case) > max(len(subjects_by_bindings), 1):
            subjects_by_bindings = subjects_of_case
    groups = sorted(sorted({subject.outer_step for subject in group}) for group in subjects_by_bindings.values())
    if not groups:
        return ""
    steps = "; ".join(shortened_list(list(map(str, group)), _MOST_STEPS) for group in groups)
    subject = next(iter(subjects_by_bindings.values()))[0]
    run = run_of(subject)
    has_other_runs = any(run_of(other) != run for row_by_subject in latest_rows for other in row_by_subject)
    name = run.name or (run.folder.rstrip("/").rpartition("/")[2] if has_other_runs else "")
    return (
        f"checkpoints{f' of {name}' if name else ''} were evaluated with {len(groups)} different bindings of their "
        f"optimizer, and differ in more than theta: outer steps {steps}; "
        "`lobench watch --checkpoints all` evaluates all with those of today"
    )


def _latest_rows_by_case(
    rows: Iterable[EvaluationRow], current: CurrentCases
) -> Collection[Mapping[Subject, EvaluationRow]]:
    """Returns the last evaluation of each checkpoint, for each run, generation and case.

    Only evaluations that tables show, by the last plan, count. Checkpoints with additional bindings are separate
    methods, and are left out.
    """
    latest_rows: dict[tuple[CheckpointRun, str], dict[Subject, EvaluationRow]] = {}
    for row in rows:
        for subject in row.recorded_sightings:
            is_of_run = (
                subject.known_outer_step is not None
                and not subject.variant.bindings
                and subject not in row.superseded_sightings
            )
            if is_of_run and current.is_current(row, subject):
                row_by_subject = latest_rows.setdefault((run_of(subject), row.case.identity), {})
                if subject not in row_by_subject or row_by_subject[subject].id < row.id:
                    row_by_subject[subject] = row
    return latest_rows.values()

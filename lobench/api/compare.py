"""`lobench.compare`: resolves names to subjects, runs missing evaluations, and compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from etils import epath

from lobench.analysis.comparisons.gates import GateRules
from lobench.analysis.comparisons.method_comparison import MethodComparison, compare_subjects
from lobench.analysis.comparisons.step_costs import CaseCosts, compare_costs
from lobench.analysis.comparisons.steps_to_target import CaseSteps, Target, compare_steps, parse_target
from lobench.analysis.scores.baseline_file import StaleBaseline, check_baselines
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.case_groups import CaseDesign, design_from_options
from lobench.analysis.store.common_step import until_common_step
from lobench.analysis.store.entrants import entrants_of
from lobench.analysis.store.reference import REFERENCE_EVENT, ReferenceChoice, recorded_choices
from lobench.analysis.store.search_history import edge_notes_by_label
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import Cell, StoredSubject, subject_of
from lobench.api.components import plugins_of, readers_for
from lobench.api.evaluate import evaluate_into
from lobench.api.resolve import (
    FoundSubject,
    find_request,
    find_stored_subject,
    is_store,
    names_last_subject,
    subjects_of_snapshots,
    subjects_setting_scales,
)
from lobench.api.rounds import MetricCheck
from lobench.api.settings import CompareKeywords, CompareSettings, EvaluateIntoKeywords, as_texts
from lobench.core.case import CaseSpec
from lobench.core.errors import CheckpointError, LobenchError, UsageError, suggestion
from lobench.core.settings_field import check_keywords, keywords_in, settings_from
from lobench.core.subject import GivenCheckpoint, RequestedSubject, SubjectKey
from lobench.core.subject import Subject as Who
from lobench.engine.checkpoints.given import given_checkpoint
from lobench.engine.checkpoints.readers import load_checkpoint, reader_name_for
from lobench.engine.checkpoints.source import DirectorySource
from lobench.engine.checkpoints.whole_files import opaque_checkpoint
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.shipped import find_suite
from lobench.engine.config.suite import require_cases, specs_called, takes_any_checkpoint
from lobench.engine.paths import path_exists
from lobench.engine.store.bundle import split_store_and_name
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import CheckpointReader, SourceContext
from lobench.plugins import PluginManager
from lobench.report.live.notebook_progress import default_progress
from lobench.report.tables.comparison import comparison_html, plot_comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Comparison",
    "compare",
    "compare_stored",
    "default_store_of",
    "find_subjects",
    "named_subjects",
    "read_given",
]

_CaseResult = TypeVar("_CaseResult", CaseSteps, CaseCosts)

# Description of the scale if the curves have neither common seeds nor common starts.
_FINALS_NOTE = "differences are of final values; other methods in the store do not change them"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Result of `compare`: one comparison of each of B, C, ... with A.

    Attributes:
      pairs: One comparison for each of B, C, ..., in the order in which they were given.
      scale: Description of the score scale: what 0 and 1 stand for.
      steps: For each pair, the steps that either side takes to the target, per case. Empty without a target.
      costs: For each pair, the seconds of a step and the primary metric at equal time, per case. Cases without
        measured times are left out.
    """

    pairs: tuple[MethodComparison, ...]
    scale: str
    steps: tuple[tuple[CaseSteps, ...], ...] = ()
    costs: tuple[tuple[CaseCosts, ...], ...] = ()

    def verdicts(self) -> tuple[str, ...]:
        """Returns the verdict on each of B, C, ...: PASS, REGRESSED or INCONCLUSIVE."""
        return tuple(pair.verdict for pair in self.pairs)

    def compared_nothing(self) -> tuple[str, ...]:
        """Returns the labels of subjects that have no seed with results in common with A."""
        return tuple(pair.b.label for pair in self.pairs if pair.compared_nothing)

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{pair.b.label}: {pair.verdict}" for pair in self.pairs)
        return f"Comparison(against {self.pairs[0].a.label}: {verdicts})"

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draws the differences of the score per case, and their mean.

        Args:
          ax: Axes to draw on. None: axes of a new figure.
        Returns:
          The axes.
        Raises:
          LobenchError: matplotlib is not installed.
        """
        return plot_comparison(self.pairs, ax)

    def _repr_html_(self) -> str:
        """Returns the output of `lobench compare` as HTML, for notebooks."""
        return comparison_html(self.pairs, scale=self.scale, costs=self.costs)


def compare(
    *subjects: str | Path,
    store: str | Path | None = None,
    suites: str | Path | Sequence[str | Path] = (),
    baselines: str | Path | Sequence[str | Path] = (),
    metrics: Sequence[str] = (),
    cases: Sequence[str] = (),
    progress: WatchProgress | None = None,
    **options: Unpack[CompareKeywords],
) -> Comparison:
    """Compares B, C, ... with A: which is better, on which cases, by how much, and how sure that is.

    Example:
        found = lobench.compare("adam()", "runs/today", suites="quick")
        found.verdicts()  # ("PASS",)

    Args:
      subjects: A, B, ... Each is a store or a run's folder (its last checkpoint), or a name in a store: a label, a
        scope of its experiment, gin text, a path or the end of one, an outer step, or the first digits of a sha256.
        Names are looked up in `store`, or in STORE of `STORE@NAME`. With `suites`, a checkpoint, a run's folder or gin
        text ("adam(); adam.learning_rate = 0.01") is evaluated first.
      store: Store in which names are looked up. With `suites`, also the store of new evaluations (default:
        .lobench/compare/SUITE).
      suites: Suites on which subjects are evaluated: folders, `.gin` files or names of shipped suites. Empty: only
        stored results are compared.
      baselines: Suites, or baseline files, whose tuned optimizers define 1 on the score scale.
      metrics: Metrics to compare (default: the primary metric, train/loss and test/loss).
      cases: Names of the cases to compare, such as relu32, quick/relu32 or digits.relu32. Empty: all.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Fields of `CompareSettings`: `margin`, `alpha`, `max_diverged`, `independent_cases`, `seed_means`,
        `target` and `until_step`; and further ones of `WatchSettings`, such as `workers` and `gin_params`.
    Raises:
      LobenchError: A name is unknown, an evaluation cannot start, or a baseline is stale.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.

    >>> found = lobench.compare("adam()", "sgd()", store="results")
    >>> str(found.pairs[0].effects[0].gate.verdict)
    'PASS'
    """
    check_keywords("compare", options, CompareKeywords)
    settings = settings_from(CompareSettings, options)
    _, _, target = _rules_of(settings)  # raises if a value is wrong
    names = as_texts(subjects)
    suite_paths = tuple(str(find_suite(suite)) for suite in as_texts(suites))
    store = None if store is None else Path(store)
    if len(names) < 2:
        raise UsageError(
            "nothing to compare with",
            got=", ".join(map(repr, names)),
            expected="A and B: optimizers, checkpoints, or names in a store",
            next_step="for example `lobench compare 'adam()' 'sgd()' --suite SUITE`",
        )
    baseline_paths = [Path(path) for path in as_texts(baselines)]
    check_baselines(baseline_paths or map(Path, suite_paths))
    specs = specs_called(cases, *suite_paths, with_tests=True) if cases and suite_paths else []
    case_names = tuple(spec.names[-1] for spec in specs)
    evaluation_options = keywords_in(EvaluateIntoKeywords, {**options, "name": "compare", "cases": case_names})
    checked_metrics = (*metrics, target.metric if target is not None else "")
    chosen_subjects = _evaluated_subjects(
        names, store, suite_paths, progress or default_progress(), evaluation_options, checked_metrics
    )
    return compare_stored(
        chosen_subjects,
        names,
        settings,
        baselines=baseline_paths,
        suites=[Path(suite) for suite in suite_paths],
        metrics=metrics,
        cases=_names_by_case(cases, specs),
    )


def _rules_of(settings: CompareSettings) -> tuple[GateRules, CaseDesign, Target | None]:
    return (
        GateRules(alpha=settings.alpha, max_diverged=settings.max_diverged),
        design_from_options(independent_cases=settings.independent_cases, seed_means=settings.seed_means),
        None if settings.target is None else parse_target(str(settings.target)),
    )


def _names_by_case(cases: Iterable[str], specs: Sequence[CaseSpec]) -> dict[str, set[str]]:
    """Returns the names by which a store may know each case: those of its cells, for a scope with axes."""
    return {case: {case, *(spec.names[-1] for spec in specs if spec.has_name(case))} for case in cases}


def compare_stored(
    found_subjects: Sequence[FoundSubject],
    names: Sequence[str],
    settings: CompareSettings,
    *,
    baselines: Sequence[Path] = (),
    suites: Sequence[Path] = (),
    metrics: Sequence[str] = (),
    cases: Mapping[str, Collection[str]] | None = None,
) -> Comparison:
    """Compares stored subjects with the first of them. Evaluates nothing.

    Args:
      found_subjects: A, B, ...
      names: Text by which each was given. It replaces the label if two subjects have the same label.
      settings: Settings of the comparison.
      baselines: Files or suites of baselines that the caller named. One that is stale is an error.
      suites: Suites of the cases. Their baselines are used if none are named. Empty: those of the store.
      metrics: As in `compare`.
      cases: Names by which the store may know each case. None or empty: all cases.
    Raises:
      LobenchError: A baseline is stale, or the subjects have no case in common.
    """
    rules, design, target = _rules_of(settings)
    scales = Scales.of(
        subjects_of_snapshots(found_subjects),
        baselines or suites or None,
        all_subjects=subjects_setting_scales(found_subjects),
        edited_codes={code: names for stored in found_subjects for code, names in stored.snapshot.edited_codes.items()},
    )
    stale_problem = next((problem for problem in scales.baselines.problems if isinstance(problem, StaleBaseline)), None)
    if baselines and stale_problem is not None:
        raise stale_problem
    labelled_subjects = _with_distinct_labels([stored.subject for stored in found_subjects], names)
    if cases:
        labelled_subjects = _restrict_to_cases(labelled_subjects, cases)
    if settings.until_step is not None:
        labelled_subjects = until_common_step(labelled_subjects)
    pairs = compare_subjects(
        labelled_subjects,
        metrics=tuple(metrics),
        rules=rules,
        margin=settings.margin,
        scales=scales,
        design=design,
    )
    steps: list[tuple[CaseSteps, ...]] = []
    if target is not None:
        for pair in pairs:
            case_steps = compare_steps(pair.a, pair.b, target, scales, alpha=rules.alpha)
            steps.append(_with_case_names(pair, case_steps))
    edges_of_first, *edges_of_others = map(_edge_notes, found_subjects)
    pairs = [
        replace(pair, edge_notes=(*edges_of_first, *edges)) for pair, edges in zip(pairs, edges_of_others, strict=True)
    ]
    lines_of_first, *lines_of_others = map(_other_code_notes, found_subjects)
    pairs = [
        replace(pair, edited_code_notes=(*lines_of_first, *lines))
        for pair, lines in zip(pairs, lines_of_others, strict=True)
    ]
    costs = tuple(
        _with_case_names(pair, compare_costs(pair.a, pair.b, pair.primary_metrics, alpha=rules.alpha)) for pair in pairs
    )
    are_of_finals = all(pair.primary.is_of_finals for pair in pairs)
    scale = _FINALS_NOTE if are_of_finals else scales.describe()
    if not any(pair.primary.comparison.cases for pair in pairs):
        scale = ""  # all cases are tests without metrics
    return Comparison(pairs=tuple(pairs), scale=scale, steps=tuple(steps), costs=costs)


def _with_case_names(pair: MethodComparison, results: Iterable[_CaseResult]) -> tuple[_CaseResult, ...]:
    """Returns results of cases with the names of the cases in place of their identities."""
    return tuple(replace(result, case=pair.case_name(result.case)) for result in results)


def _restrict_to_cases(
    subjects: Sequence[StoredSubject], names_by_case: Mapping[str, Collection[str]]
) -> list[StoredSubject]:
    """Returns subjects with only the results on some cases.

    Args:
      subjects: Subjects with all of their results.
      names_by_case: Names by which the store may know each case.

    Raises:
      UsageError: No subject has results on a case of this name.
    """
    cells_by_name = {
        f"{case.suite}/{case.name}": cell
        for subject in subjects
        for cell in subject.cells.values()
        for case in (cell.case, *cell.repeated_cases)
    }
    for name, names in names_by_case.items():
        if not any(cell.has_name(name) for cell in cells_by_name.values() for name in names):
            where = "the results of A, B, ..."
            expected = f"one of {', '.join(sorted(cells_by_name))}"
            raise UsageError(
                f"no case {name!r}", where=where, expected=expected, next_step=suggestion(name, cells_by_name)
            )

    wanted_names = {name for names in names_by_case.values() for name in names}

    def restrict(cells: Mapping[str, Cell]) -> dict[str, Cell]:
        return {key: cell for key, cell in cells.items() if any(map(cell.has_name, wanted_names))}

    return [
        replace(subject, cells=restrict(subject.cells), former_cells=restrict(subject.former_cells))
        for subject in subjects
    ]


def _edge_notes(found_subject: FoundSubject) -> list[str]:
    """Returns notes on the search that chose a method: settings at the edge of their range."""
    return [
        f"{found_subject.subject.label}: {line}"
        for line in edge_notes_by_label(found_subject.snapshot).get(found_subject.subject.label, ())
    ]


def _other_code_notes(stored_subject: FoundSubject) -> list[str]:
    """Returns a note on results computed by other code than the user's present code; [] if there are none."""
    line = stored_subject.snapshot.edited_code_line(stored_subject.subject.subject.sha256)
    return [f"{stored_subject.subject.label}: {line}"] if line else []


def default_store_of(suites: Sequence[str]) -> Path:
    """Returns the default store of a comparison on suites."""
    return Path(".lobench") / "compare" / Path(suites[0]).resolve().stem


def _with_distinct_labels(subjects: Sequence[StoredSubject], texts: Sequence[str]) -> list[StoredSubject]:
    """Returns subjects with distinct labels: if two share one, each is named by the text with which it was given."""
    labels = [subject.label for subject in subjects]
    if len(set(labels)) == len(labels):
        return list(subjects)
    return [subject.with_label(text) for subject, text in zip(subjects, texts, strict=True)]


def _evaluated_subjects(
    names: Sequence[str],
    store: Path | None,
    suites: Sequence[str],
    progress: WatchProgress,
    options: EvaluateIntoKeywords,
    metrics: Sequence[str],
) -> list[FoundSubject]:
    """Returns A, B, ... by their names, after running the suites' evaluations that are not stored.

    The evaluations end with a UsageError once they show that no subject has one of the metrics.

    If A is given as a store or a run's folder, A is the last subject in it that is not among B, C, ... The choice is
    recorded in the store, so that a second call has the same reference.
    """
    first_name, *other_names = names
    folder = (store or default_store_of(suites)) if suites else None
    is_new = {text: bool(suites) and not is_store(split_store_and_name(text)[0] or "no store") for text in names}
    stored_subjects = {text: find_stored_subject(text, store) for text in other_names if not is_new[text]}
    new_subjects = {}
    if folder is not None:
        new_texts = [text for text in other_names if is_new[text]]
        new_subjects = dict(
            zip(new_texts, named_subjects(new_texts, folder, suites, progress) if new_texts else (), strict=True)
        )
    candidates = {subject.key for _, subject in new_subjects.values()}
    choices = recorded_choices([folder]) if folder is not None else []
    reference: FoundSubject | None = None
    if first_name in new_subjects:
        pass  # the same text was given twice, so there is only one subject
    elif is_new[first_name]:
        assert folder is not None
        named_first = named_subjects([first_name], folder, suites, progress, candidates=candidates, choices=choices)
        new_subjects |= {first_name: named_first[0]}
    else:
        store_path = find_stored_subject(first_name, store).store.resolve()
        subjects_of_store = (
            stored_subject
            for stored_subject in stored_subjects.values()
            if stored_subject.store.resolve() == store_path
        )
        candidates |= {stored_subject.subject.subject.key for stored_subject in subjects_of_store}
        reference = find_stored_subject(first_name, store, candidates=candidates, choices=choices)
    evaluated_subjects = {}
    if folder is not None and new_subjects:
        known_subjects = [*stored_subjects.values(), *([reference] if reference is not None else [])]
        if any(metrics) and is_store(folder):
            known_subjects += filter(None, find_subjects(folder, [subject for _, subject in new_subjects.values()]))
        check = MetricCheck(progress, metrics, [stored.subject for stored in known_subjects])
        evaluated_subjects = _evaluate_missing(new_subjects, folder, suites, check, options)
    if reference is None:
        reference = evaluated_subjects[first_name]
    if (
        folder is not None
        and new_subjects
        and (choice_path := _choice_path(first_name, store, is_new=is_new[first_name]))
    ):
        _record_choices(
            folder,
            [
                ReferenceChoice(candidate=key, chosen_in=choice_path, reference=reference.subject.subject.key)
                for key in candidates
            ],
        )
    return [reference, *((stored_subjects | evaluated_subjects)[text] for text in other_names)]


def _choice_path(text: str, store: Path | None, *, is_new: bool) -> str:
    """Returns the store or run folder that a text names instead of a subject; "" if it names a subject.

    Such a text means the last subject of the store or run.
    """
    if is_new:
        folder = Path(text.partition(";")[0].strip())
        return str(folder.resolve()) if folder.is_dir() else ""
    return str(find_stored_subject(text, store).store.resolve()) if names_last_subject(text, store) else ""


def _record_choices(folder: Path, choices: Sequence[ReferenceChoice]) -> None:
    """Records choices of references that the store does not have yet."""
    stored_choices = recorded_choices([folder])
    if new_choices := [choice for choice in choices if choice not in stored_choices]:
        with Ledger.open(folder) as ledger:
            for choice in new_choices:
                ledger.record_event(REFERENCE_EVENT, **choice.to_event())


def _evaluate_missing(
    subjects_by_name: Mapping[str, tuple[RequestedSubject, Who]],
    store: Path,
    suites: Sequence[str],
    progress: WatchProgress,
    options: EvaluateIntoKeywords,
) -> dict[str, FoundSubject]:
    """Evaluates subjects that their store lacks, all in one run, and returns them by name.

    The store may also have results of other subjects, and of checkpoints that were at the same paths earlier. Only
    results of the present checkpoints on the present cases count.
    """
    requests, subjects = zip(*subjects_by_name.values(), strict=True)
    evaluate_into(store, requests, suites, progress=progress, **options)
    stored_by_name: dict[str, FoundSubject] = {}
    for name, stored in zip(subjects_by_name, find_subjects(store, subjects), strict=True):
        if stored is None:
            raise LobenchError("it was not evaluated", where=name, next_step="see the lines above")
        stored_by_name[name] = stored
    return stored_by_name


def find_subjects(store: Path, subjects: Sequence[Who]) -> list[FoundSubject | None]:
    """Returns subjects with their results on the store's current cases; None for a subject without any."""
    snapshot = read_store(store)
    with Ledger.open(store, read_only=True) as ledger:
        entrants = entrants_of(ledger, [(subject, subject.label) for subject in subjects])
    found_subjects: list[FoundSubject | None] = []
    for entrant in entrants:
        if not entrant.rows:
            found_subjects.append(None)
            continue
        stored_subject = subject_of(entrant.subject, entrant.rows, {case.identity for case in entrant.cases})
        # All subjects of the store set the scale, as if the comparison were of stored results.
        subject_snapshot = replace(snapshot, subjects=(stored_subject,), all_stored_subjects=snapshot.subjects)
        found_subjects.append(FoundSubject(subject=stored_subject, snapshot=subject_snapshot))
    return found_subjects


def named_subjects(
    names: Sequence[str],
    store: Path,
    suites: Sequence[str],
    progress: WatchProgress,
    *,
    candidates: Collection[SubjectKey] = (),
    choices: Sequence[ReferenceChoice] = (),
) -> list[tuple[RequestedSubject, Who]]:
    """Returns the subjects that texts name, each as given and as the store will record it.

    Args:
      candidates: Subjects compared with the named ones. A run's folder never means one of them.
      choices: Earlier choices of references; see `choose_reference`.
    Raises:
      LobenchError: A text names neither a checkpoint nor an optimizer, or a checkpoint cannot be read.
    """
    manager = plugins_of(suites, progress)
    readers = readers_for(suites, manager, allow_pickle=False)
    takes_any = takes_any_checkpoint(*suites)
    read_subject = partial(read_given, manager=manager, accepts_any_format=takes_any)
    return [
        _pin_theta(*_find_subject(name, readers, suites, store, read_subject, candidates, choices)) for name in names
    ]


def _pin_theta(request: RequestedSubject, subject: Who) -> tuple[RequestedSubject, Who]:
    """Ties a checkpoint to the theta that was read, so that it is not evaluated if its file changes."""
    return replace(request, sha256=subject.sha256) if isinstance(request, GivenCheckpoint) else request, subject


def _find_subject(
    text: str,
    readers: Mapping[str, CheckpointReader],
    suites: Sequence[str],
    store: Path,
    read_subject: Callable[[RequestedSubject], Who],
    candidates: Collection[SubjectKey],
    choices: Sequence[ReferenceChoice],
) -> tuple[RequestedSubject, Who]:
    if (name := _run_folder(text, readers)) is None:
        request = find_request(text, store, candidates=candidates)
        return request, read_subject(request)
    bindings = [part.strip() for part in text.split(";")[1:] if part.strip()]
    newest_first = reversed(_checkpoint_paths(name, readers, suites))
    checkpoints = [given_checkpoint(uri, bindings, label=text) for uri in newest_first]
    if not candidates:
        return checkpoints[0], read_subject(checkpoints[0])
    folder = str(Path(name).resolve())
    earlier_references = {
        choice.reference for choice in choices if choice.candidate in candidates and choice.chosen_in == folder
    }
    subjects = ((checkpoint, read_subject(checkpoint)) for checkpoint in checkpoints)
    possible_subjects = (pair for pair in subjects if pair[1].key not in candidates)
    chosen_subject = next(possible_subjects, None)
    if earlier_references and chosen_subject is not None and chosen_subject[1].key not in earlier_references:
        chosen_subject = next((pair for pair in possible_subjects if pair[1].key in earlier_references), chosen_subject)
    if chosen_subject is None:
        raise UsageError("the folder has no other checkpoint to compare with", where=name, got="the candidate alone")
    return chosen_subject


def _run_folder(text: str, readers: Mapping[str, CheckpointReader]) -> str | None:
    """Returns the run folder that a text names, or None if the text is something else."""
    name = text.partition(";")[0].strip()
    return name if path_exists(name, kind="folder") and reader_name_for(epath.Path(name), readers) is None else None


def _checkpoint_paths(folder: str, readers: Mapping[str, CheckpointReader], suites: Sequence[str]) -> list[str]:
    """Returns the paths of a run's checkpoints, by the numbers in their names; files without a number come first."""
    source = DirectorySource(SourceContext(location=folder, readers=readers))
    deadline = time.monotonic() + 10.0
    files = [*source.poll()]
    while source.pending() and time.monotonic() < deadline:  # files that may still be being written
        time.sleep(0.2)
        files += source.poll()
    if not files:
        require_cases(*suites)  # an empty suite may be why no format was recognised, so it is reported first
        raise CheckpointError("no checkpoint found in this folder", where=folder)
    files.sort(key=lambda file: (file.index is not None, file.index or 0))  # later polls may find lower numbers
    return [file.uri for file in files]


def read_given(request: RequestedSubject, manager: PluginManager, *, accepts_any_format: bool = False) -> Who:
    """Returns the subject that a store will record for a given checkpoint or optimizer.

    Args:
      request: The checkpoint or optimizer.
      manager: Plugins, whose readers read the checkpoint.
      accepts_any_format: Whether to accept a checkpoint in any format, for suites of commands.
    Raises:
      CheckpointError: The checkpoint cannot be read.
    """
    if isinstance(request, Who):
        return request
    if accepts_any_format:
        return request.to_subject(opaque_checkpoint(request.uri))
    checkpoint, _ = load_checkpoint(request.uri, manager, allow_pickle=False)
    return request.to_subject(checkpoint)

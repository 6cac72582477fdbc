"""`lobench import`: imported curves as subjects of a store, in one transaction."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from lobench.api.settings import ImportKeywords, ImportSettings
from lobench.core.case import CaseInfo
from lobench.core.errors import UsageError, suggestion
from lobench.core.metric import direction_of, is_named_loss
from lobench.core.result import Curves, EvaluationKey, Provenance
from lobench.core.settings_field import check_keywords, settings_from
from lobench.core.subject import Subject
from lobench.core.wording import counted, shortened_list
from lobench.engine.store.first_use import removed_if_refused
from lobench.engine.store.imports import (
    CurveWriter,
    ImportCounts,
    ImportedFile,
    cases_with_origin,
    imported_files,
    record_imported_file,
    record_imported_subject,
    remove_imported_curves,
    seeds_by_run,
)
from lobench.engine.store.ledger import Ledger
from lobench.tools.curve_import.collected_curves import CollectedCurves, CurveFile, find_curve_files
from lobench.tools.curve_import.copies import CopyFinder
from lobench.tools.curve_import.evaluations import SUITE, ItemTable, TrainedCases, make_curves, new_case, number_seeds
from lobench.tools.curve_import.formats.kinds import formats_by_name
from lobench.tools.curve_import.points import UNNAMED_CASE, CurveRun
from lobench.tools.curve_import.spill import PointsByRun

__all__ = ["Imported", "ImportedSession", "check_comparable", "curves_of_session", "import_curves", "import_into"]

UNTIL_OPTION = "--until-step [METHOD=]STEP"
_NUM_NAMED = 5  # methods and cases that the summary names


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """`lobench import`: numbers of imported curves.

    Attributes:
      store: Folder of the store.
      kinds: Names of the file formats.
      methods, cases: Names of the methods and cases.
      num_points: Number of values in all files.
      num_new, num_known, num_replaced: Numbers of curves. All metrics of a method, case and seed count as one curve.
      notes: Lines on oddities.
    """

    store: Path
    kinds: tuple[str, ...]
    methods: tuple[str, ...]
    cases: tuple[str, ...]
    num_points: int
    num_new: int
    num_known: int
    num_replaced: int
    notes: tuple[str, ...]

    def describe(self, printed_notes: Collection[str] = ()) -> str:
        """Returns lines for the terminal, without the notes that are already printed."""
        methods = f"{counted(len(self.methods), 'method')} ({shortened_list(self.methods, _NUM_NAMED)})"
        counts_text = f"{methods} on {counted(len(self.cases), 'case')} ({shortened_list(self.cases, _NUM_NAMED)})"
        counts = [counted(self.num_new, "new curve")]
        counts += [f"{self.num_known:,} known already"] * bool(self.num_known)
        counts += [f"{self.num_replaced:,} replaced"] * bool(self.num_replaced)
        summary_line = (
            f"{self.store}: {counts_text}, {counted(self.num_points, 'value')} ({', '.join(self.kinds)}): "
            f"{', '.join(counts)}"
        )
        return "\n".join([summary_line, *(note for note in self.notes if note not in printed_notes)])


def import_curves(
    *files: str | Path,
    store: str | Path,
    log: Callable[[str], None] = lambda note: None,
    **options: Unpack[ImportKeywords],
) -> Imported:
    """Imports curves into a store, which is created if needed. If anything is wrong, nothing is written.

    Example:
        imported = lobench.import_curves("logs/*.csv", store="runs/mine", method="mine", case="wikitext")
        imported.num_new

    Args:
      files: Paths of files and folders, and patterns such as `logs/*.csv`.
      store: Folder of the store.
      log: Receives a line for each oddity in the files, before anything is written. The result's `notes` has these,
        and further ones on copies, replaced values, and curves that end at different steps.
      options: Fields of `ImportSettings`, such as kind, columns, method, metrics, rename and paired_seeds.
    Raises:
      UsageError: A file cannot be read, a point occurs twice, or the store has other values for a curve.
      StoreBusy, StoreError: The store cannot be written.

    >>> made = lobench.import_curves("adam_seed0.csv", store="imported")
    >>> lobench.open_results("imported")
    StoredResults('imported': 1 evaluation, 1 imported method, 1 case)
    """
    check_keywords("import_curves", options, ImportKeywords)
    settings = settings_from(ImportSettings, options)
    folder = Path(store)
    notes = list[str]()
    with removed_if_refused(folder, (BaseException,)), contextlib.ExitStack() as stack:
        if not folder.exists():
            sources = find_curve_files(files, settings.kind, notes)
            ledger = None
        else:
            ledger = stack.enter_context(Ledger.open(folder, name="import"))
            earlier_files = [file for file in imported_files(ledger) if file.options == _options_text(settings)]
            sources = find_curve_files(files, settings.kind, notes, earlier=earlier_files)
        collected_curves = stack.enter_context(CollectedCurves(sources, settings, notes))
        ledger = ledger or stack.enter_context(Ledger.open(folder, name="import"))
        for note in collected_curves.notes:
            log(note)
        imported, _ = import_into(ledger, collected_curves, settings)
        return imported


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """Session of a program whose curves are imported.

    Attributes:
      seed: Seed number of all curves.
      num_steps: Last step of the training, if known in advance.
      end_steps: Steps at which curves end, by case. Other curves end at the last step.
    """

    seed: int
    num_steps: int | None = None
    end_steps: Mapping[str, int] = field(default_factory=dict)


def import_into(
    ledger: Ledger,
    collected_curves: CollectedCurves,
    settings: ImportSettings,
    *,
    own_cases: Sequence[CaseInfo] = (),
    names: Mapping[str, str] | None = None,
    until_option: str = UNTIL_OPTION,
    session: ImportedSession | None = None,
) -> tuple[Imported, Sequence[tuple[EvaluationKey, CaseInfo]]]:
    """Writes collected curves into a ledger, in one transaction.

    Returns what was imported, and the evaluations of the curves, including known ones.

    Args:
      ledger: The ledger.
      collected_curves: The curves.
      settings: Import settings.
      own_cases: Cases that lobench trains, besides those in the ledger.
      names: Names in the store by the method's name in the files. Other methods are left out. None: the files' names.
      until_option: Spelling of the option for the last step, for messages.
      session: Session that wrote the files. None: seeds are taken from the files.
    Raises:
      UsageError: As for `import_curves`.
    """
    points_by_run = collected_curves.points_by_run
    notes = list(collected_curves.notes)
    files = [_imported_file(source, settings) for source in collected_curves.sources]
    files_before = imported_files(ledger)
    cases = _cases_by_name(ledger, collected_curves, own_cases, notes)
    if session is not None and session.num_steps is not None:
        num_steps = session.num_steps
        cases = {
            name: (case if is_own else dataclasses.replace(case, num_inner_steps=num_steps), is_own)
            for name, (case, is_own) in cases.items()
        }
    last_steps = _last_steps(settings.until_step, points_by_run.runs)
    names_by_method = {
        run.method: run.method if names is None else names.get(run.method, "") for run in points_by_run.runs
    }
    ends_of_session = {} if session is None else session.end_steps
    written_curves = _WrittenCurves()
    subjects = {name: Subject.of_imported(name) for name in filter(None, names_by_method.values())}
    with ledger.transaction():
        for file in files:
            notes += _change_notes(file, files_before)
            if settings.replace and session is None:
                # Methods that are left out keep their curves: an experiment imports each method of a file by itself.
                removed_subjects = None if names is None else subjects.values()
                written_curves.counts.replaced += remove_imported_curves(ledger, file.file, removed_subjects)
        for name in filter(None, names_by_method.values()):  # so that tables have the order of the files
            record_imported_subject(ledger, Subject.of_imported(name))
        seeds = dict.fromkeys(points_by_run.runs, 0 if session is None else session.seed)
        if session is None:
            seeds = number_seeds(
                [run for run in points_by_run.runs if not run.is_item],
                are_draws=bool(collected_curves.draws),
                known_seeds_of=lambda run: seeds_by_run(
                    ledger, Subject.of_imported(names_by_method[run.method]), cases[run.case][0]
                ),
            )
        writer = CurveWriter(ledger, written_curves.counts)
        copies = CopyFinder(ledger)
        provenance = functools.cache(lambda *sources: _provenance(sources, collected_curves.draws))
        items = ItemTable()
        for run, metrics in points_by_run.curves():
            if not (name := names_by_method[run.method]):
                continue
            case, is_own = cases[run.case]
            if case.has_items:
                items.add(run.method, run, metrics)
                continue
            curves, left_out_metrics = make_curves(
                run,
                metrics,
                case,
                seed=seeds[run],
                until=ends_of_session.get(
                    run.case, last_steps.get(run.method, case.num_inner_steps if is_own else None)
                ),
                provenance=provenance(*collected_curves.files_by_run[run]),
                directions=collected_curves.directions,
                until_option=until_option,
            )
            if is_own and curves.eval_steps[-1] != case.num_inner_steps:
                notes.append(
                    f"{name} on {case.suite}/{case.name}: its final values are of step {curves.eval_steps[-1]}, "
                    f"those of lobench's trainings are of step {case.num_inner_steps}"
                )
            if session is None and not settings.replace:
                sources = collected_curves.files_by_run[run]
                if (
                    copied_key := copies.key_of_copy(subjects[name], case, curves, run=run, sources=sources)
                ) is not None:
                    written_curves.counts.known += 1
                    written_curves.record(name, copied_key, case, curves, left_out_metrics)
                    continue
            replaces = settings.replace or session is not None
            key = writer.add(subjects[name], case, curves, replaces=replaces)
            written_curves.record(name, key, case, curves, left_out_metrics)
            copies.add(subjects[name], case, curves, key=key, run=run, sources=collected_curves.files_by_run[run])
        item_files = collected_curves.files_of_items()
        item_curves = items.curves(
            {name: case for name, (case, _) in cases.items()},
            lambda method, case: provenance(*item_files[method, case]),
            collected_curves.directions,
        )
        for method, case, curves, problems in item_curves:
            name = names_by_method[method]
            replaces = settings.replace or session is not None
            written_curves.record(name, writer.add(subjects[name], case, curves, replaces=replaces), case, curves, ())
            notes += [f"{name} on {case.suite}/{case.name}: {problem}" for problem in problems]
        notes += _item_number_notes(ledger, written_curves.keys)
        if written_curves.counts.new or written_curves.counts.replaced:
            for file in files:
                record_imported_file(ledger, file, num_new=written_curves.counts.new)
    imported = Imported(
        store=ledger.store,
        kinds=tuple(dict.fromkeys(source.format_name for source in collected_curves.sources)),
        methods=tuple(dict.fromkeys(method for method, _ in written_curves.ends)),
        cases=tuple(dict.fromkeys(case for _, case in written_curves.ends)),
        num_points=points_by_run.num_points,
        num_new=written_curves.counts.new,
        num_known=written_curves.counts.known,
        num_replaced=written_curves.counts.replaced,
        notes=tuple(
            dict.fromkeys((*notes, *copies.notes(), *_replacement_notes(points_by_run), *written_curves.notes()))
        ),
    )
    return imported, written_curves.keys


def curves_of_session(
    ledger: Ledger, collected_curves: CollectedCurves, *, own_cases: Sequence[CaseInfo], seed: int
) -> Iterator[tuple[CaseInfo, Curves]]:
    """Yields the current curves of a session, each with its case. Nothing is written.

    Raises:
      UsageError: As for `import_into`.
    """
    cases = _cases_by_name(ledger, collected_curves, own_cases, [])
    for run, metrics in collected_curves.points_by_run.curves():
        case, _ = cases[run.case]
        curves, _ = make_curves(
            run,
            metrics,
            case,
            seed=seed,
            until=None,
            provenance=_provenance(collected_curves.files_by_run[run], collected_curves.draws),
            directions=collected_curves.directions,
            until_option="",
        )
        yield case, curves


def check_comparable(
    collected_curves: CollectedCurves,
    settings: ImportSettings,
    *,
    method: str,
    own_cases: Sequence[CaseInfo],
    until_option: str,
) -> None:
    """Checks, before any training, that a method's curves can be compared with curves from lobench's trainings.

    Raises:
      UsageError: As for `import_into`.
    """
    last_steps = _last_steps(settings.until_step, collected_curves.points_by_run.runs)
    case_index = TrainedCases(cases=own_cases)
    for run, metrics in collected_curves.points_by_run.curves():
        case = _trained_case(run.case, collected_curves, case_index, own_cases)
        if run.method == method and case is not None:
            make_curves(
                run,
                metrics,
                case,
                seed=0,
                until=last_steps.get(run.method, case.num_inner_steps),
                provenance=_provenance(collected_curves.files_by_run[run], collected_curves.draws),
                directions=collected_curves.directions,
                until_option=until_option,
            )


def _item_number_notes(ledger: Ledger, written_evaluations: Sequence[tuple[EvaluationKey, CaseInfo]]) -> list[str]:
    """Returns a line for each imported case whose items are called 0, 1, ..., if another case has such items."""
    new_cases = {case.identity: case for _, case in written_evaluations if case.has_items}
    items: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for row in ledger.evaluations() if new_cases else ():
        if row.case.has_items and row.case.identity not in items and row.curves is not None:
            items[row.case.identity] = {item for item in row.curves.items if item.isdecimal()}
            names[row.case.identity] = f"{row.case.suite}/{row.case.name}"
    lines = []
    for identity in new_cases:
        similar_cases = [
            other_identity
            for other_identity, item_numbers in items.items()
            if other_identity != identity and item_numbers & items.get(identity, set())
        ]
        if similar_cases:
            name = new_cases[identity].name
            similarity = f"{names[identity]} and {names[similar_cases[0]]} have items of the same numbers"
            lines.append(
                f"{similarity}, which count as the same items; if they are not, call them {name}/0, {name}/1, ..."
            )
    return lines


def _replacement_notes(points_by_run: PointsByRun) -> list[str]:
    """Returns a line for each source with points that a later value of the same step replaced."""
    counts = Counter[str]()
    runs = Counter[str]()
    for (source, _), count in points_by_run.replaced.items():
        counts[source] += count
        runs[source] += 1
    return [
        f"{source}: {counted(count, 'value')} of {counted(runs[source], 'run')} replaced by a later one of that step"
        for source, count in counts.items()
    ]


class _WrittenCurves:
    """Curves written by an import, and notes on them."""

    def __init__(self) -> None:
        self.counts = ImportCounts()
        self.keys: list[tuple[EvaluationKey, CaseInfo]] = []
        self.ends: dict[tuple[str, str], set[int]] = {}  # last steps of the seeds, by method and case
        self._num_left_out = Counter[str]()

    def record(
        self, method: str, key: EvaluationKey, case: CaseInfo, curves: Curves, left_out_metrics: Iterable[str]
    ) -> None:
        self.keys.append((key, case))
        self.ends.setdefault((method, f"{case.suite}/{case.name}"), set()).add(curves.eval_steps[-1])
        self._num_left_out.update(left_out_metrics)

    def notes(self) -> list[str]:
        lines = [
            f"{name} is left out of {counted(count, 'run')}: it was not logged at every step of the primary metric"
            for name, count in sorted(self._num_left_out.items())
        ]
        return lines + [
            f"{method} on {case}: its seeds end at steps {min(end_steps)} to {max(end_steps)}; --until-step "
            f"{method}=STEP cuts"
            for (method, case), end_steps in self.ends.items()
            if len(end_steps) > 1
        ]


def _options_text(settings: ImportSettings) -> str:
    chosen_options = {
        name: value for name, value in dataclasses.asdict(settings).items() if value and name != "replace"
    }
    return json.dumps(chosen_options, sort_keys=True, default=str)


def _imported_file(source: CurveFile, settings: ImportSettings) -> ImportedFile:
    return ImportedFile(
        file=str(source.path),
        sha256=source.sha256,
        reader=source.format_name,
        options=_options_text(settings),
        name=source.name,
    )


def _change_notes(file: ImportedFile, earlier_files: Sequence[ImportedFile]) -> list[str]:
    """Returns a line if a file has changed since it was imported before."""
    last_import = next(
        (earlier_file for earlier_file in reversed(earlier_files) if earlier_file.file == file.file), None
    )
    if last_import is None or last_import.sha256 == file.sha256:
        return []
    return [f"{file.file} has changed since it was imported: sha256 {last_import.sha256[:12]}, now {file.sha256[:12]}"]


def _provenance(sources: Sequence[CurveFile], draws: str) -> Provenance:
    import_record = {
        "file": "; ".join(str(source.path) for source in sources),
        "sha256": "; ".join(source.sha256 for source in sources),
        "kind": "; ".join(dict.fromkeys(source.format_name for source in sources)),
        "draws": draws,
    }
    return Provenance(imported=import_record)


def _last_steps(texts: Sequence[str], runs: Sequence[CurveRun]) -> dict[str, int]:
    """Returns the step at which curves end, for each method with such an option."""
    methods = dict.fromkeys(run.method for run in runs)
    steps_by_method: dict[str, int] = {}
    for text in texts:
        method, _, step = text.rpartition("=")
        if not step.isdecimal() or (method and method not in methods):
            expected = f"STEP or METHOD=STEP, of the methods {', '.join(methods)}"
            raise UsageError("--until-step", got=repr(text), expected=expected, next_step=suggestion(method, methods))
        steps_by_method |= (
            {method: int(step)} if method else {name: int(step) for name in methods if name not in steps_by_method}
        )
    return steps_by_method


def _cases_by_name(
    ledger: Ledger, collected_curves: CollectedCurves, own_cases: Sequence[CaseInfo], notes: list[str]
) -> dict[str, tuple[CaseInfo, bool]]:
    """Returns the case for each name in the files, and whether lobench trains it."""
    stored_cases = cases_with_origin(ledger)
    case_index = TrainedCases(cases=[*(case for case, is_imported in stored_cases if not is_imported), *own_cases])
    imported_cases = {f"{case.suite}/{case.name}": case for case, is_imported in stored_cases if is_imported}
    cases: dict[str, tuple[CaseInfo, bool]] = {}
    cases_with_items = {run.case for run in collected_curves.points_by_run.runs if run.is_item}
    for name in dict.fromkeys(run.case for run in collected_curves.points_by_run.runs):
        case_of_files = collected_curves.cases.get(name)
        if (trained_case := _trained_case(name, collected_curves, case_index, own_cases)) is not None:
            if case_of_files is None:
                notes.append(f"case {name!r} is {trained_case.suite}/{trained_case.name}, which lobench trains")
            cases[name] = (dataclasses.replace(trained_case, optimizer_hash=""), case_of_files is None)
            continue
        has_items = name in cases_with_items
        case = (
            case_of_files
            or imported_cases.get(name)
            or imported_cases.get(f"{SUITE}/{name}")
            or new_case(name, _primary_metric(name, collected_curves), has_items=has_items)
        )
        last_step = max(case.num_inner_steps, collected_curves.points_by_run.last_step(name))
        cases[name] = (dataclasses.replace(case, num_inner_steps=last_step), False)
        _check_direction(case, collected_curves)
    for run in collected_curves.points_by_run.runs:
        case, _ = cases[run.case]
        if run.is_item != case.has_items:
            where = str(collected_curves.files_by_run[run][0].path)
            got, expected = ("items", "curves of seeds") if run.is_item else ("curves of seeds", "items of a data set")
            mismatch = f"case {run.case!r} has {expected}, and this file has {got}"
            raise UsageError(mismatch, where=where, next_step=f"--case NAME, or --rename {run.case}=NAME")
    return cases


def _trained_case(
    name: str, collected_curves: CollectedCurves, case_index: TrainedCases, own_cases: Sequence[CaseInfo]
) -> CaseInfo | None:
    """Returns the case with a name in the files, if lobench trains it; None otherwise."""
    case_of_files = collected_curves.cases.get(name)
    if case_of_files is not None:
        return next((case for case in case_index.cases if case.identity == case_of_files.identity), None)
    # If an experiment has a single case, its files need not name it.
    single_case = own_cases[0] if name == UNNAMED_CASE and len(own_cases) == 1 else None
    return case_index.find(name) or single_case


def _primary_metric(case: str, collected_curves: CollectedCurves) -> str:
    """Returns the primary metric of a new case: the first requested one, or the only one."""
    metrics = collected_curves.points_by_run.metrics_of(case)
    logged_metrics = [name for name in collected_curves.request.metrics.values() if name in metrics]
    default_metrics = {formats_by_name()[source.format_name].primary for source in collected_curves.sources}
    if not logged_metrics and len(metrics) > 1 and (primary_metrics := sorted(default_metrics & {*metrics})):
        return primary_metrics[0]
    if not logged_metrics and len(metrics) > 1:
        raise UsageError(
            f"case {case!r} has several metrics, and none is marked as primary",
            where=str(collected_curves.sources[0].path),
            got=", ".join(metrics),
            next_step=f"--metric {_likely_primary(metrics)} takes that; the first one of several is the primary one",
        )
    return (logged_metrics or list(metrics))[0]


def _likely_primary(metrics: Sequence[str]) -> str:
    """Returns the metric to suggest, preferably a loss on validation or test data."""
    losses = [name for name in metrics if is_named_loss(name)] or list(metrics)
    return next((name for name in losses if re.search("val|test|eval", name, re.IGNORECASE)), losses[0])


def _check_direction(case: CaseInfo, collected_curves: CollectedCurves) -> None:
    if direction_of(case.primary_metric, collected_curves.directions) is None:
        name = case.primary_metric
        raise UsageError(
            f"it is unknown which way {name} is better",
            where=str(collected_curves.sources[0].path),
            next_step=f"--maximize {name}, or --minimize {name}",
        )

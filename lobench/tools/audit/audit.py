"""Audit of a bundle: contradictions in its records, and evaluations that give other results when repeated."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from lobench.analysis.stats.rounding import NUM_PERTURBED, RoundingTest, differences, excess, rounding_test
from lobench.api.components import plugins_of
from lobench.core.case import COMMAND
from lobench.core.code import split_code
from lobench.core.errors import LobenchError, StoreError, UsageError
from lobench.core.program import Program
from lobench.core.result import Curves, Outcome
from lobench.core.wording import convert_errors, counted_with_verb, headline
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.suite_files import temporary_modules
from lobench.engine.store.bundle import ResultBundle, make_ledger
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.signature import signer
from lobench.plugins import load_plugins
from lobench.tools.audit.cases import FORMER_CODE, case_findings, codes_without_files, edited_former_codes
from lobench.tools.audit.contradictions import findings, suite_folders
from lobench.tools.audit.draw import Escape, draw_indices, escape_chances, sample_size
from lobench.tools.audit.findings import AuditFinding, Contradiction, Unaudited
from lobench.tools.audit.forms import common_metrics, film_difference, form_difference, unrepeated_claims
from lobench.tools.audit.outcomes import OutcomeChecker
from lobench.tools.audit.reevaluation import (
    EvaluationRepeater,
    NotRepeatable,
    OrdinaryTest,
    OtherCase,
    RepeatableCase,
    SuiteCases,
    bindings_by_case,
    experiment_imports,
)

__all__ = ["Audit", "AuditVerdict", "AuditedEvaluation", "audit"]

AuditVerdict: TypeAlias = Literal["identical", "consistent", "differs", "not auditable"]

# Errors of a row that was not written by lobench.
_ROW_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError)
# XLA compiles the same code for all processors of this class (`lobench.inner.backend`). For other processors, the code
# depends on the model.
_COMMON_TARGET = "cpu: x86-64-v4"
_MACHINE_OUTCOMES = (Outcome.TIMEOUT, Outcome.OOM, Outcome.POISONED, Outcome.EXPIRED, Outcome.SKIPPED)
_NEVER_AUDITED = (
    Unaudited("times", is_usual=True),
    Unaudited("hosts, machines, workers, revisions, and versions of packages other than jax", is_usual=True),
    Unaudited("numbers of compilations, peak memory, and steps that were resumed from", is_usual=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedEvaluation:
    """Repeated evaluation, and its verdict.

    Attributes:
      row: The evaluation as claimed by the bundle.
      verdict: Result of the comparison.
      why: The difference, the basis of the comparison, or the reason why it cannot be audited.
    """

    row: EvaluationRow
    verdict: AuditVerdict
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Result of an audit of a bundle: the repeated evaluations, and contradictions between records.

    Attributes:
      bundle: Path of the bundle.
      root: Hash of the bundle's content.
      beacon: Public text that chose the sample. "": none.
      signed_by: Signer, as printed by `ssh-keygen`. "" if the bundle is not signed.
      num_evaluations: Number of evaluations in the bundle.
      contradictions: Contradictions between records of the bundle.
      evaluations: Repeated evaluations.
      escapes: Chances that the sample missed all false results.
      rounding_test: Test of the evaluations that could not be compared bit for bit. None if all could.
      not_auditable: Names of this bundle's claims that cannot be checked, but could be checked for other bundles, such
        as metrics of plugins that are not installed here, or a plan.
      stated: Names of claims that cannot be checked in any bundle, such as host names and times.
      notes: Remarks, for example on overrides, or on results that are older than their plan.
    """

    bundle: Path
    root: str
    beacon: str
    signed_by: str
    num_evaluations: int
    contradictions: tuple[Contradiction, ...]
    evaluations: tuple[AuditedEvaluation, ...]
    escapes: tuple[Escape, ...]
    rounding_test: RoundingTest | None = None
    not_auditable: tuple[str, ...] = ()
    stated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict_counts(self) -> Mapping[str, int]:
        return Counter(check.verdict for check in self.evaluations)

    @property
    def is_passed(self) -> bool:
        return not self.contradictions and not self.verdict_counts["differs"]


@dataclass(slots=True)
class _Comparison:
    """Comparison of repeated evaluations: the verdicts so far, and the input of the test against rounding."""

    audited_by_index: dict[int, AuditedEvaluation] = field(default_factory=dict)
    curves_to_test: dict[int, tuple[Curves, Curves]] = field(default_factory=dict)  # the claim, and our result
    our_curves: dict[int, Curves] = field(default_factory=dict)
    unaudited_claims: list[Unaudited] = field(default_factory=list)


def audit(
    path: Path,
    *,
    sample: str = "100%",
    beacon: str = "",
    workers: int = 1,
    allowed_signers: Path | None = None,
    progress: WatchProgress | None = None,
) -> Audit:
    """Checks a bundle for contradictions, and evaluates a sample of its results again.

    It runs Python code of the suites in the bundle, unless the content does not match the root.

    Example:
        found = audit(Path("results.lobench"), sample="5%", beacon="drand 5216384 9f0c")
        found.is_passed

    Args:
      path: Path of the bundle.
      sample: Part to evaluate again: a percentage such as "5%", or a number of evaluations.
      beacon: Public text that was unknown when the bundle was published. It chooses the sample.
      workers: Number of evaluations that run at once.
      allowed_signers: File of allowed signers, as for `ssh-keygen -Y verify`. None: any signer.
      progress: Receives progress events. None: none are shown.
    Raises:
      StoreError: The file is not a bundle.
      UsageError: There is a sample without a beacon, or the signature does not match.
    """
    bundle = ResultBundle(path)
    reporter = progress or WatchProgress()
    signed_by = signer(bundle, allowed_signers)
    log = reporter.log
    with tempfile.TemporaryDirectory(prefix="lobench-audit-") as temporary_folder:
        folder = Path(temporary_folder)
        _extract_files(bundle, folder)
        make_ledger(bundle, folder)
        with (
            convert_errors(
                _ROW_ERRORS, StoreError, "a part of the bundle has not the form that lobench writes", where=path
            ),
            Ledger.open(folder, read_only=True) as ledger,
        ):
            rows = list(ledger.evaluations())
            all_findings: list[AuditFinding] = list(findings(bundle, ledger, rows, folder))
            imports = experiment_imports(ledger)
            missing_code = codes_without_files(ledger, rows, bundle.members_in("suites"))
            contents_by_name = {name: bundle.read(name) for name in bundle.members_in("suites")}
            former_codes = edited_former_codes(ledger, rows, contents_by_name)
            notes = list(_plan_notes(ledger, rows))
        num_drawn = sample_size(sample, len(rows)) if rows else 0
        if 0 < num_drawn < len(rows) and not beacon:
            raise UsageError(
                "--sample needs a beacon",
                got=f"{num_drawn} of {len(rows)} evaluations",
                expected="--beacon TEXT, which was unknown when the bundle was published",
                next_step="--sample 100% needs none",
            )
        is_intact = not any(isinstance(finding, Contradiction) and finding.kind == "root" for finding in all_findings)
        if not is_intact:  # the author of the root, who may have signed it, need not be the author of this code
            notes.append(
                "no code of the bundle was run, and no evaluation made again: its content is not that of its root"
            )
        rows_to_check = rows if is_intact else []
        drawn_indices = draw_indices(num_drawn, len(rows), root=bundle.root, beacon=beacon) if is_intact else []
        thetas = {Path(theta_name).stem: folder / theta_name for theta_name in bundle.members_in("theta")}
        folders = suite_folders(bundle, folder) if is_intact else []
        suite_cases = SuiteCases(folders, load_plugins(), imports)
        repeater = EvaluationRepeater(workers, thetas, folder / "compiled")
        try:
            with temporary_modules([str(import_path) for folder in folders for import_path in (folder, folder.parent)]):
                repeater.metrics = {
                    folder: plugins_of([str(folder)], reporter).usable_declarations("lobench_metrics")
                    for folder in folders
                }
                # The cases of all results are checked; those of the sample are evaluated too.
                cases, problems = _find_cases(
                    suite_cases, rows_to_check, list(contents_by_name), missing_code, former_codes
                )
                all_findings += problems
                comparison = _compare_sample(repeater, rows, drawn_indices, cases, log)
                test = _test_against_rounding(repeater, rows, cases, comparison, log)
                outcome_checker = OutcomeChecker(folders)
                all_findings += _check_outcomes(outcome_checker, rows_to_check, cases, comparison)
                all_findings += _check_recorded_outcomes(outcome_checker, rows_to_check, cases, comparison)
        finally:
            repeater.close()
    checked_evaluations = tuple(comparison.audited_by_index[index] for index in drawn_indices)
    unaudited = [
        finding
        for finding in (*all_findings, *comparison.unaudited_claims, *_NEVER_AUDITED)
        if isinstance(finding, Unaudited)
    ]
    extra_bindings = sorted(
        {line for case in cases.values() if isinstance(case, RepeatableCase) for line in case.extra_bindings}
    )
    notes += (
        [f"the results were made with bindings that the suites' files do not have: {'; '.join(extra_bindings)}"]
        if extra_bindings
        else []
    )
    return Audit(
        bundle=path,
        root=bundle.root,
        beacon=beacon,
        signed_by=signed_by,
        num_evaluations=len(rows),
        contradictions=tuple(dict.fromkeys(finding for finding in all_findings if isinstance(finding, Contradiction))),
        not_auditable=tuple(dict.fromkeys(finding.what for finding in unaudited if not finding.is_usual)),
        stated=tuple(dict.fromkeys(finding.what for finding in unaudited if finding.is_usual)),
        evaluations=checked_evaluations,
        escapes=tuple(escape_chances(sum(check.verdict != "not auditable" for check in checked_evaluations), len(rows)))
        if rows
        else (),
        rounding_test=test,
        notes=tuple(notes),
    )


def _extract_files(bundle: ResultBundle, folder: Path) -> None:
    try:
        for name in (*bundle.members_in("suites"), *bundle.members_in("theta")):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bundle.read(name))
    except OSError as error:
        raise StoreError("the bundle cannot be extracted", where=str(bundle.path), got=headline(error)) from error


def _plan_notes(ledger: Ledger, rows: Sequence[EvaluationRow]) -> Iterator[str]:
    planned_subjects = ledger.planned_subjects()
    first_planned_at: dict[tuple[str, str, str], float] = {}
    for subject in planned_subjects:
        for case in subject.cases:
            key = (subject.sha256, case.identity, case.optimizer_hash)
            first_planned_at[key] = min(subject.at, first_planned_at.get(key, subject.at))
    late_rows = [
        row
        for row in rows
        if row.recorded_at
        < first_planned_at.get((row.key.checkpoint_sha256, row.key.case_identity, row.key.optimizer_hash), -math.inf)
    ]
    if late_rows:
        text = counted_with_verb(len(late_rows), "result", "was", "were")
        yield f"{text} recorded before being planned, such as {late_rows[0].where}"


def _find_cases(
    suite_cases: SuiteCases,
    rows: Sequence[EvaluationRow],
    file_names: Sequence[str],
    missing_code: Set[str],
    former_codes: Set[str],
) -> tuple[dict[int, RepeatableCase | str], list[AuditFinding]]:
    """Returns the case of each row, or the reason why it has none, and contradictions with the suites' files."""
    cases: dict[int, RepeatableCase | str] = {}
    bindings = bindings_by_case(rows)
    problems: list[AuditFinding] = []
    for index, row in enumerate(rows):
        if any(sighting.is_imported for sighting in row.sightings):
            cases[index] = "it was imported: lobench did not train it"
            problems.append(Unaudited("imported curves and their descriptions of cases"))
            continue
        if not former_codes.isdisjoint(split_code(row.key.code)):
            cases[index] = FORMER_CODE  # `code_findings` names the files
            continue
        try:
            case = cases[index] = suite_cases.find(row, bindings.get(row.case.key))
            problems += case_findings(row, case.bound, file_names, missing_code)
            if row.case.evaluator == COMMAND:
                problems.append(Unaudited("commands, which an audit does not run"))
        except OrdinaryTest as error:
            cases[index] = headline(error)
            problems.append(Unaudited("ordinary tests, which an audit does not repeat"))
        except OtherCase as error:
            cases[index] = headline(error)
            problems.append(Contradiction("label" if "bindings of" in str(error) else "suite", headline(error)))
        except LobenchError as error:
            cases[index] = headline(error)
            problems.append(Unaudited(f"the case {row.case.suite}/{row.case.name}: {headline(error)}"))
    return cases, problems


def _compare_sample(
    repeater: EvaluationRepeater,
    rows: Sequence[EvaluationRow],
    indices: Sequence[int],
    cases: Mapping[int, RepeatableCase | str],
    log: Callable[[str], None],
) -> _Comparison:
    """Evaluates the sample again, and compares the results."""
    comparison = _Comparison()
    repeatable_rows = []
    num_with_result = Counter[Outcome]()  # of evaluations that were recorded without one
    for index in indices:
        row, case = rows[index], cases[index]
        if isinstance(case, str):
            comparison.audited_by_index[index] = AuditedEvaluation(row=row, verdict="not auditable", why=case)
        elif row.case.evaluator == COMMAND:
            why = f"{row.where}: a command, which an audit does not run"
            comparison.audited_by_index[index] = AuditedEvaluation(row=row, verdict="not auditable", why=why)
        elif row.payload is None and row.outcome in _MACHINE_OUTCOMES:
            why = f"it has no curves ({row.outcome}), which depends on the machine"
            comparison.audited_by_index[index] = AuditedEvaluation(row=row, verdict="not auditable", why=why)
        else:
            repeatable_rows.append((index, row, case))
    # Results of one program come one after another, so that it is compiled once.
    repeatable_rows.sort(key=lambda entry: (entry[1].case.program_key, entry[1].key.seed_block.size, entry[0]))
    results = repeater.run_all(
        [(row, repeatable, 0) for _, row, repeatable in repeatable_rows],
        _progress_reporter(log, len(repeatable_rows), "evaluated again"),
    )
    for (index, row, _), result in zip(repeatable_rows, results, strict=True):
        if isinstance(result, Curves) and row.curves is not None:
            comparison.our_curves[index] = result
            comparison.unaudited_claims += unrepeated_claims(row, row.curves, result)
        elif isinstance(result, Curves):
            num_with_result[row.outcome] += 1
        verdict = _verdict_without_test(row, result)
        if verdict is None:
            assert isinstance(result, Curves) and row.curves is not None
            comparison.curves_to_test[index] = row.curves, result
        else:
            comparison.audited_by_index[index] = verdict
    comparison.unaudited_claims += [
        Unaudited(f"why evaluations were recorded as {outcome} that have a result here ({count})")
        for outcome, count in num_with_result.items()
    ]
    return comparison


def _progress_reporter(log: Callable[[str], None], total: int, action: str) -> Callable[[int], None]:
    step = max(total // 10, 1)

    def report_progress(num_done: int) -> None:
        if num_done % step == 0 or num_done == total:
            log(f"{num_done} of {total} {action}")

    return report_progress


def _verdict_without_test(row: EvaluationRow, result: Curves | LobenchError) -> AuditedEvaluation | None:
    """Returns the verdict on a repeated evaluation; None if the test against rounding has to decide."""
    claimed_curves = row.curves
    if isinstance(result, LobenchError):
        if claimed_curves is None and not isinstance(result, NotRepeatable):
            if row.outcome is Outcome.PASSED and not row.case.whole:
                problem = f"recorded as passed without a result, and it fails here: {headline(result)}"
                return AuditedEvaluation(row=row, verdict="differs", why=problem)
            return AuditedEvaluation(row=row, verdict="consistent", why=f"it fails here, too: {headline(result)}")
        return AuditedEvaluation(
            row=row, verdict="not auditable", why=f"it cannot be evaluated here: {headline(result)}"
        )
    if claimed_curves is None:  # an error may pass
        end = ", with seeds that diverge" if any(step >= 0 for step in result.diverged_at) else ""
        return AuditedEvaluation(
            row=row, verdict="not auditable", why=f"recorded as {row.outcome}, and has a result here{end}"
        )
    if (why := form_difference(claimed_curves, result)) is not None:
        return AuditedEvaluation(row=row, verdict="differs", why=why)
    where = _first_difference(claimed_curves, result)
    if where is None and (why := film_difference(claimed_curves, result)) is not None:
        return AuditedEvaluation(row=row, verdict="differs", why=why)
    if where is None:
        return AuditedEvaluation(row=row, verdict="identical")
    our_program = Program.of(result.provenance)
    if our_program == row.program and _is_same_processor_class(claimed_curves, result, our_program):
        return AuditedEvaluation(row=row, verdict="differs", why=f"{where}, by the same program")
    return None


def _is_same_processor_class(claimed_curves: Curves, our_curves: Curves, program: Program) -> bool:
    if program.device == _COMMON_TARGET or not program.device.startswith("cpu"):
        return True
    return (
        claimed_curves.cost is not None
        and our_curves.cost is not None
        and claimed_curves.cost.machine == our_curves.cost.machine
    )


def _metric_arrays(curves: Curves, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: np.asarray(curves.metrics[name]) for name in names}


def _first_difference(claimed_curves: Curves, our_curves: Curves) -> str | None:
    """Describes the first difference of the bits; None if they are equal."""
    for name in common_metrics(claimed_curves, our_curves):
        claimed_values = np.asarray(claimed_curves.metrics[name])
        our_values = np.asarray(our_curves.metrics[name])
        differing_positions = np.argwhere(
            ~((claimed_values == our_values) | (np.isnan(claimed_values) & np.isnan(our_values)))
        )
        if claimed_values.tobytes() != our_values.tobytes() and len(differing_positions):
            seed, column = differing_positions[np.argmin(differing_positions[:, 1])]
            steps = claimed_curves.log_steps if name.startswith("batch/") else claimed_curves.eval_steps
            step_text = f"step {steps[column]}" if claimed_values.shape[1] == len(steps) else "the end"
            claimed_value, our_value = claimed_values[seed, column], our_values[seed, column]
            return (
                f"{name} of seed {claimed_curves.seeds[seed]} at {step_text}: {claimed_value:.9g}, here {our_value:.9g}"
            )
    if claimed_curves.diverged_at != our_curves.diverged_at:
        return f"seeds diverge at {claimed_curves.diverged_at}, here at {our_curves.diverged_at}"
    return None


def _check_outcomes(
    outcome_checker: OutcomeChecker,
    rows: Sequence[EvaluationRow],
    cases: Mapping[int, RepeatableCase | str],
    comparison: _Comparison,
) -> Iterator[AuditFinding]:
    """Yields outcomes that cannot be repeated. Results with another outcome get the verdict "differs".

    A test sees one seed block in a watch, and all blocks of its case under pytest.
    """
    indices_of_case: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(rows):
        indices_of_case.setdefault((row.key.checkpoint_sha256, row.case.key), []).append(index)
    for index, our_curves in comparison.our_curves.items():
        row, case = rows[index], cases[index]
        if comparison.audited_by_index[index].verdict not in ("identical", "consistent") or isinstance(case, str):
            continue
        indices = indices_of_case[row.key.checkpoint_sha256, row.case.key]
        curve_groups = [
            [our_curves],
            *(
                [[comparison.our_curves[block_index] for block_index in indices]]
                if set(indices) <= comparison.our_curves.keys()
                else []
            ),
        ]
        repeated_outcomes = [outcome_checker.outcome_of(row, case, curves) for curves in curve_groups]
        if row.outcome in repeated_outcomes:
            continue
        reasons = [outcome for outcome in repeated_outcomes if not isinstance(outcome, Outcome)]
        name = f"the outcome of {row.case.suite}/{row.case.name}"
        if reasons:
            yield Unaudited(f"{name}: {reasons[0]}")
        elif len(curve_groups) == 1 and len(indices) > 1:
            yield Unaudited(f"{name}, of which only a part was drawn")
        else:
            why = f"recorded as {row.outcome}, and is {repeated_outcomes[0]} here"
            comparison.audited_by_index[index] = AuditedEvaluation(row=row, verdict="differs", why=why)


def _check_recorded_outcomes(
    outcome_checker: OutcomeChecker,
    rows: Sequence[EvaluationRow],
    cases: Mapping[int, RepeatableCase | str],
    comparison: _Comparison,
) -> Iterator[AuditFinding]:
    """Yields contradictions between recorded outcomes and recorded curves, for results that were not repeated.

    The test of a case may have seen one seed block, the blocks up to this one, or all blocks, so each is tried.
    """
    indices_of_case: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(rows):
        if row.payload is not None:
            indices_of_case.setdefault((row.key.checkpoint_sha256, row.case.key), []).append(index)
    for index, row in enumerate(rows):
        case, row_curves = cases[index], row.curves
        is_verdict = row.outcome in (Outcome.PASSED, Outcome.FAILED)
        if index in comparison.our_curves or isinstance(case, str) or row_curves is None or not is_verdict:
            continue
        block_indices = sorted(
            indices_of_case[row.key.checkpoint_sha256, row.case.key],
            key=lambda block_index: rows[block_index].key.seed_block.start,
        )
        curves_of_blocks = [
            curves for index_of_block in block_indices if (curves := rows[index_of_block].curves) is not None
        ]
        possible_outcomes = [
            outcome_checker.outcome_of(row, case, curves)
            for curves in ([row_curves], *itertools.accumulate([block_curves] for block_curves in curves_of_blocks))
        ]
        if row.outcome not in possible_outcomes and all(isinstance(outcome, Outcome) for outcome in possible_outcomes):
            yield Contradiction(
                "result", f"{row.where}: recorded as {row.outcome}, and by its curves it is {possible_outcomes[0]}"
            )


def _test_against_rounding(
    repeater: EvaluationRepeater,
    rows: Sequence[EvaluationRow],
    cases: Mapping[int, RepeatableCase | str],
    comparison: _Comparison,
    log: Callable[[str], None],
) -> RoundingTest | None:
    """Tests whether rounding explains the differences of all results from other programs or machines."""
    # Trainings of one program come one after another.
    indices_to_test = sorted(
        comparison.curves_to_test,
        key=lambda position: (rows[position].case.key, rows[position].key.seed_block, position),
    )
    if not indices_to_test:
        return None
    perturbation_numbers = range(1, NUM_PERTURBED + 1)
    perturbed_evaluations = [
        (rows[test_index], case, number)
        for test_index in indices_to_test
        if isinstance(case := cases[test_index], RepeatableCase)
        for number in perturbation_numbers
    ]
    results = list(
        repeater.run_all(perturbed_evaluations, _progress_reporter(log, len(perturbed_evaluations), "perturbed"))
    )
    excess_by_row = {}
    for index, row_index in enumerate(indices_to_test):
        perturbed = results[index * NUM_PERTURBED : (index + 1) * NUM_PERTURBED]
        claimed_curves, our_curves = comparison.curves_to_test[row_index]
        errors = [result for result in perturbed if isinstance(result, LobenchError)]
        if errors:
            why = f"the effect of rounding cannot be measured: {headline(errors[0])}"
            comparison.audited_by_index[row_index] = AuditedEvaluation(
                row=rows[row_index], verdict="not auditable", why=why
            )
            continue
        names = common_metrics(claimed_curves, our_curves)
        perturbed_arrays = [_metric_arrays(result, names) for result in perturbed if isinstance(result, Curves)]
        excess_by_row[row_index] = excess(
            *differences(_metric_arrays(claimed_curves, names), _metric_arrays(our_curves, names), perturbed_arrays)
        )
    if not excess_by_row:
        return None
    test = rounding_test(list(excess_by_row.values()))
    for row_index, row_excess in zip(excess_by_row, test.excess, strict=True):
        claimed_curves, our_curves = comparison.curves_to_test[row_index]
        is_beyond = row_excess > test.limit
        size = f"at most {math.exp(min(row_excess, 690)):.3g} times the effect of rounding"
        where = f"; first {_first_difference(claimed_curves, our_curves)}" if is_beyond else ""
        verdict: AuditVerdict = "differs" if is_beyond else "consistent"
        comparison.audited_by_index[row_index] = AuditedEvaluation(
            row=rows[row_index], verdict=verdict, why=f"{size}{where}"
        )
    return test

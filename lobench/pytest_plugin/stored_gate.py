"""Gate of commands and ordinary tests: stored results of the session's subject and of a reference are compared.

Nothing is trained for the reference, and nothing is tuned: the rules are those of `lobench compare`.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lobench.analysis.comparisons.gates import GateResult, Verdict
from lobench.analysis.comparisons.method_comparison import MethodComparison
from lobench.analysis.store.reference import ReferenceChoice, choose_reference, recorded_choices
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import Cell
from lobench.core.case import CaseInfo
from lobench.core.errors import UsageError
from lobench.core.subject import GivenCheckpoint, Subject
from lobench.core.wording import shortened_list
from lobench.engine.checkpoints.whole_files import opaque_checkpoint
from lobench.engine.store.bundle import has_ledger
from lobench.pytest_plugin.measuring import adaptive_maximum, rules_of
from lobench.pytest_plugin.options import evaluates_opaque_files, option, read_checkpoint, subject_of
from lobench.pytest_plugin.references import (
    BASELINE,
    candidates_of,
    find_named_subject,
    is_optimizer_text,
    store_of_last_checkpoint,
)
from lobench.pytest_plugin.reuse import store_path

if TYPE_CHECKING:
    from lobench.api.compare import Comparison
    from lobench.api.resolve import FoundSubject

__all__ = ["CaseVerdict", "StoredReference", "case_verdicts", "check_stored_gate", "compare_with", "stored_reference"]

_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReference:
    """Reference of which a store has results.

    Attributes:
      stored: The reference.
      choices: Records that this reference was chosen, one per candidate; () if it was named explicitly.
    """

    stored: FoundSubject
    choices: tuple[ReferenceChoice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """Verdict on a case, an ordinary test, or the mean over the cases.

    Attributes:
      case: Name of the case; "" for the mean.
      verdict: The verdict, which counts the test's outcomes too.
      result: Result of the gate; None for a test without a metric.
      note: Outcomes of the test on both sides; "" for a command.
    """

    case: str
    verdict: Verdict
    result: GateResult | None
    note: str = ""


def stored_reference(config: pytest.Config, suites: Collection[str]) -> StoredReference:
    """Returns the reference that `--lobench-against` names, with its stored results.

    Args:
      config: Configuration of the session.
      suites: Names of the suites of the session's cases.
    Raises:
      UsageError: The reference is a baseline, or no store has results of it.
      CheckpointError: The checkpoint cannot be read.
    """
    text = option(config, "against")
    candidates = candidates_of(config)
    if text.partition(":")[0] == BASELINE or text.endswith(".json"):
        raise UsageError(
            "for commands and ordinary tests nothing is tuned",
            got=text,
            expected="a checkpoint, a store, or STORE@NAME",
        )
    stores = [store_path(config, suite) for suite in sorted(suites)]
    if (chosen_folder := store_of_last_checkpoint(text, option(config, "store"))) is not None:
        snapshot = read_store(chosen_folder)
        last_subject = choose_reference(snapshot, candidates, recorded_choices(stores))
        from lobench.api.resolve import FoundSubject

        choices = [
            ReferenceChoice(candidate=key, chosen_in=str(chosen_folder.resolve()), reference=last_subject.subject.key)
            for key in candidates
        ]
        return StoredReference(stored=FoundSubject(subject=last_subject, snapshot=snapshot), choices=tuple(choices))
    if (named_subject := find_named_subject(text, option(config, "store"), candidates)) is not None:
        return StoredReference(stored=named_subject)
    return StoredReference(stored=_find_in_stores(config, text, stores))


def _find_in_stores(config: pytest.Config, text: str, stores: Sequence[Path]) -> FoundSubject:
    from lobench.api.compare import find_subjects

    if is_optimizer_text(text):
        subject = Subject.of_optimizer(text)
    else:
        is_opaque = evaluates_opaque_files(config)
        checkpoint = opaque_checkpoint(text) if is_opaque else read_checkpoint(config, text)[0]
        subject = GivenCheckpoint(uri=text).to_subject(checkpoint)
    for store in stores:
        stored_subject = find_subjects(store, [subject])[0] if has_ledger(store) else None
        if stored_subject is not None:
            return stored_subject
    flag = "--lobench-optimizer" if is_optimizer_text(text) else "--lobench-checkpoint"
    suite_arguments = " ".join(map(str, config.args))
    store_option = f" --lobench-store {shlex.quote(option(config, 'store'))}" if option(config, "store") else ""
    raise UsageError(
        "the store has no results of the reference, and a gate of commands and ordinary tests runs none",
        where=", ".join(map(str, stores)),
        got=text,
        next_step=f"run `pytest {suite_arguments} {flag} {shlex.quote(text)}{store_option}` first",
    )


def check_stored_gate(config: pytest.Config, infos: Sequence[CaseInfo]) -> None:
    """Refuses a gate of commands and ordinary tests that could compare nothing, before any of them runs.

    Raises:
      UsageError: The reference has no results on these cases, or an option requests additional seeds.
      LobenchError: As in `stored_reference`.
    """
    if adaptive_maximum(config):
        raise UsageError("--lobench-adaptive-seeds is of trainings; commands and tests have fixed seeds")
    reference = stored_reference(config, {info.suite for info in infos}).stored
    evaluated_cells = reference.subject.all_cells()
    if infos and not any(info.identity in evaluated_cells for info in infos):
        raise UsageError(
            f"the reference {reference.subject.label} has no results on the session's cases",
            where=str(reference.store),
            got=shortened_list(
                sorted({f"{cell.case.suite}/{cell.case.name}" for cell in evaluated_cells.values()}), _MAX_SHOWN
            ),
            expected=shortened_list(sorted({f"{info.suite}/{info.name}" for info in infos}), _MAX_SHOWN),
            next_step="evaluate it on the suite in its present form",
        )


def compare_with(
    reference: StoredReference, config: pytest.Config, store: Path, identities: Collection[str]
) -> Comparison:
    """Compares the session's subject with the reference, on the session's cases.

    Args:
      reference: The reference.
      config: Configuration of the session.
      store: Store with the session's results.
      identities: Identities of the session's cases.
    Raises:
      LobenchError: The two have no case in common, or a store cannot be read.
    """
    from lobench.api.compare import compare_stored, find_subjects
    from lobench.api.settings import CompareSettings

    candidate = find_subjects(store, [subject_of(config).subject])[0]
    if candidate is None:
        raise UsageError("the store has no results of this session", where=str(store))
    rules = rules_of(config, ())
    takes_seed_means = bool(config.getoption("lobench_seed_means") or config.getini("lobench_seed_means"))
    stored_subjects = [
        _restricted_to_cases(stored_subject, identities) for stored_subject in (reference.stored, candidate)
    ]
    return compare_stored(
        stored_subjects,
        [option(config, "against"), option(config, "checkpoint") or option(config, "optimizer")],
        CompareSettings(
            margin=rules.margin if option(config, "margin") else None,
            alpha=rules.alpha,
            max_diverged=rules.max_diverged,
            seed_means=takes_seed_means,
        ),
    )


def _restricted_to_cases(stored_subject: FoundSubject, identities: Collection[str]) -> FoundSubject:
    def selected_cells(cells: Mapping[str, Cell]) -> dict[str, Cell]:
        return {identity: cell for identity, cell in cells.items() if identity in identities}

    subject = stored_subject.subject
    return dataclasses.replace(
        stored_subject,
        subject=dataclasses.replace(
            subject, cells=selected_cells(subject.cells), former_cells=selected_cells(subject.former_cells)
        ),
    )


def case_verdicts(comparison: MethodComparison) -> list[CaseVerdict]:
    """Returns the verdict on each case and ordinary test, and on the mean if it is over several cases."""
    gate, tests = comparison.primary.gate, comparison.tests
    notes = {
        **dict.fromkeys(tests.broken, "the test passed under the reference and fails now"),
        **dict.fromkeys(tests.fixed, "the test failed under the reference and passes now"),
        **dict.fromkeys(tests.unknown, "the test has no outcome on a side"),
        **dict.fromkeys(tests.failed, "the test fails on both sides"),
        **dict.fromkeys(tests.passed, "the test passes on both sides"),
    }
    results = {result.case: result for result in gate.cases}
    verdicts = []
    for name in dict.fromkeys([*results, *sorted(notes)]):
        result = results.get(name)
        verdict = Verdict.PASS if result is None else result.verdict
        if name in tests.broken:
            verdict = Verdict.REGRESSED
        elif name in tests.unknown and verdict is Verdict.PASS:
            verdict = Verdict.INCONCLUSIVE
        verdicts.append(CaseVerdict(case=name, verdict=verdict, result=result, note=notes.get(name, "")))
    if len(results) > 1:
        verdicts.append(CaseVerdict(case="", verdict=gate.overall.verdict, result=gate.overall))
    return verdicts

"""Existing results of subjects in a store, by the rules of a run, without writing to the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from lobench.api.components import worker_config
from lobench.api.dry_run import collect_cases
from lobench.api.engine_run import LOCAL_EXECUTORS
from lobench.api.settings import WatchSettings
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.planner import Plan
from lobench.core.planner.events import History
from lobench.core.subject import Variant
from lobench.engine.chief.case_cache import RecordedCases
from lobench.engine.chief.interfaces import ERRORS
from lobench.engine.config.suite_files import SuiteFiles
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.programs import ExpectedProgram
from lobench.plugins import PluginManager

__all__ = ["ExistingResults", "NamedBlock", "cases_of", "rows_of"]

NamedBlock = tuple[str, SeedBlock]  # longest name of a case, and its seeds


class ExistingResults:
    """Stored and missing evaluations of subjects on the current cases.

    Args:
      ledger: Ledger. None: the store is empty.
      settings: Settings of the run.
      cases: Cases by the key of a variant, as returned by `cases_of`.
      placeholder_blocks: Placeholder blocks of variants without cases, all of which count as missing.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        settings: WatchSettings,
        cases: Mapping[str, Sequence[CaseInfo]],
        placeholder_blocks: Sequence[NamedBlock],
    ) -> None:
        history = History()
        self._ledger, self._programs = ledger, frozenset[str]()
        if ledger is not None:
            expected = ExpectedProgram(is_elsewhere=settings.executor not in LOCAL_EXECUTORS)
            retried_outcomes = ERRORS if settings.retry_errors else ()
            self._programs = frozenset(ledger.accepted_programs(expected.all_programs()))
            history = ledger.history(self._programs, retried=retried_outcomes, keeps_code=settings.keep_results)
        self._plan = Plan(history)
        self._cases, self._unbound_blocks = cases, list(placeholder_blocks)

    def cases_of(self, variant: Variant) -> Sequence[CaseInfo]:
        """Returns the cases of a variant; () if they are not known."""
        return self._cases.get(variant.key, ())

    def blocks_of(self, sha256: str, variant: Variant) -> tuple[list[NamedBlock], list[NamedBlock]]:
        """Returns all evaluations of a subject, and the missing ones. A subject without sha256 ("") lacks all."""
        if variant.key not in self._cases:
            return self._unbound_blocks, self._unbound_blocks
        return self.blocks_of_cases(sha256, self._cases[variant.key])

    def blocks_of_cases(self, sha256: str, cases: Sequence[CaseInfo]) -> tuple[list[NamedBlock], list[NamedBlock]]:
        """Returns all evaluations of a subject on cases, and the missing ones."""
        planned_blocks: list[NamedBlock] = []
        missing_blocks: list[NamedBlock] = []
        for evaluation_part, case in self._plan.planned_evaluations(sha256, cases):
            planned_blocks.append((case.names[-1], evaluation_part.block))
            if self._plan.is_to_retry(evaluation_part, case) or not self._plan.is_current(evaluation_part, case):
                missing_blocks.append(planned_blocks[-1])
        return planned_blocks, missing_blocks

    def rows_of(self, sha256: str, variant: Variant) -> list[EvaluationRow]:
        """Returns the stored evaluations of a subject on the cases of its variant."""
        return [] if self._ledger is None else rows_of(self._ledger, sha256, self.cases_of(variant), self._programs)


def rows_of(ledger: Ledger, sha256: str, cases: Sequence[CaseInfo], programs: Collection[str]) -> list[EvaluationRow]:
    """Returns the stored evaluations of a subject on cases, by their current code and by given programs."""
    codes = {case.key: case.code for case in cases}
    stored_rows = ledger.evaluations(sha256, codes=codes)
    return [row for row in stored_rows if row.case.key in codes and row.key.program_version in programs]


def cases_of(
    labels: Mapping[Variant, str],
    ledger: Ledger | None,
    settings: WatchSettings,
    manager: PluginManager,
    store: Path,
    *,
    is_offline: bool = False,
    traced_variants: Collection[Variant] = (),
) -> dict[str, Sequence[CaseInfo]]:
    """Returns the cases of variants, by the key of a variant.

    The store has the cases of a variant, which are valid until a file changes. For all variants without valid cases, a
    local worker collects and binds them at once.

    Args:
      labels: Variants, each with the label used in error messages.
      ledger: Ledger of the store; None before the first run.
      settings: Settings of the run.
      manager: Plugins.
      store: Folder of the store.
      is_offline: Whether no worker is started. Variants without valid cases in the store are then left out.
      traced_variants: Variants whose training programs are traced too.
    Raises:
      SuiteError: The cases cannot be collected, bound or traced.
    """
    settings = settings.resolved()
    config = worker_config(settings, manager, store)
    cases_by_variant = dict[str, Sequence[CaseInfo]]()
    if ledger is not None:
        known_cases = RecordedCases(
            ledger, lambda: config, SuiteFiles(settings.suites, settings.gin_files, settings.location)
        )
        stamps: dict[str, tuple[str, int, int] | None] = {}
        recalled_cases = ((variant, known_cases.unchanged_cases(variant, stamps)) for variant in labels)
        cases_by_variant = {variant.key: cases for variant, cases in recalled_cases if cases is not None}
    unknown_variants = {variant: label for variant, label in labels.items() if variant.key not in cases_by_variant}
    if unknown_variants and not is_offline:
        is_inline = settings.executor == "inline"
        cases_by_variant |= collect_cases(
            config, unknown_variants, traced_variants=traced_variants, names=settings.cases, is_inline=is_inline
        )
    names = set(settings.cases)
    return {
        key: [case for case in cases if not names or names & {*case.names}] for key, cases in cases_by_variant.items()
    }

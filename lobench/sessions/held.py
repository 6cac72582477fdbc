"""What a store holds of subjects, found as a run would find it; nothing is written, and nothing is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.planner import EvaluationId, Plan
from lobench.core.subject import Subject
from lobench.engine.chief.contract import ERRORS
from lobench.engine.chief.known import KnownCases
from lobench.engine.config.suite_files import SuiteFiles
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.programs import Expected
from lobench.plugins import PluginManager
from lobench.sessions.costs import collected
from lobench.sessions.named import worker_config
from lobench.sessions.rounds import HERE
from lobench.sessions.settings import WatchSettings

__all__ = ["Held", "NamedBlock"]

NamedBlock = tuple[str, SeedBlock]  # the longest name of a case, and seeds


class Held:
    """The evaluations that a store has, and those that it lacks, of subjects with the cases as they are now.

    While no file has changed since the store was told of them, it remembers the cases; otherwise a worker of this
    machine collects and binds them.

    Args:
      settings: What would be run.
      wanted: Of whom it will be asked.
    Raises:
      SuiteError: the cases cannot be bound.
    """

    def __init__(
        self, ledger: Ledger, settings: WatchSettings, manager: PluginManager, store: Path, wanted: Iterable[Subject]
    ) -> None:
        settings = settings.found()
        expected = Expected(is_elsewhere=settings.executor not in HERE)
        retried = ERRORS if settings.retry_errors else ()
        history = ledger.history(ledger.accepted_programs(expected.all()), retried=retried)
        self._plan, self._retried = Plan(history), history.retried
        self._cases = _cases_of(ledger, settings, manager, store, wanted)

    def blocks_of(self, subject: Subject) -> tuple[list[NamedBlock], list[NamedBlock]]:
        """Returns all of a subject, and what of it is missing."""
        planned: list[NamedBlock] = []
        missing: list[NamedBlock] = []
        for case in self._cases[subject.variant.key]:
            name, wholes = case.names[-1], (EvaluationId(subject.sha256, case.key, block) for block in case.blocks())
            for part in (part for whole in wholes for part in self._plan.parts(whole)):
                planned.append((name, part.block))
                if part in self._retried or not self._plan.is_recorded(part):
                    missing.append((name, part.block))
        return planned, missing


def _cases_of(
    ledger: Ledger, settings: WatchSettings, manager: PluginManager, store: Path, subjects: Iterable[Subject]
) -> Mapping[str, Sequence[CaseInfo]]:
    """Returns the cases that were asked for, by variant."""
    labels = {one.variant: one.label for one in subjects}
    config, found = worker_config(settings, manager, store), dict[str, Sequence[CaseInfo]]()
    known = KnownCases(ledger, lambda: config, SuiteFiles(settings.suites, settings.gin_files, settings.location))
    for variant in labels:
        cases = known.recall(variant)
        if cases is not None:
            found[variant.key] = cases
    unknown = {variant: label for variant, label in labels.items() if variant.key not in found}
    found |= collected(config, unknown) if unknown else {}
    names = set(settings.cases)
    return {key: [one for one in cases if not names or names & {*one.names}] for key, cases in found.items()}

"""History of a store's evaluations: what planner and ledger call them, apart from the planner's events.

Who reads a store needs neither planner nor scheduler, whose import is a tenth of a table's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from lobench.core.case import SeedBlock

__all__ = ["EvaluationId", "History"]


@dataclass(frozen=True, slots=True, order=True)
class EvaluationId:
    """(theta's sha256, `CaseInfo.key`, seed block)."""

    sha256: str
    case_key: str
    block: SeedBlock

    def __hash__(self) -> int:
        return hash((self.sha256, self.case_key, self.block.start))  # asked for ten times a result


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a restarted chief knows from its ledger.

    Attributes:
      recorded: Evaluations with an outcome.
      retried: Those of them that are to be tried again (`--retry-errors`).
      splits: Evaluations that ran out of memory and were halved.
      deaths: Workers lost, by evaluation.
      admissions: Decisions by position; a position that waits is not in it.
      finished: Positions whose evaluations all have an outcome.
      durations: Seconds that a seed block took, by case key.
      codes: The code of each recorded result (`CaseInfo.code`), in order; those without a known code are left out.
      retried_codes: The same of those of `retried`.
      same_codes: One fingerprint for all that count as the same.
      keeps_code: Whether results of any code count (`--keep-results`).
    """

    recorded: Set[EvaluationId] = frozenset()
    retried: Set[EvaluationId] = frozenset()
    splits: Set[EvaluationId] = frozenset()
    deaths: Mapping[EvaluationId, int] = field(default_factory=dict)
    admissions: Mapping[int, Literal["admitted", "skipped"]] = field(default_factory=dict)
    finished: Set[int] = frozenset()
    durations: Mapping[str, float] = field(default_factory=dict)
    codes: Mapping[EvaluationId, tuple[str, ...]] = field(default_factory=dict)
    retried_codes: Mapping[EvaluationId, tuple[str, ...]] = field(default_factory=dict)
    same_codes: Mapping[str, str] = field(default_factory=dict)
    keeps_code: bool = False

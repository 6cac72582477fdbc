"""History of a store's evaluations, in the terms that planner and ledger share.

It is separate from the planner's events so that reading a store imports neither planner nor scheduler, which would
take a tenth of the time of printing a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from lobench.core.case import SeedBlock

__all__ = ["EvaluationId", "History"]


@dataclass(frozen=True, slots=True, order=True)
class EvaluationId:
    """Identity of an evaluation: sha256 of theta, `CaseInfo.key`, seed block."""

    sha256: str
    case_key: str
    block: SeedBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Earlier evaluations and decisions, which a restarted chief reads from its ledger.

    Attributes:
      recorded: Evaluations with an outcome.
      retried: Recorded evaluations that are tried again (`--retry-errors`).
      splits: Evaluations that ran out of memory and were halved.
      deaths: Number of workers lost, by evaluation.
      admissions: Decisions by position. Waiting positions are missing.
      finished: Positions whose evaluations all have an outcome.
      durations: Seconds of a seed block, by case key.
      codes: Code of each recorded result (`CaseInfo.code`), in order; results without a known code are left out.
      retried_codes: Code of each result of `retried`.
      same_codes: Canonical fingerprint by fingerprint, for code that was declared equivalent.
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

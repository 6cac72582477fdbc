"""Scores of a store that is read piece by piece are those of the whole store at that moment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from report_store import STEPS, case_info

from lobench.analysis.comparisons.event_numbers import evaluation_row_of
from lobench.analysis.scores.live_scores import StoreScores
from lobench.analysis.scores.mean_scores import mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.subjects import subjects_of
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Curves, Outcome, Provenance
from lobench.core.subject import Subject
from lobench.engine.store.ledger import EvaluationRow
from lobench.hookspecs import EvaluationFinished

_FINALS = st.floats(0.01, 8.0) | st.just(math.nan)  # above 4.6 a seed exploded
# Two cases of one training, whose seeds an interval must not take for independent.
_BINDINGS = "{0}/lobench.Case.task = @T()\n{0}/lobench.Case.num_inner_steps = {1}"
_CHECKPOINTS = st.lists(  # of each the final values of two seeds on each of its cases
    st.dictionaries(st.sampled_from(["a", "b"]), st.tuples(_FINALS, _FINALS), min_size=1), min_size=1, max_size=8
)


class _Rows:
    """A ledger as far as it goes."""

    def __init__(self) -> None:
        self.all: list[EvaluationRow] = []

    def evaluations(self, sha256: str = "", *, summarized: bool) -> Iterator[EvaluationRow]:
        return (row for row in self.all if sha256 in ("", row.key.checkpoint_sha256))


def _row(subject: Subject, name: str, finals: tuple[float, float], at: float) -> EvaluationRow:
    rows = np.stack([np.geomspace(2.3, 1.0, len(STEPS)).astype(np.float32)] * 2)
    rows[:, -1] = finals
    curves = Curves(
        seeds=(0, 1),
        metrics={"train/loss": memoryview(rows)},
        eval_steps=STEPS,
        diverged_at=tuple(-1 if math.isfinite(final) else 7 for final in finals),
        provenance=Provenance(bindings=_BINDINGS.format(name, ord(name))),
    )
    block, case = SeedBlock(start=0, size=2), dataclasses.replace(case_info(name), num_seeds=2)
    event = EvaluationFinished(subject=subject, case=case, seed_block=block, outcome=Outcome.PASSED, curves=curves)
    return evaluation_row_of(event, at)


@settings(deadline=None)
@given(_CHECKPOINTS, st.lists(st.integers(1, 3), min_size=8, max_size=8))
def test_looks_one_after_another_say_what_one_at_the_end_says(
    checkpoints: list[dict[str, tuple[float, float]]], looks: list[int]
) -> None:
    ledger = _Rows()
    live = StoreScores(ledger, [])
    steps = iter(enumerate(checkpoints))
    for size in looks:
        asked = []
        for step, cases in [pair for _, pair in zip(range(size), steps, strict=False)]:
            asked.append(Subject.of_checkpoint(Checkpoint(uri="", sha256=f"{step:064d}", outer_step=step)))
            ledger.all += [_row(asked[-1], *item, at=len(ledger.all)) for item in cases.items()]
        everyone = subjects_of(ledger.all)
        scales = Scales.of(everyone)
        found = {one.subject: (one, mean_score(one, None, scales)) for one in everyone}
        for scored in live.scores_of(asked) if asked else ():
            own, score = found[scored.subject.subject]
            assert scored.fallback is not None and repr(scored.fallback.score) == repr(score)
            assert repr(scored.fallback.score.interval) == repr(score.interval)
            assert scored.fallback.earlier_scores == tuple(
                (other.subject, score.interval.mean)
                for other, score in found.values()
                if other.subject.outer_step < own.subject.outer_step
                and other.cells.keys() == own.cells.keys()
                and math.isfinite(score.interval.mean)
            )

"""The task that learned optimizers of several authors were measured on with their own code."""

from __future__ import annotations

from lobench import cases


@cases("reference.gin")
def test_reference(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

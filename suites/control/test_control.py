"""Policies that learn to act."""

from lobench import cases


@cases("control.gin")
def test_trains_without_divergence(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

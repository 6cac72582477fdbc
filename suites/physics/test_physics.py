"""Differential equations to solve and to learn."""

from lobench import cases


@cases("physics.gin")
def test_trains_without_divergence(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

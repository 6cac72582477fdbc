"""Quadratic bowls, whose minimum is known; milliseconds of training for a checkpoint."""

from lobench import cases


@cases("quadratic.gin")
def test_quadratic(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"
    assert (result.metrics["train/loss"] >= 0).all(), "a loss below the minimum"

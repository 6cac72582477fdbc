"""Several losses at once, on shared parameters."""

from lobench import cases


@cases("multitask.gin")
def test_multitask(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"
    assert result.final("train/loss").mean() < result.metrics["train/loss"][:, 0].mean(), "worse than untrained"

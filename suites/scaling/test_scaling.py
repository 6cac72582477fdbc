"""Widths, depth and horizons beyond those that optimizers are meta-trained on."""

from lobench import cases


@cases("scaling.gin")
def test_scaling(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

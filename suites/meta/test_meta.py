"""Training as the task that is trained on."""

from lobench import cases


@cases("meta.gin")
def test_trains_without_divergence(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

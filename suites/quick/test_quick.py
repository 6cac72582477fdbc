"""Small cases of different kinds; under a minute for a checkpoint on two cores, compilation included."""

from lobench import cases


@cases("quick.gin")
def test_trains_without_divergence(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

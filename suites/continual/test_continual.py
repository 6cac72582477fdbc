"""Streams of tasks: trained without divergence, and nothing is forgotten that was never known."""

from lobench import cases


@cases("continual.gin")
def test_continual(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

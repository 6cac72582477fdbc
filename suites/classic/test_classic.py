"""Test functions of the literature: valleys, funnels and wells, with and without gradient noise."""

from lobench import cases


@cases("classic.gin")
def test_classic(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

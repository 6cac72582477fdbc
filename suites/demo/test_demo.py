"""Cases of the demonstration."""

from __future__ import annotations

from lobench import cases


@cases("demo.gin")
def test_demo(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any()

"""Wrapped tasks: the loss that an optimizer is judged by is finite, whatever units and noise it had to work with."""

from lobench import cases


@cases("wrapped.gin")
def test_wrapped(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

"""Models of text, of a source whose entropy is known, and of rules."""

from lobench import cases


@cases("language.gin")
def test_trains_without_divergence(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"

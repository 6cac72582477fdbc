"""Small recurrent nets that predict the next byte of text from a grammar."""

from lobench import cases


@cases("sequence.gin")
def test_sequence(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"
    assert result.final("train/loss").mean() < result.metrics["train/loss"][:, 0].mean(), "worse than untrained"

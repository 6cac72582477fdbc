"""Small tables: logistic and linear regression, and perceptrons."""

from lobench import cases


@cases("tabular.gin")
def test_tabular(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"
    assert result.final("train/loss").mean() < result.metrics["train/loss"][:, 0].mean(), "worse than untrained"

"""MNIST-1D: logistic regression, a perceptron, a convolutional net, a recurrent one."""

from lobench import cases


@cases("mnist1d.gin")
def test_mnist1d(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"
    assert result.final("train/loss").mean() < result.metrics["train/loss"][:, 0].mean(), "worse than untrained"

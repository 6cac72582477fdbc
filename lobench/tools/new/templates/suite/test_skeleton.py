"""What is expected of every case. A case that fails keeps its curves all the same."""

from lobench import cases


@cases("skeleton.gin")
def test_skeleton(case, evaluate):
    result = evaluate(case)
    losses = result.metrics["train/loss"]  # float32[num_seeds, num_evals]; the first column is before training
    assert not result.diverged.any()
    assert losses[:, -1].mean() < losses[:, 0].mean()

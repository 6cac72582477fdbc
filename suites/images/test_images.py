"""Images: classifiers of many kinds, autoencoders, denoising; a family of permuted ones."""

from lobench import cases


@cases("images.gin")
def test_images(case, evaluate):
    result = evaluate(case)
    assert not result.diverged.any(), f"diverged at inner steps {result.diverged_at.tolist()}"
    assert result.final("train/loss").mean() < result.metrics["train/loss"][:, 0].mean(), "worse than untrained"

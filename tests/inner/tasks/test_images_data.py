"""What the images, signals, patches and tables hold."""

import numpy as np
import pytest
from scipy.optimize import linprog
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.task import SPLITS
from lobench.inner.tasks import splits as splits_module
from lobench.inner.tasks.data import load_arrays
from lobench.inner.tasks.denoising import patch_splits
from lobench.inner.tasks.labelled import LABELLED, mnist_splits
from lobench.inner.tasks.mnist1d import mnist1d_splits
from lobench.inner.tasks.splits import scikit_table
from lobench.inner.tasks.tables import diabetes_splits

SHOWN = texts_of("inner")


@pytest.mark.parametrize("name", LABELLED)
def test_labelled_data_are_as_they_say(name):
    data = LABELLED[name]
    splits = data.splits()
    for split in SPLITS:
        examples = getattr(splits, split)
        assert set(examples) == {data.kind, "label"}
        assert examples[data.kind].shape == (len(examples["label"]), data.num_inputs)
        assert (examples[data.kind].dtype, examples["label"].dtype) == (np.float32, np.int32)
        assert set(examples["label"].tolist()) == set(range(data.num_classes))
        if data.kind == "image":
            assert examples["image"].min() >= 0 and examples["image"].max() <= 1
    rows = [row.tobytes() for split in SPLITS for row in getattr(splits, split)[data.kind]]
    assert len(set(rows)) > 0.99 * len(rows), "an example is in two splits"


def test_smaller_images_are_means_over_areas():
    whole = mnist_splits(28).train["image"].reshape(-1, 28, 28).astype(np.float64)
    halves = whole.reshape(-1, 14, 2, 14, 2).mean((2, 4))
    np.testing.assert_allclose(mnist_splits(14).train["image"].reshape(-1, 14, 14), halves, atol=1e-6)
    # Of 28 / 8 = 3.5 pixels a side: each pixel twice, then means of seven.
    eighths = whole.repeat(2, 1).repeat(2, 2).reshape(-1, 8, 7, 8, 7).mean((2, 4))
    np.testing.assert_allclose(mnist_splits(8).train["image"].reshape(-1, 8, 8), eighths, atol=1e-6)
    np.testing.assert_array_equal(mnist_splits(28).train["label"], mnist_splits(8).train["label"])


def test_mnist1d_is_the_published_data():
    # Read off the file that its authors froze.
    splits = mnist1d_splits()
    assert (len(splits.train["label"]), len(splits.test["label"])) == (4000, 1000)
    assert splits.train["label"][:12].tolist() == [2, 6, 4, 5, 6, 6, 6, 0, 3, 1, 6, 9]
    assert np.bincount(splits.test["label"]).tolist() == [102, 104, 89, 106, 106, 98, 99, 96, 98, 102]
    np.testing.assert_allclose(
        splits.train["signal"][0, :5], [-0.33201, -0.47191, -0.7787, -1.00974, -0.88235], atol=2e-5
    )
    np.testing.assert_allclose(
        splits.test["signal"][-1, -5:], [-0.09865, 0.44723, 0.65988, 0.87773, 1.19315], atol=2e-5
    )
    sums = [1.8244, -3.319, -15.1947, 0.4773, 7.1399, -4.5823, -5.2088, 2.7168, 15.5619, -18.092]
    np.testing.assert_allclose(splits.train["signal"][::400].sum(1), sums, atol=1e-3)


def test_tables_are_scikit_learns_scaled_by_the_train_split():
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

    order = np.random.default_rng(12345).permutation(569)[:339]
    features, labels = load_breast_cancer(return_X_y=True)
    train = LABELLED["breast_cancer"].splits().train
    np.testing.assert_array_equal(train["label"], labels[order])
    expected = (features[order] - features[order].mean(0)) / features[order].std(0)
    np.testing.assert_allclose(train["features"], expected, rtol=1e-4, atol=1e-5)
    assert len(load_wine().target) == sum(len(getattr(LABELLED["wine"].splits(), split)["label"]) for split in SPLITS)
    features, target = load_diabetes(return_X_y=True, scaled=False)
    order = np.random.default_rng(12345).permutation(442)[:266]
    train = diabetes_splits().train
    np.testing.assert_allclose(train["target"], (target[order] - target[order].mean()) / target[order].std(), atol=1e-5)
    np.testing.assert_allclose(train["features"].mean(0), 0, atol=1e-5)


@pytest.mark.parametrize("name", ["breast_cancer", "wine"])
def test_planes_part_the_classes_of_a_train_split(name):
    train = LABELLED[name].splits().train
    inputs = np.column_stack([train["features"], np.ones(len(train["label"]))])
    for label in range(LABELLED[name].num_classes):
        sides = np.where(train["label"] == label, 1.0, -1.0)[:, None] * inputs
        free = (None, None)
        assert linprog(np.zeros(inputs.shape[1]), A_ub=-sides, b_ub=-np.ones(len(inputs)), bounds=free).status == 0


def test_patches_of_the_splits_share_no_pixel():
    photo = load_arrays("photos")["china"]
    splits = patch_splits(8)
    train = splits.train["patch"]
    assert train.shape == (2 * 52 * 55, 64)
    assert (train.mean(dtype=np.float64), train.std(dtype=np.float64)) == pytest.approx((0, 1), abs=1e-6)
    scale = np.ptp(photo[:8, :8].astype(float)) / np.ptp(train[0])
    np.testing.assert_allclose(
        (train[0] - train[0, 0]) * scale, photo[:8, :8].reshape(-1) - float(photo[0, 0]), atol=1e-3
    )
    first_of_test = splits.test["patch"][0]
    expected = photo[:8, 288:296].reshape(-1) - float(photo[0, 288])
    np.testing.assert_allclose((first_of_test - first_of_test[0]) * scale, expected, atol=1e-3)


def test_a_table_that_scikit_learn_has_not_is_an_error(monkeypatch):
    with pytest.raises(ConfigError, match=SHOWN["nothing-csv-this-scikit-learn"]):
        scikit_table("nothing.csv")
    monkeypatch.setattr(splits_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=SHOWN["pip-install-scikit-learn"]):
        scikit_table("wine_data.csv")

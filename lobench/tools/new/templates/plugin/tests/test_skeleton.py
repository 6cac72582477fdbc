"""What every metric must keep, as tests of lobench's; that the plugin is found; and what you know of it."""

from lobench_skeleton.metrics import skeleton

from lobench.extend import load_plugins
from lobench.testing.metrics import MetricContract, sample_curves


class TestSkeleton(MetricContract):
    factory = "lobench_skeleton.metrics:skeleton"

    def value_of(self, name, row):
        return row[-1] / row[0] if row[0] else float("nan")


def test_lobench_finds_the_plugin():
    assert "skeleton" in load_plugins().declarations("lobench_metrics")


def test_the_ratio_of_a_loss_that_halves_is_a_half():
    assert list(skeleton(sample_curves([[4.0, 3.0, 2.0]]))["skeleton/ratio"]) == [0.5]

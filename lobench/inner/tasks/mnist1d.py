"""MNIST-1D: ten templates of twelve points, stretched, moved and sheared in noise, as signals of forty points.

Source: Greydanus and Kobak 2024, "Scaling down deep learning with MNIST-1D". The draws are those of their generator
(Apache-2.0), so the examples are equal up to rounding.
"""

from __future__ import annotations

import functools

import numpy as np

from lobench.inner.tasks.splits import Splits

__all__ = ["mnist1d_splits"]

_TEMPLATES = np.array(
    [
        [5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5],
        [5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5],
        [5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5],
        [5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5],
        [5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5],
        [5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5],
        [5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5],
        [5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5],
        [5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5],
        [5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5],
    ]
)
_SEED, _NUM_TRAIN, _NUM_TEST, _NUM_VALID = 42, 4000, 1000, 500
_LEAST_PADDING, _MOST_PADDING = 36, 60
_WIDE, _LENGTH = 12 + _MOST_PADDING, 40  # points before and after the last resampling
_MOST_SHIFT = 48
_SCALE, _SHEAR = 0.4, 0.75  # ranges, centred at 1 and at 0
_SMOOTH_NOISE, _SMOOTHING, _NOISE = 0.25, 2.0, 0.02
_ABOVE_ZERO = 1e-8  # distinguishes a template's points from padding


@functools.cache
def mnist1d_splits() -> Splits:
    """Returns `signal` float32[n, 40] and `label` int32[n].

    `train` and `test` are the published 4,000 and 1,000 examples. The valid splits, 500 each, are drawn with the next
    two seeds and scaled in the same way.
    """
    signals, labels = _examples(_SEED, _NUM_TRAIN + _NUM_TEST)
    mean = signals.mean()
    std = signals.std()

    def split(signals: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        return {"signal": ((signals - mean) / std).astype(np.float32), "label": labels.astype(np.int32)}

    return Splits(
        train=split(signals[:_NUM_TRAIN], labels[:_NUM_TRAIN]),
        inner_valid=split(*_examples(_SEED + 1, _NUM_VALID)),
        outer_valid=split(*_examples(_SEED + 2, _NUM_VALID)),
        test=split(signals[_NUM_TRAIN:], labels[_NUM_TRAIN:]),
    )


def _examples(seed: int, num_examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns signals float64[count, 40] and labels in random order, with equally many of each class."""
    from scipy.ndimage import gaussian_filter1d  # a sixth of a worker's imports, not needed by other tasks

    random = np.random.RandomState(seed)
    labels = np.repeat(np.arange(10), num_examples // 10)
    signals = np.empty((num_examples, _WIDE))
    smooth_noise = np.empty((num_examples, _WIDE))
    noise = np.empty((num_examples, _WIDE))
    shears = []
    for row, template in enumerate(_templates()[labels]):
        # The order of the draws is the generator's.
        padding = _LEAST_PADDING + int(random.rand() * (_MOST_PADDING - _LEAST_PADDING + 1))
        padded_template = np.concatenate([template + _ABOVE_ZERO, np.zeros(padding)])
        scale = 1 + _SCALE * (random.rand() - 0.5)
        signals[row] = np.roll(scale * _resample(padded_template, _WIDE), random.randint(0, _MOST_SHIFT))
        smooth_noise[row] = random.randn(_WIDE)
        noise[row] = random.randn(_WIDE)
        shears.append(_SHEAR * (random.rand() - 0.5))
    smooth_noise = gaussian_filter1d(_SMOOTH_NOISE * smooth_noise, _SMOOTHING, axis=1)
    signals = np.where(signals != 0, signals, smooth_noise) + _NOISE * noise
    signals -= np.outer(shears, np.linspace(-0.5, 0.5, _WIDE))
    order = random.permutation(num_examples)
    return np.stack([_resample(signal, _LENGTH) for signal in signals[order]]), labels[order]


def _templates() -> np.ndarray:
    """Returns the templates with a standard deviation of 1/6 each, starting at 0."""
    templates = _TEMPLATES - _TEMPLATES.mean(1, keepdims=True)
    templates /= templates.std(1, keepdims=True)
    return (templates - templates[:, :1]) / 6


def _resample(signal: np.ndarray, length: int) -> np.ndarray:
    """Returns a signal interpolated linearly at `length` points from its first to its last."""
    return np.interp(np.linspace(0, 1, length), np.linspace(0, 1, len(signal)), signal)

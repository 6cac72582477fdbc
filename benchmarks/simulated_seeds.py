"""Simulated seeds whose expectation is known: what the statistics of lobench are held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.scores.score_scale import ScaleKind, ScoreScale, scores

__all__ = ["KINDS", "Losses", "Population", "noise"]

FloatArray = NDArray[np.float64]

KINDS = ("normal", "skewed", "diverged", "very skewed")


def noise(law: str, shape: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Returns noise of mean 0 and standard deviation 1.

    Args:
      law: `normal`; `t3`: Student's t with three degrees of freedom; `lognormal`: with sigma 1; `skewed`: exponential
        downwards.
    """
    if law == "t3":
        return np.asarray(rng.standard_t(3, shape) / np.sqrt(3))
    if law == "lognormal":
        return np.asarray((np.exp(rng.standard_normal(shape)) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e))
    if law == "skewed":
        return np.asarray(1 - rng.exponential(size=shape))
    return rng.standard_normal(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Scores of the seeds of some cases: unlike means, and spreads that differ by a factor of ten or so.

    Attributes:
      kind: `normal`; `skewed` and `very skewed` (log-normal below the mean, sigma .5 and 1: skewness -1.75, -6.2);
        `diverged` (normal, and every tenth seed scores -1).
    """

    kind: str
    num_cases: int
    spread: float = 0.1

    def draw(self, generator: np.random.Generator, num_seeds: int) -> FloatArray:
        """Returns float64[num_cases, num_seeds], clipped to [-1, 2] like every score."""
        fixed = np.random.default_rng(self.num_cases)
        means = fixed.permutation(np.linspace(0.2, 1.1, self.num_cases))[:, None]
        spreads = (self.spread * np.exp(0.6 * fixed.standard_normal(self.num_cases)))[:, None]
        shape = (self.num_cases, num_seeds)
        if self.kind in ("normal", "diverged"):
            noise = generator.standard_normal(shape)
        else:
            sigma = 0.5 if self.kind == "skewed" else 1.0
            mean, sd = np.exp(sigma**2 / 2), np.sqrt((np.exp(sigma**2) - 1) * np.exp(sigma**2))
            noise = (mean - generator.lognormal(0, sigma, shape)) / sd
        scores = np.clip(means + spreads * noise, -1, 2)
        if self.kind == "diverged":
            scores = np.where(generator.random(shape) < 0.1, -1.0, scores)
        return scores

    def many(self, seed: int = 7) -> FloatArray:
        """Returns float64[num_cases, 200_000]: enough to know expectations to three digits."""
        return self.draw(np.random.default_rng(seed), 200_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Scores of seeds whose losses are log-normal with median 1, on a scale whose 1 is the mean of that law.

    Attributes:
      sigma: Standard deviation of ln L; at 3 seeds differ by decades.
      untrained: L0, where every seed begins.
      kind: Of the scale.
    """

    sigma: float
    num_cases: int
    untrained: float
    kind: ScaleKind = ScaleKind.LOG

    @property
    def scale(self) -> ScoreScale:
        tuned = [float(np.exp(self.sigma**2 / 2))] * 2
        return ScoreScale.of_baseline("train/loss", untrained=self.untrained, tuned=tuned, declared=self.kind)

    def draw(self, generator: np.random.Generator, num_seeds: int, ratio: float = 1.0) -> FloatArray:
        """Returns float64[num_cases, num_seeds]; all losses are `ratio` times as high."""
        losses = ratio * generator.lognormal(0, self.sigma, (self.num_cases, num_seeds))
        return scores(losses, self.scale)

    def many(self, seed: int = 7) -> FloatArray:
        return self.draw(np.random.default_rng(seed), 200_000)

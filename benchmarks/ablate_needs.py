"""How often `lobench ablate` calls a setting needed that has no effect, and finds those that have one.

Usage:
  python benchmarks/ablate_needs.py [--searches 100]

Six settings on one case; the noise of a paired difference is .08 (normal, or Student's t with three degrees of
freedom), the margin is .05, and 32 seeds are allowed. In the first worlds no setting has an effect; in the others three
of six are worth as much as the noise. `false` is the share of searches that call any setting without an effect needed,
`found` the share of the settings with an effect that are called needed, `open` the share of all settings that are left
open.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np

from lobench.analysis.stats.paired_samples import Samples
from lobench.tools.ablate.change_search import AblateRules, Need, Subset, ablated

__all__ = ["play"]

KNOBS, NOISE, RULES = 6, 0.08, AblateRules()


class Planted:
    """Configurations whose scores are drawn when they are asked for; the first knobs have an effect."""

    def __init__(self, effects: Sequence[float], distribution: str, rng: np.random.Generator) -> None:
        self._effects, self._distribution, self._rng = effects, distribution, rng
        self._scores: dict[Subset, np.ndarray] = {}

    def evaluate(self, wanted: Sequence[Subset], seeds: int) -> None:
        for one in wanted:
            if one not in self._scores:
                most = max(RULES.looks)
                heavy = self._distribution == "t3"
                noise = self._rng.standard_t(3, most) / 3**0.5 if heavy else self._rng.standard_normal(most)
                self._scores[one] = sum(self._effects[knob] for knob in one) + noise * NOISE / 2**0.5

    def samples(self, a: Subset, b: Subset, seeds: int) -> Mapping[str, Samples]:
        sides = [tuple(self._scores[one][:seeds].tolist()) for one in (a, b)]
        return {"case": Samples(a=sides[0], b=sides[1])}


def play(num_effects: int, distribution: str, rng: np.random.Generator) -> list[Need]:
    """Returns what a search says of each setting; the first ones have an effect."""
    effects = [NOISE] * num_effects + [0.0] * (KNOBS - num_effects)
    found = ablated(KNOBS, Planted(effects, distribution, rng), RULES)
    return [found.needs[knob] for knob in range(KNOBS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100)
    options = parser.parse_args()
    print(f"{'settings with an effect':26}{'noise':>8}{'false':>8}{'found':>8}{'open':>8}")
    for num_effects in (0, 3):
        for distribution in ("normal", "t3"):
            rng = np.random.default_rng((num_effects, len(distribution)))
            played = [play(num_effects, distribution, rng) for _ in range(options.searches)]
            false = np.mean([Need.NEEDED in needs[num_effects:] for needs in played])
            found = np.mean([need is Need.NEEDED for needs in played for need in needs[:num_effects]] or [np.nan])
            left_open = np.mean([need is Need.OPEN for needs in played for need in needs])
            print(f"{num_effects:<26}{distribution:>8}{false:>8.3f}{found:>8.3f}{left_open:>8.3f}", flush=True)


if __name__ == "__main__":
    main()

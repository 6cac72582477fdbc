"""The genetic algorithm on a sphere of ten dimensions with exact fitness: N = 200, T = 20, sigma 0.1, 50 seeds.

    python benchmarks/evolve_sphere.py [SEEDS]

The known medians of the elite are near -2.0 after generation 1, above -0.1 by 10, -0.02 by 25 and -0.015 by 100, and an
elite never falls. The search is the tests'.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plugins" / "lobench-evolve" / "tests"))

from test_truncation_ga import elites

runs = [elites(seed, 101) for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 50)]
for generation in (0, 1, 10, 25, 100):
    print(f"generation {generation}: median {statistics.median(run[generation] for run in runs):.4f}")
drops = sum(later < earlier for run in runs for earlier, later in itertools.pairwise(run))
print(f"falls of an elite: {drops}")

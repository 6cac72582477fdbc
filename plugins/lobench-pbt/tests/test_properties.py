"""The laws of a study, against the real service on a real database, with workers that come and go."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lobench_pbt.study import FitnessFrom, Opponents
from pbt_simulation import Simulation, assert_properties, make_study

STRATEGIES = ("tournament", "truncation", "exploit_explore", "winner_takes_all", "single_worker", "random_search")
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(
    population=st.integers(1, 5),
    generations=st.integers(0, 4),
    num_workers=st.integers(1, 5),
    strategy=st.sampled_from(STRATEGIES),
    budget=st.booleans(),
    fitness_from=st.sampled_from(FitnessFrom),
    opponents=st.sampled_from(Opponents),
    seed=st.integers(0, 10**6),
)
def test_a_study_at_rest(population, generations, num_workers, strategy, budget, fitness_from, opponents, seed) -> None:
    study = make_study(
        population=population,
        generations=generations,
        strategy=strategy,
        budget=budget,
        fitness_from=fitness_from,
        opponents=opponents,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        trials = Simulation(Path(folder), study, seed, num_workers=num_workers).run()
    assert_properties(study, trials)

"""The contract of searches, on each of optuna's samplers."""

from __future__ import annotations

import pytest

from lobench.testing.searches import SearchContract

_FACTORY = "lobench_optuna.optuna_search:optuna_search"


class TestTpe(SearchContract):
    factory = _FACTORY
    wrong_keywords = ({"sampler": "tep"}, {"sampler": 3}, {"seed": 3}, {"n_startup_trails": 3}, {"gamma": [1]})


class TestMultivariateTpe(SearchContract):
    factory = _FACTORY
    keywords = {"sampler": "TPE", "multivariate": True, "n_startup_trials": 4}  # noqa: RUF012


class TestCmaEs(SearchContract):
    factory = _FACTORY
    keywords = {"sampler": "CMA-ES", "popsize": 4}  # noqa: RUF012
    wrong_keywords = ({"sampler": "cmaes", "popsice": 4}, {"sampler": "cmaes", "use_separable_cma": None})


class TestNsgaII(SearchContract):
    factory = _FACTORY
    keywords = {"sampler": "nsgaii", "population_size": 4}  # noqa: RUF012
    wrong_keywords = ({"sampler": "nsgaii", "population_size": 1},)


class TestQmc(SearchContract):
    factory = _FACTORY
    keywords = {"sampler": "qmc"}  # noqa: RUF012
    wrong_keywords = ({"sampler": "qmc", "qmc_type": "soboll"},)


class TestBruteForce(SearchContract):
    factory = _FACTORY
    keywords = {"sampler": "brute_force"}  # noqa: RUF012
    may_repeat = False


class TestGp(SearchContract):
    factory = _FACTORY
    keywords = {"sampler": "gp", "n_startup_trials": 4}  # noqa: RUF012
    num_trials = 6  # each after the fourth fits a process

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torch", reason="what optuna's Gaussian process is made of")

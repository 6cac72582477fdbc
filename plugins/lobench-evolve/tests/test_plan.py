"""What is wrong with a configuration is said in one line before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from lobench_evolve.experiments import shard_indices
from lobench_evolve.run import plan
from shown import texts_of

from lobench import LobenchError, UsageError

SHOWN = texts_of("evolve")

GIN = """
import lobench.inner.tasks.quadratic
Case.learned_optimizer = @LearnableAdam()
Case.num_inner_steps = 5
bowl/Case.task = @Quadratic()
hard/Case.task = @Quadratic()
hard/Quadratic.condition = 100.0
"""


def config(folder: Path, extra: str = "", gin: str = GIN) -> Path:
    path = folder / "run.gin"
    path.write_text(gin + extra)
    return path


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("Evolve.num_generation = 5", SHOWN["run-gin-evolve-num-generation"]),
        ("Evolve.strategy = 'cma'", SHOWN["evolve-strategy-got-cma-one"]),
        ("Evolve.num_generations = 0", SHOWN["evolve-num-generations-got-0"]),
        ("Evolve.last_weight = 1.5", SHOWN["evolve-last-weight-got-1"]),
        ("Evolve.first_n = 201", SHOWN["evolve-first-n-got-201"]),
        ("Evolve.cases = 'bowl'", SHOWN["evolve-cases-got-bowl-a"]),
        ("Evolve.strategy = 'es'\nEvolve.first_n = 1", SHOWN["evolve-first-n-got-1"]),
        ("TruncationGA.num_candidates = 1", SHOWN["truncationga-num-candidates-got-1"]),
        ("Evolve.initial_scale = {'x': 'y'}", SHOWN["evolve-initial-scale-got-a"]),
        ("Evolve.initial_scale = 3", SHOWN["evolve-initial-scale-got-3"]),
        ("bowl/Evolve.num_generations = 5", SHOWN["bowl-evolve-num-generations-without"]),
        ("TruncationGA.num_parents = 300", SHOWN["truncationga-num-parents-got-300"]),
        ("TruncationGA.parents_per_child = 21", SHOWN["parents-per-child-got-21"]),
        ("TruncationGA.decay = 1.5", SHOWN["truncationga-decay-got-1-5"]),
        ("TruncationGA.sigma = True", SHOWN["truncationga-sigma-got-true-a"]),
        (
            "TruncationGA.selection = 'trunkation'",
            SHOWN["unknown-selection-strategy-trunkation"],
        ),
        ("TruncationGA.selection = 'random_search'", SHOWN["truncationga-selection-selects-among"]),
        ("AntitheticES.sigma = 0.0", SHOWN["antithetices-sigma-got-0-0"]),
        ("TruncationGA.population_size = 300000000", SHOWN["population-size-got-300000000-1e"]),
        ("hard/Case.learned_optimizer = @LearnableSGD()", SHOWN["cases-have-different-learned-optimizers"]),
    ],
)
def test_a_wrong_setting(tmp_path: Path, extra: str, message: str) -> None:
    with pytest.raises(LobenchError, match=message) as caught:
        plan(config(tmp_path, extra), folder=tmp_path, scopes=[], seed=0)
    assert "\n" not in str(caught.value)


def test_a_case_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LobenchError, match=SHOWN["no-case-bowls-one-of"]):
        plan(config(tmp_path), folder=tmp_path, scopes=["bowls"], seed=0)


def test_a_file_without_learned_optimizer(tmp_path: Path) -> None:
    gin = "import lobench.inner.tasks.quadratic\nbowl/Case.task = @Quadratic()\n"
    with pytest.raises(UsageError, match=SHOWN["no-learned-optimizer"]):
        plan(config(tmp_path, gin=gin), folder=tmp_path, scopes=[], seed=0)


@pytest.mark.parametrize(("strategy", "widest"), [("ga", 300), ("es", 16)])
def test_a_program_is_no_wider_than_there_are_members(tmp_path: Path, strategy: str, widest: int) -> None:
    """Of a genetic algorithm: its 10 candidates, 30 times each, are more than its population of 200."""
    found = plan(
        config(tmp_path, f"Evolve.strategy = '{strategy}'\nEvolve.members_per_program = 1000000000"),
        folder=tmp_path,
        scopes=[],
        seed=0,
    )
    assert found.run_settings.members_per_program == widest


def test_a_gin_param_wins_over_the_file(tmp_path: Path) -> None:
    path = config(tmp_path, "Evolve.num_generations = 5")
    planned = plan(path, folder=tmp_path, scopes=["hard"], seed=0, gin_params=["Evolve.num_generations = 7"])
    assert planned.run_settings.num_generations == 7
    assert planned.run_settings.cases == ("hard",)


def test_more_generations_later_are_the_same_run_of_a_genetic_algorithm_only(tmp_path: Path) -> None:
    path = config(tmp_path)
    for strategy, is_same in (("ga", True), ("es", False)):
        params = [f"Evolve.strategy = '{strategy}'"]
        short, longer = (
            plan(path, folder=tmp_path, scopes=[], seed=0, gin_params=[*params, f"Evolve.num_generations = {number}"])
            for number in (5, 10)
        )
        assert (short.identity() == longer.identity()) is is_same


def test_shares_are_disjoint_and_make_the_whole() -> None:
    shares = [shard_indices(f"{index}/3", 10) for index in range(3)]
    assert sorted(index for share in shares for index in share) == list(range(10))
    assert list(shard_indices("", 4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["3/3", "a/b", "1", "-1/3", "0/0"])
def test_a_share_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="0 <= I < N"):
        shard_indices(text, 10)


def test_a_deadline_is_no_part_of_what_a_run_is(tmp_path: Path) -> None:
    def bindings(*gin_params: str) -> str:
        return plan(config(tmp_path), folder=tmp_path, scopes=[], seed=0, gin_params=gin_params).identity()["bindings"]

    assert bindings("Case.timeout_seconds = 9.0") == bindings("bowl/Case.timeout_seconds = 5.0") == bindings()
    assert bindings("Case.num_inner_steps = 9") != bindings()

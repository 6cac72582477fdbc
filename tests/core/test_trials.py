"""The trials of a search, and what a restart makes of what was recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from shown import texts_of

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.experiment import Experiment, Method, Search
from lobench.core.search.iterated_grid import AutoIteratedGrid, IteratedGrid
from lobench.core.search.search import Grid, Random, SearchStrategy, Trial
from lobench.core.search.space import Kind, Parameter, Scale, Space
from lobench.core.trials import (
    FIRST_REPORT_SEED,
    TrialHistory,
    fresh_seed_bindings,
    fresh_seed_cases,
    is_over,
    trials_below_median,
)

SHOWN = texts_of("core")

RATE = Parameter(path="adam.rate", kind=Kind.REAL, low=1e-4, high=1.0, scale=Scale.LOG, num_values=5)
DECAY = Parameter(path="adam.decay", kind=Kind.DISCRETE, values=(0.5, 0.9, 0.99))
SPACE = Space([RATE, DECAY])
STRATEGIES = [(Random(), 8), (Grid(), None), (IteratedGrid(), None), (AutoIteratedGrid(), 12)]


def worth(trial: Trial) -> float | None:
    """Returns a fitness with its best at 0.01 and 0.9; nothing at the highest rate."""
    rate, decay = float(trial.parameters["adam.rate"]), float(trial.parameters["adam.decay"])
    return None if rate == 1.0 else -abs(math.log10(rate) + 2) - abs(decay - 0.9)


def searched(
    strategy: SearchStrategy, num_trials: int | None, recorded: Sequence[Trial] = (), space: Space = SPACE
) -> TrialHistory:
    return TrialHistory(strategy, space, seed=7, width=2, num_trials=num_trials, recorded=recorded)


def run(found: TrialHistory, most: int = 1000) -> tuple[Trial, ...]:
    """Ends trials one after another, `most` of them."""
    found.advance()
    while not found.is_over and most:
        trial = next(one for one in found.trials if not is_over(one.state))
        value = worth(trial)
        found.set_state(trial.number, "infeasible" if value is None else "done", value)
        found.advance()
        most -= 1
    return found.trials


@pytest.mark.parametrize(("strategy", "num_trials"), STRATEGIES)
def test_a_search_that_is_killed_after_each_trial_ends_with_the_same_list(
    strategy: SearchStrategy, num_trials: int | None
) -> None:
    undisturbed = run(searched(strategy, num_trials))
    recorded: tuple[Trial, ...] = ()
    for _ in range(len(undisturbed) + 1):
        again = searched(strategy, num_trials, recorded)
        for trial in recorded:  # what the ledger holds is read again
            if is_over(trial.state):
                again.set_state(trial.number, trial.state, trial.fitness)
        recorded = run(again, 1)
    assert again.is_over and recorded == undisturbed
    assert [trial.number for trial in recorded] == list(range(len(recorded)))


def test_a_restart_goes_on_in_the_wave_that_was_running() -> None:
    recorded = run(searched(Grid(), None), 4)
    assert sum(is_over(one.state) for one in recorded) == 4 and len(recorded) == 15
    again = searched(Grid(), None, recorded)
    assert again.advance() == () and again.trials[0].state == "waiting", "what it is worth is read from the ledger"


def test_what_was_proposed_from_what_is_not_so_any_more_is_dropped() -> None:
    recorded = run(searched(IteratedGrid(), None))
    again = searched(IteratedGrid(), None, recorded)
    for trial in recorded:
        again.set_state(trial.number, "done", -float(trial.parameters["adam.rate"]))  # the suite is another one
    again.advance()
    assert {one.wave for one in again.trials} == {0, 1}
    assert {one.parameters["adam.rate"] for one in again.trials if one.wave} == {1e-4}


def test_the_last_digits_of_a_fitness_do_not_make_another_search() -> None:
    recorded = run(searched(IteratedGrid(), None))
    again = searched(IteratedGrid(), None, recorded)
    for trial in recorded:
        fitness = None if trial.fitness is None else trial.fitness * (1 + 1e-13)
        again.set_state(trial.number, trial.state, fitness)
    again.advance()
    assert again.trials == recorded and again.is_over


def test_more_trials_go_on_behind_those_that_are_there_and_fewer_are_the_first() -> None:
    eight, twelve = run(searched(Random(), 8)), run(searched(Random(), 12))
    assert [one.parameters for one in twelve[:8]] == [one.parameters for one in eight]
    again = searched(Random(), 12, eight)
    for trial in eight:
        again.set_state(trial.number, trial.state, trial.fitness)
    assert [one.parameters for one in run(again)] == [one.parameters for one in twelve]


def test_the_best_is_the_first_of_equals_and_infeasible_ones_are_none() -> None:
    found = searched(Grid(), None)
    found.advance()
    for trial in found.trials:
        is_feasible = trial.number in (3, 5, 7)
        found.set_state(trial.number, "done" if is_feasible else "infeasible", 0.5 if is_feasible else None)
    assert found.best is not None and found.best.number == 3


def test_a_trial_has_its_values_in_the_order_of_the_space_whatever_the_search_returns() -> None:
    class Turned(Random):
        def next_wave(self, space: Space, history: Sequence[Trial], **_: object) -> list[dict[str, float]]:  # type: ignore[override]
            return [{"adam.decay": 0.9, "adam.rate": 0.1}]

    (trial,) = searched(Turned(), 1).advance()
    assert [*trial.parameters] == ["adam.rate", "adam.decay"]


def test_a_trial_is_what_a_file_with_these_values_says() -> None:
    lines = ("adam.rate = @rate/Real()", "adam.nesterov = True", "adam.decay = @decay/Discrete()")
    method = Method(
        name="adam",
        optimizer="@adam()",
        bindings=lines,
        trainer_bindings=lines,
        search=Search(name="grid"),
        space=(RATE, DECAY),
        num_trials=15,
        wave=2,
        report_sessions=3,
    )
    trial = method.with_values({"adam.rate": 0.001})  # the decay is not active
    written = ("adam.rate = 0.001", "adam.nesterov = True")
    assert trial == Method(name="adam", optimizer="@adam()", bindings=written, trainer_bindings=written)


def test_reports_have_seeds_that_no_session_has() -> None:
    five = Experiment(num_sessions=5)
    assert fresh_seed_bindings(five, None) == (f"Case.first_seed = {FIRST_REPORT_SEED}", "Case.block_sizes = (5,)")
    assert fresh_seed_bindings(five, 2)[1] == "Case.block_sizes = (2,)"
    held = [SeedBlock(start=0, size=5), SeedBlock(start=FIRST_REPORT_SEED, size=2)]
    assert fresh_seed_bindings(five, None, held)[1] == "Case.block_sizes = (2, 3)", (
        "what is there is not computed again"
    )
    assert fresh_seed_bindings(Experiment(), None) == (f"Case.first_seed = {FIRST_REPORT_SEED}",)


def test_the_median_is_of_all_that_came_so_far_whoever_came_first() -> None:
    def waves(*numbers: int) -> list[Trial]:
        return [Trial(number=one, parameters={}, state="waiting", fitness=None, wave=one // 4) for one in numbers]

    so_far = {0: 1.0, 1: 3.0, 2: None, 3: 2.0, 4: 1.9, 5: 9.0, 6: 8.0, 7: 2.5}
    assert trials_below_median(waves(0, 1, 2, 3), so_far, after="25%") == {0: SHOWN["fitness-1-after-25-below"]}
    assert set(trials_below_median(waves(7, 4, 6, 5), so_far, after="25%")) == {4}, "2.5 is the median of the seven"
    assert trials_below_median(waves(0, 1), {0: 1.0, 1: 1.0}, after="25%") == {}, "equal ones go on"
    assert trials_below_median(waves(0), {0: None}, after="25%") == {}


def test_report_cases_of_sessions_in_two_blocks_are_one_block_each() -> None:
    known = {"identity": "i", "optimizer_hash": "o", "suite": "s", "name": "a", "node_id": "", "num_inner_steps": 2}
    case = CaseInfo(**known, num_seeds=4, seed_block=None, block_sizes=(2, 2))  # type: ignore[arg-type]
    experiment = Experiment(name="x", suites=("s",), num_sessions=4)
    (fresh,) = fresh_seed_cases([case], experiment, None)
    assert fresh.blocks() == [SeedBlock(start=FIRST_REPORT_SEED, size=4)]
    held = [SeedBlock(start=FIRST_REPORT_SEED, size=2), SeedBlock(start=0, size=2)]
    (kept,) = fresh_seed_cases([case], experiment, None, held)
    assert [block.size for block in kept.blocks()] == [2, 2]
    assert fresh_seed_cases([case], experiment, 0) == []

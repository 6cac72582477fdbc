"""The toy problem of Jaderberg et al. 2017, figure 2: known figures, and the tie in which synchronous PBT is caught.

Maximise Q = 1.2 - (a^2 + b^2) by gradient ascent on 1.2 - (h0 a^2 + h1 b^2) from (0.9, 0.9). With h = (1, 0) or (0, 1)
alone, Q ends at 0.39.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from lobench_pbt.decide import TrialDecision, suggest
from lobench_pbt.service import Service
from lobench_pbt.study import Opponents, Study
from lobench_pbt.transitions import Completion, complete_trial
from lobench_pbt.trial import Artifact, State, StudyTrial
from pbt_simulation import PLUGINS, Rows, make_study, strategy_of

from lobench.extend import Direction, Draws, Kind, Member, Objective, Parameter, Rule, better, checkpoint_sha256

START = (0.9, 0.9)
NOISY = tuple(Parameter(path=f"toy.h{index}", kind=Kind.REAL, low=0.0, high=1.0, rule=Rule.NOISE) for index in range(2))
AXES = (Parameter(path="toy.axis", kind=Kind.CATEGORICAL, values=("a", "b")),)

Point = tuple[float, float]


def quality(point: Point) -> float:
    return 1.2 - (point[0] ** 2 + point[1] ** 2)


def ascend(point: Point, h: Point, lr: float, steps: int) -> Point:
    for _ in range(steps):
        point = (point[0] * (1 - 2 * lr * h[0]), point[1] * (1 - 2 * lr * h[1]))
    return point


def weights_of(params: Mapping[str, object]) -> Point:
    if "toy.axis" in params:
        return (1.0, 0.0) if params["toy.axis"] == "a" else (0.0, 1.0)
    return float(params["toy.h0"]), float(params["toy.h1"])  # type: ignore[arg-type]


def toy_study(**changes: object) -> Study:
    objectives = (Objective(metric="Q", direction=Direction.MAX),)
    values = {"objectives": objectives, "n_steps": 4, "generations": 24, "p_resample": 0.0, "p_crossover": 0.0}
    return make_study(**{**values, **changes})


def test_without_exchange() -> None:
    assert quality(ascend(START, (1.0, 0.0), 0.01, 200)) == pytest.approx(0.389749437948697, abs=1e-14)


@pytest.mark.parametrize(("lr", "steps", "period", "expected"), [(0.01, 200, 10, 1.1669), (0.05, 100, 4, 1.1999)])
def test_the_best_ones_weights_copied_every_period(lr: float, steps: int, period: int, expected: float) -> None:
    """The figure's workers take steps in turn; at a period's end one takes weights that are no worse."""
    points, hs = [START, START], [(1.0, 0.0), (0.0, 1.0)]
    for step in range(1, steps + 1):
        for own in range(2):
            points[own] = ascend(points[own], hs[own], lr, 1)
            members = {index: Member(id=index, fitness=(quality(point),)) for index, point in enumerate(points)}
            if step % period == 0 and not better(members[own], members[1 - own]):
                points[own] = points[1 - own]
    assert max(map(quality, points)) == pytest.approx(expected, abs=5e-5)


def run_in_memory(study: Study, lr: float) -> list[StudyTrial]:
    """Runs a study of the toy, whose state is a point."""
    points: dict[int, Point] = {}

    def train(trial: StudyTrial) -> float:
        start = points[trial.parent_ids[0]] if trial.parent_ids else START
        points[trial.id] = ascend(start, weights_of(trial.params), lr, trial.n_steps)
        return quality(points[trial.id])

    return run_loop(study, train)


def run_loop(
    study: Study, train: Callable[[StudyTrial], float], num_workers: int = 3, order: int = 0
) -> list[StudyTrial]:
    """Runs a study with workers that end in any order; nothing but decisions."""
    table, strategy, draws = Rows([]), strategy_of(study.strategy), Draws(study.seed, "order", order)
    running: dict[str, StudyTrial] = {}
    seq = 0
    while True:
        worker = f"worker-{draws.below(num_workers)}"
        if worker in running:
            trial, seq = running.pop(worker), seq + 1
            completion = Completion(
                attempt=0,
                checkpoint=Artifact(uri="", sha256=str(trial.id)),
                metrics={study.objectives[0].metric: train(trial)},
                n_steps=trial.n_steps,
            )
            table.replace(complete_trial(study, trial, completion, now=0.0, next_seq=seq))
            continue
        suggestion = suggest(study, strategy, table, worker=worker, stopped=False, now=0.0)
        if suggestion.trial is not None:
            running[worker] = suggestion.trial
            table.replace(suggestion.trial)
        elif suggestion.answer is TrialDecision.DONE:
            return table.trials


def best_of(trials: list[StudyTrial]) -> float:
    return max(trial.fitness[0] for trial in trials if trial.fitness is not None)


def test_initiator_based_evolution_finds_the_top() -> None:
    """The 5th percentile of 100 studies."""
    studies = (
        toy_study(population=5, parameters=NOISY, strategy="tournament", budget=False, seed=seed) for seed in range(100)
    )
    assert np.percentile([best_of(run_in_memory(study, 0.05)) for study in studies], 5) > 1.19


def run_on_service(folder: Path, study: Study, lr: float) -> list[StudyTrial]:
    """Two workers in turn, their checkpoints real files."""
    service = Service(folder / "store", clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(study)
    running: list[StudyTrial] = []
    while True:
        found = [service.suggest("", f"worker-{index}").trial for index in range(2)]
        running = [trial for trial in found if trial is not None]
        if not running:
            break
        for trial in running:
            point: Point = START
            if trial.warm_checkpoint is not None:
                with np.load(trial.warm_checkpoint.uri) as file:
                    point = tuple(file["point"])
            point = ascend(point, weights_of(trial.params), lr, trial.n_steps)
            path = folder / f"{trial.id}.npz"
            np.savez(path, point=np.asarray(point))
            checkpoint = Artifact(uri=str(path), sha256=checkpoint_sha256(path))
            completion = Completion(
                attempt=0, checkpoint=checkpoint, metrics={"Q": quality(point)}, n_steps=trial.n_steps
            )
            service.complete("", trial.id, completion)
    trials = service.list_trials("", limit=10_000)
    service.close()
    assert {trial.state for trial in trials} == {State.SUCCEEDED}
    return trials


def tied_seed() -> int:
    """Returns a seed with which one of the first two trials goes along a, the other along b."""
    for seed in range(100):
        trials = run_in_memory(toy_study(population=2, generations=0, parameters=AXES, seed=seed), 0.05)
        if {trial.params["toy.axis"] for trial in trials} == {"a", "b"}:
            return seed
    raise AssertionError("no seed gives two axes")


def test_the_tie_holds_synchronous_pbt_for_ever_and_not_initiator_based_evolution(tmp_path: Path) -> None:
    values = {"population": 2, "parameters": AXES, "p_switch": 1.0, "seed": tied_seed()}
    caught = run_on_service(tmp_path / "exploit", toy_study(**values, strategy="exploit_explore:0.5"), 0.05)
    assert best_of(caught) == pytest.approx(0.39, abs=1e-6)
    assert best_of(run_on_service(tmp_path / "tournament", toy_study(**values, strategy="tournament"), 0.05)) > 1.0


@pytest.mark.parametrize(("strategy", "least"), [("tournament", 0.45), ("exploit_explore", 0.8)])
def test_the_one_good_category_of_four_spreads(strategy: str, least: float) -> None:
    """Its share in the last generations of 20 studies; chance is 0.25, and all that a draw at each mutation keeps."""
    kinds = (Parameter(path="toy.kind", kind=Kind.CATEGORICAL, values=("a", "b", "c", "d")),)

    def share(**changes: object) -> float:
        good = []
        for seed in range(20):
            study = make_study(population=8, generations=20, strategy=strategy, seed=seed, parameters=kinds, **changes)
            trials = run_loop(study, lambda trial: float(trial.params["toy.kind"] != "c"))
            good += [trial.params["toy.kind"] == "c" for trial in trials if trial.generation > 15]
        return float(np.mean(good))

    assert share() > least
    if strategy == "tournament":
        assert share(p_switch=1.0) < 0.3


@pytest.mark.parametrize("opponents", Opponents)
@pytest.mark.parametrize("strategy", ["tournament", "winner_takes_all", "exploit_explore", "truncation"])
def test_in_budget_mode_the_seed_gives_the_study_whatever_the_order_of_arrival(
    strategy: str, opponents: Opponents
) -> None:
    """Eight orders, and numbers of workers, of one seed: trials have other ids, and are the same."""

    def outcome(order: int) -> set[tuple[object, ...]]:
        study = toy_study(
            population=6,
            generations=6,
            parameters=NOISY,
            strategy=strategy,
            opponents=opponents,
            budget=True,
            p_crossover=0.3,
        )
        points: dict[int, Point] = {}

        def train(trial: StudyTrial) -> float:
            start = points[trial.parent_ids[0]] if trial.parent_ids else START
            points[trial.id] = ascend(start, weights_of(trial.params), 0.05, trial.n_steps)
            return quality(points[trial.id])

        trials = run_loop(study, train, num_workers=1 + order % 4, order=order)
        return {(t.generation, t.slot, t.seed, tuple(sorted(t.params.items())), t.fitness) for t in trials}

    assert len({frozenset(outcome(order)) for order in range(8)}) == 1

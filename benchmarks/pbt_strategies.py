"""Which strategy finds the better trial on the same number of trials: toys, studies of each, and random search beside.

    python benchmarks/pbt_strategies.py [--studies 20] [--population 10] [--generations 20] [--switch | --noise]

A study is `lobench_pbt.decide` on a table in memory: what the service decides, without its files. Four workers take
trials whose durations vary by a factor of three, so that results come in an order of their own. What counts is the
true quality of the trial that the study itself would choose, the best by its fitness. Scores are gains over random
search on the same trials and seeds, as a share of what the best strategy of that toy gains. `--switch` compares chances
to switch a category, on the toys that have one. `--noise` measures fitness with more and more noise, in units of the
standard deviation (the spread) that true quality has among random search's trials, and says on how many toys a strategy
is surely ahead of random search and on how many behind: the 95% t interval of the gain, paired by study. It is of
the four toys that have no noise of their own.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from lobench_pbt.decide import suggest
from lobench_pbt.study import Opponents, Study, load_strategy
from lobench_pbt.transitions import Completion, complete_trial
from lobench_pbt.trial import Artifact, State, StudyTrial

from lobench.extend import Direction, Draws, Kind, Objective, Parameter, Rule, Scale, stratified_t_mean
from lobench.plugins import load_plugins

WORKERS = 4
HORIZON = 20  # generations, in which the rate that must fall has fallen
STEPS = 10
RATE = Parameter(path="toy.rate", kind=Kind.REAL, low=1e-4, high=1.0, scale=Scale.LOG)
KIND = Parameter(path="toy.kind", kind=Kind.CATEGORICAL, values=("a", "b", "c", "d"))
PLUGINS = load_plugins()


@dataclass(frozen=True)
class Toy:
    """A training: its parameters, its state at the beginning, a trial's training, the true quality of a state.

    Attributes:
      noise: Standard deviation of what fitness is measured with.
    """

    parameters: tuple[Parameter, ...]
    start: Callable[[], Any]
    train: Callable[[Any, StudyTrial], Any]
    quality: Callable[[Any], float]
    noise: float = 0.0


def _ascend(point: tuple[float, float], trial: StudyTrial) -> tuple[float, float]:
    h = (float(trial.params["toy.h0"]), float(trial.params["toy.h1"]))
    for _ in range(4):
        point = (point[0] * (1 - 0.02 * h[0]), point[1] * (1 - 0.02 * h[1]))
    return point


def _moving(state: tuple[float, int], trial: StudyTrial) -> tuple[float, int]:
    """The best rate falls by two orders of magnitude over the training."""
    loss, age = state
    miss = math.log10(float(trial.params["toy.rate"])) + 1 + 2 * age / HORIZON
    return loss * math.exp(-0.4 * math.exp(-4 * miss**2)), age + 1


def _noisy_quadratic(curvature: Sequence[float]) -> Callable[[Any, StudyTrial], Any]:
    """SGD on a quadratic whose gradients are noisy: a low rate looks better at once, and is slower in the end.

    The state is the expected square of each coordinate.
    """

    def train(state: tuple[float, ...], trial: StudyTrial) -> tuple[float, ...]:
        rate = float(trial.params["toy.rate"])
        for _ in range(STEPS):
            state = tuple(
                min((1 - rate * c) ** 2 * x + rate**2 * c * 0.3, 1e6) for x, c in zip(state, curvature, strict=True)
            )
        return state

    return train


_OF_KIND = {"a": (-1.0, 0.1), "b": (-2.0, 0.15), "c": (-2.5, 0.4), "d": (-3.0, 0.05)}  # its best rate, its speed


def _kinds(state: tuple[float, int], trial: StudyTrial) -> tuple[float, int]:
    """One kind of four learns well; the others stop early, and each wants a rate of its own."""
    loss, age = state
    best, speed = _OF_KIND[str(trial.params["toy.kind"])]
    miss = math.log10(float(trial.params["toy.rate"])) - best
    return loss * math.exp(-speed * math.exp(-2 * miss**2)), age + 1


def _regression(state: tuple[np.ndarray, np.ndarray], trial: StudyTrial) -> tuple[np.ndarray, np.ndarray]:
    """Real training: logistic regression by SGD on batches of four, with four parameters that all count."""
    theta, velocity = state
    rate, momentum = float(trial.params["toy.rate"]), float(trial.params["toy.momentum"])
    decay, smooth = float(trial.params["toy.decay"]), float(trial.params["toy.smooth"])
    generator = np.random.default_rng(trial.seed)
    for _ in range(STEPS):
        rows = generator.integers(0, len(_X), 4)
        x, target = _X[rows], smooth / 2 + (1 - smooth) * _Y[rows]
        gradient = x.T @ (1 / (1 + np.exp(-np.clip(x @ theta, -30, 30))) - target) / 4 + decay * theta
        velocity = momentum * velocity - rate * gradient
        theta = np.clip(theta + velocity, -1e3, 1e3)
    return theta, velocity


_generator = np.random.default_rng(0)
_X = _generator.normal(size=(400, 20)) * np.logspace(0, -1.5, 20)
_Y = (_X @ (_generator.normal(size=20) / np.logspace(0, -1.5, 20)) + _generator.normal(size=400) > 0).astype(float)


def _minus_log_loss(state: tuple[np.ndarray, np.ndarray]) -> float:
    margin = (2 * _Y - 1) * (_X @ state[0])
    return -float(np.logaddexp(0, -margin).mean())


def _minus_log(state: tuple[float, int]) -> float:
    return -math.log10(max(state[0], 1e-12))


_AXES = tuple(Parameter(path=f"toy.h{i}", kind=Kind.REAL, low=0.0, high=1.0, rule=Rule.NOISE) for i in range(2))
_CURVATURE = (1.0, 0.1, 0.01)
TOYS = {
    "two axes (Jaderberg)": Toy(_AXES, lambda: (0.9, 0.9), _ascend, lambda p: 1.2 - p[0] ** 2 - p[1] ** 2),
    "a rate that must fall": Toy((RATE,), lambda: (1.0, 0), _moving, _minus_log),
    "the same, noisy fitness": Toy((RATE,), lambda: (1.0, 0), _moving, _minus_log, noise=0.2),
    "a greedy trap": Toy(
        (RATE,),
        lambda: (1.0,) * len(_CURVATURE),
        _noisy_quadratic(_CURVATURE),
        lambda x: -math.log10(sum(c * v for c, v in zip(_CURVATURE, x, strict=True))),
    ),
    "one good kind of four": Toy((RATE, KIND), lambda: (1.0, 0), _kinds, _minus_log),
    "logistic regression": Toy(
        (
            Parameter(path="toy.rate", kind=Kind.REAL, low=1e-4, high=10.0, scale=Scale.LOG),
            Parameter(path="toy.momentum", kind=Kind.DISCRETE, values=(0.0, 0.5, 0.9, 0.99)),
            Parameter(path="toy.decay", kind=Kind.REAL, low=1e-5, high=1.0, scale=Scale.LOG),
            Parameter(path="toy.smooth", kind=Kind.REAL, low=0.01, high=0.9, scale=Scale.LOG),
        ),
        lambda: (np.zeros(20), np.zeros(20)),
        _regression,
        _minus_log_loss,
        noise=0.003,
    ),
}
_SELECTING = ("tournament", "exploit_explore", "truncation", "winner_takes_all")
_MODES: dict[str, dict[str, Any]] = {
    "": {"budget": False, "opponents": Opponents.LAST_TWO},
    ", budget": {"budget": True, "opponents": Opponents.LAST_TWO},
    ", budget, same": {"budget": True, "opponents": Opponents.SAME},
}
STRATEGIES: dict[str, dict[str, Any]] = {
    **{name: {"strategy": name, **_MODES[""]} for name in ("random_search", "single_worker")},
    **{f"{name}{mode}": {"strategy": name, **values} for name in _SELECTING for mode, values in _MODES.items()},
}


class Table:
    """The trial table in memory, by generation."""

    def __init__(self) -> None:
        self.rows: dict[int, StudyTrial] = {}
        self._generations: dict[int, list[int]] = {}

    def write(self, trial: StudyTrial) -> None:
        if trial.id not in self.rows:
            self._generations.setdefault(trial.generation, []).append(trial.id)
            if trial.initiator_id is not None:
                mother = self.rows[trial.initiator_id]
                self.rows[mother.id] = dataclasses.replace(mother, has_child=True)
        self.rows[trial.id] = trial

    def trial(self, id: int) -> StudyTrial | None:
        return self.rows.get(id)

    def active_trial_of(self, worker: str) -> StudyTrial | None:
        return None  # a worker asks when it has none

    def oldest_requested(self) -> StudyTrial | None:
        return None  # nobody is lost

    def next_id(self) -> int:
        return len(self.rows) + 1

    def num_trials(self, generation: int, *, terminal: bool = False) -> int:
        return sum(self.rows[id].is_terminal or not terminal for id in self._generations.get(generation, ()))

    def childless_trials(self, below: int) -> list[StudyTrial]:
        found = [row for row in self.rows.values() if row.is_terminal and not row.has_child and row.generation < below]
        return sorted(found, key=lambda row: (row.generation, row.completed_seq or 0))

    def trials_of_generations(self, generations: Sequence[int]) -> list[StudyTrial]:
        return [self.rows[id] for generation in sorted(generations) for id in self._generations.get(generation, ())]

    def has_unfinished(self, below: int) -> bool:
        return any(row.state is State.ACTIVE for row in self.rows.values())


def run_study(toy: Toy, seed: int, size: tuple[int, int], changes: dict[str, Any]) -> tuple[float, float, float]:
    """Returns the true quality of the trial that is best by fitness, the time it took, the share of the good kind."""
    study = Study(
        name="toy",
        population=size[0],
        generations=size[1] - 1,
        n_steps=STEPS,
        objectives=(Objective(metric="q", direction=Direction.MAX),),
        parameters=toy.parameters,
        seed=seed,
        **changes,
    )
    strategy, table, draws = load_strategy(study, PLUGINS, "toy"), Table(), Draws(seed, "order")
    states: dict[int, Any] = {}
    idle, running, now, seq = [f"worker-{place}" for place in range(WORKERS)], [], 0.0, 0
    while True:
        while idle:
            found = suggest(study, strategy, table, worker=idle[-1], stopped=False, now=now)
            if found.trial is None:
                break
            table.write(found.trial)
            heapq.heappush(running, (now + draws.uniform(0.5, 1.5), found.trial.id, idle.pop()))
        if not running:
            break
        now, id, worker = heapq.heappop(running)
        trial, seq = table.rows[id], seq + 1
        states[id] = toy.train(states[trial.parent_ids[0]] if trial.parent_ids else toy.start(), trial)
        measured = toy.quality(states[id]) + toy.noise * Draws(trial.seed, "fitness", trial.id).normal()
        done = Completion(
            attempt=0, checkpoint=Artifact(uri="", sha256=str(id)), metrics={"q": measured}, n_steps=STEPS
        )
        table.write(complete_trial(study, trial, done, now=now, next_seq=seq))
        idle.append(worker)
    assert len(table.rows) == size[0] * size[1]
    best = max(table.rows.values(), key=lambda row: (row.fitness, -row.id))
    late = [row for row in table.rows.values() if row.generation >= size[1] - 5]
    return toy.quality(states[best.id]), now, float(np.mean([row.params.get("toy.kind") == "c" for row in late]))


def compare_strategies(studies: int, size: tuple[int, int]) -> None:
    shares: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    times: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    for toy_name, toy in TOYS.items():
        found = {}
        for name, changes in STRATEGIES.items():
            runs = [run_study(toy, seed, size, changes) for seed in range(studies)]
            found[name] = np.asarray([quality for quality, _, _ in runs])
            times[name] += [seconds for _, seconds, _ in runs]
        gains = {name: values - found["random_search"] for name, values in found.items()}
        most = max(gain.mean() for gain in gains.values())
        print(f"\n{toy_name}: quality, gain over random search +- standard error, worst study's quality")
        for name, gain in gains.items():
            shares[name].append(gain.mean() / most)
            error = gain.std(ddof=1) / math.sqrt(studies)
            print(f"  {name:34}{found[name].mean():9.3f}{gain.mean():9.3f} +-{error:6.3f}{found[name].min():9.3f}")
    print(f"\n{'share of the best gain':36}{'mean':>8}{'worst':>8}{'time':>8}   by toy")
    for name, values in sorted(shares.items(), key=lambda entry: -float(np.mean(entry[1]))):
        cells = "".join(f"{value:7.2f}" for value in values)
        print(f"  {name:34}{np.mean(values):8.2f}{min(values):8.2f}{np.mean(times[name]):8.1f}   {cells}")


def compare_noise(studies: int, size: tuple[int, int]) -> None:
    names = [f"{name}, budget, same" for name in _SELECTING]
    levels = (0.0, 0.3, 1.0, 3.0)
    gains: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
    for toy_name, toy in (entry for entry in TOYS.items() if not entry[1].noise):
        spread = _spread(toy, size)
        for level in levels:
            noisy = dataclasses.replace(toy, noise=level * spread)
            found = {
                name: np.asarray([run_study(noisy, seed, size, STRATEGIES[name])[0] for seed in range(studies)])
                for name in ("random_search", *names)
            }
            for name in names:
                interval = stratified_t_mean([(found[name] - found["random_search"]) / spread])
                gains.setdefault((name, level), []).append((interval.mean, interval.lower, interval.upper))
                shown = f"{interval.mean:7.2f} [{interval.lower:.2f}, {interval.upper:.2f}]"
                print(f"{toy_name:26}noise {level:3}  {name:34}{shown}", flush=True)
    print(
        f"\n{'mean gain in spreads; surely ahead, surely behind of 4':56}" + "".join(f"{level:>16}" for level in levels)
    )
    for name in names:
        cells = []
        for level in levels:
            found_here = gains[name, level]
            mean = np.mean([gain for gain, _, _ in found_here])
            ahead, behind = sum(low > 0 for _, low, _ in found_here), sum(high < 0 for _, _, high in found_here)
            cells.append(f"{mean:8.2f} ({ahead}, {behind})")
        print(f"  {name:54}" + "".join(f"{cell:>16}" for cell in cells))


def _spread(toy: Toy, size: tuple[int, int]) -> float:
    """Returns the standard deviation of true quality among the trials of random search, of five studies."""
    exact, qualities = dataclasses.replace(toy, noise=0.0), []
    measured = dataclasses.replace(exact, quality=lambda state: qualities.append(toy.quality(state)) or qualities[-1])
    for seed in range(5):
        run_study(measured, seed, size, STRATEGIES["random_search"])
    return float(np.std(qualities))


def compare_switches(studies: int, size: tuple[int, int], strategy: str) -> None:
    toy = TOYS["one good kind of four"]
    print(
        f"{strategy}: chance to switch; quality +- standard error, worst; share of the good kind, last five generations"
    )
    for chance in (0.0, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0):
        runs = [run_study(toy, seed, size, {**STRATEGIES[strategy], "p_switch": chance}) for seed in range(studies)]
        quality = np.asarray([run[0] for run in runs])
        error = quality.std(ddof=1) / math.sqrt(studies)
        share = np.mean([run[2] for run in runs])
        print(f"  {chance:5}{quality.mean():9.3f} +-{error:6.3f}{quality.min():9.3f}{share:9.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--population", type=int, default=10)
    parser.add_argument("--generations", type=int, default=20)
    parser.add_argument("--switch", action="store_true", help="Compare chances to switch a category.")
    parser.add_argument("--noise", action="store_true", help="Compare under noisy fitness.")
    arguments = parser.parse_args()
    size = (arguments.population, arguments.generations)
    if arguments.noise:
        compare_noise(arguments.studies, size)
        return
    if not arguments.switch:
        compare_strategies(arguments.studies, size)
        return
    for strategy in ("exploit_explore, budget, same", "tournament, budget, same", "winner_takes_all"):
        compare_switches(arguments.studies, size, strategy)


if __name__ == "__main__":
    main()

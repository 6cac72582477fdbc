"""Whether a search of lobench loses anything to the library that it asks: TPE through lobench-optuna, and by itself.

    python benchmarks/search.py [--case branin|digits|all] [--trials 60] [--seeds 20] [--batches 1]

Both have the same sampler, space, objective and number of trials. Ours comes in waves of one, each from a study that is
rebuilt from the trials before it, with a seed of its own; optuna's own study is one study with one seed. What counts is
the best value after all trials: its median over the seeds, ours over theirs. The two have other random numbers, so that
medians of a few seeds differ by chance alone; `--batches 10` shows by how much, over ten times as many seeds, with the
standard error of the ratio.

Branin's function has three equal minima of 0.3979. The digits case is a real training of an MLP 64-8-10, 100 steps of
Adam, whose learning rate (log scale) and b1 are searched for the least test loss.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping

import optuna
from lobench_optuna.optuna_search import optuna_search

from lobench.core.search.search import search_seed
from lobench.core.search.space import Parameter, Scale, Space, Value, parameter_of
from lobench.testing.searches import run_search

Objective = Callable[[Mapping[str, Value]], float]


def branin(params: Mapping[str, Value]) -> float:
    x, y = (float(value) for value in params.values())
    bowl = (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def digits() -> Objective:
    """Returns the test loss after a training; rate and decay are arguments of one program, as in an experiment."""
    import numpy as np
    import optax

    from lobench import Case
    from lobench.core.case import SeedBlock
    from lobench.extend import as_stepper, as_task
    from lobench.inner.tasks.image import DigitsMLP
    from lobench.inner.training.train import TrainingProgram

    case = Case(task=DigitsMLP(hidden_sizes=(8,), batch_size=32), num_inner_steps=100, eval_every=100, num_seeds=1)
    program = TrainingProgram(
        case,
        as_task(case.task),
        lambda theta: as_stepper(optax.adam(theta["rate"], b1=theta["b1"]), case.num_inner_steps),
        num_seeds=1,
    )

    def loss(params: Mapping[str, Value]) -> float:
        rate, b1 = (np.float32(value) for value in params.values())
        curves = program.run({"rate": rate, "b1": b1}, SeedBlock(start=0, size=1))
        assert curves is not None
        value = float(np.asarray(curves.metrics["test/loss"])[0, -1])
        return value if math.isfinite(value) else 1e3

    return loss


def real(path: str, low: float, high: float, scale: str = "linear") -> Parameter:
    return parameter_of(path, "Real", {"low": low, "high": high, "scale": scale}, "benchmark")


CASES: dict[str, tuple[Space, Callable[[], Objective]]] = {
    "branin": (Space([real("branin.x", -5, 10), real("branin.y", 0, 15)]), lambda: branin),
    "digits": (Space([real("adam.learning_rate", 1e-5, 10.0, "log"), real("adam.b1", 0.0, 0.99)]), digits),
}


def ours(space: Space, objective: Objective, seed: int, num_trials: int) -> float:
    """Returns the best value of a search as an experiment runs it."""
    trials = run_search(
        lambda: optuna_search("tpe"),
        space,
        lambda params: -objective(params),
        seed=search_seed(seed, "benchmark"),
        width=1,
        num_trials=num_trials,
    )
    return -max(trial.fitness for trial in trials if trial.fitness is not None)


def theirs(space: Space, objective: Objective, seed: int, num_trials: int) -> float:
    """Returns the best value of optuna's own loop."""

    def asked(trial: optuna.Trial) -> float:
        is_log = {each.path: each.scale is Scale.LOG for each in space.parameters}
        return objective(
            {
                each.path: trial.suggest_float(each.path, each.low, each.high, log=is_log[each.path])
                for each in space.parameters
            }
        )

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(asked, num_trials)
    return study.best_value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--batches", type=int, default=1, help="Times as many seeds, each batch with a ratio of its own."
    )
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    print("| case | median, ours | median, optuna | ratio | seeds |\n| --- | ---: | ---: | ---: | --- |")
    for name in CASES if arguments.case == "all" else [arguments.case]:
        space, make = CASES[name]
        objective, started, ratios = make(), time.perf_counter(), []
        pairs: list[tuple[float, float]] = []
        for batch in range(arguments.batches):
            seeds = range(batch * arguments.seeds, (batch + 1) * arguments.seeds)
            found = [tuple(run(space, objective, seed, arguments.trials) for run in (ours, theirs)) for seed in seeds]
            pairs += [(own, other) for own, other in found]
            own, other = (statistics.median(column) for column in zip(*found, strict=True))
            ratios.append(own / other)
            print(
                f"| {name} | {own:.4f} | {other:.4f} | {own / other:.3f} | {seeds.start}-{seeds.stop - 1} |", flush=True
            )
        if len(ratios) > 1:
            own, other = (statistics.median(column) for column in zip(*pairs, strict=True))
            error = statistics.stdev(ratios) / math.sqrt(len(ratios))
            print(f"| {name} | {own:.4f} | {other:.4f} | {own / other:.3f} | all {len(pairs)} |")
            spread = f"{min(ratios):.3f} - {max(ratios):.3f}, mean {statistics.mean(ratios):.3f}"
            print(f"ratios of batches: {spread} +- {error:.3f}")
        print(f"{name}: {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()

"""Initial parameters for several rounds of (collect data, adapt): the genetic algorithm, evolution strategies and MAML.

    python benchmarks/evolve_goals.py runs.jsonl                  # 50 runs, some 15 minutes of one core; resumes
    python benchmarks/evolve_goals.py runs.jsonl --figure docs/images/evolve-goals.svg
    python benchmarks/evolve_goals.py quick.jsonl --quick         # seconds: one run of each at a tiny size

Each run has the same number of environment steps, all of its evaluations counted. The genetic algorithm and evolution
strategies are `lobench evolve` on `examples/evolve/goals.gin` and `goals_es.gin`, in one process; MAML is
`examples/evolve/maml.py`, with the episodes held fixed and with the score term. What counts is the loss after the
adaptation, the policy without its noise, over 250 goals that none has seen: `MemberProgram`'s, the same for all.
Settings were the best of a grid (inner rates .01, .03, .1; two outer ones), by one run with another seed and other
goals: the outer one at one round, the inner rate at each; MAML with the score term has MAML's.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from lobench_evolve.members import MemberProgram
from lobench_evolve.optimizers import LearnedInit
from lobench_evolve.run import ExecutorOptions, plan, run_experiment
from lobench_evolve.settings import AntitheticES, Evolve, read_config
from lobench_evolve.tasks import PointGoals
from lobench_evolve.weights import Weights

from lobench import Case
from lobench.extend import Layers, claim_for, metric_mean

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "evolve"
sys.path.insert(0, str(EXAMPLE))
from maml import BLOCK, Maml  # noqa: E402

EPISODES, MOVES = 4, 10  # of a round
GOALS = {1: 10, 3: 5, 10: 2}  # that a member is tried on, by rounds: generations stay some hundred
PAIRS, MEMBERS, CANDIDATES, ELITE_EVALS = 20, 50, 5, 2
MAML_TASKS = 20
METHODS = {
    "ga": "genetic algorithm, mean of ten parents",
    "es": "evolution strategies",
    "maml": "MAML, episodes held fixed",
    "maml_score": "MAML with the score term",
    "none": "the policy's own initial parameters",
}
FAMILY = PointGoals(num_episodes=EPISODES, num_moves=MOVES)
SETTINGS = {  # by method and rounds: the inner rate, and the outer one or sigma
    ("ga", 1): (0.1, 0.1),
    ("ga", 3): (0.1, 0.1),
    ("ga", 10): (0.1, 0.1),
    ("es", 1): (0.1, 0.03),
    ("es", 3): (0.1, 0.03),
    ("es", 10): (0.1, 0.03),
    **{(method, rounds): (0.03, 1e-3) for method in ("maml", "maml_score") for rounds in (1, 3, 10)},
    **{("none", rounds): (0.03, 0.0) for rounds in (1, 3, 10)},
}
CHECKPOINTS, GOALS_SEED = 8, 2
Run = dict[str, Any]


def goes_nowhere() -> float:
    """Returns the mean loss of the best policy that does not adapt: it stays in the middle."""
    return MOVES * 2 / 12


def knows_the_goal() -> float:
    """Returns the mean loss of a policy that knows the goal and goes there: 0.1 a move, along each axis."""
    axis = np.linspace(0, 0.5, 100_001)
    return float(2 * sum(np.mean(np.maximum(axis - 0.1 * move, 0) ** 2) for move in range(1, MOVES + 1)))


def adaptation_steps(rounds: int) -> int:
    return (rounds * EPISODES + 1) * MOVES  # the last: the episode that fitness is


def evolved(method: str, rounds: int, seed: int, inner: float, outer: float, budget: float) -> Iterator[Any]:
    """Yields (environment steps so far, theta by leaf) along a run of `lobench evolve`."""
    tried = 2 * PAIRS if method == "es" else MEMBERS + CANDIDATES * ELITE_EVALS
    goals = GOALS.get(rounds, 5)
    per_generation = tried * goals * adaptation_steps(rounds)
    generations = max(int(budget / per_generation), 1)
    params = [
        f"Case.num_inner_steps = {rounds}",
        f"Case.num_seeds = {goals}",
        f"PointGoals.num_episodes = {EPISODES}",
        f"sgd.learning_rate = {inner}",
        f"Evolve.num_generations = {generations}",
        f"Evolve.checkpoint_every = {max(generations // CHECKPOINTS, 1)}",
        f"AntitheticES.num_pairs = {PAIRS}",
        f"TruncationGA.population_size = {MEMBERS}",
        "TruncationGA.parents_per_child = 10",
        f"TruncationGA.num_candidates = {CANDIDATES}",
        f"TruncationGA.elite_evals = {ELITE_EVALS}",
        f"AntitheticES.learning_rate = {outer}" if method == "es" else f"TruncationGA.sigma = {outer}",
    ]
    config = EXAMPLE / ("goals_es.gin" if method == "es" else "goals.gin")
    with tempfile.TemporaryDirectory() as folder:
        experiment = plan(config, folder=Path(folder) / "run", scopes=(), seed=seed, gin_params=params)
        run_experiment(experiment, ExecutorOptions(executor="inline"), num_workers=1, log=lambda line: None)
        for path in sorted((Path(folder) / "run" / "checkpoints").glob("*.npz")):
            with np.load(path) as file:
                done = int(file["outer_step"]) + (method == "ga")  # the elite of a generation has cost the whole of it
                yield done * per_generation, {name.removeprefix("theta/"): file[name] for name in file if "/" in name}


def untrained(seed: int) -> Iterator[Any]:
    yield 0, Maml(family=FAMILY, inner_steps=1, inner_rate=0.0).initial(jax.random.key(seed))


def meta_learned(method: str, rounds: int, seed: int, inner: float, outer: float, budget: float) -> Iterator[Any]:
    """Yields (environment steps so far, theta) along a run of MAML."""
    maml = Maml(
        family=FAMILY,
        inner_steps=rounds,
        inner_rate=inner,
        outer_rate=outer,
        num_tasks=MAML_TASKS,
        final_rate_fraction=AntitheticES().final_rate_fraction,
        score_term=method == "maml_score",
    )
    per_step = MAML_TASKS * (rounds + 1) * EPISODES * MOVES
    steps = max(int(budget / per_step) // BLOCK, 1) * BLOCK
    shown = max(steps // BLOCK // CHECKPOINTS, 1) * BLOCK
    for done, theta, _ in maml.train(steps, jax.random.key(seed)):
        if done % shown == 0 or done == steps:
            yield done * per_step, theta


@functools.cache
def judge(rounds: int, inner: float, goals: int) -> tuple[MemberProgram, Weights]:
    optimizer = LearnedInit(FAMILY, optax.sgd(inner))
    case = Case(task=FAMILY, learned_optimizer=optimizer, num_inner_steps=rounds, num_seeds=goals)
    weights = Weights(optimizer, {})
    return MemberProgram(case, "goals", Evolve(fitness="final", loss_clip=0.0), weights), weights


def losses(thetas: list[Any], rounds: int, inner: float, *, goals: int, goals_seed: int) -> list[float]:
    """Returns the mean loss after adaptation, by theta; the goals and their episodes are common to all."""
    program, _ = judge(rounds, inner, goals)
    flat = [jnp.concatenate([jnp.ravel(theta[name]) for name in sorted(theta)]) for theta in thetas]
    return [-float(program.run(one[None], [goals_seed])[0]) for one in flat]


def run(method: str, rounds: int, seed: int, settings: tuple[float, float], budget: float, **judged: int) -> Run:
    begun = time.perf_counter()
    if method == "none":
        found = list(untrained(seed))
    else:
        train = evolved if method in ("ga", "es") else meta_learned
        found = list(train(method, rounds, seed, *settings, budget))
    return {
        "method": method,
        "rounds": rounds,
        "seed": seed,
        "settings": list(settings),
        "budget": budget,
        "steps": [steps for steps, _ in found],
        "losses": losses([theta for _, theta in found], rounds, settings[0], **judged),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def kept(path: Path) -> list[Run]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(
    path: Path, method: str, rounds: int, seed: int, settings: tuple[float, float], budget: float, **judged: int
) -> None:
    """Runs and appends one run, unless it is there."""
    names = {"method": method, "rounds": rounds, "seed": seed, "settings": list(settings), "budget": budget}
    if any(names.items() <= one.items() for one in kept(path)):
        return
    found = run(method, rounds, seed, settings, budget, **judged)
    with path.open("a") as file:
        file.write(json.dumps(found) + "\n")
    print(
        f"{method} {rounds} rounds, seed {seed}, {settings}: {found['losses'][-1]:.3f}, {found['seconds']} s",
        flush=True,
    )


def print_table(runs: list[Run]) -> None:
    """Prints the mean loss at the end of the runs, with 95% intervals over them."""
    rounds = sorted({one["rounds"] for one in runs})
    print("| | " + " | ".join(f"{many} rounds" if many > 1 else "1 round" for many in rounds) + " |")
    print("| --- |" + " --- |" * len(rounds))
    for method, name in METHODS.items():
        cells = []
        for many in rounds:
            ends = [one["losses"][-1] for one in of_method(runs, method, many)]
            interval = metric_mean("loss", ends) if len(ends) > 1 else None
            shown = f" [{interval.lower:.3f}, {interval.upper:.3f}]" if interval else ""
            cells.append(f"{np.mean(ends):.3f}{shown}" if ends else "")
        print(f"| {name} | " + " | ".join(cells) + " |")


def of_method(runs: list[Run], method: str, rounds: int) -> list[Run]:
    return [one for one in runs if (one["method"], one["rounds"]) == (method, rounds)]


def draw(runs: list[Run], path: Path) -> None:
    """Draws the loss after adaptation over environment steps, a panel for each number of rounds; bands: 95%."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "goals"  # the same runs give the same file
    rounds = sorted({one["rounds"] for one in runs})
    figure, axes = plt.subplots(1, len(rounds), figsize=(3.6 * len(rounds) + 1, 3.8), sharey=True, squeeze=False)
    for axis, many in zip(axes[0], rounds, strict=True):
        for method, name in METHODS.items():
            found = of_method(runs, method, many)
            if not found:
                continue
            ends = np.asarray([one["losses"] for one in found])
            steps = np.asarray(found[0]["steps"])
            if method == "none":
                axis.axhline(ends.mean(), color="gray", linestyle=":", label=name)
                continue
            for one in found:
                axis.plot(steps, one["losses"], color=f"C{list(METHODS).index(method)}", linewidth=0.6, alpha=0.6)
            bands = [metric_mean("loss", column.tolist()) for column in ends.T]
            (line,) = axis.plot(steps, ends.mean(axis=0), color=f"C{list(METHODS).index(method)}", label=name)
            axis.fill_between(
                steps, [one.lower for one in bands], [one.upper for one in bands], color=line.get_color(), alpha=0.15
            )
        axis.axhline(goes_nowhere(), color="black", linestyle="--", linewidth=0.8, label="stays in the middle")
        axis.axhline(knows_the_goal(), color="black", linewidth=0.8, label="knows the goal")
        axis.set_title(f"{many} round{'s' if many > 1 else ''}")
        axis.set_xlabel("environment steps")
        axis.set_yscale("log")
        axis.set_ylim(0.11, 3)
        axis.set_yticks([0.13, 0.2, 0.5, 1, 2], ["0.13", "0.2", "0.5", "1", "2"])
        axis.minorticks_off()
    axes[0][0].set_ylabel("loss after adaptation")
    handles, labels = axes[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=2, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.24, 1, 1))
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="JSON lines, one a run; what is there is not run again.")
    parser.add_argument("--quick", action="store_true", help="One tiny run of each method.")
    parser.add_argument("--figure", type=Path, help="Draw what is there, and run nothing.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--budget", type=float, default=5e6, help="Environment steps of a run.")
    arguments = parser.parse_args()
    if arguments.figure:
        draw(kept(arguments.runs), arguments.figure)
        return
    claim_for(read_config(EXAMPLE / "goals.gin", ()).cases[0], Layers())  # a worker's threads, before the first array
    for seed in range(1 if arguments.quick else arguments.seeds):
        for many in [2] if arguments.quick else arguments.rounds:
            for method in arguments.methods:
                settings = SETTINGS[method, max(many, 3)]
                budget, goals = (1e5, 20) if arguments.quick else (arguments.budget, 250)
                keep(arguments.runs, method, many, seed, settings, budget, goals=goals, goals_seed=GOALS_SEED)
    print_table(kept(arguments.runs))
    print(f"goes nowhere: {goes_nowhere():.3f}; knows the goal: {knows_the_goal():.3f}")


if __name__ == "__main__":
    main()

"""PBT against random search on what examples/pbt trains: the same decisions, training and measures, in one process.

    python benchmarks/pbt_digits.py [--studies 24] [--first-seed 100] [--strategies NAME...] [--minutes M] [--quick]

`examples/pbt/close_the_loop.py` runs a study as a controller, a watch and trainers; here `lobench_pbt.decide` is called
on a table in memory and fitness is computed at once, so that many studies take minutes. The study is that of
`examples/pbt/study.gin`: its population, generations, steps and prior. What is compared, study by study, is the report
loss of the trial that is best by fitness: report tasks are neither trained on nor selected by. All strategies of a seed
draw the same first population, and train as many trials for as many outer steps. `--minutes` begins no further study
after so long: how many there are must not hang on what they found.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from lobench_pbt.decide import suggest
from lobench_pbt.study import FitnessFrom, Study, load_strategy
from lobench_pbt.study_file import read_study
from lobench_pbt.transitions import Completion, complete_trial
from lobench_pbt.trial import Artifact, StudyTrial
from pbt_strategies import PLUGINS, Table
from scipy import stats

from lobench.inner.tasks import DigitsMLP, PermutedDigits

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "pbt"
sys.path.insert(0, str(EXAMPLE))
from pbt_trainer import INNER_STEPS, OPTIMIZER, initial_theta, outer_step  # noqa: E402

BASELINE = "random_search"
FAMILY = PermutedDigits(hidden_sizes=(8,))  # one for all studies: a program is compiled for each family anew
TASKS = {  # as in the example's fitness.gin and report.gin: tasks, and seeds of each
    "fitness": ((DigitsMLP(hidden_sizes=(16,)), DigitsMLP(hidden_sizes=(24,), activation="tanh")), 2),
    "report": (
        (
            DigitsMLP(hidden_sizes=(16, 16)),
            DigitsMLP(hidden_sizes=(48,), activation="gelu"),
            DigitsMLP(hidden_sizes=(32,), activation="silu", batch_size=16),
        ),
        8,
    ),
}


def final_loss(task: Any, theta: Any, key: jax.Array) -> jax.Array:
    """Trains once and returns the mean loss of four batches after the last step."""
    init_key, data_key, eval_key = jax.random.split(key, 3)
    rule = OPTIMIZER.opt_fn(theta, INNER_STEPS)
    params, _ = task.init_with_state(init_key)

    def loss_on(params: Any, key: jax.Array) -> jax.Array:
        return jnp.asarray(task.loss_with_state(params, None, key, task.datasets.train.sample(key))[0])

    def step(carry: Any, key: jax.Array) -> Any:
        params, state = carry
        loss, grads = jax.value_and_grad(loss_on)(params, key)
        updates, state = rule.update(grads, state, params, value=loss)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, rule.init(params)), jax.random.split(data_key, INNER_STEPS))
    loss = jax.vmap(lambda key: loss_on(params, key))(jax.random.split(eval_key, 4)).mean()
    return jnp.where(jnp.isfinite(loss), loss, jnp.inf)


@functools.partial(jax.jit, static_argnums=0)
def mean_loss(kind: str, theta: Any) -> jax.Array:
    tasks, num_seeds = TASKS[kind]
    keys = jax.random.split(jax.random.key(list(TASKS).index(kind)), num_seeds)
    return jnp.stack([jax.vmap(lambda key, task=task: final_loss(task, theta, key))(keys) for task in tasks]).mean()


def train(states: dict[int, Any], trial: StudyTrial) -> tuple[Any, Any]:
    if trial.parent_ids:
        theta, moments = states[trial.parent_ids[0]]
    else:
        theta = initial_theta(trial.seed)
        moments = optax.scale_by_adam().init(jax.flatten_util.ravel_pytree(theta)[0])
    rate, sigma = (jnp.float32(trial.params[f"meta_train.{name}"]) for name in ("learning_rate", "sigma"))
    for step in range(trial.start_step, trial.end_step):
        key = jax.random.fold_in(jax.random.key(trial.seed), step)
        theta, moments, _ = outer_step(FAMILY, theta, moments, key, rate, sigma)
    return theta, moments


def run_study(study: Study) -> tuple[float, float]:
    """Returns the fitness and the report loss of the best trial by fitness."""
    strategy, table = load_strategy(study, PLUGINS, "example"), Table()
    states: dict[int, Any] = {}
    while (trial := suggest(study, strategy, table, worker="one", stopped=False, now=0.0).trial) is not None:
        table.write(trial)
        states[trial.id] = train(states, trial)
        loss = float(mean_loss("fitness", states[trial.id][0]))
        checkpoint = Artifact(uri="", sha256=str(trial.id))
        metrics = {study.objectives[0].metric: loss}
        done = Completion(attempt=0, checkpoint=checkpoint, metrics=metrics, n_steps=trial.n_steps)
        table.write(complete_trial(study, trial, done, now=0.0, next_seq=trial.id))
    best = max(table.rows.values(), key=lambda row: (row.fitness, -row.id))
    assert best.fitness is not None
    return -best.fitness[0], float(mean_loss("report", states[best.id][0]))


def print_difference(strategy: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Prints means and the paired interval of ours - theirs, both float[studies, 2]: fitness and report loss."""
    for place, name in enumerate(("fitness", "report")):
        difference = ours[:, place] - theirs[:, place]
        low, high = stats.ttest_rel(ours[:, place], theirs[:, place]).confidence_interval(0.95)
        ahead, equal = int((difference < 0).sum()), int((difference == 0).sum())
        ranks = stats.wilcoxon(difference).pvalue  # the report loss of a bad optimizer has no bound
        print(
            f"{strategy}, {name}: {ours[:, place].mean():.3f} and {theirs[:, place].mean():.3f} of {BASELINE}, "
            f"difference {difference.mean():.3f} [{low:.3f}, {high:.3f}], ahead in {ahead}, equal in {equal} "
            f"of {len(ours)}, Wilcoxon p {ranks:.2g}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=24, help="Of each strategy; at least 2.")
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--strategies", nargs="+", default=None, help="Compared with random search; the default's.")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument(
        "--quick", action="store_true", help="Two studies of a few trials: nothing is measured by them."
    )
    arguments = parser.parse_args()
    example = dataclasses.replace(read_study(EXAMPLE / "study.gin"), fitness_from=FitnessFrom.TRAINER)
    if arguments.quick:
        example, arguments.studies = dataclasses.replace(example, population=2, generations=1, n_steps=1), 2
        TASKS.update({kind: (tasks[:1], 2) for kind, (tasks, _) in TASKS.items()})
    strategies = [*(arguments.strategies or [example.strategy]), BASELINE]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in strategies}
    begun = time.perf_counter()
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.studies):
        if time.perf_counter() - begun > 60 * arguments.minutes:
            print(f"no more time: no study from seed {seed} on")
            break
        for name, values in found.items():
            values.append(run_study(dataclasses.replace(example, strategy=name, seed=seed)))
        shown = "; ".join(f"{name} {values[-1][0]:.4f} {values[-1][1]:.4f}" for name, values in found.items())
        print(f"seed {seed}: fitness, report: {shown}; {time.perf_counter() - begun:.0f} s", flush=True)
    for name in strategies[:-1]:
        print_difference(name, np.asarray(found[name]), np.asarray(found[BASELINE]))


if __name__ == "__main__":
    main()

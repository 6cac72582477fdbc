"""PPO on CartPole: five seeds, 500,000 steps of the environment each, and the minutes that it takes.

python benchmarks/control.py [STEPS]

Settings are purejaxrl's: Adam at 2.5e-4, which falls to 0 in a straight line, gradients clipped at a norm of 0.5. A
seed has solved it where the mean of 100 fresh episodes is 475 or more, Gymnasium's own threshold. The exit code says
whether all have.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import optax
from harness import answer_help

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import claim_backend
from lobench.inner.tasks.control import PPO
from lobench.inner.training.train import TrainingProgram

__all__ = ["main"]

NUM_SEEDS = 5
THRESHOLD = 475.0


def main(num_env_steps: int = 500_000) -> bool:
    claim_backend(1)
    task = PPO(eval_episodes=100)
    per_rollout = 4 * 128
    num_inner_steps = num_env_steps // per_rollout * task.epochs * task.minibatches
    case = Case(num_inner_steps=num_inner_steps, eval_every=num_inner_steps // 10, num_seeds=NUM_SEEDS, eval_batches=1)

    def make_stepper(theta: object) -> object:
        rate = optax.linear_schedule(2.5e-4, 0.0, num_inner_steps)
        return as_stepper(optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rate, eps=1e-5)), num_inner_steps)

    started = time.perf_counter()
    curves = TrainingProgram(case, task, make_stepper, NUM_SEEDS).run({}, SeedBlock(start=0, size=NUM_SEEDS))
    assert curves is not None
    returns = np.asarray(curves.metrics["train/return"])
    print("| environment steps |", " | ".join(f"seed {seed}" for seed in curves.seeds), "|")
    print("| --- " * (NUM_SEEDS + 1) + "|")
    for step, row in zip(curves.eval_steps, returns.T, strict=True):
        env_steps = step * per_rollout // (task.epochs * task.minibatches)
        print(f"| {env_steps:,} |", " | ".join(f"{value:.1f}" for value in row), "|")
    solved = int((returns[:, -1] >= THRESHOLD).sum())
    minutes = (time.perf_counter() - started) / 60
    print(
        f"{solved} of {NUM_SEEDS} seeds at {THRESHOLD:g} or more after {num_env_steps:,} steps each; "
        f"{minutes:.1f} minutes on one core, {curves.compile_seconds:.0f} s of them compiling"
    )
    return solved == NUM_SEEDS


if __name__ == "__main__":
    answer_help(__doc__)
    sys.exit(not main(*(int(argument) for argument in sys.argv[1:2])))

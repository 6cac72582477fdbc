"""A small, honest meta-training run: improves a learned optimizer and writes checkpoints for `lobench watch`.

Antithetic evolution strategies over whole inner trainings of a small digits network whose pixels and labels are
permuted anew for each perturbation. The meta-loss is a mean of clipped inner losses. Checkpoints are orbax directories
named by an index; `config.gin` beside them says which optimizer they belong to.

    python examples/meta_train.py runs/today --outer-steps 480
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

from lobench.inner.optimizers import AdafacMLPLOpt
from lobench.inner.tasks import PermutedDigits

INNER_STEPS = 100
PAIRS = 8
SIGMA = 0.1
OUTER_LEARNING_RATE = 0.01
STEP_MULT = 0.01
LOSS_CLIP = 5.0
LAST_STEPS = 30  # half of the meta-loss is the mean of these: where training ends counts, not only how fast it falls

CONFIG = f"""# Read by lobench: the optimizer whose theta the checkpoints hold.
Case.learned_optimizer = @AdafacMLPLOpt()
AdafacMLPLOpt.step_mult = {STEP_MULT}

# The trainer's own; lobench skips names that it does not know.
meta_train.outer_learning_rate = {OUTER_LEARNING_RATE}
meta_train.sigma = {SIGMA}
"""


def inner_loss(optimizer: AdafacMLPLOpt, family: PermutedDigits, theta: Any, key: jax.Array) -> jax.Array:
    """Trains one sampled task; returns the mean of its clipped batch losses, the last ones twice over, float32[]."""
    task_key, init_key, data_key = jax.random.split(key, 3)
    task = family.task_fn(family.sample(task_key))
    dataset = family.datasets.train
    transformation = optimizer.opt_fn(theta, INNER_STEPS)
    params, _ = task.init_with_state(init_key)

    def step(carry: Any, step_key: jax.Array) -> Any:
        params, state = carry
        batch = dataset.sample(step_key)
        loss, grads = jax.value_and_grad(lambda p: task.loss_with_state(p, None, step_key, batch)[0])(params)
        updates, state = transformation.update(grads, state, params, value=loss)
        return (optax.apply_updates(params, updates), state), loss

    _, losses = jax.lax.scan(step, (params, transformation.init(params)), jax.random.split(data_key, INNER_STEPS))
    losses = jnp.where(jnp.isfinite(losses), losses, LOSS_CLIP)
    losses = jnp.clip(losses, 0.0, LOSS_CLIP)
    return 0.5 * losses.mean() + 0.5 * losses[-LAST_STEPS:].mean()


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def outer_step(
    optimizer: AdafacMLPLOpt, family: PermutedDigits, outer: Any, theta: Any, outer_state: Any, key: jax.Array
) -> Any:
    """One step of antithetic evolution strategies; returns theta, the outer optimizer's state and the mean loss."""
    noise_key, task_key = jax.random.split(key)
    leaves, structure = jax.tree.flatten(theta)
    keys = jax.random.split(noise_key, len(leaves))
    shapes = zip(keys, leaves, strict=True)
    noise = jax.tree.unflatten(structure, [SIGMA * jax.random.normal(k, (PAIRS, *leaf.shape)) for k, leaf in shapes])
    task_keys = jax.random.split(task_key, PAIRS)

    def losses_at(sign: float) -> jax.Array:
        thetas = jax.tree.map(lambda leaf, delta: leaf + sign * delta, theta, noise)
        return jax.vmap(lambda t, k: inner_loss(optimizer, family, t, k))(thetas, task_keys)

    plus, minus = losses_at(1.0), losses_at(-1.0)
    weights = (plus - minus) / (2 * SIGMA**2)
    gradient = jax.tree.map(lambda delta: jnp.tensordot(weights, delta, 1) / PAIRS, noise)
    updates, outer_state = outer.update(gradient, outer_state)
    return optax.apply_updates(theta, updates), outer_state, (plus.mean() + minus.mean()) / 2


def initial_theta(optimizer: AdafacMLPLOpt, seed: int) -> Any:
    """Returns an initial theta whose last layer is small, so that the first steps are."""
    theta = optimizer.init(jax.random.key(seed))
    theta["nn"]["~"]["w2"] = 0.1 * theta["nn"]["~"]["w2"]
    return theta


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="Where checkpoints go.")
    parser.add_argument("--outer-steps", type=int, default=480)
    parser.add_argument("--checkpoints", type=int, default=8, help="Checkpoints after the initial one.")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    temporary = arguments.folder / "config.gin_tmp"
    temporary.write_text(CONFIG)
    os.replace(temporary, arguments.folder / "config.gin")

    optimizer, family = AdafacMLPLOpt(step_mult=STEP_MULT), PermutedDigits(hidden_sizes=(16,))
    rate = optax.cosine_decay_schedule(OUTER_LEARNING_RATE, arguments.outer_steps, alpha=0.05)
    outer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    theta = initial_theta(optimizer, arguments.seed)
    outer_state = outer.init(theta)
    every = max(arguments.outer_steps // arguments.checkpoints, 1)
    started = time.perf_counter()
    with ocp.CheckpointManager(arguments.folder.absolute()) as manager:
        for step in range(arguments.outer_steps + 1):
            if step % every == 0:
                manager.save(step, args=ocp.args.StandardSave(theta))
            if step == arguments.outer_steps:
                break
            key = jax.random.fold_in(jax.random.key(arguments.seed + 1), step)
            theta, outer_state, loss = outer_step(optimizer, family, outer, theta, outer_state, key)
            if step % 50 == 0:
                print(f"outer step {step}: meta-loss {loss:.3f}, {time.perf_counter() - started:.0f} s", flush=True)
        manager.wait_until_finished()
    print(f"meta-training ended after {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()

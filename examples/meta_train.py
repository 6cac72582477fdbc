"""A small, honest meta-training run: improves a learned optimizer and writes checkpoints for `lobench watch`.

Antithetic evolution strategies over whole inner trainings of a small digits network whose pixels and labels are
permuted anew for each perturbation. Every second training has batches of 16 in place of 64: it meets noisier gradients.
The meta-loss is a mean of logarithms of inner losses, so that a tenth less counts alike early and late. Checkpoints are
orbax directories named by an index; `config.gin` beside them says which optimizer they belong to.

    python examples/meta_train.py runs/today --outer-steps 240
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import time
from collections.abc import Iterator
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
OUTER_STEPS = 240
OUTER_LEARNING_RATE = 0.02
STEP_MULT = 0.01
# Worse than a uniform guess among ten digits counts as one. Were it worse, a theta that steps by a constant would be
# better than most: it kills every ReLU, guesses uniformly ever after, and no perturbation leads out of there.
LOSS_CLIP = math.log(10)
LAST_STEPS = 30  # half of the meta-loss is of these: where training ends counts, not only how fast it falls
BATCH_SIZE, SMALL_BATCH = 64, 16

CONFIG = f"""# Read by lobench: the optimizer whose theta the checkpoints hold.
Case.learned_optimizer = @AdafacMLPLOpt()
AdafacMLPLOpt.step_mult = {STEP_MULT}

# The trainer's own; lobench skips names that it does not know.
meta_train.outer_learning_rate = {OUTER_LEARNING_RATE}
meta_train.sigma = {SIGMA}
"""


def meta_loss(losses: jax.Array) -> jax.Array:
    """Returns half the logarithm of the mean of float32[INNER_STEPS] losses and half that of the last ones' mean."""
    losses = jnp.clip(jnp.where(jnp.isfinite(losses), losses, LOSS_CLIP), 0.0, LOSS_CLIP)
    return 0.5 * jnp.log(losses.mean()) + 0.5 * jnp.log(losses[-LAST_STEPS:].mean())


def inner_training(
    optimizer: AdafacMLPLOpt, family: PermutedDigits, theta: Any, key: jax.Array, num_distinct: jax.Array
) -> jax.Array:
    """Trains one sampled task and returns the loss of each batch, float32[INNER_STEPS].

    Args:
      num_distinct: Examples of a batch, int32[], at most BATCH_SIZE; they are repeated up to it, so that trainings with
        large and with small batches have equal shapes and share one program.
    """
    task_key, init_key, data_key = jax.random.split(key, 3)
    task = family.task_fn(family.sample(task_key))
    dataset = family.datasets.train
    transformation = optimizer.opt_fn(theta, INNER_STEPS)
    params, _ = task.init_with_state(init_key)

    def step(carry: Any, step_key: jax.Array) -> Any:
        params, state = carry
        batch = dataset.take(dataset.indices(step_key)[jnp.arange(BATCH_SIZE) % num_distinct])
        loss, grads = jax.value_and_grad(lambda p: task.loss_with_state(p, None, step_key, batch)[0])(params)
        updates, state = transformation.update(grads, state, params, value=loss)
        return (optax.apply_updates(params, updates), state), loss

    return jax.lax.scan(step, (params, transformation.init(params)), jax.random.split(data_key, INNER_STEPS))[1]


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
    # Both signs of a perturbation train the same task on the same batches, side by side in one program.
    thetas = jax.tree.map(lambda leaf, delta: jnp.concatenate([leaf + delta, leaf - delta]), theta, noise)
    task_keys = jnp.tile(jax.random.split(task_key, PAIRS), 2)
    sizes = jnp.tile(jnp.asarray([BATCH_SIZE, SMALL_BATCH]), PAIRS)
    losses = jax.vmap(lambda *replica: meta_loss(inner_training(optimizer, family, *replica)))(thetas, task_keys, sizes)
    weights = (losses[:PAIRS] - losses[PAIRS:]) / (2 * SIGMA**2)
    gradient = jax.tree.map(lambda delta: jnp.tensordot(weights, delta, 1) / PAIRS, noise)
    updates, outer_state = outer.update(gradient, outer_state)
    return optax.apply_updates(theta, updates), outer_state, losses.mean()


def initial_theta(optimizer: AdafacMLPLOpt, seed: int) -> Any:
    """Returns an initial theta whose last layer is small, so that the first steps are."""
    theta = optimizer.init(jax.random.key(seed))
    theta["nn"]["~"]["w2"] = 0.1 * theta["nn"]["~"]["w2"]
    return theta


def meta_train(seed: int, outer_steps: int) -> Iterator[tuple[Any, float]]:
    """Meta-trains; yields theta before each outer step with its meta-loss, and the last theta with NaN."""
    optimizer, family = AdafacMLPLOpt(step_mult=STEP_MULT), PermutedDigits(hidden_sizes=(16,), batch_size=BATCH_SIZE)
    rate = optax.cosine_decay_schedule(OUTER_LEARNING_RATE, outer_steps, alpha=0.05)
    outer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    theta = initial_theta(optimizer, seed)
    outer_state = outer.init(theta)
    for step in range(outer_steps):
        key = jax.random.fold_in(jax.random.key(seed + 1), step)
        following, outer_state, loss = outer_step(optimizer, family, outer, theta, outer_state, key)
        yield theta, float(loss)
        theta = following
    yield theta, math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="Where checkpoints, config.gin and meta_loss.csv go.")
    parser.add_argument("--outer-steps", type=int, default=OUTER_STEPS)
    parser.add_argument("--checkpoints", type=int, default=8, help="Checkpoints after the initial one.")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    temporary = arguments.folder / "config.gin_tmp"
    temporary.write_text(CONFIG)
    os.replace(temporary, arguments.folder / "config.gin")

    every = max(arguments.outer_steps // arguments.checkpoints, 1)
    started = time.perf_counter()
    print("compiling the meta-training program, some ten seconds", flush=True)
    with (
        ocp.CheckpointManager(arguments.folder.absolute()) as manager,
        (arguments.folder / "meta_loss.csv").open("w", buffering=1) as log,
    ):
        log.write("outer_step,meta_loss\n")
        for step, (theta, loss) in enumerate(meta_train(arguments.seed, arguments.outer_steps)):
            if step % every == 0:
                manager.save(step, args=ocp.args.StandardSave(theta))
                seconds = time.perf_counter() - started
                ended = step == arguments.outer_steps
                print(
                    f"outer step {step}: " + ("the end" if ended else f"meta-loss {loss:.3f}") + f", {seconds:.0f} s",
                    flush=True,
                )
            if not math.isnan(loss):
                log.write(f"{step},{loss:.6f}\n")
        manager.wait_until_finished()


if __name__ == "__main__":
    main()

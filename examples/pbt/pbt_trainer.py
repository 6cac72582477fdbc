"""A meta-trainer that is driven by a controller: antithetic evolution strategies on a small learned optimizer.

    python examples/pbt/pbt_trainer.py WORKER STUDY_FOLDER...

It trains the trials of one study after the other, each as soon as `STUDY_FOLDER/store/address` says where the
controller is, into `STUDY_FOLDER/population`; `STUDY_FOLDER/WORKER.done` says that nothing is left to do. Each trial
goes on from its parent's theta and outer optimizer, with the outer learning rate and the perturbation scale that the
controller gives; each leaves one checkpoint. Parameters come through gin, as in any trainer.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path
from typing import Any

import gin
import jax
import jax.flatten_util
import jax.numpy as jnp
import lobench_pbt
import numpy as np
import optax

from lobench.inner.optimizers import MLPLOpt
from lobench.inner.tasks import PermutedDigits
from lobench.inner.theta import leaf_paths

OPTIMIZER = MLPLOpt(step_mult=0.05, hidden_size=8)
CONFIG = """Case.learned_optimizer = @MLPLOpt()
MLPLOpt.step_mult = 0.05
MLPLOpt.hidden_size = 8
"""
INNER_STEPS = 40
PAIRS = 4
LOSS_CLIP = 5.0

Theta = Any
Arrays = dict[str, np.ndarray]


@gin.configurable
def meta_train(learning_rate: float = 0.01, sigma: float = 0.1) -> tuple[float, float]:
    """Returns the outer learning rate and the standard deviation of the perturbations."""
    return learning_rate, sigma


def initial_theta(seed: int) -> Theta:
    """Returns an initial theta whose last layer is small, so that the first steps are."""
    theta = OPTIMIZER.init(jax.random.key(seed))
    last = theta["mlp"]["~"]["linear_2"]
    last["w"] = 0.1 * last["w"]
    return theta


def inner_loss(family: PermutedDigits, theta: Theta, key: jax.Array) -> jax.Array:
    """Trains one sampled task and returns the mean of its clipped batch losses, float32[]."""
    task_key, init_key, data_key = jax.random.split(key, 3)
    task = family.task_fn(family.sample(task_key))
    rule = OPTIMIZER.opt_fn(theta, INNER_STEPS)
    params, _ = task.init_with_state(init_key)

    def step(carry: Any, step_key: jax.Array) -> Any:
        params, state = carry
        batch = family.datasets.train.sample(step_key)
        loss, grads = jax.value_and_grad(lambda p: task.loss_with_state(p, None, step_key, batch)[0])(params)
        updates, state = rule.update(grads, state, params, value=loss)
        return (optax.apply_updates(params, updates), state), loss

    _, losses = jax.lax.scan(step, (params, rule.init(params)), jax.random.split(data_key, INNER_STEPS))
    return jnp.clip(jnp.where(jnp.isfinite(losses), losses, LOSS_CLIP), 0.0, LOSS_CLIP).mean()


@functools.partial(jax.jit, static_argnums=0)
def outer_step(
    family: PermutedDigits, theta: Theta, moments: Any, key: jax.Array, learning_rate: jax.Array, sigma: jax.Array
) -> Any:
    """One step of antithetic evolution strategies and Adam; rate and scale are arguments: no trial compiles anew."""
    noise_key, task_key = jax.random.split(key)
    flat, unflatten = jax.flatten_util.ravel_pytree(theta)
    noise = sigma * jax.random.normal(noise_key, (PAIRS, flat.size))
    task_keys = jax.random.split(task_key, PAIRS)

    def losses_at(sign: float) -> jax.Array:
        return jax.vmap(lambda delta, k: inner_loss(family, unflatten(flat + sign * delta), k))(noise, task_keys)

    plus, minus = losses_at(1.0), losses_at(-1.0)
    gradient = ((plus - minus) @ noise) / (2 * sigma**2 * PAIRS)
    updates, moments = optax.scale_by_adam().update(gradient, moments)
    return unflatten(flat - learning_rate * updates), moments, (plus.mean() + minus.mean()) / 2


def publish(path: Path, arrays: Arrays) -> Path:
    """Writes a file that is complete as soon as it has its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    os.replace(temporary, path)
    path.with_name(path.name + ".done").touch()
    return path


def arrays_of(tree: Any) -> Arrays:
    return {path: np.asarray(leaf) for path, leaf in leaf_paths(tree).items()}


def restore(path: Path, like: Any) -> Any:
    """Reads what `publish` wrote of a tree of this structure."""
    with np.load(path) as file:
        leaves = [jnp.asarray(file[name]) for name in leaf_paths(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def run_trials(address: str, population: Path, worker: str) -> None:
    """Trains what the controller asks for until the study is done."""
    family = PermutedDigits(hidden_sizes=(8,))
    with lobench_pbt.client(address) as study:
        for trial in study.trials(worker):
            theta = initial_theta(trial.seed)
            moments = optax.scale_by_adam().init(jax.flatten_util.ravel_pytree(theta)[0])
            if trial.warm_checkpoint and trial.warm_state:
                theta, moments = restore(trial.warm_checkpoint, theta), restore(trial.warm_state, moments)
            trial.apply()
            learning_rate, sigma = (jnp.float32(value) for value in meta_train())
            for step in range(trial.start_step, trial.end_step):
                key = jax.random.fold_in(jax.random.key(trial.seed), step)
                theta, moments, loss = outer_step(family, theta, moments, key, learning_rate, sigma)
            trial.report(trial.end_step, {"meta_loss": float(loss)})
            folder = trial.folder(population)
            state = publish(folder / ".state.npz", arrays_of(moments))
            trial.complete(publish(folder / f"theta_{trial.end_step}.npz", arrays_of(theta)), state=state)


def main(worker: str, *studies: str) -> None:
    for folder in map(Path, studies):
        address = folder / "store" / "address"
        while not address.exists():
            time.sleep(0.2)
        run_trials(address.read_text(), folder / "population", worker)
        (folder / f"{worker}.done").touch()


if __name__ == "__main__":
    main(*sys.argv[1:])

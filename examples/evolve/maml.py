"""The gradient reference: MAML on few-shot sinusoids, through the adaptation steps, second order.

    python examples/evolve/maml.py runs/maml --shots 10

What it learns is what `examples/evolve/sinusoid.gin` evolves: initial parameters whose error over the whole range is
small after a few steps of SGD on a few points. It writes a checkpoint that lobench reads.

Source: Finn et al. 2017 (arXiv 1703.03400), section 5.1.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from lobench_evolve.tasks import Sinusoids

CONFIG = """Case.learned_optimizer = @LearnedInit()
LearnedInit.task = @Sinusoids()
LearnedInit.optimizer = @sgd()
sgd.learning_rate = {rate}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="Where the checkpoint goes.")
    parser.add_argument("--shots", type=int, default=10)
    parser.add_argument("--inner-steps", type=int, default=5)
    parser.add_argument("--inner-rate", type=float, default=0.01)
    parser.add_argument("--outer-steps", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    family = Sinusoids(num_shots=arguments.shots)
    outer = optax.apply_if_finite(optax.chain(optax.clip_by_global_norm(10.0), optax.adam(1e-3)), 1000)

    def adapted_error(theta: Any, key: jax.Array) -> jax.Array:
        task = family.task_fn(family.sample(key))

        def step(params: Any, _: None) -> tuple[Any, None]:
            grads = jax.grad(task.loss)(params, key, None)
            return jax.tree.map(lambda p, g: p - arguments.inner_rate * g, params, grads), None

        params, _ = jax.lax.scan(step, theta, None, arguments.inner_steps)
        return task.eval_loss_with_aux(params, None, key, None)[0]

    @jax.jit
    def outer_steps(theta: Any, state: Any, key: jax.Array) -> Any:
        def one(carry: Any, key: jax.Array) -> Any:
            theta, state = carry
            keys = jax.random.split(key, 25)
            error, grads = jax.value_and_grad(lambda t: jax.vmap(lambda k: adapted_error(t, k))(keys).mean())(theta)
            updates, state = outer.update(grads, state)
            return (optax.apply_updates(theta, updates), state), error

        (theta, state), errors = jax.lax.scan(one, (theta, state), jax.random.split(key, 100))
        return theta, state, errors.mean()

    init_key, key = jax.random.split(jax.random.key(arguments.seed))
    # At this rate the task's own initial weights diverge, and what diverges has no gradient.
    theta = jax.tree.map(lambda leaf: 0.3 * leaf, family.task_fn(family.sample(init_key)).init(init_key))
    state, started = outer.init(theta), time.perf_counter()
    for block in range(arguments.outer_steps // 100):
        theta, state, error = outer_steps(theta, state, jax.random.fold_in(key, block))
        if block % 10 == 9:
            print(f"outer step {(block + 1) * 100}: {error:.3f}, {time.perf_counter() - started:.0f} s", flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "config.gin").write_text(CONFIG.format(rate=arguments.inner_rate))
    leaves: dict[str, Any] = {f"theta/{name}": np.asarray(leaf) for name, leaf in theta.items()}
    np.savez(arguments.folder / "theta.npz", outer_step=np.int64(arguments.outer_steps), **leaves)


if __name__ == "__main__":
    main()

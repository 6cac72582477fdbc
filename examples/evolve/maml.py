"""The gradient reference: MAML through the adaptation steps, second order, on few-shot sinusoids or on goals.

    python examples/evolve/maml.py runs/maml --shots 10
    python examples/evolve/maml.py runs/maml_goals --task goals --inner-steps 3 --inner-rate 0.3

What it learns is what `examples/evolve/sinusoid.gin` and `goals.gin` evolve: initial parameters whose loss is small
after a few steps of SGD. It writes a checkpoint that lobench reads.

On goals each inner step collects episodes with the adapted policy. Where they went depends on the parameters, and no
derivative says how: MAML's gradient goes through the steps with the episodes held fixed. `--score-term` adds what that
leaves out, the log probability of all episodes of the adaptation times the loss after it (E-MAML), so that the
estimate is unbiased; its variance grows with the number of steps.

Source: Finn et al. 2017 (arXiv 1703.03400), sections 5.1 and 5.3; Stadie et al. 2018 (arXiv 1803.01118), equation 6.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from lobench_evolve.tasks import PointGoals, Sinusoids

CONFIG = """Case.learned_optimizer = @LearnedInit()
LearnedInit.task = @{family}()
LearnedInit.optimizer = @sgd()
sgd.learning_rate = {rate}
"""
BLOCK = 10  # outer steps that one program does


@dataclass(frozen=True, kw_only=True)
class Maml:
    """Settings.

    Attributes:
      inner_steps, inner_rate: Of the adaptation.
      final_rate_fraction: Of the outer rate, to which it falls along a cosine; 1: it stays.
      initial_scale: Factor on the task's own initial parameters.
      score_term: Whether the gradient has the term of the episodes' log probability.
    """

    family: Any
    inner_steps: int
    inner_rate: float
    outer_rate: float = 1e-3
    final_rate_fraction: float = 1.0
    num_tasks: int = 25
    initial_scale: float = 1.0
    score_term: bool = False

    def initial(self, key: jax.Array) -> Any:
        task = self.family.task_fn(self.family.sample(key))
        return jax.tree.map(lambda leaf: self.initial_scale * leaf, task.init(key))

    def adapted_loss(self, theta: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the loss of one task after its adaptation, and the log probability of what was collected for it."""
        sample_key, key = jax.random.split(key)
        task = self.family.task_fn(self.family.sample(sample_key))

        def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
            params, log_prob = carry
            if self.score_term:
                positions, actions, _ = task.collect(params, key)  # the episodes of the loss: the key is the same
                log_prob += task.log_prob(params, positions, actions).sum()
            grads = jax.grad(task.loss)(params, key, None)
            return (jax.tree.map(lambda p, g: p - self.inner_rate * g, params, grads), log_prob), None

        *keys, last_key = jax.random.split(key, self.inner_steps + 1)
        (params, log_prob), _ = jax.lax.scan(step, (theta, jnp.float32(0)), jnp.stack(keys))
        if isinstance(self.family, Sinusoids):
            return task.eval_loss_with_aux(params, None, last_key, None)[0], log_prob
        loss = task.loss(params, last_key, None)  # of episodes collected anew; its gradient is REINFORCE's
        if self.score_term:  # times 1 - 1/E, for each of the E episodes is part of its own baseline: made good here
            loss += (loss - jax.lax.stop_gradient(loss)) / (task.num_episodes - 1)
        return loss, log_prob

    def surrogate(self, theta: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns what is differentiated, and the mean loss after adaptation."""
        losses, log_probs = jax.vmap(lambda k: self.adapted_loss(theta, k))(jax.random.split(key, self.num_tasks))
        value = losses.mean()
        if not self.score_term:
            return value, value
        others = (losses.sum() - losses) / (self.num_tasks - 1)  # a baseline that the task's own episodes do not touch
        return value + (jax.lax.stop_gradient(losses - others) * log_probs).mean(), value

    def train(self, outer_steps: int, key: jax.Array) -> Iterator[tuple[int, Any, float]]:
        """Yields (outer steps done, theta, mean loss after adaptation) after each `BLOCK` of them."""
        outer, block = _program(self, outer_steps)
        init_key, key = jax.random.split(key)
        theta = self.initial(init_key)
        state = outer.init(theta)
        for done in range(0, outer_steps, BLOCK):
            theta, state, loss = block(theta, state, jax.random.fold_in(key, done))
            yield done + BLOCK, theta, float(loss)


@functools.cache  # runs of several seeds share the program
def _program(maml: Maml, outer_steps: int) -> tuple[Any, Any]:
    """Returns the outer optimizer, and the function that does `BLOCK` outer steps."""
    rate = optax.cosine_decay_schedule(maml.outer_rate, outer_steps, maml.final_rate_fraction)
    outer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(rate))
    outer = optax.apply_if_finite(outer, 1000)

    def one(carry: Any, key: jax.Array) -> Any:
        theta, state = carry
        grads, loss = jax.grad(maml.surrogate, has_aux=True)(theta, key)
        updates, state = outer.update(grads, state)
        return (optax.apply_updates(theta, updates), state), loss

    @jax.jit
    def block(theta: Any, state: Any, key: jax.Array) -> Any:
        (theta, state), losses = jax.lax.scan(one, (theta, state), jax.random.split(key, BLOCK))
        return theta, state, losses.mean()

    return outer, block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="Where the checkpoint goes.")
    parser.add_argument("--task", choices=("sinusoids", "goals"), default="sinusoids")
    parser.add_argument("--shots", type=int, default=10, help="Of sinusoids.")
    parser.add_argument("--score-term", action="store_true", help="Of goals.")
    parser.add_argument("--inner-steps", type=int, default=5)
    parser.add_argument("--inner-rate", type=float, default=0.01)
    parser.add_argument("--outer-steps", type=int, default=10000)
    parser.add_argument("--outer-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    is_goals = arguments.task == "goals"
    if arguments.score_term and not is_goals:
        parser.error("--score-term is of --task goals: sinusoids collect nothing")
    maml = Maml(
        family=PointGoals() if is_goals else Sinusoids(num_shots=arguments.shots),
        inner_steps=arguments.inner_steps,
        inner_rate=arguments.inner_rate,
        outer_rate=arguments.outer_rate,
        # At its rate the initial weights of a sinusoid's network diverge, and what diverges has no gradient.
        initial_scale=1.0 if is_goals else 0.3,
        score_term=arguments.score_term,
        final_rate_fraction=0.05 if is_goals else 1.0,  # on goals a rate that stays loses again what it has found
    )
    started = time.perf_counter()
    for done, trained, loss in maml.train(arguments.outer_steps, jax.random.key(arguments.seed)):
        theta = trained
        if done % 1000 == 0:
            print(f"outer step {done}: {loss:.3f}, {time.perf_counter() - started:.0f} s", flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    family = type(maml.family).__name__
    (arguments.folder / "config.gin").write_text(CONFIG.format(family=family, rate=arguments.inner_rate))
    leaves: dict[str, Any] = {f"theta/{name}": np.asarray(leaf) for name, leaf in theta.items()}
    np.savez(arguments.folder / "theta.npz", outer_step=np.int64(done), **leaves)


if __name__ == "__main__":
    main()

"""`lobench.load_optimizer`: a checkpoint as an optax transformation, for trainings outside lobench."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lobench.api.resolve import find_training_setup
from lobench.core.subject import optimizer_bindings
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.config.bound import bind_learned_optimizer
from lobench.evaluation.programs import matched_theta
from lobench.evaluation.request import ThetaLeaves
from lobench.inner.adapters import as_learned_optimizer, as_transformation
from lobench.inner.optimizer import LearnedOptimizer, Theta, Transformation
from lobench.plugins import load_plugins

__all__ = ["load_learned", "load_optimizer"]


def load_optimizer(
    checkpoint: str | Path,
    *,
    num_steps: int,
    optimizer: str = "",
    gin_params: Sequence[str] = (),
    store: str | Path | None = None,
    allow_pickle: bool = False,
) -> Transformation:
    """Loads a checkpoint as an optax optimizer, for use in your training loop.

    Its updates are the same as in an evaluation: theta and the settings are bound in the same way.

    Example:
        optimizer = lobench.load_optimizer("theta_200.npz", optimizer="AdafacMLPLOpt", num_steps=1000)
        state = optimizer.init(params)
        updates, state = optimizer.update(grads, state, params, value=loss)
        params = optax.apply_updates(params, updates)

    Args:
      checkpoint: Checkpoint file or step directory; or a name in a store, as in `lobench.evaluate`.
      num_steps: Number of updates of the training. Optimizers and rates with a schedule run over it.
      optimizer: Class of the learned optimizer, with its settings: "AdafacMLPLOpt" or
        "AdafacMLPLOpt(step_mult=0.01)". "": the optimizer that the `config.gin` next to the checkpoint binds.
      gin_params: Bindings that override the `config.gin` and `optimizer`.
      store: Store in which names are looked up.
      allow_pickle: Whether a pickled checkpoint may be loaded. Unpickling can run arbitrary code.
    Returns:
      A transformation whose `update` needs `params`, and the loss of the batch as `value` if the optimizer reads it.
      A PRNG key is `key`; without one, optimizers that draw numbers draw the same ones in each update.
    Raises:
      UsageError: The name is unknown; in `update`: the parameters or the loss are missing.
      ConfigError: Nothing names the optimizer, or a binding is invalid.
      CheckpointError, ThetaMismatch: The checkpoint cannot be read, or belongs to another optimizer.

    >>> optimizer = lobench.load_optimizer("run/theta_3.npz", num_steps=100)
    >>> state = optimizer.init(jnp.ones(2))
    """
    learned, theta, name = load_learned(
        checkpoint, optimizer=optimizer, gin_params=gin_params, store=store, allow_pickle=allow_pickle
    )
    return as_transformation(learned.opt_fn(theta, num_steps), num_steps, name=name)


def load_learned(
    checkpoint: str | Path,
    *,
    optimizer: str = "",
    gin_params: Sequence[str] = (),
    store: str | Path | None = None,
    allow_pickle: bool = False,
) -> tuple[LearnedOptimizer, Theta, str]:
    """Returns the learned optimizer of a checkpoint, its theta, and the name of its class.

    Arguments and errors are those of `load_optimizer`.
    """
    training_setup = find_training_setup(str(checkpoint), "checkpoint", None if store is None else Path(store))
    manager = load_plugins()
    _, theta = ThetaLeaves.read_checkpoint(training_setup.checkpoint, manager, allow_pickle=allow_pickle)
    optimizer_params = optimizer_bindings(optimizer, "learned_optimizer") if optimizer else ()
    layers = gin_layers_at(
        training_setup.checkpoint,
        manager,
        gin_params=(*training_setup.gin_params, *optimizer_params, *gin_params),
        variant=training_setup.variant,
    )
    layers = dataclasses.replace(layers, own_bindings=theta.own_bindings)
    bound_optimizer: Any
    bound_optimizer, theta_part = bind_learned_optimizer(layers, where=training_setup.checkpoint)
    learned = as_learned_optimizer(bound_optimizer)
    return learned, matched_theta(theta, learned, theta_part), type(bound_optimizer).__name__

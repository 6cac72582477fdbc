"""Worker of an evolution: decodes genomes, trains members, and caches thetas and compiled programs.

It answers each job with one message. The answer to an evaluation has a float32 per member of a block, for any size of
theta.
"""

from __future__ import annotations

import base64
import io
import os
import queue
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench import ConfigError, LobenchError
from lobench.extend import (
    ChiefEnd,
    Configure,
    Exit,
    Layers,
    as_learned_optimizer,
    bind_case,
    claim_for,
    device_description,
    headline,
)
from lobench_evolve import messages
from lobench_evolve.evolution_strategies import Update
from lobench_evolve.members import MemberProgram, cosine_adam
from lobench_evolve.messages import ToEvolutionWorker, WorkerTask
from lobench_evolve.settings import Configuration, read_config
from lobench_evolve.weights import RANDOM_IMPLEMENTATION, Decoder, Weights, key_of

__all__ = ["Evaluator", "serve"]

# Settings of jax that affect the bits of random numbers and arithmetic.
_FLAGS = ("jax_threefry_partitionable", "jax_enable_x64", "jax_default_matmul_precision")


class Evaluator:
    """Evaluates genomes and updates theta. The connection to the master is in `serve`.

    Args:
      config: Settings and cases. Fitness is the mean over the cases, which share one learned optimizer.
      layers: gin text that is parsed before and after each case.
    Raises:
      ConfigError: A case cannot be built, or cannot be trained in one program with the others.
    """

    def __init__(self, config: Configuration, layers: Layers) -> None:
        cases, run, es = config.cases, config.run_settings, config.es
        # jax's backend is created before the suite's modules are imported, because they may create arrays.
        is_claimed = all(claim_for(spec, layers) for spec in cases)
        decay = config.ga.decay if run.strategy == "ga" else 0.0
        bound_cases = [bind_case(spec, layers) for spec in cases]
        thread_counts = {case.case.num_cpus for case in bound_cases}
        if len(thread_counts) > 1:
            raise ConfigError(
                "Case.num_cpus differs between the cases", where=cases[0].path, got=str(sorted(thread_counts))
            )
        if not is_claimed:
            raise LobenchError("this process's jax backend was made for another number of threads")
        self.weights = Weights(
            as_learned_optimizer(bound_cases[0].case.learned_optimizer), run.initial_scale, decay=decay
        )
        self.decoder = Decoder(self.weights)
        self._programs = [
            MemberProgram(case.case, f"{spec.path}: case {spec.name!r}", run, self.weights)
            for spec, case in zip(cases, bound_cases, strict=True)
        ]
        self._width = run.members_per_program
        num_steps = run.num_generations - run.first_generation
        self._outer_optimizer = cosine_adam(es.learning_rate, num_steps, es.final_rate_fraction, es.clip_norm)
        self._outer_step = jax.jit(self._apply_gradient)
        self._theta_id = -1
        self._state: Any = None

    def provenance(self) -> dict[str, str]:
        """Returns versions, device and flags, which must not change when a run is resumed."""
        return {
            "jax": jax.__version__,
            "device": device_description(),
            "random": RANDOM_IMPLEMENTATION,
            **{flag: str(jax.config.values[flag]) for flag in _FLAGS},
            "num_weights": str(self.weights.num_weights),
        }

    def evaluate(self, trials: Sequence[tuple[int, int]]) -> np.ndarray:
        """Returns the fitness of pairs (genome id, seed), float32[len(trials)].

        A short block is padded, because the width of the program affects the bits.
        """
        padded_trials = [*trials, *[trials[-1]] * (self._width - len(trials))]
        thetas = jnp.stack([self.decoder.theta(genome, keep=False) for genome, _ in padded_trials])
        seeds = [seed for _, seed in padded_trials]
        total = np.zeros(self._width, np.float32)
        for program in self._programs:
            total += program.run(thetas, seeds)
        return (total / np.float32(len(self._programs)))[: len(trials)]

    def begin(self, seed: int) -> bytes:
        """Returns the state of evolution strategies before their first step."""
        theta = self.weights.init(key_of(seed))
        return _encode_leaves((theta, self._outer_optimizer.init(theta)))

    def rewind(self, state: bytes) -> bytes:
        """Returns a state with its outer schedule reset to the first step. Adam's moments are kept."""

        def reset_count(node: Any) -> Any:
            is_schedule = isinstance(node, optax.ScaleByScheduleState)
            return node._replace(count=jnp.zeros_like(node.count)) if is_schedule else node

        tree = self._load_state(state)
        return _encode_leaves(
            jax.tree.map(reset_count, tree, is_leaf=lambda node: isinstance(node, optax.ScaleByScheduleState))
        )

    def _load_state(self, state: bytes) -> Any:
        zeros = jnp.zeros(self.weights.num_weights)
        return _decode_leaves(state, (zeros, self._outer_optimizer.init(zeros)))

    def apply_updates(self, theta_id: int, state: bytes | None, updates: Sequence[Update]) -> None:
        """Applies updates to theta. The noise is recomputed from its seeds.

        Args:
          theta_id: Id of theta after the updates.
          state: State before the updates. None: the current one.
          updates: Updates to apply.
        """
        if state is not None:
            self._state = self._load_state(state)
        for update in updates:
            theta, outer_state = self._state
            gradient = jnp.zeros_like(theta)
            for seed, weight in zip(update.seeds, update.weights, strict=True):
                gradient = self.weights.add_noise(gradient, key_of(seed), np.float32(weight))
            self._state = self._outer_step(gradient, len(update.seeds), theta, outer_state)
        self.decoder.forget([self._theta_id])
        self._theta_id = theta_id
        self.decoder.add_theta(theta_id, self._state[0])

    def state(self) -> bytes:
        """Returns theta and the outer optimizer's state."""
        return _encode_leaves(self._state)

    def _apply_gradient(
        self, gradient: jax.Array, count: jax.Array, theta: jax.Array, outer_state: Any
    ) -> tuple[Any, Any]:
        updates, outer_state = self._outer_optimizer.update(gradient / jnp.maximum(count, 1), outer_state)
        return theta + updates, outer_state

    def export(self, genome_id: int, outer_step: int) -> bytes:
        """Returns an npz that lobench reads as a checkpoint."""
        leaves = self.weights.leaves(self.decoder.theta(genome_id))
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {f"theta/{path}": leaf for path, leaf in leaves.items()}
        np.savez(buffer, outer_step=np.int64(outer_step), **arrays)
        return buffer.getvalue()


def _encode_leaves(tree: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{f"leaf{index}": np.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(tree))})  # type: ignore[arg-type]
    return buffer.getvalue()


def _decode_leaves(data: bytes, template: Any) -> Any:
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        leaves = [jnp.asarray(file[f"leaf{index}"]) for index in range(len(file.files))]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def serve(connection: Connection, configure: Configure, *, owns_process: bool) -> None:
    """Runs one worker on a connection until an exit message; `arguments[0]` is the path of the configuration."""
    pool_connection: ChiefEnd[ToEvolutionWorker] = ChiefEnd(connection, messages.TO_WORKER, owns_process=owns_process)
    try:
        layers = configure.layers
        evaluator = Evaluator(read_config(Path(configure.arguments[0]), layers.gin_params), layers)
    except Exception as error:  # noqa: BLE001  (the process boundary: the pool raises it)
        pool_connection.send(_broken_message(error))
        return
    requests: queue.Queue[ToEvolutionWorker | None] = queue.Queue()
    pool_connection.listen(requests.put)
    pool_connection.send(messages.Welcome(provenance=evaluator.provenance(), pid=os.getpid()))
    while (message := requests.get()) is not None and not isinstance(message, Exit):
        try:
            if isinstance(message, messages.Learn):
                _apply_learn(evaluator, message)
            else:
                pool_connection.send(messages.Answer(job=message.job, payload=_answer_task(evaluator, message)))
        except Exception as error:  # noqa: BLE001  (the process boundary: the pool raises it)
            pool_connection.send(_broken_message(error))


def _broken_message(error: Exception) -> messages.Broken:
    """Returns an error message of one line. Logs the traceback of unexpected errors."""
    if not isinstance(error, LobenchError):
        traceback.print_exception(error)
    return messages.Broken(message=headline(error))


def _apply_learn(evaluator: Evaluator, message: messages.Learn) -> None:
    evaluator.decoder.forget(message.forget)
    evaluator.decoder.add_genomes(message.genomes)
    if (theta_updates := message.theta_updates) is not None:
        state = base64.b64decode(theta_updates.state) if theta_updates.state is not None else None
        evaluator.apply_updates(theta_updates.theta, state, theta_updates.updates)


def _answer_task(evaluator: Evaluator, task: WorkerTask) -> bytes:
    match task:
        case messages.Evaluate(trials=trials):
            return evaluator.evaluate(trials).astype("<f4").tobytes()
        case messages.Begin(seed=seed):
            return evaluator.begin(seed)
        case messages.Rewind(state=state):
            return evaluator.rewind(base64.b64decode(state))
        case messages.StateRequest():
            return evaluator.state()
        case messages.Export(genome=genome, outer_step=outer_step):
            return evaluator.export(genome, outer_step)

"""Seed block: its state between inner steps, and its final curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from lobench.core.case import SeedBlock
from lobench.core.result import Curves, Provenance
from lobench.core.step_cost import StepCost
from lobench.inner.optimizer import PyTree

__all__ = ["OF_REPLICAS", "OF_THETAS", "Carry", "Trained", "curves_of", "of_theta", "rows_of"]


class Carry(NamedTuple):
    """State of a block between steps. With several replicas, the first five fields have a leading axis."""

    opt_state: PyTree
    params: PyTree
    model_state: PyTree
    diverged_at: jax.Array  # int32[(num_replicas)], -1 where not
    step: jax.Array  # int32[]
    num_evals: jax.Array  # int32[]
    # The last rows of these two are padding.
    metrics: dict[str, jax.Array]  # float32[num_evals + some (, num_replicas)]
    log: dict[str, jax.Array]  # float32[num_logs + some (, num_replicas)], of training batches
    window: dict[str, jax.Array]  # float32[eval_every (, num_replicas)], the last batches; empty with evaluations


# Positions of the axes of replicas and thetas. Counters have none, because with one both branches of every condition
# would be computed.
OF_REPLICAS = Carry(0, 0, 0, 0, None, None, 1, 1, 1)  # type: ignore[arg-type]
OF_THETAS = Carry(0, 0, 0, 0, None, None, 0, 0, 0)  # type: ignore[arg-type]


class Trained(NamedTuple):
    """A finished block. Seconds are divided by the number of thetas that were trained together.

    Attributes:
      resumed_at: Step of the saved state from which it continued; 0 if it ran from the start.
      end: Last step that counts. The state may be that of a later step.
      cost: Cost of the steps; None if no step was left.
      at_once: Number of trainings that a device computed at the same time. 0: all trainings of the device.
    """

    carry: Carry
    compile_seconds: float
    wall_seconds: float
    cpu_seconds: float
    resumed_at: int
    end: int
    cost: StepCost | None = None
    at_once: int = 0


def of_theta(carry: Carry, index: int) -> Carry:
    """Returns the state of one of several thetas."""
    counters = {"step": carry.step, "num_evals": carry.num_evals}
    arrays = carry._replace(step=None, num_evals=None)  # type: ignore[arg-type]  # an empty subtree
    return jax.tree.map(lambda leaf: leaf[index], arrays)._replace(**counters)


def curves_of(
    carry: Carry,
    block_result: Trained,
    block: SeedBlock,
    *,
    tasks_per_seed: int,
    eval_steps: Sequence[int],
    log_steps: Sequence[int],
) -> Curves:
    """Returns the curves of one theta's block. For a task family, a seed's curves are means over its tasks."""
    shape = (block.size, tasks_per_seed)
    divergence_steps = np.asarray(carry.diverged_at).reshape(shape)
    # A partial training that continued from the state of a longer one may have a divergence after its own end.
    divergence_steps = np.where(divergence_steps > eval_steps[-1], -1, divergence_steps)
    # A seed of a family diverges when the first of its tasks does.
    first_divergence = np.where(divergence_steps < 0, np.iinfo(np.int32).max, divergence_steps).min(axis=1)
    diverged_at = np.where((divergence_steps < 0).all(axis=1), -1, first_divergence)
    metrics = {name: _rows_by_seed(value, shape, len(eval_steps)) for name, value in carry.metrics.items()}
    metrics |= {f"batch/{name}": _rows_by_seed(value, shape, len(log_steps)) for name, value in carry.log.items()}
    return Curves(
        seeds=tuple(block.seeds),
        metrics=metrics,
        eval_steps=tuple(eval_steps),
        log_steps=tuple(log_steps),
        diverged_at=tuple(diverged_at.tolist()),
        compile_seconds=block_result.compile_seconds,
        wall_seconds=block_result.wall_seconds,
        cpu_seconds=block_result.cpu_seconds,
        resumed_at=block_result.resumed_at,
        cost=block_result.cost,
        provenance=Provenance(at_once=block_result.at_once),
        num_params=sum(leaf.size for leaf in jax.tree.leaves(carry.params)) // divergence_steps.size,
    )


def _rows_by_seed(values: jax.Array, shape: tuple[int, int], num_rows: int) -> memoryview[float]:
    """Returns the first `num_rows` rows as float32[num_seeds, count], averaged over a seed's tasks."""
    values_by_seed = np.asarray(values)[:num_rows].reshape(num_rows, *shape)
    rows = values_by_seed[:, :, 0] if shape[1] == 1 else values_by_seed.mean(axis=2, dtype=np.float32)
    return rows_of(rows.T)


def rows_of(values: np.ndarray) -> memoryview[float]:
    """Returns values [num_seeds, count] in the form that curves store."""
    return memoryview(np.ascontiguousarray(values, dtype="<f4").data)

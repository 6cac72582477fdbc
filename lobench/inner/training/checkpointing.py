"""Training checkpoint: the state between two inner steps, as arrays with a header."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case
from lobench.inner.optimizer import PyTree
from lobench.inner.training.prefetch import empty
from lobench.inner.training.seed_block import Carry

__all__ = ["SavePoints", "SavedState", "Saves", "StateMismatch", "carry_of", "state_of"]

_SAVE_SECONDS = 60.0  # between saves, unless the case sets `save_every`
_MAX_SAVE_SHARE = 0.01  # largest fraction of the time for saves
_ROW_FIELDS = ("metrics", "log", "window")


class SavedState(NamedTuple):
    """Saved state of a training.

    Attributes:
      leaves: Plain arrays by name.
      header: JSON values: `step`, `phase`, positions of evaluations and iterators, and seconds so far.
    """

    leaves: Mapping[str, np.ndarray]
    header: Mapping[str, Any]


class Saves(Protocol):
    """Storage for the states of one seed block."""

    def load(self) -> tuple[Mapping[str, np.ndarray], Mapping[str, Any]] | None:
        """Returns the leaves and the header of the most advanced complete state."""

    def save(self, state: SavedState, *, is_final: bool) -> None:
        """Stores a state in place of the previous one. Final states are never replaced."""

    def refuse(self, why: str) -> None:
        """Discards the loaded state, because it cannot be used."""


class StateMismatch(Exception):
    """A saved state belongs to another program. The text gives the difference."""


@dataclass(slots=True)
class SavePoints:
    """Schedule of saved states: multiples of `Case.save_every`, or about once a minute if that is None."""

    case: Case
    saves: Saves | None
    _last_save: float = field(default_factory=time.monotonic)
    _wait_seconds: float = _SAVE_SECONDS

    def next_stop(self, step: int) -> int:
        """Returns the step after `step` at which a state must be saved, or the training's end."""
        save_every = self.case.save_every
        end = self.case.num_inner_steps
        return min(end, (step // save_every + 1) * save_every) if self.saves is not None and save_every else end

    def is_due(self, step: int) -> bool:
        if self.saves is None or step >= self.case.num_inner_steps:
            return False
        save_every = self.case.save_every
        return (
            time.monotonic() - self._last_save >= self._wait_seconds
            if save_every is None
            else save_every > 0 and step % save_every == 0
        )

    def record_save(self, seconds: float) -> None:
        """Records the duration of a save. Large states are saved less often."""
        self._last_save, self._wait_seconds = time.monotonic(), max(_SAVE_SECONDS, seconds / _MAX_SAVE_SHARE)


def state_of(carry: Carry, header: Mapping[str, Any]) -> SavedState:
    """Returns the state of a block to save between steps."""
    leaves = {name: _standard_array(leaf) for name, leaf in _leaves_by_path(carry).items()}
    for rows in _ROW_FIELDS:
        leaves |= {f"{rows}:{name}": np.asarray(value) for name, value in getattr(carry, rows).items()}
    counters = {"step": int(carry.step), "num_evals": int(carry.num_evals)}
    return SavedState(leaves, {**header, **counters})


def carry_of(state: SavedState, carry_shape: Carry, *, eval_steps: Sequence[int], log_steps: Sequence[int]) -> Carry:
    """Returns a block from its saved state, with room for the evaluations and the log of this training.

    The training that saved it may have been shorter. Its last evaluation is kept if this training evaluates at the same
    step, and dropped otherwise. For example, a training of 30 steps that evaluates every 20 has an evaluation at step
    30, but a training of 60 steps has none there.

    Args:
      state: Saved state.
      carry_shape: Carry of this training, in the phase of the state.
      eval_steps, log_steps: Steps of this training's evaluations and log.
    Raises:
      StateMismatch: The state has other leaves, or was evaluated at other steps.
    """
    header = state.header
    step = int(state.header["step"])
    leaves_by_path = {
        path: _restored_leaf(state.leaves, path, leaf) for path, leaf in _leaves_by_path(carry_shape).items()
    }
    structure = jax.tree.structure(_saved_state(carry_shape))
    opt_state, params, model_state, diverged_at = jax.tree.unflatten(structure, leaves_by_path.values())
    saved_steps = list(header["eval_steps"])[: header["num_evals"]]
    earlier_evals = [
        eval_step for eval_step in eval_steps if eval_step < step or (eval_step == step and eval_step in saved_steps)
    ]
    if earlier_evals != [eval_step for eval_step in saved_steps if eval_step in eval_steps] or set(saved_steps) - set(
        earlier_evals
    ) - {step}:
        raise StateMismatch(f"it was evaluated at steps {saved_steps[:4]}..., not at {list(eval_steps)[:4]}...")
    if step not in earlier_evals:  # the divergence may have been found by the omitted evaluation
        diverged_at = np.where(diverged_at == step, -1, diverged_at).astype(diverged_at.dtype)
    indices = [saved_steps.index(eval_step) for eval_step in earlier_evals]
    num_logs = bisect.bisect_left(log_steps, step)

    def new_rows_of(field_name: str, copy_rows: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> dict[str, Any]:
        new_rows = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in getattr(carry_shape, field_name).items()}
        return {
            name: copy_rows(_saved_leaf(state.leaves, f"{field_name}:{name}"), new) for name, new in new_rows.items()
        }

    return Carry(
        opt_state=opt_state,
        params=params,
        model_state=model_state,
        diverged_at=diverged_at,
        step=np.int32(step),  # type: ignore[arg-type]  # a program takes NumPy's too
        num_evals=np.int32(len(earlier_evals)),  # type: ignore[arg-type]
        metrics=new_rows_of("metrics", lambda old, new: _copy_rows(new, old[indices])),
        log=new_rows_of("log", lambda old, new: _copy_rows(new, old[:num_logs])),
        window=new_rows_of("window", lambda old, new: _copy_last_batches(old, new, step)),
    )


def _saved_state(carry: Carry) -> tuple[PyTree, PyTree, PyTree, Any]:
    return carry.opt_state, carry.params, carry.model_state, carry.diverged_at


def _leaves_by_path(carry: Carry) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(_saved_state(carry))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _standard_array(leaf: Any) -> np.ndarray:
    """Returns an array of a standard type: keys as their data, unusual number types as bytes."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    if array.dtype.kind in "biuf":
        return array
    return np.ascontiguousarray(array).reshape(*array.shape, 1).view(np.uint8)


def _saved_leaf(leaves: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in leaves:
        raise StateMismatch(f"it has no {name}")
    return leaves[name]


def _restored_leaf(leaves: Mapping[str, np.ndarray], name: str, template: Any) -> Any:
    value: Any = _saved_leaf(leaves, name)
    if jnp.issubdtype(template.dtype, jax.dtypes.extended):
        value = jax.random.wrap_key_data(jnp.asarray(value), impl=jax.random.key_impl(empty(template)))
    elif template.dtype.kind not in "biuf":
        value = value.view(template.dtype).reshape(value.shape[:-1])
    if (value.shape, value.dtype) != (template.shape, template.dtype):
        raise StateMismatch(
            f"its {name} is {value.dtype}{list(value.shape)}, and not {template.dtype}{list(template.shape)}"
        )
    return value


def _copy_rows(rows: np.ndarray, first_rows: np.ndarray) -> np.ndarray:
    rows[: len(first_rows)] = first_rows
    return rows


def _copy_last_batches(saved_rows: np.ndarray, rows: np.ndarray, step: int) -> np.ndarray:
    """Copies the last batches before a step from one ring buffer into another, which may be longer."""
    for row_step in range(max(step - min(len(saved_rows), len(rows)), 0), step):
        rows[row_step % len(rows)] = saved_rows[row_step % len(saved_rows)]
    return rows

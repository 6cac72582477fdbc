"""Parity files: N gradients and the resulting parameters of an optimizer, for tests of other implementations.

`write` records an optimizer in lobench. `check` steps another implementation through the same gradients and compares
the parameters after every step. `check` needs only numpy, so that it runs with PyTorch and without jax.

    from lobench.testing import parity

    def step(params, gradients, step, loss):          # dicts of float32 arrays by name
        return {name: params[name] - 0.1 * gradients[name] for name in params}

    parity.check("sgd.npz", step)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lobench.core.errors import LobenchError

__all__ = ["Parity", "ParityError", "check", "read", "write"]

_FORMAT = 1
_SHAPES: Mapping[str, tuple[int, ...]] = {"kernel": (2, 2, 1, 3), "weights": (5, 4), "bias": (4,), "scale": ()}
_ARRAY_FIELDS = ("initial", "gradients", "expected")

Arrays = dict[str, NDArray[np.float32]]


class ParityError(LobenchError, AssertionError):
    """Error raised if another implementation gives different parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Parity file: parameters that an optimizer reached, for checks of another implementation.

    Attributes:
      about: Origin of the file: `optimizer`, `lobench` and `jax`, with versions.
      initial: Parameters before the first step, by name.
      gradients: Gradients by name, [num_steps, ...].
      losses: Losses passed to the optimizer, [num_steps].
      expected: Parameters after each step by name, [num_steps, ...].
    """

    about: Mapping[str, str]
    initial: Arrays
    gradients: Arrays
    losses: NDArray[np.float32]
    expected: Arrays

    @property
    def num_steps(self) -> int:
        return len(self.losses)


def write(
    path: str | Path,
    optimizer: Any,
    *,
    theta: Any = None,
    params: Mapping[str, Any] | None = None,
    num_steps: int = 20,
    seed: int = 0,
) -> Parity:
    """Steps an optimizer in lobench, and writes its inputs and the resulting parameters.

    The gradients are drawn at random and depend on no loss, so that an error in one step is not hidden by the next.
    Their size falls from step to step, as in a training. An optimizer that draws random numbers has no parity.

    Args:
      path: Path of the file, such as `adam.npz`.
      optimizer: An optax transformation, a LearnedOptimizer, or another object that lobench adapts.
      theta: Theta of a learned optimizer. None: its `init` with the key 0.
      params: Initial parameters by name. None: those of a small network, of every rank.
      num_steps: Number of steps, which is passed to a learned optimizer.
      seed: Seed of the gradients, and of the parameters if none are given.

    Raises:
      ConfigError: The object is not an optimizer.
    """
    import jax

    from lobench.inner.adapters import as_learned_optimizer, as_stepper

    generator = np.random.default_rng(seed)
    initial_leaves = (
        {name: generator.standard_normal(shape) for name, shape in _SHAPES.items()} if params is None else params
    )
    initial = {name: np.asarray(leaf, np.float32) for name, leaf in initial_leaves.items()}
    gradient_scales = np.geomspace(1, 0.1, num_steps)
    gradients: Arrays = {
        name: np.stack([size * generator.standard_normal(leaf.shape) for size in gradient_scales]).astype(np.float32)
        for name, leaf in initial.items()
    }
    losses = (2 * gradient_scales).astype(np.float32)
    name = type(optimizer).__name__
    if callable(getattr(optimizer, "opt_fn", None)):
        learned_optimizer = as_learned_optimizer(optimizer)
        theta_values = learned_optimizer.init(jax.random.key(0)) if theta is None else theta
        optimizer = learned_optimizer.opt_fn(theta_values, num_steps)
    stepper = as_stepper(optimizer, num_steps)
    key = jax.random.key(seed)
    values: Any = stepper.initial_params(initial)
    state = stepper.init(values, (), key)
    model_state = ()
    step = jax.jit(stepper.step)
    leaves_by_name: dict[str, list[Any]] = {leaf_name: [] for leaf_name in initial}
    for index in range(num_steps):
        step_gradients = {leaf_name: leaf[index] for leaf_name, leaf in gradients.items()}
        state, values, model_state = step(
            state, values, model_state, step_gradients, losses[index], jax.random.fold_in(key, index)
        )
        for leaf_name, leaves in leaves_by_name.items():
            leaves.append(np.asarray(values[leaf_name]))
    description = {"optimizer": name, "jax": jax.__version__}
    parity = Parity(
        about=description,
        initial=initial,
        gradients=gradients,
        losses=losses,
        expected={leaf_name: np.stack(leaves).astype(np.float32) for leaf_name, leaves in leaves_by_name.items()},
    )
    _save(Path(path), parity)
    return parity


def _save(path: Path, parity: Parity) -> None:
    arrays = {
        f"{field_name}/{name}": leaf
        for field_name in _ARRAY_FIELDS
        for name, leaf in getattr(parity, field_name).items()
    }
    text = json.dumps({"format": _FORMAT, **parity.about})
    with path.open("wb") as file:  # np.savez would add a suffix to a path without one
        np.savez(file, about=np.asarray(text), losses=parity.losses, **arrays)


def read(path: str | Path) -> Parity:
    """Reads a file made by `write`.

    Raises:
      LobenchError: The file is not a parity file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            description = json.loads(str(file["about"]))
            arrays_by_field: dict[str, Arrays] = {field_name: {} for field_name in _ARRAY_FIELDS}
            for name in file.files:
                field_name, _, leaf_name = name.partition("/")
                if field_name in arrays_by_field:
                    arrays_by_field[field_name][leaf_name] = file[name]
            version = description.pop("format")
            parity = Parity(about=description, losses=file["losses"], **arrays_by_field)
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected = "what lobench.testing.parity.write wrote"
        raise LobenchError("not a parity file", where=str(path), got=repr(error), expected=expected) from error
    if version != _FORMAT:
        raise LobenchError(
            "a file of parity of another format", where=str(path), got=repr(version), expected=str(_FORMAT)
        )
    return parity


def check(
    path: str | Path,
    step_function: Callable[[Arrays, Arrays, int, float], Mapping[str, Any]],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> int:
    """Steps another implementation through a file's gradients, and compares parameters after every step.

    Each step starts from the implementation's own parameters, as in a training, so that small errors add up.

    Args:
      path: Path of the file.
      step_function: (params, gradients, step, loss) -> the next parameters: dicts of float32 arrays by name. `step`
        counts from 0. The results may be anything that numpy converts to an array, such as PyTorch tensors.
      rtol, atol: Tolerances, as in `numpy.allclose`.

    Returns:
      Number of steps that were compared.

    Raises:
      ParityError: Parameters differ. The message names the first such step, and the leaf with the largest error.
      LobenchError: The file is not a parity file.
    """
    parity = read(path)
    params = {name: leaf.copy() for name, leaf in parity.initial.items()}
    for step in range(parity.num_steps):
        gradients = {name: leaf[step].copy() for name, leaf in parity.gradients.items()}
        new_params = step_function(params, gradients, step, float(parity.losses[step]))
        params = {name: np.array(new_params[name], np.float32) for name in parity.initial if name in new_params}
        if missing_names := parity.initial.keys() - params.keys():
            raise ParityError(f"step {step} returns no {', '.join(sorted(missing_names))}", where=str(path))
        differences = [line for name in params if (line := _leaf_error(name, params[name], parity, step, rtol, atol))]
        if differences:
            _, problem, got, expected = max(differences)
            next_step = "parameters before it agree" if step else "the first step is off already"
            raise ParityError(
                f"step {step} of {parity.num_steps}: {problem}",
                where=str(path),
                got=got,
                expected=expected,
                next_step=next_step,
            )
    return parity.num_steps


def _leaf_error(
    name: str, got: NDArray[np.float32], parity: Parity, step: int, rtol: float, atol: float
) -> tuple[float, str, str, str] | None:
    """Returns the error of a leaf relative to the tolerance, and its description; None if it is tolerated."""
    expected = parity.expected[name][step]
    if got.shape != expected.shape:
        return np.inf, f"{name} has another shape", str(got.shape), str(expected.shape)
    with np.errstate(invalid="ignore"):
        errors = np.abs(got.astype(np.float64) - expected) / (atol + rtol * np.abs(expected.astype(np.float64)))
    errors = np.where((got == expected) | (np.isnan(got) & np.isnan(expected)), 0.0, np.nan_to_num(errors, nan=np.inf))
    worst_index = np.unravel_index(int(errors.argmax()), errors.shape)
    if errors[worst_index] <= 1:
        return None
    location = f"{name}[{', '.join(map(str, worst_index))}]" if worst_index else name
    num_wrong = int((errors > 1).sum())
    text = f"{location} is off" + (f", and {num_wrong - 1} more of {errors.size}" if num_wrong > 1 else "")
    return float(errors[worst_index]), text, repr(float(got[worst_index])), repr(float(expected[worst_index]))

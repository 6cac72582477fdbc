"""Forms of published weights, and which leaves of a theta each name stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lobench.core.errors import UsageError

__all__ = ["FORMS", "Converted", "WeightsForm", "convert_leaves"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsForm:
    """What a package writes.

    Attributes:
      name: The class whose state dict it is.
      optimizers: Of lobench's, those that train with it; the first where none is said.
      leaves: Theirs -> ours.
      transposed: Whether matrices are [outputs, inputs], as torch's layers have them.
      zeros: Leaves of an optimizer that the form does not hold, and that are 0: name -> shape.
    """

    name: str
    optimizers: tuple[str, ...]
    leaves: Mapping[str, str]
    transposed: bool = False
    zeros: Mapping[str, Mapping[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """Weights as a checkpoint.

    Attributes:
      form: The form that they were found in. optimizer: Lobench's class that trains with them.
      theta: float32, by path.
      matched: Their name, our path, shape; "" for a leaf that the form does not hold.
    """

    form: str
    optimizer: str
    theta: Mapping[str, np.ndarray]
    matched: tuple[tuple[str, str, tuple[int, ...]], ...]


_LAYERS = {"network.input": 0, "network.linear_0": 1, "network.output": 2}
_CELO2 = [*(f"w0.{index}" for index in range(14)), "b0", "dense_w.0", "dense_w.1", "dense_b.0", "dense_b.1"]
FORMS = (
    WeightsForm(
        name="MetaMLP",
        optimizers=("ELO", "AdafacMLPLOpt"),
        leaves={
            **{f"{layer}.weight": f"nn/~/w{index}" for layer, index in _LAYERS.items()},
            **{f"{layer}.bias": f"nn/~/b{index}" for layer, index in _LAYERS.items()},
        },
        transposed=True,
        zeros={"AdafacMLPLOpt": {"momentum_decays": (3,), "rms_decays": (1,), "adafactor_decays": (3,)}},
    ),
    WeightsForm(name="CELO2MLP", optimizers=("Celo2", "EloCelo2"), leaves={name: name for name in _CELO2}, zeros={}),
)


def convert_leaves(leaves: Mapping[str, np.ndarray], optimizer: str | None, where: str) -> Converted:
    """Returns weights under lobench's names.

    Args:
      optimizer: A class of lobench's; None: the first that the form is for.
    Raises:
      UsageError: no form has these names, all of them and no other, or the form is for other optimizers.
    """
    form = max(FORMS, key=lambda each: len(each.leaves.keys() & leaves.keys()))
    missing = sorted(form.leaves.keys() - leaves.keys())
    left_over = sorted(leaves.keys() - form.leaves.keys())
    if missing or left_over:
        known = ", ".join(each.name for each in FORMS)
        got = "; ".join(
            f"{what} {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"
            for what, names in (("without", missing), ("with", left_over))
            if names
        )
        raise UsageError("these are no published weights that lobench knows", where=where, got=got, expected=known)
    if optimizer is not None and optimizer not in form.optimizers:
        expected = " or ".join(form.optimizers)
        raise UsageError(f"{form.name} is not what {optimizer} trains with", where=where, expected=expected)
    chosen = optimizer or form.optimizers[0]
    theta: dict[str, np.ndarray] = {}
    matched = []
    for theirs, ours in form.leaves.items():
        leaf = np.asarray(leaves[theirs], np.float32)
        theta[ours] = _as_ours(leaf, form)
        matched.append((theirs, ours, theta[ours].shape))
    for ours, shape in form.zeros.get(chosen, {}).items():
        theta[ours] = np.zeros(shape, np.float32)
        matched.append(("", ours, shape))
    return Converted(form=form.name, optimizer=chosen, theta=theta, matched=tuple(matched))


def _as_ours(leaf: np.ndarray, form: WeightsForm) -> np.ndarray:
    turn: Callable[[np.ndarray], np.ndarray] = np.transpose if form.transposed and leaf.ndim == 2 else np.asarray
    return np.ascontiguousarray(turn(leaf))

"""Faults planted into small trainings, and what `lobench debug` says of them.

python benchmarks/planted_faults.py [COUNT]     the first few alone
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from harness import answer_help

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.task import ArrayDataset, Datasets, Task
from lobench.inner.theta import leaf_paths
from lobench.inner.training.replay import ReplayedProgram, ReplayedStep
from lobench.tools.debug.diagnosis import DiagnosedStep, Diagnosis, InputRanges, Training, diagnose
from lobench.tools.debug.replayed_case import summarize_step

__all__ = ["FAULTS", "Fault", "replayed"]

NUM_STEPS = 120
SGD = optax.sgd(0.05)


class Net(Task):
    """Two layers on a teacher's 64 examples; what `Fault` needs is changed by its arguments."""

    def __init__(
        self,
        *,
        dtype: Any = jnp.float32,
        scale: float = 1.0,
        bias: float = 0.0,
        offset: float = 0.0,
        spoiled: str = "",
    ) -> None:
        draws = np.random.default_rng(0)
        x = draws.normal(size=(64, 4)).astype(np.float32)
        y = np.maximum(x @ draws.normal(size=(4, 1)), 0).astype(np.float32)
        x[13, 0] = np.nan if spoiled == "batch" else x[13, 0]
        y[13] = 9.0 if spoiled == "loss" else y[13]
        self._dtype, self._scale, self._bias, self._offset, self._spoiled = dtype, scale, bias, offset, spoiled
        self.datasets = Datasets(train=ArrayDataset((x, y), 16))

    def init(self, key: jax.Array) -> Any:
        keys = jax.random.split(key, 2)
        params = {
            "w0": self._offset + jax.random.normal(keys[0], (4, 8)) / 2,
            "b0": jnp.full((8,), self._bias),
            "w1": self._offset + jax.random.normal(keys[1], (8, 1)) / 3,
            "b1": jnp.zeros((1,)),
        }
        return jax.tree.map(lambda leaf: leaf.astype(self._dtype), params)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        x, y = (part.astype(self._dtype) for part in data)
        hidden = jax.nn.relu(x @ params["w0"] + params["b0"])
        loss = jnp.mean((hidden @ params["w1"] + params["b1"] - y) ** 2) * self._scale
        if self._spoiled == "loss":
            loss = jnp.where((y == 9.0).any(), jnp.nan, loss)
        if self._spoiled == "gradient":
            loss = loss + jnp.sqrt(jnp.sum(params["b0"] ** 2))
        return loss.astype(self._dtype)


def spoiling(at: int, spoil: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
    """SGD with a state; `spoil` changes (updates, state) at one step."""

    def init(params: Any) -> Any:
        return {"count": jnp.int32(0), "nu": jax.tree.map(jnp.zeros_like, params)}

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        nu = jax.tree.map(lambda old, g: 0.9 * old + 0.1 * g**2, state["nu"], grads)
        updates = jax.tree.map(lambda g: -0.02 * g, grads)
        spoiled = spoil(updates, nu)
        is_time = state["count"] == at
        updates, nu = jax.tree.map(lambda a, b: jnp.where(is_time, a, b), spoiled, (updates, nu))
        return updates, {"count": state["count"] + 1, "nu": nu}

    return optax.GradientTransformationExtraArgs(init, update)


def lstm(theta: Any = None) -> Any:
    """A rule whose cell forgets nothing and grows a thousandfold at each step, behind a tanh."""

    def init(params: Any) -> Any:
        return {"lstm": {"c": jnp.ones((3,)), "h": jnp.zeros((3,))}}

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        c = state["lstm"]["c"] * 1e3
        h = jnp.tanh(c)
        return jax.tree.map(lambda g: -0.02 * jnp.nan_to_num(h).mean() * g, grads), {"lstm": {"c": c, "h": h}}

    return optax.GradientTransformationExtraArgs(init, update)


def linear_rule(theta: Any) -> Any:
    """A learned rule: one product with the gradient and its square."""

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        def one(g: jax.Array) -> jax.Array:
            features = jnp.stack([jnp.ravel(g), jnp.ravel(g) ** 2], axis=1)
            return (features @ theta["w"]).reshape(g.shape)

        return jax.tree.map(one, grads), state

    return optax.GradientTransformationExtraArgs(lambda params: {}, update)


def by_layer(**rates: float) -> Any:
    return optax.partition({name: optax.sgd(rate) for name, rate in rates.items()}, {name: name for name in rates})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A training that goes wrong in a known way.

    Attributes:
      expected: Kind, place and a part of the leaf's name.
      theta: Of a learned rule: its optimizer is made from it.
      word: That the verdict's line must have.
    """

    name: str
    expected: tuple[str, str, str]
    task: Callable[[], Task] = Net
    optimizer: Any = SGD
    theta: Any = None
    word: str = ""

    def is_named_by(self, verdict: Diagnosis) -> bool:
        kind, place, leaf = self.expected
        named = leaf in verdict.leaf if leaf else kind == "non_finite" or not verdict.leaf
        return (verdict.kind, verdict.place) == (kind, place) and named and self.word in verdict.line


def _nan(tree: Any, leaf: str) -> Any:
    return {**tree, leaf: jnp.full_like(tree[leaf], jnp.nan)}


FAULTS = (
    Fault(
        name="rate too high in one layer",
        expected=("one_layer", "", "w1"),
        optimizer=by_layer(w0=0.02, b0=0.02, w1=6.0, b1=0.02),
    ),
    Fault(
        name="NaN in a second moment",
        expected=("non_finite", "optimizer_state", "nu/w0"),
        optimizer=spoiling(20, lambda updates, nu: (updates, _nan(nu, "w0"))),
    ),
    Fault(
        name="overflow in an LSTM",
        expected=("non_finite", "optimizer_state", "lstm/c"),
        optimizer=lstm(),
        word="overflows",
    ),
    Fault(
        name="bfloat16 loses small updates",
        expected=("lost_updates", "", "w"),
        task=lambda: Net(dtype=jnp.bfloat16, offset=1.0),
        optimizer=optax.sgd(1e-6),
        word="bfloat16",
    ),
    Fault(
        name="the gradient underflows in float16",
        expected=("underflow", "", "b"),
        task=lambda: Net(dtype=jnp.float16, scale=2e-8),
        word="float16",
    ),
    Fault(name="a dead layer", expected=("dead_layer", "", "0"), task=lambda: Net(bias=-50.0)),
    Fault(name="a task that returns NaN", expected=("non_finite", "loss", ""), task=lambda: Net(spoiled="loss")),
    Fault(name="NaN in the data", expected=("non_finite", "batch", ""), task=lambda: Net(spoiled="batch")),
    Fault(
        name="a gradient without a value, the loss has one",
        expected=("non_finite", "gradient", "b0"),
        task=lambda: Net(spoiled="gradient"),
    ),
    Fault(
        name="the rule puts out NaN",
        expected=("non_finite", "output", "w1"),
        optimizer=spoiling(15, lambda updates, nu: (_nan(updates, "w1"), nu)),
    ),
    Fault(name="rate too high in all layers", expected=("all_layers", "", ""), optimizer=optax.sgd(3.0)),
    Fault(
        name="a rate that jumps in the middle",
        expected=("all_layers", "", ""),
        optimizer=optax.sgd(lambda count: jnp.where(count < 60, 0.02, 5.0)),
    ),
    Fault(name="a rate that is far too low", expected=("tiny_updates", "", ""), optimizer=optax.sgd(1e-9)),
    Fault(
        name="the rule leaves a layer out",
        expected=("frozen", "", "w1"),
        optimizer=by_layer(w0=0.02, b0=0.02, w1=0.0, b1=0.02),
    ),
    Fault(
        name="an input of the rule out of its range",
        expected=("all_layers", "", ""),
        optimizer=linear_rule,
        theta={"w": np.asarray([-0.02, 0.0], np.float32)},
        task=lambda: Net(scale=400.0),
        word="where the rule is at home",
    ),
)


def _usual(fault: Fault) -> InputRanges:
    """Returns the ranges of the rule's inputs on the net as it is without the fault."""
    if fault.theta is None:
        return {}
    found: dict[str, Any] = {}
    for step in _steps(Net(), fault)[0]:
        for name, (low, high) in step.input_ranges.items():
            before = found.get(name, (low, high))
            found[name] = np.fmin(before[0], low), np.fmax(before[1], high)
    return found


def _steps(task: Task, fault: Fault) -> tuple[list[DiagnosedStep], dict[str, str], bool]:
    case = Case(num_inner_steps=NUM_STEPS, eval_every=20, eval_batches=0)
    make = fault.optimizer if fault.theta is not None else lambda theta: fault.optimizer
    program = ReplayedProgram(case, task, lambda theta, *_: as_stepper(make(theta), NUM_STEPS), 2)
    block, theta = SeedBlock(start=0, size=2), fault.theta if fault.theta is not None else {}
    steps: list[DiagnosedStep] = []
    dtypes: dict[str, str] = {}

    def look(look: ReplayedStep) -> bool:
        dtypes.update({path: str(leaf.dtype) for path, leaf in leaf_paths(look.before.params).items()})
        steps.append(summarize_step(look))
        return True

    evaluated, found = program.run(theta, block), program.replay(theta, block, 1, look)
    assert evaluated is not None
    are_equal = all(bytes(found.metrics[name]) == bytes(evaluated.metrics[name]) for name in evaluated.metrics)
    return steps, dtypes, are_equal and found.diverged_at == evaluated.diverged_at


def replayed(fault: Fault) -> tuple[Training, bool]:
    """Returns the training, and whether its curves are the evaluation's, bit for bit."""
    steps, dtypes, are_equal = _steps(fault.task(), fault)
    training = Training(steps=tuple(steps), dtypes=dtypes, num_inner_steps=NUM_STEPS, usual_ranges=_usual(fault))
    return training, are_equal


def main() -> None:
    """Print the table."""
    print("| fault | named | the same bits | what it says |\n|---|---|---|---|")
    named = 0
    faults = FAULTS[: int(sys.argv[1])] if len(sys.argv) > 1 else FAULTS
    for fault in faults:
        training, are_equal = replayed(fault)
        verdict = diagnose(training)
        named += fault.is_named_by(verdict)
        output = f"{verdict.kind} {verdict.leaf}".strip()
        is_named = "yes" if fault.is_named_by(verdict) else f"no: {output}"
        print(f"| {fault.name} | {is_named} | {'yes' if are_equal else 'no'} | {verdict.line} |", flush=True)
    print(f"\n{named} of {len(faults)} named rightly")


if __name__ == "__main__":
    answer_help(__doc__)
    main()

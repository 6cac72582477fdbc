"""Torch's optimizers in lobench: what a step costs, and how far its curves are from those of equal rules in jax.

python benchmarks/torch_steps.py [--quick] [--steps]

1. Seconds of a whole training of digits (MLP 64-32-10, batches of 64, one seed, one thread): torch's Adam in lobench
   over lobench's Adam, over the same training written in torch alone, and over torch's Adam in another process.
   Further optimizers in lobench over their own loops in torch: Adam that counts its steps in Python ints or in tensors,
   one of these over the other, and those of other packages that are installed, in processor time. With --steps this
   part alone.
2. For each optimizer and each case of suites/quick, the largest relative distance between the curves of the training
   loss of torch's optimizer and of the same rule in optax, and how far optax's own curve moves when the initial
   parameters move by 1e-7: nothing can be closer than that. NAdam's two rules differ: torch's beta changes from
   step to step, as in the paper, and optax's does not.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from harness import Rounds, answer_help, interleaved

from lobench.core.case import Case, SeedBlock
from lobench.engine.config.bound import bind_case
from lobench.engine.config.suite import specs_in
from lobench.experiments.baseline import default_layers
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import claim_backend
from lobench.inner.tasks import DigitsMLP
from lobench.inner.training.train import TrainingProgram

__all__ = ["main"]

ADAM = {"lr": 0.003}
PAIRS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "SGD": ("SGD", {"lr": 0.01}, optax.sgd(0.01)),
    "Momentum": ("SGD", {"lr": 0.001, "momentum": 0.9}, optax.sgd(0.001, momentum=0.9)),
    "Adam": ("Adam", {"lr": 0.003}, optax.adam(0.003)),
    "AdamW": ("AdamW", {"lr": 0.003, "weight_decay": 0.01}, optax.adamw(0.003, weight_decay=0.01)),
    "RMSprop": ("RMSprop", {"lr": 0.001}, optax.rmsprop(0.001, decay=0.99, eps_in_sqrt=False)),
    "Adagrad": ("Adagrad", {"lr": 0.01}, optax.adagrad(0.01, initial_accumulator_value=0.0, eps=1e-20)),
    "NAdam": ("NAdam", {"lr": 0.002}, optax.nadam(0.002)),
    "Adadelta": ("Adadelta", {"lr": 1.0}, optax.adadelta(1.0, rho=0.9, eps=1e-6)),
}


def program(case: Case, task: Any, optimizer: Callable[[], Any], seeds: int) -> Callable[[], np.ndarray]:
    """Returns what trains, and gives float32[seeds, evaluations] of the training loss."""
    compiled = TrainingProgram(case, task, lambda theta: as_stepper(optimizer(), case.num_inner_steps), seeds)

    def run() -> np.ndarray:
        curves = compiled.run({}, SeedBlock(start=0, size=seeds))
        assert curves is not None
        return np.asarray(curves.metrics["train/loss"])

    return run


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Adam that counts in ints": ("torch_counting.CountsInInts", {"lr": 0.003}),
    "Adam that counts in tensors": ("torch_counting.CountsInTensors", {"lr": 0.003}),
    "SOAP": ("pytorch_optimizer.SOAP", {"lr": 0.003}),
    "Prodigy": ("prodigyopt.Prodigy", {"lr": 1.0}),
}


def in_torch(num_steps: int, where: str = "torch.optim.Adam", settings: Mapping[str, Any] = ADAM) -> Callable[[], None]:
    """Returns the same training as its author would write it without lobench."""
    import torch
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    module, _, name = where.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)

    def run() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
        optimizer = cls(model.parameters(), **settings)
        for _ in range(num_steps):
            rows = torch.randint(0, len(x), (64,))
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def moved(optimizer: Any, by: float) -> Any:
    """Returns an optimizer whose training begins elsewhere."""
    import lobench

    def initial(params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf * (1 + by), params)

    return lobench.with_extra_inputs(
        optimizer.init, optax.with_extra_args_support(optimizer).update, initial_params=initial
    )


def distance(one: np.ndarray, other: np.ndarray) -> float:
    both = np.isfinite(one) & np.isfinite(other)
    apart = np.abs(one - other)[both] / np.maximum(np.abs(other[both]), 1e-9)
    return float(apart.max(initial=0.0)) if (np.isfinite(one) == np.isfinite(other)).all() else float("inf")


def ratio(
    what: str, one: Callable[[], Any], other: Callable[[], Any], rounds: int, *, by_processor_time: bool = False
) -> str:
    """Returns the median of one's seconds over the other's in rounds in turn, and the least and the most."""
    found: Rounds = interleaved(what, one, other, rounds, by_processor_time=by_processor_time)
    low, middle, high = (np.quantile(found.ratios, share) for share in (0, 0.5, 1))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main(arguments: list[str]) -> None:
    from lobench_torch.torch_optimizers import torch_optimizer

    claim_backend(1)
    is_quick = "--quick" in arguments
    steps, rounds = (20, 1) if is_quick else (2000, 7)
    case = Case(num_inner_steps=steps, eval_every=steps, num_seeds=1, eval_batches=1)
    task = DigitsMLP(hidden_sizes=(32,), batch_size=64)
    theirs = program(case, task, lambda: torch_optimizer("torch.optim.Adam", lr=0.003), 1)
    for what, other in {
        "lobench's Adam": program(case, task, lambda: optax.adam(0.003), 1),
        "a loop in torch alone": in_torch(steps),
        "the same in another process": program(
            case, task, lambda: torch_optimizer("torch.optim.Adam", lr=0.003, python=sys.executable), 1
        ),
    }.items():
        print(f"{steps} steps of torch's Adam in lobench over {what}: {ratio(what, theirs, other, rounds)}", flush=True)
    trained: dict[str, Callable[[], Any]] = {}
    for what, (where, settings) in OTHERS.items():
        if importlib.util.find_spec(where.partition(".")[0]) is None:
            print(f"{what}: {where} is not installed")
            continue
        trained[what] = program(
            case, task, lambda where=where, settings=settings: torch_optimizer(where, **settings), 1
        )
        found = ratio(what, trained[what], in_torch(steps, where, settings), rounds, by_processor_time=True)
        print(f"{steps} steps of {what} in lobench over a loop in torch alone: {found}", flush=True)
    ints, tensors = (trained[f"Adam that counts in {what}"] for what in ("ints", "tensors"))
    print(f"{steps} steps of Adam that counts in ints over one that counts in tensors: ", end="")
    print(ratio("counters", ints, tensors, rounds, by_processor_time=True), flush=True)
    if "--steps" in arguments:
        return

    print("\n| optimizer | case | torch against optax | optax, moved by 1e-7 |\n| --- | --- | ---: | ---: |")
    for spec in list(specs_in(Path(__file__).parents[1] / "suites/quick/quick.gin"))[: 1 if is_quick else None]:
        task = bind_case(spec, default_layers()).case.task
        for name, (cls, settings, ours) in list(PAIRS.items())[: 1 if is_quick else None]:
            case = Case(num_inner_steps=20 if is_quick else 200, eval_every=10, num_seeds=2)
            curves = [
                program(case, task, lambda each=each: each, 2)()
                for each in (torch_optimizer(f"torch.optim.{cls}", **settings), ours, moved(ours, 1e-7))
            ]
            print(f"| {name} | {spec.name} | {distance(*curves[:2]):.1e} | {distance(*curves[1:]):.1e} |", flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    main(sys.argv[1:])

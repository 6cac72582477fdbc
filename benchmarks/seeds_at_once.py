"""Seeds of a block in one program, over as many programs of one seed: seven optimizers, four tasks.

Usage: python benchmarks/seeds_at_once.py [--quick] [--optimizers A,B] [--tasks A,B] [--seeds 2,4]

Processor seconds of a whole training with all its evaluations (every 10 steps, on 5 batches of each split), on one
thread, compiled before; a cell is the median of the rounds. In a round each block runs right behind one seed alone, and
n times that is what it is measured against. Behind a cell stands how many seeds are computed at a time, if not all.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from harness import machine

__all__ = ["main"]

_STEPS = {"digits": 400, "conv": 60, "transformer": 60, "quadratic": 2000}
_OPTIMIZERS = ("adam", "adafac", "celo", "nn_adam", "mlp", "l2o_dm", "rnnprop")
_SLOW = ("celo", "mlp", "l2o_dm", "rnnprop")  # half the steps


def _task(name: str) -> Any:
    from lobench.engine.config.bound import bind_case
    from lobench.engine.config.layers import Layers
    from lobench.engine.config.shipped import find_suite
    from lobench.engine.config.suite import specs_in
    from lobench.inner.tasks.image import DigitsMLP
    from lobench.inner.tasks.quadratic import Quadratic

    if name in ("digits", "quadratic"):
        return DigitsMLP(hidden_sizes=(32,), batch_size=128) if name == "digits" else Quadratic()
    wanted = {"conv": "conv", "transformer": "arithmetic"}[name]
    (spec,) = (spec for spec in specs_in(find_suite("quick") / "quick.gin") if spec.name == wanted)
    return bind_case(spec, Layers()).case.task


def _programs(task: Any, optimizer: str, num_steps: int) -> tuple[Any, Callable[[int], Any]]:
    """Returns a theta, and number of seeds -> its program."""
    import jax
    import optax

    from lobench.core.case import Case
    from lobench.inner.adapters import as_stepper
    from lobench.inner.optimizers import L2ODM, AdafacMLPLOpt, Celo, MLPLOpt, NNAdam, RNNProp
    from lobench.inner.training.train import TrainingProgram

    kinds: dict[str, Any] = {
        "adafac": AdafacMLPLOpt,
        "celo": Celo,
        "nn_adam": NNAdam,
        "mlp": MLPLOpt,
        "l2o_dm": L2ODM,
        "rnnprop": RNNProp,
    }
    learned = kinds[optimizer]() if optimizer in kinds else None
    theta = learned.init(jax.random.key(7)) if learned is not None else {}
    case = Case(num_inner_steps=num_steps, num_seeds=1, eval_every=10, log_every=1, eval_batches=5)

    def make(theta: Any) -> Any:
        return as_stepper(learned.opt_fn(theta, num_steps) if learned is not None else optax.adam(1e-3), num_steps)

    return theta, lambda num_seeds: TrainingProgram(case, task, make, num_seeds)


def _cells(task: str, optimizer: str, widths: list[int], rounds: int) -> list[str]:
    from lobench.core.case import SeedBlock

    theta, program = _programs(_task(task), optimizer, _STEPS[task] // (2 if optimizer in _SLOW else 1))
    programs = {width: program(width) for width in (1, *widths)}

    def seconds(width: int) -> float:
        started = time.process_time()
        programs[width].run(theta, SeedBlock(start=0, size=width))
        return time.process_time() - started

    at_once = {w: programs[w].run(theta, SeedBlock(start=0, size=w)).provenance.at_once for w in programs}
    ratios: dict[int, list[float]] = {width: [] for width in widths}
    for _ in range(rounds):
        for width in widths:
            ratios[width].append(seconds(width) / (width * seconds(1)))
    cells = [f"{statistics.median(ratios[width]):.2f}" for width in widths]
    return [
        cell + (f" ({at_once[width]})" if at_once[width] else "") for cell, width in zip(cells, widths, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one optimizer, one task, two rounds: a look")
    parser.add_argument("--optimizers", default=",".join(_OPTIMIZERS))
    parser.add_argument("--tasks", default=",".join(_STEPS))
    parser.add_argument("--seeds", default="2,4,8,16")
    asked = parser.parse_args()
    from lobench.inner.backend import claim_backend

    claim_backend(1)
    widths = [int(width) for width in asked.seeds.split(",")]
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    print("\n| task | optimizer | " + " | ".join(f"{width} seeds" for width in widths) + " |")
    print("| --- | --- |" + " --- |" * len(widths))
    for task in asked.tasks.split(",")[: 1 if asked.quick else None]:
        for optimizer in asked.optimizers.split(",")[: 1 if asked.quick else None]:
            cells = _cells(task, optimizer, widths, 2 if asked.quick else 7)
            print("| " + " | ".join((task, optimizer, *cells)) + " |", flush=True)


if __name__ == "__main__":
    main()

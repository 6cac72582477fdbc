"""The first call of a program: from nothing compiled to the first result, over a hand-written `lax.scan`'s.

Usage: python benchmarks/first_call.py [--quick]

Each call is a process of its own, which has imported everything and made jax's backend with one thread, without a
cache of compiled programs: digits MLP 64-32-10, 1,000 steps, evaluation every 10 on 5 batches of each of 3 splits. The
scan is `plain_loop.OneScan`, with the compiler options that ours has. It gives what ours gives, loss and accuracy of
each batch and split; the last column is of one that gives losses alone. Seconds are processor seconds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import answer_help, machine

__all__ = ["main"]

_NAMES = ("adam", "adafac", "mlp", "celo")
_KINDS = ("ours", "all", "losses")


def _first_call(kind: str, name: str) -> float:
    """Returns the processor seconds of a first call in this process."""
    from lobench.inner.backend import claim_backend

    claim_backend(1)
    import inner
    import jax
    import optax
    from plain_loop import OneScan

    from lobench.core.case import SeedBlock

    theta, task, num_steps = inner._theta(name), inner._digits(), 1000
    jax.block_until_ready(jax.numpy.ones(3) + 1)
    started = time.process_time()
    if kind == "ours":
        inner._program(task, name, num_steps).run(theta, SeedBlock(start=0, size=1))
    else:
        OneScan.gives_all = kind == "all"
        optimizer = optax.with_extra_args_support(optax.adam(1e-3))
        if name in inner._LEARNED:
            optimizer = inner._LEARNED[name][1](theta, num_steps)
        every, batches = inner._EVAL_EVERY, inner._EVAL_BATCHES
        OneScan(task, optimizer, num_steps=num_steps, eval_every=every, eval_batches=batches, splits=inner._SPLITS).run(
            0
        )
    return time.process_time() - started


def _in_a_process(kind: str, name: str) -> float:
    found = subprocess.run(
        [sys.executable, __file__, "--of", kind, name], check=True, capture_output=True, text=True, cwd=Path.cwd()
    )
    return float(found.stdout)


def _row(name: str, rounds: int) -> str:
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for _ in range(rounds):
        for kind in _KINDS:
            seconds[kind].append(_in_a_process(kind, name))
    cells = [name, *(f"{statistics.median(seconds[kind]):.2f}" for kind in _KINDS)]
    for kind in _KINDS[1:]:
        ratios = sorted(one / other for one, other in zip(seconds["ours"], seconds[kind], strict=True))
        cells.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f})")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    print("\n| optimizer | ours, s | the scan | its losses alone | ours over it | over its losses alone |")
    print("| --- | ---: | ---: | ---: | --- | --- |")
    for name in _NAMES[: 1 if "--quick" in sys.argv else None]:
        print(_row(name, 1 if "--quick" in sys.argv else 7), flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    if "--of" in sys.argv:
        print(_first_call(*sys.argv[-2:]))
    else:
        main()

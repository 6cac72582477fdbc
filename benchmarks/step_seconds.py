"""Seconds of a step as results have them: twice on a machine with nothing else, and once beside load.

python benchmarks/step_seconds.py [--quick]

Three processes, one after another, evaluate cases of suites/quick with `Case.time_gradient`, five blocks of four seeds,
a block in a program, on one thread: all steps of one evaluation can be slower by a third than those of another. Two
busy processes for each core are the load of the third; --quick has no third process. `~` is the mark that a user sees.
The last two columns are the seconds over those of a bare gradient step, as the first and the second run have them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from harness import answer_help

from lobench.engine.workers.child_python import cache_environment

__all__ = ["main"]

STEPS = {"relu32": 10_000, "tanh64x2": 4_000, "conv": 400, "arithmetic": 400}
BLOCKS = 5
OPTIMIZERS = ("sgd()", "adam()", "schedule_free_adamw()")


def measured(*, quick: bool) -> dict[str, dict[str, Any]]:
    """Returns the costs of this process's evaluations by case and optimizer."""
    from lobench.core.case import SeedBlock
    from lobench.core.step_cost import Overhead
    from lobench.engine.config.layers import Layers
    from lobench.engine.config.shipped import find_suite
    from lobench.engine.config.suite import specs_in
    from lobench.evaluation.programs import Programs
    from lobench.evaluation.request import ThetaLeaves
    from lobench.evaluation.runner import BlockRunner
    from lobench.inner.backend import claim_backend

    claim_backend(1)
    suite, programs, found = find_suite("quick"), Programs(), dict[str, dict[str, Any]]()
    for optimizer in OPTIMIZERS[:1] if quick else OPTIMIZERS:
        for spec in specs_in(suite / "quick.gin"):
            if spec.name not in list(STEPS)[: 1 if quick else None]:
                continue
            steps = 100 if quick else STEPS[spec.name]
            every = steps // 20
            bound = (f"Case.optimizer = @{optimizer}", f"Case.num_inner_steps = {steps}", f"Case.eval_every = {every}")
            runner = BlockRunner(Layers(gin_params=(*bound, "Case.time_gradient = True")), programs)
            theta, costs = ThetaLeaves(leaves=None, where=optimizer), []
            for block in range(1 if quick else BLOCKS):
                curves = runner.run(spec, "", theta, SeedBlock(start=4 * block, size=4))
                assert curves.cost is not None
                costs.append(curves.cost)
            overhead = Overhead.of(costs)
            found[f"{spec.name}, {optimizer}"] = {
                "seconds": overhead.step.median,
                "mark": "~" * overhead.step.is_unsteady,
                "ratio": overhead.ratio,
                "ratio_mark": "~" * overhead.is_unsteady,
            }
    return found


@contextlib.contextmanager
def load(num_processes: int) -> Iterator[None]:
    """Keeps cores busy."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def in_a_process(options: list[str], cache: str) -> dict[str, dict[str, Any]]:
    """Returns what another process measures; what one has compiled the next one reads."""
    words = [sys.executable, __file__, "--once", *options]
    environment = {**os.environ, "NPROC": "1", **cache_environment(cache)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Prints the table."""
    answer_help(__doc__)
    options = [one for one in sys.argv[1:] if one == "--quick"]
    if "--once" in sys.argv[1:]:
        print(json.dumps(measured(quick=bool(options))))
        return
    with tempfile.TemporaryDirectory() as cache:
        first, second = in_a_process(options, cache), in_a_process(options, cache)
        beside: dict[str, dict[str, Any]] = {}
        if not options:
            with load(2 * (os.cpu_count() or 1)):
                beside = in_a_process(options, cache)
    print("| case, optimizer | us a step | again | difference | beside load | over a gradient | again |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in first:
        one, two, three = first[name], second[name], beside.get(name)
        cells = [f"{run['mark']}{1e6 * run['seconds']:.4g}" if run else "-" for run in (one, two, three)]
        cells.insert(2, f"{100 * (two['seconds'] / one['seconds'] - 1):+.1f}%")
        cells += [f"{run['ratio_mark']}{run['ratio']:.2f}" for run in (one, two)]
        print(f"| {' | '.join([name, *cells])} |")
    steady = [name for name in first if not first[name]["mark"] + second[name]["mark"]]
    apart = [abs(second[name]["seconds"] / first[name]["seconds"] - 1) for name in steady]
    line = f"{len(steady)} of {len(first)} steady twice, at most {100 * max(apart, default=0):.1f}% apart"
    if beside:
        line += f"; beside load {sum(bool(run['mark']) for run in beside.values())} of {len(beside)} are marked"
    print(f"\n{line}")


if __name__ == "__main__":
    main()

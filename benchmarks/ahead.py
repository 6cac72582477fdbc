"""What a first checkpoint gains where a worker compiles the next case beside the present one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import Benchmark, Rounds
from makespan import recorded

__all__ = ["BENCHMARKS"]

_SUITE = Path(__file__).parent.parent / "suites" / "digits"
_OPTIMIZER = "AdafacMLPLOpt"
# The command line on a machine that has so many cores.
_ON_CORES = """
import sys
from lobench.sessions import places
num_cores = int(sys.argv.pop(1))
places.num_cores = lambda: num_cores
from lobench.cli import main
sys.argv[0] = "lobench"
main()
"""


def _write_run(folder: Path) -> None:
    import jax

    from lobench.inner import optimizers
    from lobench.inner.theta import leaf_paths

    folder.mkdir()
    (folder / "config.gin").write_text(f"Case.learned_optimizer = @{_OPTIMIZER}()\n")
    theta = getattr(optimizers, _OPTIMIZER)().init(jax.random.key(0))
    np.savez(folder / "theta_0.npz", **{name: np.asarray(leaf) for name, leaf in leaf_paths(theta).items()})
    (folder / "theta_0.npz.done").touch()


def _seconds(run: Path, store: Path, num_cores: int, num_steps: int) -> float:
    """Returns seconds from the first lease to the last record of a first checkpoint: nothing is compiled or known."""
    command = [sys.executable, "-c", _ON_CORES, str(num_cores), "watch", str(run), "--suite", str(_SUITE), "--once"]
    command += ["--workers", "1", "--store", str(store), "--gin-param", f"Case.num_inner_steps = {num_steps}"]
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    code = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=False).returncode
    if code not in (0, 1):
        raise SystemExit(f"lobench watch ended with code {code}")
    (evaluations,) = recorded(store).values()
    shutil.rmtree(store)
    return max(end for _, end in evaluations) - min(end - seconds for seconds, end in evaluations)


def _first_checkpoint(quick: bool) -> Rounds:
    num_steps, ratios = 100 if quick else 300, []
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        _write_run(run)
        for index in range(1 if quick else 3):
            # In turns, the first of a pair changing places.
            cores = (1, 2) if index % 2 == 0 else (2, 1)
            took = {num: _seconds(run, Path(name) / f"store{num}", num, num_steps) for num in cores}
            ratios.append(took[1] / took[2])
    what = (
        f"a first checkpoint of the digits suite, {num_steps} steps, one worker: seconds without compiling ahead over"
    )
    return Rounds(what=f"{what} with, which takes a second core", ratios=ratios)


BENCHMARKS = (
    Benchmark(
        name="compile_ahead",
        target="",
        measure=_first_checkpoint,
    ),
)

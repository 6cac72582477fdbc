"""Programs that a command compiles, over distinct ones, with an optimizer class of a user's package.

Usage: python benchmarks/compiled_programs.py [--quick] [COMMAND ...]

Each command has a folder of compiled programs of its own, a suite of three cases and a learned optimizer that lobench
does not ship. The package counts what XLA compiles in all processes of the command: compilations without hits of the
cache. Distinct programs are the files in the folder. "again" is the command with one more block of seeds, or just a
second call if another number of seeds gives other widths of blocks. Seconds are
wall time, and processor time of all processes of the command. The last line is `ablate` with two settings over
`compare A B` in both, each from an empty folder.

`budget` trains nothing, and `keep` only runs scripts, so that it is not measured.

--quick: `compare` and `ablate` with one case.
COMMAND: names of rows. None: all.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import answer_help, machine
from numpy.typing import NDArray

__all__ = ["main"]
FloatArray = NDArray[np.float64]

_PACKAGE = """
import os
import gin
import jax
import jax.monitoring
import jax.numpy as jnp
import optax

_log = os.open(os.environ["COMPILATIONS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def _on_duration(event, seconds, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        os.write(_log, b"+")

def _on_event(event, **_):
    if event == "/jax/compilation_cache/cache_hits":
        os.write(_log, b"-")

jax.monitoring.register_event_duration_secs_listener(_on_duration)
jax.monitoring.register_event_listener(_on_event)

@gin.configurable
class OwnOpt:
    def __init__(self, step_mult=0.02, exp_mult=0.001, decay=0.9):
        self.step_mult, self.exp_mult, self.decay = step_mult, exp_mult, decay

    def init(self, key):
        return {"w": 0.3 * jax.random.normal(key, (3, 2))}

    def opt_fn(self, theta, is_training=False):
        def init(params):
            return jax.tree.map(jnp.zeros_like, params)

        def rule(grad, moving, param):
            out = jnp.stack([grad, moving, param], -1) @ theta["w"]
            return -out[..., 0] * jnp.exp(out[..., 1] * self.exp_mult) * self.step_mult

        def update(grads, moving, params):
            moving = jax.tree.map(lambda m, g: self.decay * m + g, moving, grads)
            return jax.tree.map(rule, grads, moving, params), moving

        return optax.GradientTransformation(init, update)
"""
_HEAD = """
import lobench.inner.tasks.quadratic
import own_optimizer
Case.num_inner_steps = 30
Case.num_seeds = 4
Case.eval_every = 10
"""
_EXPERIMENT = """
Experiment.suites = ["suite"]
Experiment.num_sessions = 8
Experiment.race = @race()
race.block = 4
slow/Method.optimizer = @adam()
slow/adam.learning_rate = 0.001
fast/Method.optimizer = @adam()
fast/adam.learning_rate = 0.1
"""
_A, _B = "run/theta_1.npz", "run/theta_1.npz; OwnOpt.step_mult = 0.03"
_SUITE = ("--suite", "suite", "--workers", "1")
_TUNE = ("tune", "suite", "--optimizer", "adam", "--search", "random", "--num-trials", "8", "--workers", "1")
_TUNE = (*_TUNE, "--vary", 'learning_rate = Real(1e-3, 1e-1, scale="log")')

# The command, and what one more block of seeds adds to it.
_COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "compare": (("compare", _A, _B, *_SUITE), ("--gin-param", "Case.first_seed = 4")),
    "ablate, 2 settings": (("ablate", _A, f"{_B}; OwnOpt.decay = 0.8", *_SUITE, "--seeds", "4"), ("--seeds", "8")),
    "ablate, 3 settings": (
        ("ablate", _A, f"{_B}; OwnOpt.decay = 0.8; OwnOpt.exp_mult = 0.002", *_SUITE, "--seeds", "4"),
        ("--seeds", "8"),
    ),
    "best": (("best", "run", *_SUITE), ()),
    "bisect": (("bisect", "run", "--case", "c0", *_SUITE), ("--gin-param", "Case.first_seed = 100")),
    "falsify": (
        ("falsify", _A, *_SUITE, "--case", "c0", "--most-cells", "4", "--seeds", "4"),
        ("--seeds", "8"),
    ),
    "tune, 8 trials": (_TUNE, ("--sessions", "8")),
    "run, with a race": (("run", "e.gin", "--workers", "1"), ()),
    "alarm": (("alarm", "run", "--workers", "1", "--suite", "suite"), ()),
    "debug": (("debug", "c0", "--suite", "suite", "--checkpoint", _A), ("--seed", "4")),
    "budget": (("budget", ".lobench/tune"), ()),
}
_WATCH = ("watch", "run", *_SUITE, "--once", "--checkpoints", "all")
_BEFORE = {"best": _WATCH, "bisect": _WATCH, "alarm": _WATCH, "budget": (*_TUNE, "--store", ".lobench/tune")}
_QUICK = ("compare", "ablate, 2 settings")


def main() -> None:
    answer_help(__doc__)
    quick = "--quick" in sys.argv[1:]
    names = [name for name in sys.argv[1:] if name in _COMMANDS] or (_QUICK if quick else _COMMANDS)
    print(machine())
    print(f"{'command':20}  compiled  distinct  ratio  again     wall  processor")
    seconds = {}
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            seconds[name] = _measure(name, Path(place), num_cases=1 if quick else 3)
    if not {*_QUICK} <= {*names}:
        return
    wall, processor = seconds["ablate, 2 settings"] / seconds["compare"]
    print(
        f"ablate with 2 settings over compare: {wall:.2f} in wall time, {processor:.2f} in processor time (asked: 2.5)"
    )


def _measure(name: str, folder: Path, *, num_cases: int) -> FloatArray:
    """Runs a command twice, prints a row, and returns wall and processor seconds of the first call: float64[2]."""
    _write(folder, num_cases)
    command, more = _COMMANDS[name]
    if name in _BEFORE:
        _lobench(folder, *_BEFORE[name], cache="before")
    started = _clocks()
    compiled = _lobench(folder, *command)
    seconds = _clocks() - started
    distinct = len(list((folder / "cache" / "xla_cache").glob("jit_*-cache")))
    for option, value in zip(more[::2], more[1::2], strict=True):
        if option in command:
            command = (*command[: command.index(option)], *command[command.index(option) + 2 :])
        command = (*command, option, value)
    again = _lobench(folder, *command)
    ratio = f"{compiled / distinct:.2f}" if distinct else "-"  # a command may find all in the store
    print(
        f"{name:20}  {compiled:8}  {distinct:8}  {ratio:>5}  {again:5}  {seconds[0]:7.1f}  {seconds[1]:9.1f}",
        flush=True,
    )
    return seconds


def _clocks() -> FloatArray:
    """Returns the wall time, and the processor time of all processes that have ended: float64[2]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return np.array([time.perf_counter(), used.ru_utime + used.ru_stime])


def _write(folder: Path, num_cases: int) -> None:
    (folder / "own_optimizer.py").write_text(_PACKAGE)
    (folder / "e.gin").write_text(_EXPERIMENT)
    (folder / "suite").mkdir()
    cases = [f"c{index}/Case.task = @Quadratic()\nc{index}/Quadratic.dim = {5 + index}\n" for index in range(num_cases)]
    (folder / "suite" / "suite.gin").write_text(_HEAD + "".join(cases))
    (folder / "run").mkdir()
    (folder / "run" / "config.gin").write_text("import own_optimizer\nCase.learned_optimizer = @OwnOpt()\n")
    random = np.random.default_rng(0)
    for step in (1, 2, 3):
        weights = (0.3 * random.normal(size=(3, 2))).astype(np.float32)
        np.savez(folder / "run" / f"theta_{step}.npz", w=weights, outer_step=step)
    descent = np.array([[1, 0], [0, 0], [0, 0]], np.float32)
    for step, weights in ((4, descent), (5, -descent)):  # an alarm has to confirm the fall
        np.savez(folder / "run" / f"theta_{step}.npz", w=weights, outer_step=step)


def _lobench(folder: Path, *arguments: str, cache: str = "cache") -> int:
    """Runs a command, and returns how many programs XLA compiled for it."""
    log = folder / "compilations"
    log.write_bytes(b"")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"LOBENCH_CACHE_DIR": str(folder / cache), "COMPILATIONS": str(log), "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "lobench.cli", *arguments],
        cwd=folder,
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1, 4):
        sys.exit(f"lobench {' '.join(arguments)}: status {done.returncode}\n{done.stderr}")
    written = log.read_bytes()
    return written.count(b"+") - written.count(b"-")


if __name__ == "__main__":
    main()

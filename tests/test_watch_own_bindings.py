"""Checkpoints that carry gin bindings of their own, as a population's do: real watches evaluate each with its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny import make_suite, results, watch

from lobench.inner.optimizers import MLPLOpt
from lobench.inner.theta import leaf_paths

CONFIG = "Case.learned_optimizer = @MLPLOpt()\nMLPLOpt.hidden_size = 4\nMLPLOpt.step_mult = 0.01\n"
GIN = """
import tiny_tasks
Case.num_inner_steps = 5
Case.num_seeds = 2
a/Case.task = @Bowl()
"""
ONCE = ("--once", "--checkpoints", "all", "--executor", "inline")
FAST = "MLPLOpt.step_mult = 0.5\nouter_adam.learning_rate = 0.1"  # the trainer's own names say nothing here


def write(run: Path, step: int, **more: Any) -> None:
    """Writes one and the same theta."""
    theta = leaf_paths(MLPLOpt(hidden_size=4).init(jax.random.key(0)))
    arrays = {f"theta/{path}": np.asarray(leaf) for path, leaf in theta.items()}
    np.savez(run / f"theta_{step}.npz", outer_step=step, **arrays, **more)
    (run / f"theta_{step}.npz.done").touch()


def make(folder: Path) -> tuple[Path, Path]:
    run = folder / "run"
    run.mkdir()
    (run / "config.gin").write_text(CONFIG)
    return run, make_suite(folder, GIN)


def finals(store: Path) -> dict[int, list[float]]:
    return {r["checkpoint"]["outer_step"]: r["metrics"]["train/loss"]["per_seed"] for r in results(store)}


@pytest.mark.parametrize("together", [(), ("--together", "2")], ids=["alone", "together"])
def test_each_is_evaluated_with_its_own(tmp_path: Path, together: tuple[str, ...]) -> None:
    run, suite = make(tmp_path)
    write(run, 1)
    write(run, 2, gin_bindings=FAST)
    write(run, 3, gin_bindings=np.frombuffer(FAST.replace("0.5", "0.25").encode(), np.uint8))
    done = watch(run, suite, *ONCE, "--store", str(tmp_path / "own"), *together)
    assert done.returncode == 0, done.stdout + done.stderr
    own = finals(tmp_path / "own")
    records = results(tmp_path / "own")
    assert len({record["checkpoint"]["sha256"] for record in records}) == 3
    assert ["step_mult = 0.5" in record["provenance"]["bindings"] for record in records].count(True) == 1

    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "config.gin").write_text(CONFIG.replace("0.01", "0.5"))
    write(plain, 1)
    assert watch(plain, suite, *ONCE, "--store", str(tmp_path / "other")).returncode == 0
    assert own[2] == finals(tmp_path / "other")[1]
    assert len({tuple(values) for values in own.values()}) == 3


def test_what_is_no_value_of_the_optimizer_is_an_error_of_that_evaluation(tmp_path: Path) -> None:
    output = {
        "Bowl.dim = 7": "change the case",
        "import os": "number, text or bool",
        "MLPLOpt.step_mult = @f()": "number, text or bool",
        "MLPLOpt.step_mult = ": "gin_bindings",
    }
    run, suite = make(tmp_path)
    for step, text in enumerate(output, 1):
        write(run, step, gin_bindings=text)
    done = watch(run, suite, *ONCE, "--store", str(tmp_path / "store"))
    messages = {r["checkpoint"]["outer_step"]: r["message"] for r in results(tmp_path / "store")}
    assert done.returncode == 3
    for step, expected in enumerate(output.values(), 1):
        assert expected in messages[step] and "\n" not in messages[step]

"""The examples in the docstrings of public names: each name has one, and prints what it says."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import multiprocessing
import os
import socket
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import click
import jax
import jax.numpy as jnp
import markupsafe
import numpy as np
import optax
import pytest
from commands import functions_evaluate_here
from stores import add

import lobench

SUITE = """
Case.num_inner_steps = 10
Case.num_seeds = 2
small/Case.task = @Quadratic()
"""
EXPERIMENT = """
Experiment.suites = ("quadratic.gin",)
Experiment.num_sessions = 2
slow/Method.optimizer = @sgd()
slow/sgd.learning_rate = 0.01
fast/Method.optimizer = @sgd()
fast/sgd.learning_rate = 0.1
"""
SCALED = """
import jax.numpy as jnp
import lobench
import optax

@lobench.configurable
class Scaled(lobench.LearnedOptimizer):
    def init(self, key):
        return {"log_rate": jnp.zeros(())}

    def opt_fn(self, theta, num_steps=None):
        return optax.sgd(jnp.exp(theta["log_rate"]))
"""
TRAIN = """
import json, sys

seed, out = sys.argv[1:]
with open(out + "/metrics.jsonl", "w") as log:
    log.write(json.dumps({"step": 0, "loss": LOSS + int(seed) / 100}) + chr(10))
"""
FILES = {
    "quadratic.gin": SUITE,
    "experiment.gin": EXPERIMENT,
    "run/config.gin": "import scaled\nCase.learned_optimizer = @Scaled()\n",
    "scaled.py": SCALED,
    "old/train.py": TRAIN.replace("LOSS", "1"),
    "new/train.py": TRAIN.replace("LOSS", "2"),
    "adam_seed0.csv": "step,loss\n0,2.0\n10,1.0\n",
}
PUBLIC = ("lobench", "lobench.extend", "lobench.hookspecs")


def public_objects(module: str) -> Iterator[tuple[str, Any]]:
    """Yields the public classes and functions of lobench's own with their names. Aliases of types have no docstring."""
    found = importlib.import_module(module)
    for name in getattr(found, "__all__", None) or [name for name in vars(found) if not name.startswith("_")]:
        one = getattr(found, name)
        if (inspect.isclass(one) or inspect.isfunction(one)) and one.__module__.startswith("lobench"):
            yield name, one


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_have_examples_that_hold(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands add folders of suites
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    for step in (1, 2, 3):
        np.savez(f"run/theta_{step}.npz", log_rate=np.float32(-step))
    finals = {"a": {"train/loss": [0.1, 0.2, 0.3]}, "b": {"train/loss": [1.0, 1.1, 1.2]}}
    add(Path("results"), 0, finals, optimizer="adam()", sha256="1" * 64)
    add(Path("results"), 0, finals, optimizer="sgd()", sha256="2" * 64)
    modules = (click, dataclasses, lobench, jax, markupsafe, multiprocessing, optax, os, socket, sqlite3)
    known: dict[str, Any] = {one.__name__: one for one in modules}
    known |= {"jnp": jnp, "np": np, "Path": Path, "__name__": "examples"}
    for each in PUBLIC:
        known |= dict(public_objects(each))
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(optionflags=options)
    lacking, report = [], list[str]()
    # Others read what `watch` stores.
    for name, one in sorted(public_objects(module), key=lambda found: found[0] != "watch"):
        if ">>> " not in (one.__doc__ or ""):
            lacking.append(name)
            continue
        example = doctest.DocTestParser().get_doctest(one.__doc__, dict(known), name, inspect.getsourcefile(one), 0)
        with (
            mock.patch.dict(os.environ),
            functions_evaluate_here(),
            mock.patch("lobench.api.settings.num_cores", lambda: 1),
        ):
            runner.run(example, out=report.append)  # evaluations set variables
    assert not runner.failures, "".join(report)
    assert not lacking, f"{module} without an example: {', '.join(lacking)}"

"""Methods whose optimizers are in other environments: real ones, that have the same package in two versions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shown import texts_of

pytest.importorskip("torch", reason="torch is not installed: `ci/test --all` installs it")
pytest.importorskip("lobench_torch", reason="lobench-torch is not installed: `ci/test --all` installs it")

import jax
import jax.numpy as jnp
import numpy as np
from lobench_torch import other_python
from lobench_torch.torch_optimizers import torch_optimizer

from lobench import ConfigError
from lobench.extend import as_stepper

SHOWN = texts_of("torch")

MUONS = """
import torch


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, warm=0):
        super().__init__(params, {"lr": lr, "warm": warm})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                state.setdefault("step", 0)
                state.setdefault("momentum", torch.zeros_like(param)).mul_(0.95).add_(param.grad)
                state["step"] += 1
                update = state["momentum"]
                if param.ndim == 2:
                    u, _, v = torch.linalg.svd(update, full_matrices=False)
                    update = u @ v * (param.size(0) / param.size(1)) ** 0.5
                param.add_(update, alpha=-group["lr"])


# torch imports its compiler for its own optimizers, which takes longer than torch itself.
class Asking(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure):
        for _ in range(2):
            closure()
            with torch.no_grad():
                for group in self.param_groups:
                    for param in group["params"]:
                        param.add_(param.grad, alpha=-group["lr"])
"""
# From step 21 on it climbs.
MISTAKEN = MUONS.replace("update = state", 'update = -state["momentum"] if state["step"] > 20 else state')

EXPERIMENT = """
import lobench.inner.tasks.image
Case.num_inner_steps = 30
Case.eval_every = 10
digits/Case.task = @DigitsMLP()
digits/DigitsMLP.hidden_sizes = (32,)
Experiment.num_sessions = 3
"""
METHOD = """
{name}/Method.optimizer = @torch_optimizer()
{name}/torch_optimizer.optimizer = "muons.Muon"
{name}/torch_optimizer.lr = 0.02
{name}/Method.python = "envs/{name}/bin/python"
"""


def environment(folder: Path, muons: str) -> str:
    """Makes an environment of this Python with a package of its own, and torch; returns its Python's path."""
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "of_torch.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (packages / "muons.py").write_text(muons, encoding="utf-8")
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("versions")
    for name, text in {"main": MUONS, "same": f"{MUONS}\n# a comment", "pr": MISTAKEN}.items():
        environment(place / "envs" / name, text)
    names = ("main", "same", "pr")
    (place / "versions.gin").write_text(EXPERIMENT + "".join(METHOD.format(name=name) for name in names))
    return place


def train(optimizer: Any) -> np.ndarray:
    """Returns a matrix after steps of the compiled loop."""
    stepper = as_stepper(optimizer, 12)
    start = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)

    def loss(w: Any) -> Any:
        return jnp.mean(jnp.tanh(w - 1.0) ** 2)

    def body(index: Any, carry: Any) -> Any:
        state, w = carry
        value, grads = jax.value_and_grad(loss)(w)
        key = jax.random.fold_in(jax.random.key(2), index)
        return stepper.step(state, w, None, grads, value, key, loss)[:2]

    begin = stepper.init(start, None, jax.random.key(0)), jnp.asarray(start)
    return np.asarray(jax.jit(lambda carry: jax.lax.fori_loop(0, 12, body, carry))(begin)[1])


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python with `muons`, whose process all tests of one optimizer share: it takes seconds to import torch."""
    yield environment(tmp_path_factory.mktemp("alone") / "env", MUONS)
    other_python.OtherPython.at.cache_clear()


def lobench(folder: Path, *words: str, code: int = 0) -> str:
    # The folder's own muons.py is that of a checkout, which no environment has.
    done = subprocess.run(
        [sys.executable, "-m", "lobench.cli", *words], cwd=folder, capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def compared(folder: Path) -> dict[str, Any]:
    """Returns every version against the first, by its name."""
    (folder / "muons.py").write_text("raise ImportError('a checkout')", encoding="utf-8")
    lobench(folder, "run", "versions.gin", "--executor", "inline")
    text = lobench(folder, "compare", "main", "same", "pr", "--store", ".lobench/versions", "--format", "json", code=1)
    return {record["b"]["label"]: record for record in json.loads(text[text.index("[") :])}


@pytest.mark.parametrize(("name", "step"), [("same", None), ("pr", 30)])
def test_compare_says_where_a_version_first_differs(compared: dict[str, Any], name: str, step: int | None) -> None:
    assert list(compared[name]["first_difference"].values()) == [step]


def test_a_planted_mistake_regresses(compared: dict[str, Any]) -> None:
    assert compared["pr"]["verdict"] == "REGRESSED"
    assert compared["same"]["metrics"]["train/loss"]["difference"]["mean"] == 0


def test_a_changed_library_is_another_subject(folder: Path, compared: dict[str, Any]) -> None:
    packages = next((folder / "envs" / "same").glob("lib/python*/site-packages"))
    (packages / "muons.py").write_text(MUONS + "\n# another comment", encoding="utf-8")
    out = lobench(folder, "run", "versions.gin", "--workers", "1", "--method", "same", "--method", "pr")
    assert "same: 1 of 1 evaluations" in out
    assert "pr: 1 of 1 evaluations" not in out


@pytest.mark.parametrize("name", ["Muon", "Asking"])
def test_the_bits_are_those_of_this_environment(python: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    there = train(torch_optimizer(f"muons.{name}", lr=0.01, python=python))
    monkeypatch.syspath_prepend(str(next(Path(python).parents[1].glob("lib/python*/site-packages"))))
    here = train(torch_optimizer(f"muons.{name}", lr=0.01))
    np.testing.assert_array_equal(here, there)


def test_an_environment_that_ends_is_said_and_started_again(python: str) -> None:
    made = torch_optimizer("muons.Muon", python=python)
    before = train(made)
    library = other_python.OtherPython.at(python)
    assert library._process_and_pipe is not None
    library._process_and_pipe[0].send_signal(signal.SIGKILL)
    library._process_and_pipe[0].wait()
    with pytest.raises(ConfigError, match=SHOWN["has-ended"]):
        torch_optimizer("muons.Muon", python=python)
    after = train(torch_optimizer("muons.Muon", python=python))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("name", "text"),
    [("muons.Mion", SHOWN["no-such-torch-optimizer-muons"]), ("nowhere.Muon", SHOWN["no-module-named-nowhere"])],
)
def test_a_class_that_is_not_there_is_said(python: str, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    for module in ("torch", "lobench_torch.host", "lobench_torch.state"):
        monkeypatch.setitem(sys.modules, module, None)  # not needed here: torch is imported there alone
    with pytest.raises(ConfigError, match=text):
        torch_optimizer(name, python=python)


def test_a_python_without_torch_is_said(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    with pytest.raises(ConfigError, match=SHOWN["with-torch-and-numpy"]):
        torch_optimizer("muons.Muon", python=str(tmp_path / "bare" / "bin" / "python"))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('main/Method.python = "envs/none/bin/python"', SHOWN["no-python"]),
        ('main/torch_optimizer.optimizer = "mions.Muon"', SHOWN["there-is-no-package-mions"]),
        ("main/Method.optimizer = @adam()", SHOWN["is-not-an-optimizer-of"]),
    ],
)
def test_a_wrong_environment_is_refused_before_anything_starts(folder: Path, line: str, text: str) -> None:
    assert text in lobench(folder, "run", "versions.gin", "--gin-param", line, code=2)

"""Another implementation of an optimizer is held against lobench's, without jax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from shown import texts_of

from lobench.core.errors import LobenchError
from lobench.inner.optimizers import LearnableSGD, adam
from lobench.testing import parity

SHOWN = texts_of("testing")


class NumpyAdam:
    def __init__(self, *, eps: float = 1e-8, wrong_from: int | None = None) -> None:
        self.m: dict[str, np.ndarray] = {}
        self.v: dict[str, np.ndarray] = {}
        self.eps, self.wrong_from = eps, wrong_from

    def step(self, params: dict, gradients: dict, step: int, loss: float) -> dict:
        found = {}
        for name, g in gradients.items():
            self.m[name] = 0.9 * self.m.get(name, 0) + 0.1 * g
            self.v[name] = 0.999 * self.v.get(name, 0) + 0.001 * g**2
            m, v = self.m[name] / (1 - 0.9 ** (step + 1)), self.v[name] / (1 - 0.999 ** (step + 1))
            found[name] = params[name] - 0.01 * m / (np.sqrt(v) + self.eps)
        if self.wrong_from is not None and step >= self.wrong_from:
            found["bias"] = found["bias"] + np.float32([0, 0, 1e-3, 0])
        return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parity") / "adam.npz"
    parity.write(path, adam(learning_rate=0.01))
    return path


def test_the_same_rule_in_numpy_agrees(file: Path) -> None:
    assert parity.check(file, NumpyAdam().step) == 20


def test_the_first_difference_is_said_with_its_place(file: Path) -> None:
    with pytest.raises(parity.ParityError, match=SHOWN["step-7-of-20-bias"]):
        parity.check(file, NumpyAdam(wrong_from=7).step)
    with pytest.raises(AssertionError, match=SHOWN["step-0-of-20-the"]):
        parity.check(file, NumpyAdam(eps=1e-2).step)
    with pytest.raises(parity.ParityError, match=SHOWN["returns-no-bias"]):
        parity.check(file, lambda params, *_: {name: params[name] for name in params if name != "bias"})
    with pytest.raises(parity.ParityError, match=SHOWN["another-shape"]):
        parity.check(file, lambda params, *_: {name: leaf[None] for name, leaf in params.items()})
    nothing = {name: np.nan * leaf for name, leaf in parity.read(file).initial.items()}
    with pytest.raises(parity.ParityError, match=SHOWN["got-nan"]):
        parity.check(file, lambda *_: nothing)


def test_a_learned_optimizer_has_its_theta_and_may_have_other_parameters(tmp_path: Path) -> None:
    written = parity.write(
        tmp_path / "sgd",
        LearnableSGD(),
        theta={"log_lr": np.float32(np.log(0.1))},
        params={"w": np.ones(3)},
        num_steps=3,
    )
    assert written.about["optimizer"] == "LearnableSGD"
    assert parity.check(tmp_path / "sgd", lambda p, g, step, loss: {"w": p["w"] - np.float32(0.1) * g["w"]}) == 3


def test_what_is_no_file_of_parity_is_one_clear_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=1)
    for path in (tmp_path / "x.npz", tmp_path / "nobody.npz"):
        with pytest.raises(LobenchError, match=SHOWN["not-a-parity-file"]):
            parity.check(path, lambda *_: {})


def test_checking_imports_no_jax(file: Path) -> None:
    code = (
        "import sys; from lobench.testing import parity\n"
        f"try: parity.check({str(file)!r}, lambda params, *_: params)\n"
        "except parity.ParityError: print('jax' in sys.modules, 'lobench.inner' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False False\n", done.stderr

"""PyLO's own classes as torch methods, beside lobench's optimizers with the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: `ci/test --all` installs it")
pytest.importorskip("lobench_torch", reason="lobench-torch is not installed: `ci/test --all` installs it")
pytest.importorskip(
    "pylo.optim.ELO_naive",
    reason="PyLO is not installed: pip install git+https://github.com/Belilovsky-Lab/pylo@d05c6c1",
)

import torch
from commands import lobench as lobench_in_process
from reference import ROOT

import lobench

WEIGHTS = ROOT / "tests/data/reference/pylo"
LOBENCH = Path(sys.executable).parent / "lobench"
STEPS, HIDDEN = 100, (16, 24)
# PyLO's MuLO asks for mup's shapes of a model; parameters come without a model.
MULO = """
from mup.infshape import InfDim, InfShape
from pylo.optim import MuLO_naive

BASE = {(16, 64): (4, None), (16,): (4,), (24, 16): (6, 4), (24,): (6,), (10, 24): (None, 6), (10,): (None,)}


def mulo(params, **settings):
    params = list(params)
    for p in params:
        p.infshape = InfShape(InfDim(base, dim) for base, dim in zip(BASE[tuple(p.shape)], p.shape))
    return MuLO_naive(params, **settings)
"""
HEAD = f"""
import lobench.inner.tasks.image
Case.num_inner_steps = {STEPS}
Case.eval_every = 1
Case.eval_batches = 1
Case.num_seeds = 2
digits/Case.task = @DigitsMLP()
digits/DigitsMLP.hidden_sizes = {HIDDEN}
digits/DigitsMLP.activation = "tanh"
Experiment.num_sessions = 2
"""
# Ours, with its settings; theirs, with theirs and the weights that they have in common.
PAIRS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "celo2": ("Celo2", {"learning_rate": 0.002}, "pylo.optim:CELO2_naive", {"lr": 0.002}),
    "base": (
        "Celo2",
        {"learning_rate": 0.002, "orthogonalize": False},
        "pylo.optim:CELO2_naive",
        {"lr": 0.002, "orthogonalize": False},
    ),
    "elo_celo2": ("EloCelo2", {"learning_rate": 0.002}, "pylo.optim:ELO_CELO2_naive", {"lr": 0.002}),
    "elo": (
        "ELO",
        {"learning_rate": 0.002, "exp_mult": 0.1, "weight_decay": 0.1, "max_norm": 1.0},
        "pylo.optim:ELO_naive",
        {"lr": 0.002, "exp_mult": 0.1, "weight_decay": 0.1, "clip_grad": True},
    ),
    "adafac": ("AdafacMLPLOpt", {}, "pylo.optim:AdafacLO_naive", {}),
    "mulo": ("MuLO", {"hidden": "w1", "base_width": 4}, "mulo:mulo", {"lr": 1.0}),
    "velo": ("VeLO", {}, "pylo.optim:VeLO_naive", {"lr": 1.0, "num_steps": STEPS}),
}
FILES = {"celo2": "celo2.pt", "base": "celo2.pt", "elo_celo2": "celo2.pt", "elo": "meta.pt"}


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Returns the training losses [seeds, steps + 1] of both of each pair, as `lobench run` stores them."""
    from pylo.models import MetaMLP, VeLOMLP, VeLORNN

    folder = tmp_path_factory.mktemp("pylo")
    (folder / "mulo.py").write_text(MULO)
    for name, file in (("celo2", "celo2_theta0.npz"), ("meta", "metamlp_theta0.npz")):
        leaves = {key: torch.from_numpy(leaf) for key, leaf in np.load(WEIGHTS / file).items()}
        torch.save(leaves, folder / f"{name}.pt")
    meta = MetaMLP(input_size=39, hidden_size=32, hidden_layers=1)
    meta.load_state_dict(leaves)
    torch.manual_seed(0)
    sizes = {"lstm_hidden_size": 16, "param_inits": 8}
    rnn, mlp = VeLORNN(input_size=30, **sizes), VeLOMLP(param_inits=8, input_size=30)
    for part in (*rnn.parameters(), *mlp.parameters()):
        part.data.add_(0.1 * torch.randn_like(part))  # biases and initial states are zero, and would not be seen
    for part in mlp.parameters():
        part.data.mul_(0.3)  # with larger ones the training is chaos: a move by 1e-7 ends elsewhere
    for name, module in (("meta", meta), ("rnn", rnn), ("mlp", mlp)):
        module.save_pretrained(folder / name, config={**_config(name), **(sizes if name == "rnn" else {})})
    text = HEAD
    for name, (ours, settings, theirs, their_settings) in PAIRS.items():
        files = [FILES[name]] if name in FILES else [f"{part}/model.safetensors" for part in _parts(name)]
        words = ("--optimizer", ours, "--output", f"{name}.npz", "--format", "json")
        done = lobench_in_process("convert", *files, *words, cwd=folder)
        assert done.returncode == 0, done.stderr
        text += f'{name}/Method.checkpoint = "{name}.npz"\n{name}/Case.learned_optimizer = @{ours}()\n'
        text += "".join(f"{name}/{line}\n" for line in json.loads(done.stdout)["bindings"])
        text += "".join(f"{name}/{ours}.{key} = {value!r}\n" for key, value in settings.items())
        text += f"their_{name}/Method.optimizer = @torch_optimizer()\n"
        folders = {f"hf_key{'_' * (name == 'velo')}{part if name == 'velo' else ''}": part for part in _parts(name)}
        where = {"checkpoint_path": files[0]} if name in FILES else folders
        for key, value in {"optimizer": theirs, "transposed": True, **their_settings, **where}.items():
            text += f"their_{name}/torch_optimizer.{key} = {value!r}\n"
    (folder / "pylo_and_ours.gin").write_text(text)
    command = [LOBENCH, "run", "pylo_and_ours.gin", "--workers", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = lobench.open_results(folder / ".lobench/pylo_and_ours").curves("train/loss")
    return {each.subject.name: each.values for each in found}


def _parts(name: str) -> list[str]:
    return ["rnn", "mlp"] if name == "velo" else ["meta"]


def _config(name: str) -> dict[str, Any]:
    return {
        "meta": {"input_size": 39, "hidden_size": 32, "hidden_layers": 1},
        "rnn": {"input_size": 30},
        "mlp": {"input_size": 30, "param_inits": 8},
    }[name]


@pytest.mark.parametrize("name", PAIRS)
def test_ours_and_theirs_have_one_curve(name: str, curves: dict[str, np.ndarray]) -> None:
    ours, theirs = curves[name], curves[f"their_{name}"]
    assert ours.shape == theirs.shape == (2, STEPS + 1)
    apart = np.abs(ours / theirs - 1).max(axis=0)
    print(f"{name}: {apart[:31].max():.1e} to step 30, {apart.max():.1e} to the end; {theirs[:, [0, -1]]}")
    assert apart[:31].max() < 1e-5
    assert apart.max() < 5e-5
    assert np.ptp(theirs) > 0.1

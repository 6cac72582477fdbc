"""What the pages on imports and for who trains in PyTorch show runs."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from reference import ROOT

HAS_TORCH = importlib.util.find_spec("torch") is not None

# Without PyTorch: the same loop in numpy, through the page's own class.
STAND_IN = """
import sys
import numpy as np
from curves import Curves
name, seeds = sys.argv[1], range(int(sys.argv[2]))
for seed in seeds:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((256, 10)); y = x @ draw.standard_normal((10, 1)); w = np.zeros((10, 1))
    curves = Curves("curves.csv", method=name, case="regression", seed=seed)
    for step in range(201):
        if step % 20 == 0:
            curves.log(step, val_loss=((x @ w - y) ** 2).mean())
        w -= {"adam": 0.01, "sgd": 0.02}[name] * 2 * x.T @ (x @ w - y) / len(x)
"""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, and what its two trainings log."""
    found = tmp_path_factory.mktemp("pytorch")
    for code in blocks("pytorch.md", "python"):
        name = code.split()[1]
        compile(code, name, "exec")
        (found / name).write_text(code)
    if not HAS_TORCH:
        (found / "train.py").write_text(STAND_IN)
    return found


def test_from_a_training_to_a_gate(folder: Path) -> None:
    (commands,) = blocks("pytorch.md", "bash")
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        if program == "python":
            subprocess.run([sys.executable, *words], cwd=folder, check=True)
            continue
        done = lobench(*words, cwd=folder)
        assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "5 pairs of seeds" in done.stdout and "steps to the target" in done.stdout
    assert "imported/regression, val/loss 1" in done.stdout
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_gate.py"]
    tested = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


def test_parity_of_the_page(folder: Path) -> None:
    subprocess.run([sys.executable, "write_parity.py"], cwd=folder, check=True)
    from lobench.testing import parity

    assert parity.read(folder / "adam.npz").num_steps == 20
    if HAS_TORCH:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_parity.py"]
        assert "1 passed" in subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_the_experiment_of_the_page_is_one(tmp_path: Path) -> None:
    from lobench.engine.config.experiment_files import read_experiment

    (gin,) = blocks("import.md", "gin")
    (tmp_path / "x.gin").write_text(gin)
    (tmp_path / "suites").symlink_to(ROOT / "suites")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.csv").write_text("method,case,seed,step,metric,value\n")
    methods = read_experiment(tmp_path / "x.gin").experiment.methods
    assert [(method.kind, method.title) for method in methods] == [("optimizer", "sgd"), ("curves", "PyTorch")]


def test_the_page_knows_every_kind_and_every_option() -> None:
    from lobench.analysis.imports.kinds import KINDS

    text = (ROOT / "docs" / "import.md").read_text()
    assert set(re.findall(r"\| `([a-z][a-z-]+)` \|", text)) == set(KINDS)
    shown = lobench("import", "--help").stdout
    options = set(re.findall(r"`(--[a-z-]+)", text)) - {"--kind", "--format", "--lobench-against", "--curves"}
    assert not {option for option in options if option not in shown}
    assert "Examples:" in shown and np.all([name in shown for name in ("W&B", "TensorBoard", "MLflow", "AlgoPerf")])

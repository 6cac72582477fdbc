"""The page for who trains in PyTorch, followed; what the page on imports says besides its blocks."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
from pages import Story, blocks_of, follow
from reader import Reader
from shown import texts_of

from lobench.testing import parity

SHOWN = texts_of("docs")

HAS_TORCH = importlib.util.find_spec("torch") is not None

# Without PyTorch: the same loop in numpy, through the same logger.
STAND_IN = """
import sys
import numpy as np
from lobench.curves import Logger
name, seeds = sys.argv[1], range(int(sys.argv[2]))
for seed in seeds:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((256, 10)); y = x @ draw.standard_normal((10, 1)); w = np.zeros((10, 1))
    log = Logger("curves.jsonl", method=name, case="regression", seed=seed)
    for step in range(201):
        if step % 20 == 0:
            log(step, {"val/loss": ((x @ w - y) ** 2).mean()})
        w -= {"adam": 0.01, "sgd": 0.02}[name] * 2 * x.T @ (x @ w - y) / len(x)
"""
# Stands in for the script that a search runs eight times, because PyTorch takes four seconds to import.
TUNED = """
import sys
import numpy as np
from lobench.curves import Logger
draw = np.random.default_rng(int(sys.argv[1]))
x = draw.standard_normal((256, 10)); y = x @ draw.standard_normal((10, 1)); w = np.zeros((10, 1))
with Logger(f"{sys.argv[3]}/curves.jsonl", case="regression") as log:
    for step in range(201):
        if step % 20 == 0:
            log(step, {"val/loss": ((x @ w - y) ** 2).mean()})
        w -= float(sys.argv[2]) * 2 * x.T @ (x @ w - y) / len(x)
"""


def test_from_a_training_to_a_gate_and_to_parity(tmp_path: Path) -> None:
    searched = Story(instead={"tuned.py": TUNED})
    missing = Story(
        left_out={"pytest test_parity.py": "torch is not here"}, instead={"train.py": STAND_IN, "tuned.py": TUNED}
    )
    output = follow("pytorch.md", tmp_path, searched if HAS_TORCH else missing)
    assert SHOWN["1-case-x-5-seeds"] in output and SHOWN["steps-to-the-target"] in output
    assert SHOWN["imported-regression-val-loss-1"] in output
    assert SHOWN["trial-2-of-3-is"] in output
    assert output.count("1 passed") == 1 + HAS_TORCH
    assert parity.read(tmp_path / "adam.npz").num_steps == 20
    if HAS_TORCH:
        shown = next(block.text for block in blocks_of("pytorch.md") if block.title == "tuned.py")
        assert _logged(tmp_path / "shown", shown) == _logged(tmp_path / "searched", TUNED)


def _logged(folder: Path, script: str) -> list[dict[str, object]]:
    """Runs a script as the search does; returns what it logged, without the values."""
    folder.mkdir()
    (folder / "script.py").write_text(script)
    done = Reader(folder, {}).command("python script.py 0 0.01 .")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "curves.jsonl").read_text().splitlines()]
    assert all(np.isfinite(row.pop("value")) for row in rows)
    return rows

"""A script that writes curves, and a search over it."""

from __future__ import annotations

__all__ = ["NUMPY", "SEARCH"]

# Gradient descent on a quadratic; says in its folder that it began, and that it came to its end.
NUMPY = """
import argparse, os, time
import numpy as np
from lobench.curves import Logger
parser = argparse.ArgumentParser()
for name, kind in (("--seed", int), ("--lr", float), ("--out", str)):
    parser.add_argument(name, type=kind)
asked = parser.parse_args()
open(os.path.join(asked.out, "began"), "a").write("x")
weights = np.random.default_rng(asked.seed).normal(size=3)
with Logger(os.path.join(asked.out, "curves.jsonl")) as log:
    for step in range(41):
        if step % 4 == 0:
            log(step, {"val/loss": (weights**2).sum()})
            time.sleep(0.02)
        weights = weights - asked.lr * np.array([1.0, 0.3, 0.1]) * weights
open(os.path.join(asked.out, "ended"), "a").write("x")
"""
SEARCH = """
Experiment.num_sessions = 2
mine/Method.command = "python train.py --seed {session} --lr {lr} --out {out}"
mine/Method.curves = "{out}/curves.jsonl"
mine/Method.search = @random()
mine/Method.num_trials = 8
mine/Method.wave = 4
mine/Method.until_step = 40
mine/Method.median_stopping = 0.3
mine/Method.report_sessions = 1
mine/lr = @rate/Real()
rate/Real.low = 1e-3
rate/Real.high = 1.0
rate/Real.scale = "log"
"""

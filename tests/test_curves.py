"""The logger of curves: what it writes is what an import has, whoever writes beside it, and without lobench."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from imported import held

import lobench
from lobench import curves

LOOP = """
import os, signal, sys
sys.modules["lobench"] = sys.modules["numpy"] = None  # neither can be imported
from curves import Logger
with Logger("all.jsonl", method="it, \\"quoted\\"", case="x", seed=int(sys.argv[1])) as log:
    for step in range(0, 300, 10):
        log(step, {"val/loss": 1 / (step + 1), "val/accuracy": step})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_that_share_a_file_and_are_killed_lose_nothing_that_was_logged(tmp_path: Path) -> None:
    shutil.copy(curves.__file__, tmp_path / "curves.py")
    commands = [[sys.executable, "-c", LOOP, str(seed)] for seed in range(4)]
    with ThreadPoolExecutor() as pool:
        ended = pool.map(lambda command: subprocess.run(command, cwd=tmp_path, check=False).returncode, commands)
    assert list(ended) == [-9] * 4
    lobench.import_curves(tmp_path / "all.jsonl", store=tmp_path / "store", metrics=("val/loss", "val/accuracy"))
    found = held(tmp_path / "store")
    assert sorted(seed for _, _, seed in found) == [0, 1, 2, 3]
    for (method, case, _), metrics in found.items():
        assert (method, case.partition("/")[2]) == ('it, "quoted"', "x")
        assert metrics["val/loss"] == [(step, pytest.approx(1 / (step + 1), rel=1e-5)) for step in range(0, 300, 10)]


def test_arrays_of_one_number_count_as_it_and_a_diverged_loss_is_one(tmp_path: Path) -> None:
    with curves.Logger(tmp_path / "c.jsonl", method="m", case="c", seed="s") as log:
        for step, loss in enumerate((np.float32(2.0), np.asarray([1.0]), math.nan)):
            log(np.int64(step), {"val/loss": loss})
    lobench.import_curves(tmp_path / "c.jsonl", store=tmp_path / "store")
    ((_, metrics),) = held(tmp_path / "store").items()
    assert [value for _, value in metrics["val/loss"]][:2] == [2.0, 1.0]
    assert math.isnan(metrics["val/loss"][2][1])

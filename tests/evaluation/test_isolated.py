"""The evaluating process beside its caller."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import is_alive, make_suite

from lobench.core.case import SeedBlock
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.config.suite import single_spec_called
from lobench.evaluation.isolated import IsolatedRunner
from lobench.evaluation.request import EditedCode, ThetaLeaves
from lobench.plugins import load_plugins

TASKS = """
import os, time
from tiny_tasks import Bowl
from lobench import configurable

@configurable
class Sleeper(Bowl):
    def init(self, key):
        with open({begun!r} + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.rename({begun!r} + ".part", {begun!r})
        time.sleep(600)
"""
PATIENT = 300.0  # seconds; on a machine that does nothing else a test takes 5


def test_it_ends_with_its_caller_in_the_middle_of_an_evaluation(tmp_path: Path) -> None:
    suite, begun = make_suite(tmp_path), tmp_path / "begun"
    (suite / "sleeping_tasks.py").write_text(TASKS.format(begun=str(begun)))
    (suite / "sleeping.gin").write_text("import sleeping_tasks\na/Case.task = @Sleeper()\n")
    script = f"import lobench; lobench.evaluate({str(suite / 'sleeping.gin')!r}, optimizer='sgd()')"
    caller = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + PATIENT
    while not begun.exists():
        assert time.monotonic() < deadline and caller.poll() is None
        time.sleep(0.02)
    child = int(begun.read_text())
    caller.kill()
    caller.wait()
    while is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_curves_of_other_code_than_the_callers_are_refused(tmp_path: Path) -> None:
    suite, runner = make_suite(tmp_path), IsolatedRunner()
    layers = gin_layers_at("", load_plugins(), optimizer="sgd()")
    spec = single_spec_called("a", suite / "tiny.gin")
    theta, block = ThetaLeaves(leaves=None, where="sgd()"), SeedBlock(start=0, size=1)
    try:
        with pytest.raises(EditedCode, match=r"tiny_tasks\.py"):
            runner.run(layers, spec, "", theta, block, code_hashes={"tiny_tasks.py": "other", "gone.py": ""})
    finally:
        runner.close()

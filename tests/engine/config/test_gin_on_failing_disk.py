"""gin files on a disk that fails for a while."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from failing_disk import COMPILING, failing_disk

pytestmark = COMPILING

SCRIPT = """
from pathlib import Path
from lobench.engine.config.suite import single_spec_called
from lobench.engine.config.run_configs import trainer_config_at
from lobench.engine.checkpoints.given import run_variant
from lobench.engine.config.layers import Layers
from lobench.engine.config.parsed_layers import parse_layers

config = trainer_config_at("run")
{statement}
"""
STATEMENTS = {
    "layers": "print(len(parse_layers(single_spec_called('a', Path('suite')), "
    "Layers(trainer_config=str(config))).trainer))",
    "run": "print(run_variant('run', 'run/below/theta_1.npz').trainer_config.count('num_seeds'))",
}


@pytest.mark.parametrize("what", STATEMENTS)
@pytest.mark.parametrize("call", ["open", "read"])
def test_gin_file_on_a_disk_that_fails_for_a_while_is_read_again(tmp_path: Path, what: str, call: str) -> None:
    for name in ("run", "suite", "run/below"):
        (tmp_path / name).mkdir()
    (tmp_path / "run" / "config.gin").write_text("Case.num_seeds = 2\n")
    (tmp_path / "run" / "below" / "config.gin").write_text("")
    (tmp_path / "suite" / "a.gin").write_text("a/Case.task = @Quadratic()\n")
    environment = failing_disk(tmp_path, call, paths=(".gin",), numbers=(errno.ESTALE,), seconds=0.3)
    command = [sys.executable, "-c", SCRIPT.format(statement=STATEMENTS[what])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1"], done.stdout
    assert (tmp_path / "faults.log").exists()

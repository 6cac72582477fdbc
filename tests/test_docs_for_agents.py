"""The page for programs that search: its search runs, and its commands are commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from reference import ROOT
from tiny import make_suite

TEXT = (ROOT / "docs" / "for-agents.md").read_text()
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def test_its_search_finds_the_better_rate_and_tells_it_on_other_seeds(tmp_path: Path) -> None:
    make_suite(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    code = code.replace('SUITE = "quick"', 'SUITE = "tiny"')
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    best, effect, difference = re.fullmatch(r"(.+) (\w+) (\S+)\n", done.stdout).groups()  # type: ignore[union-attr]
    assert best == "adam(); adam.learning_rate = 0.01" and effect == "better" and float(difference) > 0
    assert (tmp_path / "search" / "choose" / "ledger.sqlite").is_file()


def test_its_gate_knows_its_options(tmp_path: Path) -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    gate, report = block.splitlines()
    for name in ("new.npz", "old.npz"):
        (tmp_path / name).touch()
    collect = f"{gate} --collect-only -q -p no:cacheprovider"
    environment = {**os.environ, "PATH": PATH}
    done = subprocess.run(
        collect, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "[relu32]" in done.stdout, done.stdout + done.stderr
    done = subprocess.run(
        report, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and '"lobench/error/1"' in done.stdout

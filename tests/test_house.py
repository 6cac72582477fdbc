"""The house keeps its rooms: each plugin and each room is under a contract, and a contract that is broken is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from reference import ROOT

PLUGINS = [path for path in ROOT.glob("plugins/lobench-*/lobench_*") if path.suffix != ".egg-info"]


def contracts() -> dict[str, Any]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {contract["name"]: contract for contract in found}


def test_a_broken_contract_is_named(tmp_path: Path) -> None:
    """Each line is one that somebody would write without thinking of it."""
    for package in ("lobench", *(str(path.relative_to(ROOT)) for path in PLUGINS)):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / Path(package).name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    lines = {
        "lobench_flax/__init__.py": "from lobench.core.errors import LobenchError",
        "lobench_ray/entry.py": "import lobench_pbt",
        "lobench/report/tables/text.py": "from lobench.extend import Parcel",
        "lobench/engine/config/layers.py": "import lobench.engine.chief.interfaces",
        "lobench/testing/policies.py": "import lobench.engine.store.ledger",
        "lobench/evaluation/result.py": "import rich",
        "lobench/analysis/tables/frames.py": "import jax",
        "lobench/api/watch.py": "import click",
        "lobench/core/planner/plan.py": "import lobench.core.schedule.queue",
        "lobench/core/schedule/queue.py": "import lobench.core.subject",
        "lobench/core/case.py": "import numpy",
        "lobench/hookspecs.py": "import lobench.plugins",
        "lobench/tools/best/best.py": "import lobench.tools.merge.command",
        "lobench/analysis/stats/bands.py": "import lobench.analysis.store.snapshot",
    }
    for name, line in lines.items():
        with (tmp_path / name).open("a") as file:
            file.write(f"\n{line}\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    kept = [name for name in contracts() if f"{name} BROKEN" not in done.stdout]
    assert (done.returncode, kept) == (1, []), done.stdout + done.stderr

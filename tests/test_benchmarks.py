"""The table of the benchmarks says what was run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from forked import ALL, python
from reference import ROOT
from shown import texts_of

sys.path.insert(0, str(ROOT / "benchmarks"))


SHOWN = texts_of("lobench")


def _gpu_page(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **ALL, "JAX_PLATFORMS": "cpu", **environment}
    return python(ROOT / "benchmarks" / "gpu.py", *arguments, env=variables)


def test_a_rehearsal_writes_the_page_and_a_section_that_breaks_leaves_the_others(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    done = _gpu_page("--rehearse", "--only", "roofline", "--page", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    row = r".*\| [1-9]\d* \|( \d+\.\d \|){3}$"
    for name in ("AdafacMLPLOpt, digits MLP", "inner step of AdafacMLPLOpt, digits MLP"):
        assert re.search(rf"^\| {name} \(2410 parameters\) {row}", page.read_text(), re.M)
    late = _gpu_page("--rehearse", "--only", "memory", "--page", str(page), "--seconds", "0.01")
    assert late.returncode == 1 and SHOWN["did-not-run-through"] in late.stdout
    assert page.read_text().count("## ") == 2 and SHOWN["left-out-the-0-01"] in page.read_text()

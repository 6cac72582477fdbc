"""The table of the benchmarks says what was run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from reference import ROOT
from shown import texts_of

sys.path.insert(0, str(ROOT / "benchmarks"))

from harness import Benchmark, Measurement, Rounds, interleaved, table

SHOWN = texts_of("lobench")


def test_a_rows_text_size_and_cores_are_those_of_its_run() -> None:
    def measure(quick: bool) -> Rounds:
        count = 2_000 if quick else 10_000
        return Rounds(what=f"{count:,} evaluations", ratios=[2.0, 4.0, 3.0], cores=(1.9, 1.0))

    benchmark = Benchmark(name="rate", target=">= 3", measure=measure)
    rows = table([Measurement.of(benchmark, benchmark.measure(quick), quick=quick) for quick in (True, False)])
    assert rows.splitlines()[2:] == [
        "| rate | 3.00 | 2.00 - 4.00 of 3 | >= 3: reached | --quick | 1.9 against 1.0 | 2,000 evaluations |",
        "| rate | 3.00 | 2.00 - 4.00 of 3 | >= 3: reached | full | 1.9 against 1.0 | 10,000 evaluations |",
    ]


def test_sides_are_timed_in_turns_and_their_processor_time_is_known() -> None:
    calls: list[str] = []
    found = interleaved("a over b", lambda: calls.append("a"), lambda: calls.append("b"), 3)
    assert calls == ["a", "b"] * 4 and len(found.ratios) == 3 and found.cores is not None


def _gpu_page(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    )


def test_without_a_gpu_the_page_of_one_is_refused_in_a_line(tmp_path: Path) -> None:
    done = _gpu_page("--page", str(tmp_path / "gpu.md"))
    assert done.returncode == 2 and done.stderr.startswith(SHOWN["jax-finds-no-gpu-here"])
    assert done.stderr.count("\n") == 1 and not done.stdout and not (tmp_path / "gpu.md").exists()


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

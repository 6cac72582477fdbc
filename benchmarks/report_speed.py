"""The report of 10,000 evaluations with curves: seconds and bytes.

Usage: python benchmarks/report_speed.py [EVALUATIONS]

The store is written here, 25 cases a checkpoint, 4 seeds and 5 points a curve; starting Python is included.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import answer_help

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from report_store import make_baseline, make_store

_CASES = 25


def main() -> None:
    evaluations = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = make_store(folder, num_checkpoints=evaluations // _CASES, num_cases=_CASES)
        suite = make_baseline(folder, num_cases=_CASES)
        output = folder / "report.html"
        command = [sys.executable, "-m", "lobench.cli", "report", "--store", str(store), "--baseline", str(suite)]
        started = time.perf_counter()
        subprocess.run([*command, "--output", str(output)], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(
            f"{evaluations:,} evaluations: {seconds:.1f} s ({used.ru_utime + used.ru_stime:.1f} s of one core), "
            f"{output.stat().st_size / 1e6:.2f} MB"
        )


if __name__ == "__main__":
    answer_help(__doc__)
    main()

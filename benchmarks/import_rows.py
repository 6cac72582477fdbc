"""How long `lobench import` takes for ten million rows, and how much memory.

Usage: python benchmarks/import_rows.py [ROWS] [FILES]

A tidy csv of 10 methods x 4 cases x 25 seeds, every row of another run than the one before, as a program that trains
all of them side by side would log them. Then the same file again, which adds nothing. With FILES (1000), the rows are
in that many files instead, one for each run, in folders `methodM_seedS`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import answer_help

METHODS, CASES, SEEDS = 10, 4, 25
RUNS = METHODS * CASES * SEEDS


def write(path: Path, num_rows: int) -> None:
    names = [f"method{m},case{c},{s}" for m in range(METHODS) for c in range(CASES) for s in range(SEEDS)]
    losses = np.random.default_rng(0).random(RUNS)
    with path.open("w") as file:
        file.write("method,case,seed,step,metric,value\n")
        for step in range(num_rows // RUNS):
            file.writelines(
                f"{name},{step},val/loss,{2 + loss - step * 1e-5:.6f}\n"
                for name, loss in zip(names, losses, strict=True)
            )


def write_runs(folder: Path, num_rows: int, num_files: int) -> None:
    losses = np.random.default_rng(0).random(num_files)
    for number, loss in enumerate(losses):
        run = folder / f"method{number % METHODS}_seed{number // METHODS}"
        run.mkdir(parents=True)
        rows = (f"{step},{2 + loss - step * 1e-5:.6f}\n" for step in range(num_rows // num_files))
        (run / "metrics.csv").write_text("step,val_loss\n" + "".join(rows))


def measure(file: Path, store: Path) -> tuple[float, float, float]:
    """Returns seconds, processor seconds and megabytes of one import, in a process of its own."""
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        done = subprocess.run([sys.executable, "-m", "lobench.cli", "import", str(file), "--store", str(store)])
        os._exit(done.returncode)
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit("the import failed")
    peak = max(used.ru_maxrss, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime, peak / 1024


def main() -> None:
    num_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    num_files = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ("rows.csv" if num_files == 1 else "runs")
        if num_files == 1:
            write(file, num_rows)
        else:
            write_runs(file, num_rows, num_files)
        print(f"{num_rows:,} rows, {num_files:,} files, {RUNS if num_files == 1 else num_files:,} runs", flush=True)
        for what in ("first", "again"):
            seconds, of_processor, megabytes = measure(file, Path(folder) / "store")
            print(
                f"{what}: {seconds:.1f} s ({of_processor:.1f} s of processor), {megabytes:.0f} MiB at most", flush=True
            )


if __name__ == "__main__":
    answer_help(__doc__)
    main()

"""Processor time that lobench adds to a command's evaluation: python benchmarks/command_overhead.py --seeds 200

The same shell command is run by `lobench watch`, once for each seed, and by `subprocess.run`, in turns. The start of a
watch is taken out by a second watch of fewer seeds. Processor time does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_FEW = 4
_SCRIPT = 'echo \'{"valid/loss": 1.5}\' > "$1/m.json"\n'


def processor_seconds() -> float:
    """Returns the processor seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watched(folder: Path, num_seeds: int, store: Path) -> float:
    """Returns the processor seconds of a watch that evaluates one checkpoint with a number of seeds."""
    words = ["watch", str(folder / "run"), "--suite", str(folder / "suite"), "--once", "--workers", "1", "-q"]
    more = ["--store", str(store), "--gin-param", f"Case.num_seeds = {num_seeds}"]
    began = processor_seconds()
    subprocess.run([sys.executable, "-m", "lobench.cli", *words, *more], check=True, stdout=subprocess.DEVNULL)
    return processor_seconds() - began


def by_hand(folder: Path, num_seeds: int) -> float:
    """Returns the processor seconds of the command alone, as many times."""
    began = processor_seconds()
    for _ in range(num_seeds):
        subprocess.run(["sh", str(folder / "suite" / "evaluate.sh"), str(folder)], check=True)
    return processor_seconds() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    added = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for one in ("run/checkpoint-1", "suite"):
            (folder / one).mkdir(parents=True)
        (folder / "run/checkpoint-1/trainer_state.json").write_text('{"global_step": 1}')
        (folder / "suite/evaluate.sh").write_text(_SCRIPT)
        (folder / "suite/suite.gin").write_text(
            'x/Case.command = "sh evaluate.sh {out}"\n'
            'x/Case.curves = "{out}/m.json"\n'
            'x/Case.primary_metric = "valid/loss"\n'
            "Case.seed_block = 1\n"
        )
        for number in range(asked.rounds):
            count = asked.seeds - _FEW
            few = watched(folder, _FEW, folder / f"few{number}")
            alone = by_hand(folder, count)
            many = watched(folder, asked.seeds, folder / f"many{number}")
            added.append((many - few - alone) / count * 1e3)
    low, high = min(added), max(added)
    cores = os.cpu_count()
    print(f"added to an evaluation: {statistics.median(added):.1f} ms ({low:.1f} to {high:.1f}), {cores} cores")


if __name__ == "__main__":
    main()

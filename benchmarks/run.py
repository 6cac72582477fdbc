"""Every performance figure of lobench, as ratios of two things timed in turns.

Usage:
  python benchmarks/run.py                        # all, minutes
  python benchmarks/run.py --quick                # fewer rounds and steps
  python benchmarks/run.py --only floor --only dm
  python benchmarks/run.py --only scan --threads 2
  python benchmarks/run.py --json figures.json
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import Benchmark, Measurement, Rounds, machine, table, to_json

_MODULES = ("inner", "wide", "families", "starting", "chief")


def _benchmarks() -> list[Benchmark]:
    return [benchmark for module in _MODULES for benchmark in importlib.import_module(module).BENCHMARKS]


def _in_a_process_of_its_own(benchmark: Benchmark, quick: bool) -> Rounds:
    """Measures: the number of jax's threads is fixed by the environment, and no benchmark leaves memory to the next."""
    with tempfile.TemporaryDirectory() as folder:
        rounds = Path(folder) / "rounds.json"
        command = [sys.executable, __file__, "--measure", benchmark.name, "--into", str(rounds), *["--quick"] * quick]
        subprocess.run(command, check=True, env={**os.environ, "NPROC": str(benchmark.threads)})
        return Rounds(**json.loads(rounds.read_text()))


def main() -> int:
    """Runs the benchmarks asked for; returns 1 where a name matches none."""
    parser = argparse.ArgumentParser(
        description="Ratios of two things timed in turns.", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="Fewer rounds and steps: a look, not a record.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="Part of a name; repeatable.")
    parser.add_argument("--threads", type=int, metavar="N", help="Of jax, on both sides, where a figure has others.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the same as JSON.")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--into", help=argparse.SUPPRESS)
    options = parser.parse_args()
    benchmarks = _benchmarks()
    if options.measure:
        (benchmark,) = (found for found in benchmarks if found.name == options.measure)
        found = dataclasses.asdict(benchmark.measure(options.quick))
        found["ratios"] = [float(ratio) for ratio in found["ratios"]]
        Path(options.into).write_text(json.dumps(found))
        return 0
    chosen = [found for found in benchmarks if not options.only or any(part in found.name for part in options.only)]
    if not chosen:
        known = ", ".join(benchmark.name for benchmark in benchmarks)
        print(f"no benchmark is named like {options.only}; there are {known}", file=sys.stderr)
        return 1
    if options.threads:
        chosen = [dataclasses.replace(found, threads=options.threads) for found in chosen]
    about = machine()
    measurements = []
    for benchmark in chosen:
        rounds = _in_a_process_of_its_own(benchmark, options.quick)
        found = Measurement.of(benchmark, rounds, quick=options.quick)
        measurements.append(found)
        print(f"{found.name}: {found.ratio:.2f} ({found.low:.2f} - {found.high:.2f}) {found.target}", flush=True)
        if options.json:  # after each, so that an end in between loses nothing
            options.json.write_text(to_json(measurements, about) + "\n")
    print("\n" + ", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    print(table(measurements))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Members a second of a worker of `lobench evolve` by how many share a program: digits networks, AdafacMLPLOpt.

    python benchmarks/evolve_throughput.py [--threads 2] [--quick]

100 inner steps; decoding, transfer and reading back included, in processor time of one thread, so that other load
matters little (with --threads on the wall: wants a quiet machine). The best of several rounds, widths taking turns. One
by one is a program without any axis of members, as a worker with `Evolve.members_per_program = 1` runs it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["NPROC"] = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"

from lobench_evolve.evolution_strategies import EvolutionStrategies
from lobench_evolve.run import plan
from lobench_evolve.settings import read_config
from lobench_evolve.worker import Evaluator

_parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
_parser.add_argument("--quick", action="store_true")
_parser.add_argument("--threads")
OPTIONS = _parser.parse_args()
THREADS = int(os.environ["NPROC"])
CONFIG = Path(__file__).resolve().parents[1] / "examples" / "evolve" / "digits_es.gin"
WIDTHS = (1, 4) if OPTIONS.quick else (1, 4, 16, 32)
ROUNDS = 1 if OPTIONS.quick else 7


def members_per_second(folder: Path) -> None:
    """Times one process that trains 32 members, so many in a program."""
    clock = time.process_time if THREADS == 1 else time.perf_counter
    found: dict[int, list[float]] = {width: [] for width in WIDTHS}
    quick = ("Case.num_inner_steps = 1", "AntitheticES.num_pairs = 8") if OPTIONS.quick else ()
    planned = [
        plan(CONFIG, folder=folder, scopes=[], seed=0, gin_params=(f"Evolve.members_per_program = {width}", *quick))
        for width in WIDTHS
    ]
    evaluators = {
        each.run_settings.members_per_program: Evaluator(read_config(CONFIG, each.layers.gin_params), each.layers)
        for each in planned
    }
    search = EvolutionStrategies(planned[0].es, 0)
    trials = [(trial.genome.id, trial.seed) for trial in search.trials()]
    for width, evaluator in evaluators.items():
        evaluator.apply_updates(search.theta, evaluator.begin(1), [])
        evaluator.decoder.add_genomes(search.genomes.values())
        evaluator.evaluate(trials[:width])  # compiles
    for _ in range(ROUNDS):
        for width, evaluator in evaluators.items():
            started = clock()
            for first in range(0, len(trials), width):
                evaluator.evaluate(trials[first : first + width])
            found[width].append(len(trials) / (clock() - started))
    for width, rates in found.items():
        print(f"{width:3} in a program: {max(rates):6.1f} a second, x {max(rates) / max(found[1]):.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        members_per_second(Path(name))

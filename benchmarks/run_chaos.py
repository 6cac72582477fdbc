"""`lobench run` whose chief is killed at random moments and started again: is its ledger that of an undisturbed run?

Three methods x four cases x four seeds, each seed a block of its own, so that 48 evaluations can be lost or doubled.
Kills fall anywhere in the work: some in a start, before anything is recorded, the rest between two results.

    python benchmarks/run_chaos.py --kills 20
    python benchmarks/run_chaos.py --kills 20 --ray     # on two nodes, the second of which is killed in between, too

With `--search NAME` it is one method and its search in their place: 12 trials (a grid's 9, an iterated one's 5) in
waves of 4, and their best on fresh seeds. The trials must be those of the undisturbed run, in its order. `--search all`
is every search in turn, with early stopping for the last.

    python benchmarks/run_chaos.py --kills 4 --steps 300 --search all
    python benchmarks/run_chaos.py --kills 3 --steps 300 --search all --ray
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lobench.core.result import Curves
from lobench.engine.store.ledger import Ledger

_ROOT = Path(__file__).parents[1]
_METHODS = """
Experiment.suites = ["suite"]
Experiment.num_sessions = 4
adam/Method.optimizer = @adam()
adam/adam.learning_rate = 0.01
momentum/Method.optimizer = @optax.sgd()
momentum/optax.sgd.learning_rate = 0.1
momentum/optax.sgd.momentum = 0.9
learned/Method.checkpoint = "theta.npz"
learned/Case.learned_optimizer = @LearnableSGD()
"""
_CASES = """
import lobench.inner.tasks.image
import lobench.inner.tasks.quadratic
Case.num_inner_steps = {steps}
Case.seed_block = 1
Case.eval_every = 50
small/Case.task = @DigitsMLP()
small/DigitsMLP.hidden_sizes = (16,)
tanh/Case.task = @DigitsMLP()
tanh/DigitsMLP.activation = "tanh"
narrow/Case.task = @Quadratic()
wide/Case.task = @Quadratic()
wide/Quadratic.dim = 100
"""
_SEARCH = """
Experiment.suites = ["suite"]
Experiment.num_sessions = 2
tuned/Method.optimizer = @momentum()
tuned/Method.search = @{search}()
tuned/Method.wave = 4
tuned/momentum.learning_rate = @rate/Real()
tuned/momentum.decay = @decay/Real()
rate/Real.low = 1e-3
rate/Real.high = 0.5
rate/Real.scale = "log"
rate/Real.num_values = 3
decay/Real.low = 0.0
decay/Real.high = 0.95
decay/Real.num_values = 3
{more}
"""
_NUM_TRIALS = "tuned/Method.num_trials = 12"
_SEARCHES = {
    "random": _NUM_TRIALS,
    "grid": "",
    "ic_grid": "",
    "auto_ic_grid": _NUM_TRIALS,
    "optuna": f'{_NUM_TRIALS}\noptuna.sampler = "tpe"',
    "stopping": f"{_NUM_TRIALS}\ntuned/Method.median_stopping = 0.25",  # random
}


def _written(folder: Path, steps: int, search: str) -> Path:
    """Writes the experiment, and returns its file."""
    folder.mkdir(exist_ok=True)
    (folder / "suite").mkdir()
    (folder / "suite" / "suite.gin").write_text(_CASES.format(steps=steps))
    np.savez(folder / "theta.npz", log_lr=np.float32(-2.0))
    (folder / "theta.npz.done").touch()
    name = "random" if search == "stopping" else search
    text = _SEARCH.format(search=name, more=_SEARCHES[search]) if search else _METHODS
    (folder / "x.gin").write_text(text)
    return folder / "x.gin"


class Campaign:
    """Runs of one experiment.

    Args:
      options: Of `lobench run`, as the executor wants them.
    """

    def __init__(self, file: Path, options: list[str], environment: dict[str, str]) -> None:
        self._file, self._options, self._environment = file, options, environment

    def start(self, store: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "lobench.cli", "run", str(self._file), "--store", str(store), *self._options]
        with store.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)

    def finish(self, store: Path) -> float:
        """Runs it to its end; returns its seconds."""
        started = time.perf_counter()
        code = self.start(store).wait()
        if code:
            raise SystemExit(f"lobench run ended with {code}: {store.with_suffix('.log').read_text()[-2000:]}")
        return time.perf_counter() - started

    def wait_for(self, process: subprocess.Popen[bytes], store: Path, num_recorded: int) -> None:
        while _num_recorded(store) < num_recorded:
            if process.poll() is not None:
                raise SystemExit(f"it ended before its kill: {store.with_suffix('.log').read_text()[-2000:]}")
            time.sleep(0.01)

    def kill_after(self, store: Path, num_recorded: int, seconds: float) -> int:
        """Starts it, and kills the chief some time after so many evaluations are there; returns how many then are."""
        process = self.start(store)
        self.wait_for(process, store, num_recorded)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise SystemExit("it had ended when it was killed; more steps (--steps) give room for the kills")
        return _num_recorded(store)


def _num_recorded(store: Path) -> int:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{store}/ledger.sqlite?mode=ro", uri=True)) as ledger:
            return int(ledger.execute("SELECT count(*) FROM evaluations").fetchone()[0])
    except sqlite3.Error:
        return 0  # not there yet


def _content(store: Path) -> tuple[Counter[tuple[Any, ...]], set[tuple[Any, ...]], list[Any]]:
    """Returns evaluations with all their bits, members, and trials: everything but times and places."""
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        rows: Counter[tuple[Any, ...]] = Counter()
        for row in ledger.evaluations():
            bits: list[object] = []
            if row.payload is not None:
                curves = Curves.from_payload(row.payload)
                bits += [sorted((name, values.tobytes()) for name, values in curves.metrics.items())]
                bits += [curves.seeds, curves.eval_steps, curves.log_steps, curves.diverged_at, curves.num_params]
            rows[row.key, row.outcome, row.message, repr(bits)] += 1
        (form,) = ledger.experiments()
        members = ledger.memberships(form.id)
        found = {(one.method, one.trial, one.session, one.evaluation) for one in members}
        if len(found) != len(members):
            raise SystemExit("a membership is there twice")
        return rows, found, ledger.trials(form.id)


@contextlib.contextmanager
def _two_nodes(folder: Path) -> Iterator[Any]:
    sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "plugins/lobench-ray/tests")]
    from two_nodes import Cluster

    cluster = Cluster(folder)
    try:
        cluster.start_head()
        cluster.start_second()
        yield cluster
    finally:
        cluster.kill()


def _campaign(file: Path, cluster: Any) -> Campaign:
    if cluster is None:
        return Campaign(file, ["--workers", "2"], dict(os.environ))
    return Campaign(file, ["--executor", "ray", "--ray-address", cluster.address], cluster.environment)


def _kill_all(
    campaign: Campaign, store: Path, kills: int, seconds: float, rng: random.Random, cluster: Any, count: int
) -> None:
    """Kills the chief again and again, and in the middle a node, which is there again for the next start."""
    moments = sorted(rng.uniform(0.0, count - 4) for _ in range(kills))
    for index, moment in enumerate(moments):
        in_start = int(moment) <= _num_recorded(store)  # whose kill falls anywhere in what comes first
        pause = rng.uniform(0.0, 6.0) if in_start else (moment % 1) * seconds / count
        if in_start and _num_recorded(store) > count - 8:
            pause = min(pause, 2.0)
        found = campaign.kill_after(store, int(moment), pause)
        print(f"kill {index + 1}: {found} evaluations are there", flush=True)
        if cluster is not None and index == kills // 2:
            process = campaign.start(store)
            campaign.wait_for(process, store, min(found + 1, count))
            cluster.nodes["second"].kill()
            campaign.wait_for(process, store, min(found + 3, count))
            process.kill()
            process.wait()
            cluster.start_second()
            print(f"a node killed under a living chief: {_num_recorded(store)} evaluations are there", flush=True)


def _compared(root: Path, options: argparse.Namespace, search: str, cluster: Any) -> bool:
    """Runs an experiment undisturbed and killed; says what each has, and returns whether it is the same."""
    file = _written(root, options.steps, search)
    seconds = _campaign(file, None).finish(root / "undisturbed")
    expected, expected_members, expected_trials = _content(root / "undisturbed")
    count = sum(expected.values())
    print(f"undisturbed, on this machine's own workers: {count} evaluations in {seconds:.0f} s", flush=True)
    campaign, started = _campaign(file, cluster), time.perf_counter()
    _kill_all(campaign, root / "killed", options.kills, seconds, random.Random(options.seed), cluster, count)
    campaign.finish(root / "killed")
    print(f"{options.kills} kills, and the end: {time.perf_counter() - started:.0f} s")
    rows, members, trials = _content(root / "killed")
    twice = sum(number - 1 for number in Counter(key for key, *_ in rows.elements()).values())
    print(
        f"{search or 'methods'}: evaluations {sum(rows.values())}, the undisturbed run's bits: "
        f"{sum((rows & expected).values())}; recorded twice: {twice}; members {len(members)}, equal: "
        f"{members == expected_members}; trials {len(trials)}, equal: {trials == expected_trials}",
        flush=True,
    )
    return (rows, members, trials) == (expected, expected_members, expected_trials)


def main() -> int:
    """Returns 1 where a ledger differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="Of the moments.")
    parser.add_argument("--steps", type=int, default=3_000, help="Inner steps of each evaluation.")
    parser.add_argument("--search", choices=[*_SEARCHES, "all"], default="", help="A search in place of the methods.")
    parser.add_argument("--ray", action="store_true", help="On a Ray of two nodes of this machine.")
    options = parser.parse_args()
    searches = list(_SEARCHES) if options.search == "all" else [options.search]
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(_two_nodes(root / "cluster")) if options.ray else None
        equal = [_compared(root / (search or "methods"), options, search, cluster) for search in searches]
        return int(not all(equal))


if __name__ == "__main__":
    sys.exit(main())

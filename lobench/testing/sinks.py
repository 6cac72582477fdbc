"""Contract of result sinks: a plugin's test module subclasses `SinkContract` and says how to read back.

    class TestMySink(SinkContract):
        factory = "mypackage.sinks:MySink"

        def contents(self, store):
            return [json.loads(line) for line in (store / "results.jsonl").read_text().splitlines()]

Run as a program (`python -m lobench.testing.sinks FACTORY STORE ARGUMENT COUNT`) it delivers and then kills itself: so
the contract has a sink die between a delivery and its acknowledgement.
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.lazy import loaded
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.hookspecs import AlarmRaised, CheckpointFinished, Delivery, EvaluationFinished, ResultSink, SinkContext
from lobench.testing.metrics import sample_curves

__all__ = ["SinkContract", "sample_deliveries"]

_NAN = math.nan


def sample_deliveries(num_checkpoints: int = 3, *, run: str = "") -> list[Delivery]:
    """Returns deliveries in ledger order, with all that a sink may meet.

    Each checkpoint has a case in one block, one in two blocks, one of which a seed diverged (NaN), and one that ended
    in an error without curves. The last checkpoint is of a population's generation 1, and has an alarm.

    Args:
      run: Name of the run that all are of.
    """
    events: list[EvaluationFinished | CheckpointFinished | AlarmRaised] = []
    for index in range(num_checkpoints):
        last = index == num_checkpoints - 1
        subject = Subject.of_checkpoint(
            Checkpoint(uri=f"checkpoint_{index}", sha256=f"{index:064x}", outer_step=10 * index, generation=+last)
        )
        evaluations = (
            _evaluation(subject, "whole", SeedBlock(start=0, size=2), (1.0 + index, 2.0 + index), num_seeds=2),
            _evaluation(subject, "blocks", SeedBlock(start=0, size=2), (4.0, 5.0), num_seeds=3),
            _evaluation(subject, "blocks", SeedBlock(start=2, size=1), (6.0,), num_seeds=3),
            _evaluation(subject, "diverges", SeedBlock(start=0, size=2), (3.0, _NAN), num_seeds=2),
            _evaluation(subject, "breaks", SeedBlock(start=0, size=2), (), num_seeds=2),
        )
        events += [*evaluations, CheckpointFinished(subject=subject, evaluations=evaluations)]
    events.append(
        AlarmRaised(subject=subject, kind="regress", reference=subject, value=0.2, bound=0.1, message="it is worse")
    )
    return [Delivery(sequence=place, event=event, run=run) for place, event in enumerate(events, start=1)]


def _evaluation(
    subject: Subject, name: str, block: SeedBlock, finals: tuple[float, ...], *, num_seeds: int
) -> EvaluationFinished:
    case = CaseInfo(
        identity=name,
        optimizer_hash="optimizer",
        suite="suite",
        name=name,
        node_id=f"suite/test_suite.py::test[{name}]",
        num_inner_steps=4,
        num_seeds=num_seeds,
        seed_block=2,
    )
    if not finals:
        return EvaluationFinished(
            subject=subject, case=case, seed_block=block, outcome=Outcome.ERROR, message="it broke"
        )
    curves = sample_curves([(9.0, 8.0, final) for final in finals], first_seed=block.start, eval_every=2)
    return EvaluationFinished(subject=subject, case=case, seed_block=block, outcome=Outcome.PASSED, curves=curves)


class SinkContract:
    """Tests that every result sink must pass.

    Attributes:
      factory: "module:attribute", as in the sink's declaration.
      argument: What a user would write after `NAME:`.
    """

    factory: ClassVar[str]
    argument: ClassVar[str] = ""

    @abstractmethod
    def contents(self, store: Path) -> Iterable[object]:
        """Returns what a reader of the sink's output finds, each thing as often as it is there, without times.

        Things are compared by their `repr`, whatever their order, so that NaN equals NaN.
        """

    def open(self, store: Path) -> ResultSink:
        """Makes a sink whose store is `store`."""
        return _open(self.factory, store, self.argument)

    def found(self, store: Path) -> Counter[str]:
        return Counter(repr(thing) for thing in self.contents(store))

    def expected(self, store: Path, deliveries: list[Delivery]) -> Counter[str]:
        """Returns what is there after one sink took `deliveries` at once, undisturbed."""
        sink = self.open(store)
        sink.deliver(deliveries)
        sink.close()
        return self.found(store)

    def test_something_is_there(self, tmp_path: Path) -> None:
        assert self.expected(tmp_path, sample_deliveries()), "contents() finds nothing after a delivery"

    def test_a_sink_that_got_nothing_can_be_closed(self, tmp_path: Path) -> None:
        self.open(tmp_path).close()
        sink = self.open(tmp_path)
        sink.deliver([])
        sink.close()

    def test_a_closed_sink_leaves_its_process_as_it_was(self, tmp_path: Path) -> None:
        """The process may be a user's, who has other things to do in it, with the same tracker too."""
        before = dict(os.environ), sys.excepthook, sys.exit
        sink = self.open(tmp_path)
        sink.deliver(sample_deliveries(1))
        sink.close()
        assert (dict(os.environ), sys.excepthook, sys.exit) == before

    def test_another_thread_delivers_than_the_one_that_made_it(self, tmp_path: Path) -> None:
        """As in a watch, where a slow sink holds up nobody."""
        deliveries = sample_deliveries()
        sink = self.open(tmp_path / "thread")
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(sink.deliver, deliveries).result()
        sink.close()
        assert self.found(tmp_path / "thread") == self.expected(tmp_path / "once", deliveries)

    def test_delivering_twice_equals_once(self, tmp_path: Path) -> None:
        deliveries = sample_deliveries()
        sink = self.open(tmp_path / "twice")
        sink.deliver(deliveries)
        sink.deliver(deliveries)
        sink.close()
        assert self.found(tmp_path / "twice") == self.expected(tmp_path / "once", deliveries)

    @pytest.mark.parametrize("size", [1, 2, 5, 7])
    def test_any_split_into_batches_gives_the_same(self, tmp_path: Path, size: int) -> None:
        deliveries = sample_deliveries()
        sink = self.open(tmp_path / "split")
        for start in range(0, len(deliveries), size):
            sink.deliver(deliveries[start : start + size])
        sink.close()
        assert self.found(tmp_path / "split") == self.expected(tmp_path / "once", deliveries)

    def test_opened_again_at_any_place_it_goes_on(self, tmp_path: Path) -> None:
        """A restart delivers from the last acknowledged place, which may lie well before what the sink has."""
        deliveries = sample_deliveries()
        for end in range(1, len(deliveries) + 1):
            sink = self.open(tmp_path / "again")
            sink.deliver(deliveries[max(0, end - 3) : end])
            sink.close()
        assert self.found(tmp_path / "again") == self.expected(tmp_path / "once", deliveries)

    def test_each_run_has_its_numbers_whatever_the_others_have_at_its_outer_steps(self, tmp_path: Path) -> None:
        """Methods and sessions of an experiment: the first to arrive is not the only one that is written.

        The names differ by what file systems and trackers do not like: case-folding them or replacing characters by
        others must not make two names one.
        """
        names = ("", "Adam", "Adam-0", "mine/3", "mine_3", "mine%2F3", "Größe", "Gr__e", ".hidden", "hidden", "x" * 300)
        found = [delivery for name in names for delivery in sample_deliveries(1, run=name)]
        deliveries = [dataclasses.replace(one, sequence=place) for place, one in enumerate(found, start=1)]
        num_expected = len(names) * self.expected(tmp_path / "one", sample_deliveries(1)).total()
        assert self.expected(tmp_path / "many", deliveries).total() == num_expected
        assert self.expected(tmp_path / "many", deliveries).total() == num_expected, "the same again changes nothing"

    @pytest.mark.parametrize("count", [1, 8])
    def test_killed_before_the_acknowledgement_it_has_all_and_takes_it_again(self, tmp_path: Path, count: int) -> None:
        deliveries = sample_deliveries()
        store = tmp_path / "killed"
        command = [sys.executable, "-m", "lobench.testing.sinks", self.factory, str(store), self.argument, str(count)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        # Durable when deliver() returns, without a close.
        assert self.found(store) == self.expected(tmp_path / "first", deliveries[:count])
        assert self.expected(store, deliveries) == self.expected(tmp_path / "once", deliveries)


def _open(factory: str, store: Path, argument: str) -> ResultSink:
    store.mkdir(parents=True, exist_ok=True)
    sink: ResultSink = loaded(factory)(SinkContext(store=store, argument=argument, name="contract"))
    return sink


def _deliver_and_die(factory: str, store: str, argument: str, count: str) -> None:
    _open(factory, Path(store), argument).deliver(sample_deliveries()[: int(count)])
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _deliver_and_die(*sys.argv[1:])

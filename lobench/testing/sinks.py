"""Contract of result sinks: a plugin's test module subclasses `SinkContract` and reads the results back.

    class TestMySink(SinkContract):
        factory = "mypackage.sinks:MySink"

        def contents(self, store):
            return [json.loads(line) for line in (store / "results.jsonl").read_text().splitlines()]

        def value_of(self, store, run, generation, step, suite, case, metric):
            key = [run, generation, step, suite, case, metric]
            return next((row["value"] for row in self.contents(store) if row["key"] == key), None)

Run as a program (`python -m lobench.testing.sinks FACTORY STORE ARGUMENT COUNT [PART]`), it delivers and then kills
itself, so that a test sees a sink die between a delivery and its acknowledgement. With PART it dies inside `deliver`,
after this part of the calls that `deliver` makes.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.lazy import loaded
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.hookspecs import AlarmRaised, CheckpointFinished, Delivery, EvaluationFinished, ResultSink, SinkContext
from lobench.testing.metrics import sample_curves
from lobench.testing.watches import NAME, watch_with, write_run

__all__ = ["KnownNumber", "SinkContract", "known_numbers", "sample_deliveries"]

_Event = EvaluationFinished | CheckpointFinished | AlarmRaised
_NAN = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNumber:
    """Number that a sink must write: the mean over seeds at the last inner step; NaN if a seed diverged."""

    run: str
    generation: int
    step: int
    suite: str
    case: str
    metric: str
    value: float


def sample_deliveries(num_checkpoints: int = 3, *, run: str = "") -> list[Delivery]:
    """Returns deliveries in ledger order, with everything that a sink may get.

    Each checkpoint has four cases: one in a single block, one in two blocks, one with a diverged seed (NaN), and one
    that ended in an error without curves. The last checkpoint is of a population's generation 1, and has an alarm.

    Args:
      num_checkpoints: Number of checkpoints.
      run: Name of the run of all deliveries.
    """
    events: list[_Event] = []
    for index in range(num_checkpoints):
        is_last = index == num_checkpoints - 1
        subject = Subject.of_checkpoint(
            Checkpoint(uri=f"checkpoint_{index}", sha256=f"{index:064x}", outer_step=10 * index, generation=+is_last)
        )
        evaluations = (
            _evaluation_event(subject, "whole", SeedBlock(start=0, size=2), (1.0 + index, 2.0 + index), num_seeds=2),
            _evaluation_event(subject, "blocks", SeedBlock(start=0, size=2), (4.0, 5.0), num_seeds=3),
            _evaluation_event(subject, "blocks", SeedBlock(start=2, size=1), (6.0,), num_seeds=3),
            _evaluation_event(subject, "diverges", SeedBlock(start=0, size=2), (3.0, _NAN), num_seeds=2),
            _evaluation_event(subject, "breaks", SeedBlock(start=0, size=2), (), num_seeds=2),
        )
        events += [*evaluations, CheckpointFinished(subject=subject, evaluations=evaluations)]
    events.append(
        AlarmRaised(subject=subject, kind="regress", reference=subject, value=0.2, bound=0.1, message="it is worse")
    )
    return _number_deliveries((run, event) for event in events)


def known_numbers() -> tuple[list[Delivery], list[KnownNumber]]:
    """Returns deliveries, and the numbers that a reader of the sink's output must find after them.

    Two runs, three generations of one of them and two suites share outer steps and names of cases. Seeds begin at 5,
    generations have one or two digits, two outer steps differ only beyond 24 bits, one seed diverges, and there is an
    alarm in between.
    """
    events: list[tuple[str, _Event]] = []
    numbers_in_sink: list[KnownNumber] = []
    values = iter(np.random.default_rng(0).lognormal(0.0, 3.0, 100).astype(np.float32).tolist())
    keys_of_checkpoints = (
        ("", 0, 3),
        ("", 0, 20),
        ("", 2, 3),
        ("", 12, 20),
        ("other", 0, 3),
        ("other", 0, 1 << 24),
        ("other", 0, (1 << 24) + 1),
    )
    for index, (run, generation, step) in enumerate(keys_of_checkpoints):
        checkpoint = Checkpoint(
            uri=f"{run}/checkpoint_{index + 7}",
            sha256=f"{index + 7:064x}",
            outer_step=step,
            generation=generation,
            run=run,
        )
        subject = Subject.of_checkpoint(checkpoint)
        evaluations: list[EvaluationFinished] = []
        for suite, name, sizes in (("one", "bowl", (2,)), ("two", "bowl", (2,)), ("one", "blocks", (2, 1))):
            finals = [next(values) for _ in range(sum(sizes))]
            if (index, suite, name) == (1, "two", "bowl"):
                finals[1] = _NAN
            start = 0
            for size in sizes:
                block = SeedBlock(start=5 + start, size=size)
                block_finals = tuple(finals[start : start + size])
                evaluations.append(
                    _evaluation_event(subject, name, block, block_finals, num_seeds=len(finals), suite=suite)
                )
                start += size
            number_keys: dict[str, Any] = {
                "run": run,
                "generation": generation,
                "step": step,
                "suite": suite,
                "case": name,
            }
            mean = float(np.mean(np.asarray(finals, np.float64)))
            numbers_in_sink.append(KnownNumber(**number_keys, metric="train/loss", value=mean))
            numbers_in_sink.append(KnownNumber(**number_keys, metric="test/loss", value=mean + 1))
        events.extend((run, evaluation) for evaluation in evaluations)
        events.append((run, CheckpointFinished(subject=subject, evaluations=tuple(evaluations))))
        if index in (0, 3):
            alarm = AlarmRaised(
                subject=subject, kind="regress", reference=subject, value=0.3, bound=0.1, message="it is worse"
            )
            events.append((run, alarm))
    return _number_deliveries(events), numbers_in_sink


def _number_deliveries(events: Iterable[tuple[str, _Event]]) -> list[Delivery]:
    """Returns deliveries of (run, event), with sequence numbers as assigned by a watch."""
    deliveries: list[Delivery] = []
    num_alarms = 0
    for run, event in events:
        is_alarm = isinstance(event, AlarmRaised)
        num_alarms += is_alarm
        sequence = -num_alarms if is_alarm else len(deliveries) - num_alarms + 1
        deliveries.append(Delivery(sequence=sequence, event=event, run=run))
    return deliveries


def _evaluation_event(
    subject: Subject,
    name: str,
    block: SeedBlock,
    finals: tuple[float, ...],
    *,
    num_seeds: int,
    suite: str = "suite",
) -> EvaluationFinished:
    identity = name if suite == "suite" else f"{suite} {name}"
    case = CaseInfo(
        identity=identity,
        optimizer_hash="optimizer",
        suite=suite,
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
      argument: Text that a user would write after `NAME:`.
      metrics: Metrics that it writes, of `train/loss` and `test/loss`. () if it needs no `value_of`, because it writes
        only outcomes, for example.
    """

    factory: ClassVar[str]
    argument: ClassVar[str] = ""
    metrics: ClassVar[tuple[str, ...]] = ("train/loss", "test/loss")
    _sample_items: ClassVar[Counter[str]]

    @abstractmethod
    def contents(self, store: Path) -> Iterable[object]:
        """Returns the items in the sink's output, without times. Items are repeated as often as they occur.

        They are compared by their `repr`, in any order, so that NaN equals NaN.
        """

    def value_of(
        self, store: Path, run: str, generation: int, step: int, suite: str, case: str, metric: str
    ) -> float | None:
        """Returns one number of the sink's output; None if the output lacks it.

        It is the mean over all seeds of the metric at the last inner step, and NaN if a seed diverged. For a sink that
        writes each seed, or each seed block, compute the mean here.

        Args:
          store: Folder of the store.
          run, generation, step: `Delivery.run`, generation and outer step of the checkpoint.
          suite, case, metric: `CaseInfo.suite`, `CaseInfo.name` and a name such as `train/loss`.
        """
        raise NotImplementedError("define value_of(), or metrics = () for a sink that writes none")

    def open(self, store: Path) -> ResultSink:
        """Makes a sink whose store is `store`."""
        return _open_sink(self.factory, store, self.argument)

    def count_items(self, store: Path) -> Counter[str]:
        return Counter(repr(thing) for thing in self.contents(store))

    def deliver_once(self, store: Path, deliveries: list[Delivery]) -> Counter[str]:
        """Returns the output after one sink took `deliveries` in a single call."""
        sink = self.open(store)
        sink.deliver(deliveries)
        sink.close()
        return self.count_items(store)

    def sample_items(self, folder: Path) -> Counter[str]:
        """Returns the output after one call with `sample_deliveries()`, made once for all tests of a class."""
        if "_sample_items" not in vars(type(self)):
            type(self)._sample_items = self.deliver_once(folder / "once", sample_deliveries())
        return self._sample_items

    def test_something_is_there(self, tmp_path: Path) -> None:
        assert self.sample_items(tmp_path), "contents() finds nothing after a delivery"

    def test_nothing_is_there_twice(self, tmp_path: Path) -> None:
        counts = self.sample_items(tmp_path)
        assert counts.most_common(1)[0][1] == 1, f"it is there several times: {counts.most_common(1)}"

    def test_a_sink_that_got_nothing_can_be_closed(self, tmp_path: Path) -> None:
        self.open(tmp_path).close()
        sink = self.open(tmp_path)
        sink.deliver([])
        sink.close()

    def test_a_closed_sink_leaves_its_process_as_it_was(self, tmp_path: Path) -> None:
        """The process may be the user's own, which does other things, even with the same tracker."""

        def state() -> tuple[object, ...]:
            handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
            lasting = {thread for thread in threading.enumerate() if not thread.daemon}  # the process waits for these
            return dict(os.environ), sys.excepthook, sys.exit, Path.cwd(), handlers, lasting

        old_state = state()
        sink = self.open(tmp_path)
        sink.deliver(sample_deliveries(1))
        sink.close()
        assert state() == old_state

    def test_another_thread_delivers_than_the_one_that_made_it(self, tmp_path: Path) -> None:
        """A watch delivers in another thread, so that a slow sink delays nothing else."""
        deliveries = sample_deliveries()
        sink = self.open(tmp_path / "thread")
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(sink.deliver, deliveries).result()
        sink.close()
        assert self.count_items(tmp_path / "thread") == self.sample_items(tmp_path)

    def test_delivering_twice_equals_once(self, tmp_path: Path) -> None:
        deliveries = sample_deliveries()
        sink = self.open(tmp_path / "twice")
        sink.deliver(deliveries)
        sink.deliver(deliveries)
        sink.close()
        assert self.count_items(tmp_path / "twice") == self.sample_items(tmp_path)

    @pytest.mark.parametrize("size", [1, 5])
    def test_any_split_into_batches_gives_the_same(self, tmp_path: Path, size: int) -> None:
        deliveries = sample_deliveries()
        sink = self.open(tmp_path / "split")
        for start in range(0, len(deliveries), size):
            sink.deliver(deliveries[start : start + size])
        sink.close()
        assert self.count_items(tmp_path / "split") == self.sample_items(tmp_path)

    def test_opened_again_at_any_place_it_goes_on(self, tmp_path: Path) -> None:
        """A restart delivers from the last acknowledged delivery, which may be well before the sink's last one."""
        deliveries = sample_deliveries()
        for end in range(1, len(deliveries) + 1):
            sink = self.open(tmp_path / "again")
            sink.deliver(deliveries[max(0, end - 3) : end])
            sink.close()
        assert self.count_items(tmp_path / "again") == self.sample_items(tmp_path)

    def test_each_run_has_its_numbers_whatever_the_others_have_at_its_outer_steps(self, tmp_path: Path) -> None:
        """The results of all methods and sessions of an experiment must be written, not only the first to arrive.

        The names differ in characters that file systems and trackers change: case folding or replaced characters must
        not make two names equal.
        """
        names = ["", "Adam", "Adam-0", "mine/3", "mine_3", "mine%2F3", "Größe", "Gr__e", ".hidden", "hidden"]
        names += ["x" * 300, f"{'x' * 299}y"]
        deliveries = _number_deliveries(
            (name, delivery.event) for name in names for delivery in sample_deliveries(1, run=name)
        )
        num_expected = len(names) * self.deliver_once(tmp_path / "one", sample_deliveries(1)).total()
        assert self.deliver_once(tmp_path / "many", deliveries).total() == num_expected
        assert self.deliver_once(tmp_path / "many", deliveries).total() == num_expected, (
            "the same again changes nothing"
        )

    def test_known_numbers_are_read_back(self, tmp_path: Path) -> None:
        """Also holds after a restart that delivers the last batch again."""
        if not self.metrics:
            pytest.skip("the sink writes no metrics")
        deliveries, numbers_in_sink = known_numbers()
        middle_index = len(deliveries) // 2
        for deliveries_of_half in (deliveries[:middle_index], deliveries[max(0, middle_index - 5) :]):
            sink = self.open(tmp_path / "known")
            for start in range(0, len(deliveries_of_half), 7):
                sink.deliver(deliveries_of_half[start : start + 7])
            sink.close()
        self._assert_numbers(tmp_path / "known", numbers_in_sink)

    def test_a_number_that_was_not_delivered_is_not_there(self, tmp_path: Path) -> None:
        if not self.metrics:
            pytest.skip("the sink writes no metrics")
        self.deliver_once(tmp_path, known_numbers()[0])
        metric = self.metrics[0]
        for absent in (
            ("", 0, 100, "one", "bowl", metric),
            ("", 1, 3, "one", "bowl", metric),
            ("third", 0, 3, "one", "bowl", metric),
            ("", 0, 3, "two", "blocks", metric),
        ):
            assert self.value_of(tmp_path, *absent) is None, f"a number that was never delivered: {absent}"

    def _assert_numbers(self, store: Path, numbers: Sequence[KnownNumber]) -> None:
        for number in (number for number in numbers if number.metric in self.metrics):
            keys = (number.run, number.generation, number.step, number.suite, number.case, number.metric)
            value = self.value_of(store, *keys)
            assert value is not None, f"it is not there: {number}"
            np.testing.assert_allclose(value, number.value, rtol=1e-6, err_msg=str(number))

    def test_it_takes_the_results_of_a_watch(self, tmp_path: Path) -> None:
        address = f"{NAME}:{self.argument}" if self.argument else NAME
        run = write_run(tmp_path, steps=(3, 20))
        watched_store = watch_with(tmp_path, "lobench_result_sinks", self.factory, run, sinks=(address,))
        assert not [line for line in watched_store.lines if line.startswith("sink ")], watched_store.lines
        assert self.count_items(watched_store.folder), "contents() finds nothing after a watch"
        if "train/loss" in self.metrics:
            steps = [subject.outer_step for row in watched_store.rows for subject in row.recorded_sightings]
            finals = [float(np.mean(curves.final("train/loss"))) for curves in watched_store.curves]
            assert len(finals) == len(steps) == 2
            number_keys: dict[str, Any] = {
                "run": "",
                "generation": 0,
                "suite": "contract_suite",
                "case": "bowl",
                "metric": "train/loss",
            }
            steps_and_finals = zip(steps, finals, strict=True)
            self._assert_numbers(
                watched_store.folder,
                [KnownNumber(**number_keys, step=step, value=end) for step, end in steps_and_finals],
            )

    def test_killed_before_the_acknowledgement_it_has_all_and_takes_it_again(self, tmp_path: Path) -> None:
        deliveries = sample_deliveries()
        store, count = tmp_path / "killed", 8  # a checkpoint's, and two of the next
        self._deliver_and_die(store, str(count))
        # Deliveries are durable when deliver() returns, without close().
        assert self.count_items(store) == self.deliver_once(tmp_path / "first", deliveries[:count])
        assert self.deliver_once(store, deliveries) == self.sample_items(tmp_path)

    def test_killed_inside_a_delivery_it_takes_it_again_and_has_nothing_twice(self, tmp_path: Path) -> None:
        """After a kill, a watch delivers from the last acknowledged delivery, even if the sink wrote some of it."""
        deliveries = sample_deliveries()
        store = tmp_path / "killed"
        for share in ("0.5", "0.9"):
            self._deliver_and_die(store, str(len(deliveries) // 2), share)
        assert self.deliver_once(store, deliveries) == self.sample_items(tmp_path)

    def _deliver_and_die(self, store: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "lobench.testing.sinks", self.factory, str(store), self.argument, *arguments]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert completed.returncode == -signal.SIGKILL, completed.stderr


def _open_sink(factory: str, store: Path, argument: str) -> ResultSink:
    store.mkdir(parents=True, exist_ok=True)
    sink: ResultSink = loaded(factory)(SinkContext(store=store, argument=argument, name="contract"))
    return sink


def _deliver_and_die(factory: str, store: str, argument: str, count: str, share_of_calls: str = "") -> None:
    deliveries = sample_deliveries()[: int(count)]
    killed_at = 0
    if share_of_calls:
        with tempfile.TemporaryDirectory() as folder:
            sink = _open_sink(factory, Path(folder) / "whole", argument)
            killed_at = int(float(share_of_calls) * _deliver_until_call(sink, deliveries, 0))
            sink.close()
    _deliver_until_call(_open_sink(factory, Path(store), argument), deliveries, killed_at)
    os.kill(os.getpid(), signal.SIGKILL)


def _deliver_until_call(sink: ResultSink, deliveries: Sequence[Delivery], killed_at: int) -> int:
    """Delivers, and returns the number of calls that this took. Kills this process at call `killed_at`; 0: never."""
    num_calls = 0

    def on_event(frame: object, event: str, argument: object) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")
        if killed_at and num_calls == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(on_event)
    try:
        sink.deliver(deliveries)
    finally:
        sys.setprofile(None)
    return num_calls


if __name__ == "__main__":
    _deliver_and_die(*sys.argv[1:])

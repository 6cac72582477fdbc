"""Plugins of every kind: a right one of each, and wrong ones that differ from it in one thing.

A class's docstring names what is wrong with it; `FAILS` has the test of the contract that must fail.

It is one file because it is one list: each class is a few lines, and is compared with the right one of its kind.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import click
import numpy as np

from lobench import LobenchError, UsageError
from lobench.extend import (
    Chart,
    CheckpointContent,
    CurveRun,
    Curves,
    Figure,
    FileKind,
    LocalPool,
    Member,
    Points,
    Pool,
    Section,
    SeenCheckpoint,
    Selection,
    Series,
    Trial,
    content_of,
    rank,
    reading,
)
from lobench.hookspecs import AlarmRaised, Delivery, EvaluationFinished, SinkContext, SourceContext, Unfinished

END = b"END!"

# The wrong plugins, by kind, with the test that each must fail.
FAILS: dict[str, dict[str, str]] = {}


def fails(kind: str, test: str) -> Callable[[Any], Any]:
    """Registers a wrong plugin with the test of its contract that must fail."""

    def register(plugin: Any) -> Any:
        FAILS.setdefault(kind, {})[plugin.__name__] = test
        return plugin

    return register


# Readers of `.mine` files: the size of a JSON header, the header, the bytes of the leaves, and an end mark.


def write_mine(path: Path, leaves: Mapping[str, np.ndarray]) -> Path:
    entries = {name: [str(leaf.dtype), leaf.shape] for name, leaf in leaves.items()}
    header = json.dumps(entries).encode()
    body = b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in leaves.values())
    path.write_bytes(len(header).to_bytes(8, "little") + header + body + END)
    return path


class RightReader:
    in_place = False

    def __init__(self, allow_pickle: bool = False) -> None:
        del allow_pickle

    def recognises(self, path: Any) -> bool:
        return bool(path.suffix == ".mine")

    def is_complete(self, path: Any) -> bool:
        try:
            return bool(path.read_bytes().endswith(END))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def read(self, path: Any) -> CheckpointContent:
        with reading(path, "mine"):
            return content_of(self.leaves(path), str(path))

    def leaves(self, path: Any) -> dict[str, np.ndarray]:
        data = path.read_bytes()
        if not data.endswith(END):
            raise ValueError("it has no end")
        return {name: self.leaf(part, dtype, shape) for name, part, dtype, shape in self.parts(data)}

    def parts(self, data: Any) -> Iterator[tuple[str, Any, str, list[int]]]:
        size = int.from_bytes(data[:8], "little")
        offset = 8 + size
        for name, (dtype, shape) in json.loads(bytes(data[8:offset])).items():
            end = offset + np.dtype(dtype).itemsize * math.prod(shape)
            yield name, data[offset:end], dtype, shape
            offset = end

    def leaf(self, part: Any, dtype: str, shape: list[int]) -> np.ndarray:
        return np.frombuffer(part, dtype).reshape(shape)


def _casting(old: str, new: str) -> Callable[..., np.ndarray]:
    def leaf(self: RightReader, part: Any, dtype: str, shape: list[int]) -> np.ndarray:
        found = RightReader.leaf(self, part, dtype, shape)
        return found.astype(new) if found.dtype == old else found

    return leaf


@fails("readers", "test_dtypes_are_kept[float64]")
class CastsFloat64(RightReader):
    leaf = _casting("float64", "float32")


@fails("readers", "test_what_was_read_stays_when_the_file_is_written_again")
class MapsTheFile(RightReader):
    def leaves(self, path: Any) -> dict[str, np.ndarray]:
        super().leaves(path)
        data = memoryview(np.memmap(path, np.uint8, "r+"))  # type: ignore[arg-type]
        return {name: self.leaf(part, dtype, shape) for name, part, dtype, shape in self.parts(data)}


@fails("readers", "test_half_of_it_is_not_complete")
class TakesHalfAFileForComplete(RightReader):
    def is_complete(self, path: Any) -> bool:
        return bool(path.exists())


@fails("readers", "test_what_was_written_is_recognised_complete_and_read")
class MakesZeroOfNan(RightReader):
    def leaf(self, part: Any, dtype: str, shape: list[int]) -> np.ndarray:
        found = super().leaf(part, dtype, shape)
        return np.nan_to_num(found) if found.dtype.kind == "f" else found


@fails("readers", "test_many_large_leaves_are_read_in_their_places")
class ReadsTheFirst64KiB(RightReader):
    def leaf(self, part: Any, dtype: str, shape: list[int]) -> np.ndarray:
        return super().leaf(bytes(part[: 1 << 16]).ljust(len(part), b"\0"), dtype, shape)


@fails("readers", "test_the_outer_step_is_of_the_content")
class ReadsTheStepFromTheName(RightReader):
    def read(self, path: Any) -> CheckpointContent:
        return CheckpointContent(leaves=super().read(path).leaves, outer_step=3)


@fails("readers", "test_the_outer_step_is_of_the_content")
class TakesStepZeroForNone(RightReader):
    def read(self, path: Any) -> CheckpointContent:
        content = super().read(path)
        return CheckpointContent(leaves=content.leaves, outer_step=content.outer_step or None)


@fails("readers", "test_a_checkpoint_that_was_replaced_is_read_again")
class ReadsEachPathOnce(RightReader):
    def __init__(self, allow_pickle: bool = False) -> None:
        self.known: dict[str, CheckpointContent] = {}

    def read(self, path: Any) -> CheckpointContent:
        if str(path) not in self.known:
            self.known[str(path)] = super().read(path)
        return self.known[str(path)]


@fails("readers", "test_the_outer_step_is_of_the_content")
class LosesItsGeneration(RightReader):
    def read(self, path: Any) -> CheckpointContent:
        content = super().read(path)
        return CheckpointContent(leaves=content.leaves, outer_step=content.outer_step)


@fails("readers", "test_what_was_written_is_recognised_complete_and_read")
class LosesTheSignOfZero(RightReader):
    def leaf(self, part: Any, dtype: str, shape: list[int]) -> np.ndarray:
        found = super().leaf(part, dtype, shape)
        return np.asarray(found + np.zeros_like(found))


@fails("readers", "test_it_is_recognised_by_name_and_kind_whatever_it_holds")
class RecognisesByContent(RightReader):
    def recognises(self, path: Any) -> bool:
        return super().recognises(path) and self.is_complete(path)


@fails("readers", "test_reading_changes_nothing")
class LeavesAnIndexBeside(RightReader):
    def read(self, path: Any) -> CheckpointContent:
        Path(f"{path}.index").write_text("read")
        return super().read(path)


@fails("readers", "test_cut_off_it_is_one_clear_error_and_never_another_theta[1.0]")
class FillsUpWithZeros(RightReader):
    def leaves(self, path: Any) -> dict[str, np.ndarray]:
        data = path.read_bytes().ljust(1 << 20, b"\0")
        return {name: self.leaf(part, dtype, shape) for name, part, dtype, shape in self.parts(data)}


@fails("readers", "test_leaves_without_elements_are_kept")
class DropsEmptyLeaves(RightReader):
    def leaves(self, path: Any) -> dict[str, np.ndarray]:
        return {name: leaf for name, leaf in super().leaves(path).items() if leaf.size}


@fails("readers", "test_the_path_may_hold_spaces_and_a_percent_sign")
class UnquotesThePath(RightReader):
    def leaves(self, path: Any) -> dict[str, np.ndarray]:
        return super().leaves(Path(str(path).replace("%20", " ")))


# Sinks that write a row for each seed into SQLite; values as text, since SQLite makes NULL of NaN.


class RightSink:
    key = "sequence, seed"
    on_conflict = "REPLACE"
    same_thread = False

    def __init__(self, context: SinkContext) -> None:
        self.db = sqlite3.connect(context.store / "losses.sqlite", check_same_thread=self.same_thread)
        columns = "sequence, run, generation, step, suite, case_name, seed, loss"
        self.db.execute(f"CREATE TABLE IF NOT EXISTS losses ({columns}, PRIMARY KEY ({self.key}))")
        self.db.commit()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self.db.executemany(
                f"INSERT OR {self.on_conflict} INTO losses VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self.rows(delivery)
            )
        self.commit()

    def commit(self) -> None:
        self.db.commit()

    def rows(self, delivery: Delivery) -> Iterable[tuple[Any, ...]]:
        event = delivery.event
        if not isinstance(event, EvaluationFinished) or event.curves is None:
            return
        place = (self.run(delivery), self.generation(delivery), self.step(delivery), event.case.suite, event.case.name)
        losses = event.curves.final("train/loss")
        for seed, loss in zip(event.curves.seeds, losses, strict=True):
            yield delivery.sequence, *place, seed, self.value(loss)

    def run(self, delivery: Delivery) -> str:
        return delivery.run

    def generation(self, delivery: Delivery) -> int:
        return delivery.event.checkpoint.generation

    def step(self, delivery: Delivery) -> int:
        return delivery.event.checkpoint.outer_step

    def value(self, loss: float) -> Any:
        return repr(loss)

    def close(self) -> None:
        self.db.close()


def sink_contents(store: Path) -> list[Any]:
    with sqlite3.connect(store / "losses.sqlite") as db:
        return db.execute("SELECT run, generation, step, suite, case_name, seed, loss FROM losses").fetchall()


def sink_value(store: Path, *place: Any) -> float | None:
    rows = [float(row[-1]) for row in sink_contents(store) if row[:5] == place]
    return sum(rows) / len(rows) if rows else None


KNOWN = "test_known_numbers_are_read_back"


@fails("sinks", KNOWN)
class MergesGenerations(RightSink):
    key, on_conflict = "run, step, suite, case_name, seed", "IGNORE"


@fails("sinks", "test_a_closed_sink_leaves_its_process_as_it_was")
class InstallsAHandler(RightSink):
    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@fails("sinks", "test_each_run_has_its_numbers_whatever_the_others_have_at_its_outer_steps")
class MergesRuns(RightSink):
    key, on_conflict = "generation, step, suite, case_name, seed", "IGNORE"


@fails("sinks", KNOWN)
class KeepsTheLastBlock(RightSink):
    key = "run, generation, step, suite, case_name"


@fails("sinks", KNOWN)
class WritesZeroForNan(RightSink):
    def value(self, loss: float) -> Any:
        return repr(loss if math.isfinite(loss) else 0.0)


@fails("sinks", KNOWN)
class RoundsToThreeDigits(RightSink):
    def value(self, loss: float) -> Any:
        return f"{loss:.3g}"


@fails("sinks", "test_nothing_is_there_twice")
class WritesEachNumberTwice(RightSink):
    def rows(self, delivery: Delivery) -> Iterable[tuple[Any, ...]]:
        for row in super().rows(delivery):
            yield row
            yield (10_000 + row[0], *row[1:])


@fails("sinks", KNOWN)
class ForgetsAResultAtAnAlarm(RightSink):
    """Alarms are taken for results of the same number."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        super().deliver(deliveries)
        for alarm in (one for one in deliveries if isinstance(one.event, AlarmRaised)):
            self.db.execute("DELETE FROM losses WHERE sequence = ?", (abs(alarm.sequence),))
        self.commit()


@fails("sinks", "test_delivering_twice_equals_once")
class Appends(RightSink):
    key = "sequence, seed, loss, run, rowid_"

    def __init__(self, context: SinkContext) -> None:
        self.db = sqlite3.connect(context.store / "losses.sqlite", check_same_thread=False)
        columns = "sequence, run, generation, step, suite, case_name, seed, loss"
        self.db.execute(f"CREATE TABLE IF NOT EXISTS losses ({columns})")
        self.db.commit()


@fails("sinks", "test_killed_before_the_acknowledgement_it_has_all_and_takes_it_again")
class CommitsAtTheEnd(RightSink):
    def commit(self) -> None:
        pass

    def close(self) -> None:
        self.db.commit()
        super().close()


@fails("sinks", "test_killed_inside_a_delivery_it_takes_it_again_and_has_nothing_twice")
class MarksADeliveryAfterItsRows(RightSink):
    """The mark that it was written is in a second transaction, so that a kill between the two writes it again."""

    key = "rowid_"

    def __init__(self, context: SinkContext) -> None:
        self.db = sqlite3.connect(context.store / "losses.sqlite", check_same_thread=False)
        columns = "sequence, run, generation, step, suite, case_name, seed, loss"
        self.db.execute(f"CREATE TABLE IF NOT EXISTS losses ({columns})")
        self.db.execute("CREATE TABLE IF NOT EXISTS done (sequence)")
        self.db.commit()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        known = {sequence for (sequence,) in self.db.execute("SELECT sequence FROM done")}
        new = [delivery for delivery in deliveries if delivery.sequence not in known]
        for delivery in new:
            self.db.executemany("INSERT INTO losses VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self.rows(delivery))
            self.db.commit()
        self.db.executemany("INSERT INTO done VALUES (?)", [(delivery.sequence,) for delivery in new])
        self.db.commit()


@fails("sinks", "test_another_thread_delivers_than_the_one_that_made_it")
class BelongsToAThread(RightSink):
    same_thread = True


@fails("sinks", "test_a_closed_sink_leaves_its_process_as_it_was")
class SetsAVariable(RightSink):
    def close(self) -> None:
        os.environ["LOBENCH_WRONG_SINK"] = "closed"
        super().close()


@fails("sinks", "test_a_closed_sink_leaves_its_process_as_it_was")
class LeavesTheFolder(RightSink):
    def close(self) -> None:
        os.chdir("/")
        super().close()


# Sources of `theta_N.npz` files with `.done` marks.


class RightSource:
    poll_seconds = 0.1
    pattern = "theta_*.npz"

    def __init__(self, context: SourceContext) -> None:
        self.folder, self.found, self.waiting = Path(context.location), set[str](), dict[str, Unfinished]()

    def poll(self) -> list[SeenCheckpoint]:
        self.waiting = {}
        new = []
        for path in sorted(self.folder.glob(self.pattern), key=self.order):
            if str(path) in self.found:
                continue
            if not self.is_done(path):
                self.waiting[str(path)] = Unfinished(reason="it has no .done", is_awaited=True)
                continue
            self.found.add(str(path))
            new.append(SeenCheckpoint(uri=str(path), reader="npz", index=self.index(path)))
        return new

    def order(self, path: Path) -> Any:
        return self.index(path)

    def index(self, path: Path) -> int:
        return int(path.stem.partition("_")[2])

    def is_done(self, path: Path) -> bool:
        return Path(f"{path}.done").exists()

    def pending(self) -> dict[str, Unfinished]:
        return self.waiting


TWELVE = "test_twelve_at_once_are_found_in_the_order_in_which_they_were_written"


@fails("sources", TWELVE)
class SortsAsText(RightSource):
    def order(self, path: Path) -> Any:
        return path.name


@fails("sources", TWELVE)
class FindsOneAtATime(RightSource):
    def poll(self) -> list[SeenCheckpoint]:
        new = super().poll()
        self.found -= {one.uri for one in new[1:]}
        return new[:1]


@fails("sources", "test_each_checkpoint_is_found_once_and_in_order")
class FindsEachAgain(RightSource):
    def poll(self) -> list[SeenCheckpoint]:
        self.found.clear()
        return super().poll()


@fails("sources", "test_what_is_being_written_is_found_when_it_is_complete")
class TakesWhatIsWritten(RightSource):
    def is_done(self, path: Path) -> bool:
        return True


@fails("sources", "test_what_is_being_written_is_found_when_it_is_complete")
class SaysNothingOfWhatItLeaves(RightSource):
    def pending(self) -> dict[str, Unfinished]:
        return {}


@fails("sources", "test_where_nothing_is_yet_nothing_is_found_and_later_it_is")
class RaisesForAMissingFolder(RightSource):
    def poll(self) -> list[SeenCheckpoint]:
        if not self.folder.is_dir():
            raise FileNotFoundError(self.folder)
        return super().poll()


@fails("sources", "test_what_it_finds_its_reader_reads")
class NamesNoReader(RightSource):
    def poll(self) -> list[SeenCheckpoint]:
        return [SeenCheckpoint(uri=one.uri, reader="numpy", index=one.index) for one in super().poll()]


@fails("sources", "test_a_new_source_finds_everything_that_is_there")
class RemembersAcrossSources(RightSource):
    everything: ClassVar[set[str]] = set()

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self.found = self.everything


@fails("sources", "test_what_it_returns_has_the_types_of_the_interface")
class GivesTextForPending(RightSource):
    def poll(self) -> list[SeenCheckpoint]:
        new = super().poll()
        self.waiting = {"other": "not yet"}  # type: ignore[dict-item]
        return new


# Policies that run every other checkpoint.


class RightPolicy:
    def __init__(self, argument: str = "") -> None:
        self.argument = argument

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        run = [position for position in waiting if position % 2 == 0 or (last and position == waiting[-1])]
        skip = [position for position in waiting if position not in run and position != waiting[-1]]
        return run, skip


IN_THE_END = "test_in_the_end_every_checkpoint_is_decided_and_the_last_one_runs"
BY_VALUE = "test_it_decides_on_what_waits_and_the_same_way_each_time"


@fails("policies", IN_THE_END)
class SkipsTheLast(RightPolicy):
    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        run = [position for position in waiting if position % 2 == 0]
        return run, [position for position in waiting if position not in run]


@fails("policies", IN_THE_END)
class LeavesOneWaiting(RightPolicy):
    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        return super().admit([one for one in waiting if one != 7], idle=idle, last=last)


@fails("policies", BY_VALUE)
class Alternates(RightPolicy):
    calls = 0

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        self.calls += 1
        return super().admit(waiting, idle=idle, last=last) if self.calls % 2 else ((), ())


@fails("policies", "test_one_that_takes_only_the_newest_says_the_same_of_what_waits")
class ClaimsToTakeTheNewest(RightPolicy):
    only_newest = True


@fails("policies", BY_VALUE)
class RunsAndSkips(RightPolicy):
    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        return super().admit(waiting, idle=idle, last=last)[0], waiting


# Strategies: the best member succeeds.


class RightStrategy:
    pool = Pool.ALL

    def __init__(self, argument: str = "") -> None:
        del argument

    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        fit = [member for member in rank(population) if member.fitness is not None]
        fit = [member for member in fit if -math.inf not in (member.fitness or ())] or fit
        return self.chosen(population, fit, initiator)

    def chosen(self, population: Sequence[Member], fit: list[Member], initiator: int) -> Selection:
        return Selection(parent=fit[0].id if fit else None)


@fails("strategies", "test_parents_are_no_worse_than_the_population")
class PicksTheWorstFeasible(RightStrategy):
    def chosen(self, population: Sequence[Member], fit: list[Member], initiator: int) -> Selection:
        return Selection(parent=fit[-1].id if fit else None)


@fails("strategies", "test_the_same_again_and_in_any_order")
class PicksTheFirstShown(RightStrategy):
    def chosen(self, population: Sequence[Member], fit: list[Member], initiator: int) -> Selection:
        return Selection(parent=next((one.id for one in population if one in fit), None))


@fails("strategies", "test_it_answers_with_members")
class NamesTheParentTwice(RightStrategy):
    def chosen(self, population: Sequence[Member], fit: list[Member], initiator: int) -> Selection:
        return Selection(parent=fit[0].id, other=fit[0].id) if fit else Selection(parent=None)


@fails("strategies", "test_an_infeasible_member_is_no_parent")
class PicksTheInitiatorAnyhow(RightStrategy):
    def chosen(self, population: Sequence[Member], fit: list[Member], initiator: int) -> Selection:
        return Selection(parent=initiator)


@fails("strategies", "test_nan_never_wins")
class LetsNanWin(RightStrategy):
    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        fit = [member for member in rank(population) if member.fitness is not None]
        worst = [member for member in fit if -math.inf in (member.fitness or ())]
        return self.chosen(population, worst or fit, initiator)


@fails("strategies", "test_it_looks_and_changes_nothing")
class SortsThePopulation(RightStrategy):
    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        if isinstance(population, list):
            population.sort(key=lambda member: -member.id)
        return super().select(population, initiator, seed)


# Metrics: the last training loss.


def right_metric(curves: Curves) -> dict[str, Any]:
    return {"train/last": np.asarray(curves.metrics["train/loss"])[:, -1]}


@fails("metrics", "test_known_values_are_found")
def looks_up_rows_by_seed(curves: Curves) -> dict[str, Any]:
    values = np.asarray(curves.metrics["train/loss"])
    return {"train/last": [values[seed, -1] for seed in curves.seeds]}


@fails("metrics", "test_known_values_are_found")
def makes_zero_of_nan(curves: Curves) -> dict[str, Any]:
    return {"train/last": np.nan_to_num(right_metric(curves)["train/last"])}


@fails("metrics", "test_known_values_are_found")
def sorts_steps_as_text(curves: Curves) -> dict[str, Any]:
    last = max(curves.eval_steps, key=str)
    return {"train/last": np.asarray(curves.metrics["train/loss"])[:, list(curves.eval_steps).index(last)]}


@fails("metrics", "test_numbers_of_seeds_do_not_matter")
def adds_the_seed(curves: Curves) -> dict[str, Any]:
    return {"train/last": right_metric(curves)["train/last"] + np.asarray(curves.seeds) - 5}


@fails("metrics", "test_what_one_seed_meets_does_not_reach_another")
def centers(curves: Curves) -> dict[str, Any]:
    values = right_metric(curves)["train/last"]
    return {"train/last": values - values.mean()}


@fails("metrics", "test_its_names_are_the_same_whatever_happened")
def says_diverged_instead(curves: Curves) -> dict[str, Any]:
    found = right_metric(curves)
    return found if all(np.isfinite(values).all() for values in found.values()) else {"train/diverged": curves.seeds}


@fails("metrics", "test_it_gives_a_value_a_seed")
def gives_one_number(curves: Curves) -> dict[str, Any]:
    return {name: float(values[0]) for name, values in right_metric(curves).items()}


_calls: list[Curves] = []


@fails("metrics", "test_the_same_curves_give_the_same_values")
def counts_its_calls(curves: Curves) -> dict[str, Any]:
    _calls.append(curves)
    return {name: np.full(len(values), len(_calls)) for name, values in right_metric(curves).items()}


@fails("metrics", "test_it_gives_a_value_a_seed")
def writes_into_the_curves(curves: Curves) -> dict[str, Any]:
    curves.metrics["train/loss"][0, 0] = 0.0
    return right_metric(curves)


# Executors: as the pool of local processes, but for one thing.


class RightExecutor(LocalPool):
    pass


@fails("executors", "test_several_workers_work_at_once")
class HasOneWorker(LocalPool):
    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        for other in list(self.pids):
            self.kill(other)
        super().start(worker, num_cpus, num_gpus)


@fails("executors", "test_a_worker_has_as_many_cores_as_it_was_started_with")
class IgnoresCores(LocalPool):
    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        super().start(worker, 1, num_gpus)


@fails("executors", "test_processes_that_a_worker_started_end_with_it")
class LeavesChildren(LocalPool):
    def kill(self, worker: int) -> None:
        self._end_alone(self._processes[worker])
        super().kill(worker)

    def close(self) -> None:
        for process in self._processes.values():
            self._end_alone(process)
        super().close()

    def _end_alone(self, process: Any) -> None:
        process.kill = lambda: os.kill(process.pid, signal.SIGKILL)


@fails("executors", "test_messages_reach_a_worker_in_the_order_in_which_they_were_sent")
class SwapsMessages(LocalPool):
    held: tuple[Any, ...] | None = None

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        if len(message) > 500:  # the configuration
            super().send(worker, message, files)
        elif self.held is None:
            self.held = (worker, message, files)
        else:
            held, self.held = self.held, None
            super().send(worker, message, files)
            super().send(*held)


@fails("executors", "test_waiting_ends_in_time_and_when_it_is_woken")
class LeavesTheWakeup(LocalPool):
    def wait(self, timeout: float) -> Any:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            self._selector.unregister(wakeup)
        return super().wait(min(timeout, 0.1))


# Searches: uniform draws, a stream a trial.


class RightSearch:
    def size(self, space: Any) -> int | None:
        return None

    def next_wave(
        self, space: Any, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Any]]:
        left = min(width, (num_trials or 0) - len(history))
        return [self.setting(space, seed, len(history) + more) for more in range(left)]

    def setting(self, space: Any, seed: int, number: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = space.sample(1000 * seed + number)
        return found


@fails("searches", "test_values_are_in_the_domain_and_of_the_active_parameters[conditional]")
class IgnoresConditions(RightSearch):
    def setting(self, space: Any, seed: int, number: int) -> Mapping[str, Any]:
        found = super().setting(space, seed, number)
        return {each.path: found.get(each.path, space.sample(number).get(each.path, 0)) for each in space.parameters}


@fails("searches", "test_the_same_again[ranges]")
class RemembersItsWaves(RightSearch):
    def __init__(self) -> None:
        self.num_settings = 0

    def setting(self, space: Any, seed: int, number: int) -> Mapping[str, Any]:
        self.num_settings += 1
        return super().setting(space, seed, 100 * number + self.num_settings)


@fails("searches", "test_a_ledger_holds_the_very_values[mixed]")
class ReturnsNumpyNumbers(RightSearch):
    def setting(self, space: Any, seed: int, number: int) -> Mapping[str, Any]:
        found = super().setting(space, seed, number)
        return {name: np.float64(value) if isinstance(value, float) else value for name, value in found.items()}


@fails("searches", "test_it_ends[ranges]")
class AsksForOneMore(RightSearch):
    def next_wave(
        self, space: Any, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Any]]:
        return super().next_wave(space, history, seed=seed, width=width, num_trials=(num_trials or 0) + 1)


@fails("searches", "test_the_order_in_which_trials_are_shown_does_not_matter[ranges]")
class FollowsTheLastShown(RightSearch):
    def next_wave(
        self, space: Any, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Any]]:
        seed += history[-1].number if history else 0
        return super().next_wave(space, history, seed=seed, width=width, num_trials=num_trials)


@fails("searches", "test_killed_after_each_trial_it_proposes_the_same[ranges]")
class CountsItsCalls(RightSearch):
    calls = 0

    def setting(self, space: Any, seed: int, number: int) -> Mapping[str, Any]:
        type(self).calls += 1
        return super().setting(space, seed, type(self).calls)


# Report sections: the number of seeds of each method.


def _line(summary: Any, **changed: Any) -> list[Section]:
    seeds = [float(subject.num_seeds) for subject in summary.snapshot.subjects]
    values: dict[str, Any] = {"label": "seeds", "x": list(map(float, range(len(seeds)))), "y": seeds, "style": "s1"}
    values.update({name: changed.pop(name) for name in ("x", "y") if name in changed})
    series = Series(**values)
    chart = Chart(title="Seeds", description="Seeds.", x_label="method", y_label="seeds", series=(series,))
    figures = (Figure(chart=chart),)
    section = {"id": "sizes", "title": "Seeds", "note": "", "kind": "small", "figures": figures, **changed}
    return [Section(**section)]


def right_section(summary: Any) -> list[Section]:
    return _line(summary)


@fails("sections", "test_it_returns_sections_of_any_store[two]")
def returns_one_section(summary: Any) -> Any:
    return _line(summary)[0]


@fails("sections", "test_it_draws_something_and_not_the_same_of_other_data")
def draws_a_constant(summary: Any) -> list[Section]:
    return _line(summary, x=[0.0, 1.0], y=[1.0, 1.0])


@fails("sections", "test_it_returns_sections_of_any_store[alone]")
def needs_two_methods(summary: Any) -> list[Section]:
    return _line(summary) if summary.snapshot.subjects[1] else []


@fails("sections", "test_its_charts_can_be_drawn[two]")
def has_a_point_too_few(summary: Any) -> list[Section]:
    return _line(summary, x=[0.0])


@fails("sections", "test_it_returns_sections_of_any_store[two]")
def uses_an_id_twice(summary: Any) -> list[Section]:
    return _line(summary) * 2


# Import formats: lines of seed, step and loss, in a file named after nothing.


def write_triples(path: Path, curves: Mapping[tuple[str, str, str, str], Sequence[tuple[int, float]]]) -> Path:
    lines = [f"{seed} {step} {value!r} ." for (_, _, seed, _), curve in curves.items() for step, value in curve]
    path.write_text("\n".join(["triples", *lines, ""]))
    return path


def _triples(path: Path, method: str, case: str, change: Callable[[Any], Any] = lambda row: row) -> Iterator[Points]:
    lines = path.read_text(errors="replace").split("\n")
    if lines[0] != "triples":
        raise UsageError("no triples", where=str(path), expected="'triples' in the first line")
    rows = [change(line.split()) for line in lines[1:] if line.endswith(" .")]
    for seed in dict.fromkeys(row[0] for row in rows if row):
        own = [row for row in rows if row and row[0] == seed]
        steps, values = [int(row[1]) for row in own], [float(row[2]) for row in own]
        yield Points.of_curve(CurveRun(method, case, seed), "train/loss", steps, values)


def _kind(**changed: Any) -> FileKind:
    def recognises(path: Path) -> bool:
        return path.suffix == ".triples"

    def read(path: Path, asked: Any, notes: list[str]) -> Iterator[Points]:
        return _triples(path, asked.method or path.stem, asked.case)

    return FileKind(**{"about": "lines of seed, step and loss", "read": read, "recognises": recognises, **changed})


def right_format() -> FileKind:
    return _kind()


@fails("formats", "test_options_supply_names_that_the_file_lacks[case]")
def ignores_the_case() -> FileKind:
    return _kind(read=lambda path, asked, notes: _triples(path, asked.method, "task"))


@fails("formats", "test_options_supply_names_that_the_file_lacks[method]")
def ignores_the_method() -> FileKind:
    return _kind(read=lambda path, asked, notes: _triples(path, path.stem, asked.case))


@fails("formats", "test_known_curves_are_read")
def drops_nan() -> FileKind:
    def read(path: Path, asked: Any, notes: list[str]) -> Iterator[Points]:
        return _triples(path, asked.method, asked.case, lambda row: row if row[2] != "nan" else None)

    return _kind(read=read)


@fails("formats", "test_known_curves_are_read")
def has_steps_of_16_bits() -> FileKind:
    def read(path: Path, asked: Any, notes: list[str]) -> Iterator[Points]:
        return _triples(path, asked.method, asked.case, lambda row: [row[0], int(row[1]) & 0xFFFF, *row[2:]])

    return _kind(read=read)


@fails("formats", "test_it_recognises_its_own_files_and_no_others")
def recognises_anything() -> FileKind:
    return _kind(recognises=lambda path: True)


@fails("formats", "test_another_file_is_one_clear_error")
def raises_a_value_error() -> FileKind:
    def read(path: Path, asked: Any, notes: list[str]) -> Iterator[Points]:
        try:
            yield from _triples(path, asked.method, asked.case)
        except LobenchError as error:
            raise ValueError("no triples") from error

    return _kind(read=read)


# Commands.


def _command(function: Callable[..., Any], **changed: Any) -> click.Command:
    options = [click.Option(["--name"], default="you", help="Name to greet."), click.Option(["--fail"], help="Fails.")]
    return click.Command("hello", callback=function, **{"params": options, "help": "Say hello.", **changed})


def _hello(name: str, fail: str | None) -> None:
    if fail is not None:
        raise UsageError("--fail", got=repr(fail))
    Path("hello.txt").write_text("hello")
    click.echo(f"hello {name}")


right_command = _command(_hello)
FAILS["commands"] = {
    "without_help": "test_it_is_a_command_with_a_line_of_help",
    "ends_with_7": "test_it_does_its_work_and_ends_with_a_documented_code",
    "leaves_the_folder": "test_it_does_its_work_and_ends_with_a_documented_code",
    "has_a_traceback": "test_a_wrong_call_is_one_clear_line",
    "writes_first": "test_a_wrong_call_is_one_clear_line",
    "is_a_function": "test_it_is_a_command_with_a_line_of_help",
}
without_help = _command(_hello, help=None)
ends_with_7 = _command(lambda name, fail: sys.exit(7))
leaves_the_folder = _command(lambda name, fail: os.chdir("/"))
is_a_function = _hello


def _raises(name: str, fail: str | None) -> None:
    raise ValueError(f"two\nlines: {fail}")


def _writes(name: str, fail: str | None) -> None:
    Path("hello.txt").write_text("hello")
    _hello(name, fail)


has_a_traceback, writes_first = _command(_raises), _command(_writes)

"""Delivery from a real ledger through real threads; waits are the test's own, so nothing sleeps."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from case_infos import case_info
from shown import texts_of

from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.containment import contain_plugins
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store import delivery
from lobench.engine.store.delivery import Deliverer, notify
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import CheckpointSeen, Delivery
from lobench.plugins import PluginManager

SHOWN = texts_of("store")

GATHER_SECONDS = 0.1  # between two deliveries
PATIENCE = 600.0  # seconds until a test that waits for a thread gives up
CASE = case_info("c", identity="i", node_id="n")


class Sink:
    """Keeps the sequences that it took; `before` runs first, and may raise or block."""

    def __init__(self, before: Callable[[], None] = lambda: None, close: Callable[[], None] = lambda: None) -> None:
        self.before, self.close = before, close
        self.taken: list[int] = []

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.before()
        self.taken += [delivery.sequence for delivery in deliveries]


class Waits:
    """A backoff that lasts until the test lets it end; idle waits are real, and rests after a delivery take no time."""

    def __init__(self) -> None:
        self.asked: queue.Queue[tuple[float, bool]] = queue.Queue()
        self.over: queue.Queue[None] = queue.Queue()

    def __call__(self, event: threading.Event, seconds: float | None) -> bool:
        if seconds is None:
            return event.wait()
        if seconds == GATHER_SECONDS:
            return False
        self.asked.put((seconds, event.is_set()))
        self.over.get(timeout=PATIENCE)
        return event.is_set()


def fail(message: str = "no route to the database") -> None:
    raise ConnectionError(message)


def interrupt() -> None:
    raise KeyboardInterrupt


def add(ledger: Ledger, num_checkpoints: int) -> None:
    """Adds two deliveries a checkpoint: its only evaluation, and that it is finished."""
    start = len(ledger.sightings())
    for step in range(start, start + num_checkpoints):
        sha256 = str(step)
        key = EvaluationKey(
            checkpoint_sha256=sha256,
            optimizer_hash="o",
            case_identity="i",
            seed_block=SeedBlock(start=0, size=1),
            program_version="1",
        )
        position = ledger.record_sighting(
            Subject.of_checkpoint(Checkpoint(uri=f"c{step}", sha256=sha256, outer_step=step))
        )
        ledger.record_admission(position, "admitted")
        ledger.record_evaluation(key, CASE, Outcome.SKIPPED, curves=None)
        ledger.finish_checkpoint(position, programs=["1"], case_keys=[CASE.key])


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger.open(tmp_path)
    yield ledger
    ledger.close()


def places(ledger: Ledger) -> list[int]:
    return [delivery.sequence for delivery in ledger.deliveries_after(0, 10_000)]


def no_error(sink: str, error: BaseException) -> None:
    pytest.fail(f"{sink}: {error!r}")


def flush_until(deliverer: Deliverer, lacking: dict[str, int]) -> None:
    """Flushes, without waiting for it, until exactly that is lacking."""
    while deliverer.flush(0) != lacking:
        time.sleep(0.01)


def test_every_sink_gets_everything_in_order_and_once(ledger: Ledger) -> None:
    add(ledger, 2)
    sinks = {"a": Sink(), "a:other": Sink()}
    deliverer = Deliverer(ledger, sinks, no_error)
    assert deliverer.flush(PATIENCE) == {}
    add(ledger, 1)
    assert deliverer.flush(PATIENCE) == {}
    deliverer.close()
    assert len(places(ledger)) == 6
    assert [sink.taken for sink in sinks.values()] == [places(ledger)] * 2
    assert ledger.sink_cursor("a") == ledger.sink_cursor("a:other") == ledger.last_sequence()


def test_more_than_a_batch(ledger: Ledger) -> None:
    with ledger.transaction():
        add(ledger, 150)
    sink = Sink()
    deliverer = Deliverer(ledger, {"a": sink}, no_error)
    assert deliverer.flush(PATIENCE) == {}
    deliverer.close()
    assert sink.taken == places(ledger) and len(sink.taken) == 300


def test_what_comes_within_a_moment_of_a_delivery_is_the_next_one(ledger: Ledger) -> None:
    add(ledger, 1)
    resting, rested, calls = threading.Event(), threading.Event(), []
    sink = Sink(before=lambda: calls.append(None))

    def wait(event: threading.Event, seconds: float | None) -> bool:
        if seconds == GATHER_SECONDS:
            resting.set()
            return rested.wait(PATIENCE)
        return event.wait(seconds)

    deliverer = Deliverer(ledger, {"a": sink}, no_error, wait=wait)
    assert resting.wait(PATIENCE) and sink.taken == places(ledger)
    for _ in range(3):
        add(ledger, 1)
        deliverer.wake()
    rested.set()
    assert deliverer.flush(PATIENCE) == {}
    deliverer.close()
    assert sink.taken == places(ledger) and len(calls) == 2


def test_only_the_chief_moves_a_cursor_and_a_crash_before_it_delivers_again(ledger: Ledger) -> None:
    add(ledger, 1)
    took = threading.Event()
    sink = Sink()

    def wait(event: threading.Event, seconds: float | None) -> bool:
        took.set()
        return event.wait(seconds)

    deliverer = Deliverer(ledger, {"a": sink}, no_error, wait=wait)
    assert took.wait(PATIENCE)
    assert sink.taken == places(ledger) and ledger.sink_cursor("a") == 0
    restarted = Deliverer(ledger, {"a": sink}, no_error)
    assert restarted.flush(PATIENCE) == {}
    assert sink.taken == places(ledger) * 2 and ledger.sink_cursor("a") == ledger.last_sequence()
    restarted.close()
    deliverer.close()


def test_a_failing_sink_backs_off_is_reported_once_a_change_and_delays_nobody(ledger: Ledger) -> None:
    add(ledger, 1)
    waits, errors = Waits(), []
    failing, fine = Sink(before=fail), Sink()
    sinks = {"bad": failing, "good": fine}
    deliverer = Deliverer(ledger, sinks, lambda sink, error: errors.append((sink, str(error))), wait=waits)
    expected = [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    for place, seconds in enumerate(expected):
        assert waits.asked.get(timeout=PATIENCE)[0] == seconds
        if place == len(expected) - 2:
            failing.before = lambda: fail("disk full")
        if place < len(expected) - 1:
            waits.over.put(None)
    flush_until(deliverer, {"bad": 2})
    assert fine.taken == places(ledger) and ledger.sink_cursor("good") == ledger.last_sequence()
    assert errors == [("bad", "no route to the database"), ("bad", "disk full")]
    failing.before = lambda: None
    waits.over.put(None)
    assert deliverer.flush(PATIENCE) == {}
    assert failing.taken == places(ledger)
    deliverer.close()


def test_after_a_success_the_same_error_counts_as_new_and_backs_off_from_the_start(ledger: Ledger) -> None:
    waits, errors = Waits(), []
    sink = Sink(before=fail)
    deliverer = Deliverer(ledger, {"a": sink}, lambda name, error: errors.append(str(error)), wait=waits)
    for _ in range(2):
        sink.before = fail
        add(ledger, 1)
        deliverer.wake()
        assert waits.asked.get(timeout=PATIENCE)[0] == 0.5
        sink.before = lambda: None
        waits.over.put(None)
        assert deliverer.flush(PATIENCE) == {}
    deliverer.close()
    assert errors == ["no route to the database"] * 2


def test_news_does_not_cut_a_backoff_short_and_a_flush_does(ledger: Ledger) -> None:
    waits = Waits()
    deliverer = Deliverer(ledger, {"a": Sink(before=fail)}, lambda *_: None, wait=waits)
    add(ledger, 1)
    deliverer.wake()
    for _ in range(3):
        deliverer.wake()
        _, at_once = waits.asked.get(timeout=PATIENCE)
        assert not at_once
        waits.over.put(None)
    waits.asked.get(timeout=PATIENCE)
    assert deliverer.flush(0) == {"a": 2}
    one = deliverer._threads["a"]
    assert one.retry_now.is_set()
    waits.over.put(None)
    waits.over.put(None)
    deliverer.close()


def test_an_error_without_a_message_and_sys_exit_are_reported_too(ledger: Ledger) -> None:
    add(ledger, 1)
    waits, errors = Waits(), []
    sink = Sink(before=lambda: fail(""))
    deliverer = Deliverer(ledger, {"a": sink}, lambda name, error: errors.append(type(error)), wait=waits)
    waits.asked.get(timeout=PATIENCE)
    sink.before = sys.exit
    waits.over.put(None)
    waits.asked.get(timeout=PATIENCE)
    sink.before = lambda: None
    waits.over.put(None)
    assert deliverer.flush(PATIENCE) == {}
    deliverer.close()
    assert errors == [ConnectionError, SystemExit]


def test_a_sink_that_hangs_blocks_neither_the_others_nor_the_chief(ledger: Ledger) -> None:
    add(ledger, 1)
    hanging = threading.Event()
    sinks = {"hung": Sink(before=lambda: bool(hanging.wait()) and None), "good": Sink()}
    deliverer = Deliverer(ledger, sinks, no_error)
    flush_until(deliverer, {"hung": 2})
    assert sinks["good"].taken == places(ledger)
    deliverer.close()
    assert sinks["hung"].taken == []
    hanging.set()


def test_closing_closes_every_sink_and_names_the_one_that_raises(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_CLOSE_SECONDS", PATIENCE)
    closed, errors = [], []
    sinks = {"bad": Sink(close=fail), "good": Sink(close=lambda: closed.append("good"))}
    deliverer = Deliverer(ledger, sinks, lambda name, error: errors.append((name, str(error))))
    deliverer.close()
    assert closed == ["good"] and errors == [("bad", "no route to the database")]


def test_what_a_sink_raises_when_it_is_closed_can_be_told_apart(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_CLOSE_SECONDS", PATIENCE)
    messages: list[str] = []
    deliverer = Deliverer(
        ledger,
        {"a": Sink(close=fail)},
        no_error,
        on_close_error=lambda name, error: messages.append(f"{name}: {error}"),
    )
    deliverer.close()
    assert messages == [SHOWN["no-route-to-the-database"]]


EVENT = CheckpointSeen(subject=Subject.of_checkpoint(Checkpoint(uri="c", sha256="x", outer_step=1)))


def test_an_observer_that_raises_is_named_and_silences_nobody() -> None:
    seen: list[object] = []
    manager = PluginManager()
    manager.register(SimpleNamespace(lobench_checkpoint_seen=observer(seen.append)), name="first")
    manager.register(SimpleNamespace(lobench_checkpoint_seen=observer(lambda event: fail())), name="broken")
    manager.register(SimpleNamespace(lobench_checkpoint_seen=observer(lambda event: sys.exit(3))), name="quitter")
    manager.register(SimpleNamespace(lobench_checkpoint_seen=observer(lambda event: interrupt())), name="interrupter")
    manager.register(SimpleNamespace(lobench_checkpoint_seen=observer(seen.append)), name="last")
    errors: list[str] = []
    notify(manager, "lobench_checkpoint_seen", EVENT, lambda where, error: errors.append(f"{where}: {error}"))
    assert seen == [EVENT, EVENT]
    assert sorted(errors) == [
        SHOWN["plugin-broken-hook-lobench-checkpoint"],
        SHOWN["plugin-interrupter-hook-lobench"],
        SHOWN["plugin-quitter-hook-lobench-checkpoint"],
    ]


def test_an_observer_may_leave_the_event_out() -> None:
    called = []
    manager = PluginManager()

    def without_event() -> None:
        called.append(1)

    manager.register(SimpleNamespace(lobench_checkpoint_seen=without_event), name="first")
    notify(manager, "lobench_checkpoint_seen", EVENT, no_error)
    assert called == [1]


def observer(act: Callable[[CheckpointSeen], object]) -> Callable[[CheckpointSeen], None]:
    def observe(event: CheckpointSeen) -> None:
        act(event)

    return observe


def test_a_signal_cuts_the_last_wait_for_a_sink_that_hangs(ledger: Ledger) -> None:
    add(ledger, 1)
    release = threading.Event()
    deliverer = Deliverer(ledger, {"slow": Sink(before=release.wait)}, no_error)
    assert deliverer.flush(3600.0, is_hurried=lambda: True) == {"slow": 2}
    release.set()
    deliverer.close()


def test_a_destination_that_was_lost_gets_everything_again_and_one_that_is_there_does_not(ledger: Ledger) -> None:
    add(ledger, 1)

    def take(destination: str) -> list[int]:
        sink = Sink()
        sink.destination = destination  # type: ignore[attr-defined]  # an attribute that a sink may have
        deliverer = Deliverer(ledger, {"a": sink}, no_error)
        assert deliverer.flush(PATIENCE) == {}
        deliverer.close()
        assert deliverer.outstanding_at_start == ({"a": len(sink.taken)} if sink.taken else {})
        return sink.taken

    assert [take(destination) for destination in ("first", "first", "second", "first")] == [
        places(ledger),
        [],
        places(ledger),
        [],
    ]


class Showing(Sink):
    """A sink that shows the store's state. It keeps the number of deliveries of each call."""

    shows_state = True

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        super().__init__(before)
        self.counts: queue.Queue[int] = queue.Queue()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        super().deliver(deliveries)
        self.counts.put(len(deliveries))

    def next_count(self) -> int:
        return self.counts.get(timeout=PATIENCE)


def test_a_sink_that_shows_the_state_is_called_at_the_start_and_at_times_without_deliveries(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, waits = Showing(), Waits()
    deliverer = Deliverer(ledger, {"page": shown}, no_error, wait=waits)
    assert shown.next_count() == 0, "the state may have changed since the last start"
    assert waits.asked.get(timeout=PATIENCE)[0] == delivery._STATE_SECONDS
    add(ledger, 1)
    waits.over.put(None)
    assert shown.next_count() == 2
    waits.asked.get(timeout=PATIENCE)
    monkeypatch.setattr(delivery, "_STATE_SECONDS", 0.0)
    waits.over.put(None)
    assert shown.next_count() == 0, "nothing was delivered for a while"
    waits.asked.get(timeout=PATIENCE)
    waits.over.put(None)
    deliverer.close()


def test_flush_returns_once_the_sinks_show_the_last_state(ledger: Ledger) -> None:
    shown = Showing()
    deliverer = Deliverer(ledger, {"page": shown, "a": Sink(), "stuck": Showing(before=fail)}, lambda sink, error: None)
    assert shown.next_count() == 0
    deliverer.write_progress()
    assert deliverer.flush(0.5) == {} and shown.counts.get_nowait() == 0, "one that fails does not hide it"
    deliverer.close()


class Keeping(Sink):
    """A sink that writes each number once."""

    keeps_first = True


def complete(ledger: Ledger, sha256: str, seed: int = 0) -> None:
    """Has a theta of outer step 3 evaluated with a seed, and finished."""
    checkpoint = Checkpoint(uri=f"c{sha256}", sha256=sha256, outer_step=3)
    key = EvaluationKey(
        checkpoint_sha256=sha256,
        optimizer_hash="o",
        case_identity="i",
        seed_block=SeedBlock(start=seed, size=1),
        program_version="1",
    )
    known = {one.sha256: place for place, one in ledger.sightings().items()}
    if sha256 in known:
        ledger.reopen_checkpoint(known[sha256])
    else:
        known[sha256] = ledger.record_sighting(Subject.of_checkpoint(checkpoint))
        ledger.record_admission(known[sha256], "admitted")
    ledger.record_evaluation(key, CASE, Outcome.SKIPPED, curves=None)
    ledger.finish_checkpoint(known[sha256], programs=["1"], case_keys=[CASE.key])


def test_what_a_sink_that_keeps_what_came_first_does_not_write_is_said_once(ledger: Ledger) -> None:
    output: list[tuple[str, str]] = []

    def start(**sinks: Sink) -> Deliverer:
        return Deliverer(ledger, sinks, no_error, on_unwritten=lambda sink, what: output.append((sink, what)))

    complete(ledger, "a" * 64)
    deliverer = start(a=Keeping(), page=Sink())
    assert deliverer.flush(PATIENCE) == {} and output == []
    for sha256 in ("b", "c"):
        complete(ledger, sha256 * 64)
    assert deliverer.flush(PATIENCE) == {}
    deliverer.close()
    first, second = (f"c{one * 64} ({one * 12})" for one in "ab")
    assert output == [("a", SHOWN["is-not-written-outer-step"].format(second=second, first=first))]
    output.clear()
    complete(ledger, "a" * 64, seed=1)
    deliverer = start(a=Keeping(), fresh=Keeping())
    assert deliverer.flush(PATIENCE) == {}
    deliverer.close()
    kept = f"c{'a' * 64} has more results than are written: outer step 3 of the run keeps the numbers of before"
    assert ("a", kept) in output, "the cursor's sink has those of one seed"
    assert [what for sink, what in output if sink == "fresh"] == [
        SHOWN["is-not-written-outer-step"].format(second=second, first=first)
    ], "another folder gets all as it is"


def test_a_sink_whose_code_fails_is_given_up_after_three_attempts_at_the_end(ledger: Ledger) -> None:
    def fail_always() -> None:
        raise ValueError("planted")

    errors: list[str] = []
    add(ledger, 1)
    deliverer = Deliverer(ledger, {"bad": Sink(fail_always)}, lambda address, error: errors.append(repr(error)))
    begun = time.monotonic()
    assert deliverer.flush(PATIENCE) == {"bad": 2}
    assert time.monotonic() - begun < PATIENCE / 10
    assert errors == ["ValueError('planted')"]
    deliverer.close()


def test_plugins_neither_leave_the_folder_nor_close_the_streams(tmp_path: Path, ledger: Ledger) -> None:
    folder = Path.cwd()

    def misbehave() -> None:
        os.chdir(tmp_path)
        sys.stdout.close()
        sys.stderr.close()

    manager = PluginManager()
    manager.register(SimpleNamespace(lobench_checkpoint_seen=misbehave), name="mine")
    add(ledger, 1)
    with contain_plugins():
        subject = Subject.of_checkpoint(Checkpoint(uri="c", sha256="0", outer_step=0))
        notify(manager, "lobench_checkpoint_seen", CheckpointSeen(subject=subject), lambda where, error: None)
        assert Path.cwd() == folder
        deliverer = Deliverer(ledger, {"bad": Sink(misbehave)}, lambda address, error: None)
        assert deliverer.flush(PATIENCE) == {}
        deliverer.close()
        assert Path.cwd() == folder
        print("still open")
        os.chdir(tmp_path)  # a worker in this process may
    assert Path.cwd() == folder and not sys.stdout.closed and not sys.stderr.closed


def test_notify_of_a_hook_that_ends_the_process_reports_it() -> None:
    manager, errors = PluginManager(), list[str]()
    manager.register(SimpleNamespace(lobench_checkpoint_seen=lambda: os._exit(0)), name="mine")
    subject = Subject.of_checkpoint(Checkpoint(uri="c", sha256="0", outer_step=0))
    event = CheckpointSeen(subject=subject)
    notify(manager, "lobench_checkpoint_seen", event, lambda where, error: errors.append(f"{where}: {error}"))
    assert errors == [SHOWN["plugin-mine-hook-lobench-checkpoint"]]

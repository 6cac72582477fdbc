"""Ray driver, in a process between the chief and the cluster.

Ray ends a driver's process after a minute without the head, and its calls can hang on a frozen node. Therefore the
chief is not the driver. It talks to this process through a pipe and replaces it if it ends or becomes silent. This
process does not affect results: leases, deadlines and attempts belong to the chief.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
from ray._private.services import canonicalize_bootstrap_address

from lobench import LobenchError
from lobench.extend import kind_of
from lobench.hookspecs import ExecutorCapacity, Notice, WorkerExited
from lobench_ray import entry
from lobench_ray.access import check_access, check_token, has_token_mode, requires_token
from lobench_ray.clock import AwakeClock
from lobench_ray.messages import (
    TO_BRIDGE,
    Alive,
    ClusterRefused,
    Forward,
    FromBridge,
    Join,
    Joined,
    Kill,
    Leave,
    SlotStart,
    ToBridge,
    Unreachable,
)
from lobench_ray.slot import versions

__all__ = ["RayDriver", "main", "node_name"]

_end_process = os._exit  # kept here, because `os._exit` is replaced during a plugin's call
_MAX_FILES = 16  # files kept in the object store; slots that wait for a file keep it alive longer
_NODES_SECONDS = 2.0
_PROGRESS_PER_SECOND = 200  # calls that return progress only, over all slots
_REACH_SECONDS = 10.0
_START_ATTEMPTS = 3  # attempts to start a Ray of this machine; together they take less time than the chief waits


@dataclass(slots=True)
class _Slot:
    """State of a slot in the bridge. `last_message` is None and `node` empty until the worker has started.

    Calls of a concurrent actor may overtake each other, so each message is sent after the previous one has arrived.
    """

    actor: Any
    size: tuple[float, float]  # cores, devices
    last_message: float | None = None
    node: str = ""
    outbox: deque[Forward] = field(default_factory=deque)
    is_sending: bool = False


class RayDriver:
    """Ray driver. Its state belongs to the main thread; other threads only put functions into its inbox."""

    def __init__(self, connection: Connection, join: Join) -> None:
        self._connection, self._join_request = connection, join
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._slots: dict[int, _Slot] = {}
        self._files: OrderedDict[str, Any] = OrderedDict()
        self._suite_archive: Any = None
        self._actor_class: Any = None
        self._machines: list[tuple[float, float]] | None = None  # machines as last reported
        self._clock = AwakeClock()
        self._nodes: dict[str, tuple[float, float]] = {}  # cores and devices of living nodes, by Ray's id
        self._nodes_seen_at = 0.0
        self._node_names: dict[str, str] = {}  # names of all nodes so far, by Ray's id
        self._mentioned_nodes: set[str] = set()  # nodes whose loss was reported since a worker last started there
        self._excluded_nodes: set[str] = set()  # nodes that would give different results, or none
        self._exclusion_reason = ""  # why the last of them was left out
        self._has_started = False  # whether a worker has started on any node
        self._unplaceable_sizes: set[tuple[float, float]] = set()  # sizes that no node has
        self._is_ending = False

    def run(self) -> None:
        """Connects, and serves until the chief sends `Leave` or its connection is lost."""
        try:
            address = _join_cluster(self._join_request.address, insecure=self._join_request.insecure)
        except LobenchError as error:
            self._send_to_chief(ClusterRefused(message=str(error)))
            return
        except Exception as error:  # noqa: BLE001  (Ray's boundary: the chief names it)
            self._send_to_chief(Unreachable(message=_error_line(error)))
            return
        self._send_to_chief(Joined(address=address))
        ray.cloudpickle.register_pickle_by_value(entry)
        self._suite_archive, self._actor_class = ray.put(self._join_request.suite_archive), ray.remote(entry.SlotEntry)
        for target in (self._read_commands, self._watch_nodes):
            threading.Thread(target=target, daemon=True).start()
        silence_seconds = self._join_request.silence_seconds
        reported_at = 0.0
        while not self._is_ending:
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=1.0)()
            now = self._clock.now()
            if now - reported_at >= 1.0:
                reported_at = now
                self._send_to_chief(Alive())
                self._end_silent_slots(now, silence_seconds)
            if now - self._nodes_seen_at > max(silence_seconds, 10.0):
                _end_process(3)  # the head does not answer; a new driver may find a new one
        ray.shutdown()

    # Other threads:

    def _read_commands(self) -> None:
        try:
            while True:
                message = TO_BRIDGE.from_bytes(self._connection.recv_bytes())
                self._inbox.put(lambda message=message: self._handle_command(message))  # type: ignore[misc]
        except (EOFError, OSError):
            _end_process(1)  # the chief is gone, so this process is of no use any more

    def _watch_nodes(self) -> None:
        while True:
            live_nodes = [node for node in ray.nodes() if node["Alive"]]
            resources = {node["NodeID"]: node["Resources"] for node in live_nodes}
            sizes = {node: (amounts.get("CPU", 0.0), amounts.get("GPU", 0.0)) for node, amounts in resources.items()}
            names = {
                node["NodeID"]: node_name(node["NodeManagerHostname"], node["NodeManagerAddress"], node["NodeID"])
                for node in live_nodes
            }
            self._inbox.put(lambda sizes=sizes, names=names: self._update_nodes(sizes, names))  # type: ignore[misc]
            time.sleep(_NODES_SECONDS)

    def _call_with_result(self, reference: Any, handler: Callable[[Any], None], worker: int) -> None:
        """Calls `handler` with the result of a call, in the main thread. If the call fails, its slot is lost."""

        def handle_result(future: Future[Any]) -> None:
            error = future.exception()
            if error is not None:
                self._inbox.put(lambda: self._lose_worker(worker, _error_line(error), lost=_is_loss(error)))
            else:
                self._inbox.put(lambda: handler(future.result()))

        reference.future().add_done_callback(handle_result)

    # Main thread:

    def _send_to_chief(self, message: FromBridge) -> None:
        self._connection.send_bytes(message.to_bytes())

    def _handle_command(self, message: ToBridge) -> None:
        if isinstance(message, Leave):
            self._is_ending = True
            return
        try:
            match message:
                case SlotStart():
                    self._start_slot(message.worker, message.num_cpus, message.num_gpus)
                case Kill():
                    self._kill_slot(message.worker)
                case Forward() if message.worker in self._slots:
                    self._forward_message(message)
        except (ray.exceptions.RayError, OSError) as error:
            self._lose_worker(message.worker, _error_line(error), lost=True)

    def _start_slot(self, worker: int, num_cpus: float, num_gpus: float) -> None:
        # Ray must not restart or retry anything. Three calls may overlap: a `send`, a `receive`, and a spare one.
        label_selector = (
            {"ray.io/node-id": f"!in({','.join(sorted(self._excluded_nodes))})"} if self._excluded_nodes else None
        )
        actor = self._actor_class.options(
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=3,
            scheduling_strategy="SPREAD",
            label_selector=label_selector,
        ).remote()
        self._slots[worker] = _Slot(actor, (num_cpus, num_gpus))
        reference = actor.start.remote(
            worker=worker,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            expected=versions(),
            plan=self._join_request.plan.to_bytes(),
            suite_archive=[self._suite_archive],
        )
        self._call_with_result(reference, lambda problem: self._worker_started(worker, problem), worker)

    def _worker_started(self, worker: int, started_actor: entry.Started) -> None:
        if worker not in self._slots:
            return
        node = started_actor.node
        self._node_names.setdefault(node, node_name(started_actor.host, started_actor.address, node))
        if started_actor.problem:
            self._exclude_node(worker, node, f"{self._node_names[node]} {started_actor.problem}")
            return
        self._slots[worker].last_message = self._clock.now()
        self._slots[worker].node = node
        self._has_started = True
        self._mentioned_nodes.discard(node)
        self._receive_messages(worker)

    def _exclude_node(self, worker: int, node: str, problem: str) -> None:
        """Moves a slot to another node, if there is one."""
        size = self._slots[worker].size
        self._kill_slot(worker)
        is_known = node in self._excluded_nodes
        self._excluded_nodes.add(node)
        self._exclusion_reason = problem
        if self._refuse_without_nodes():
            return
        if not is_known:
            self._send_to_chief(Notice(message=f"{problem}; it is left out"))
            self._update_nodes(self._nodes, {})
        self._start_slot(worker, *size)

    def _refuse_without_nodes(self) -> bool:
        """Ends the watch if each node that has cores was left out before a worker could start anywhere.

        A watch whose workers have run waits for another node instead.
        """
        usable_nodes = self._nodes.keys() - self._excluded_nodes
        if not self._exclusion_reason or self._has_started or any(self._nodes[node][0] for node in usable_nodes):
            return False
        self._send_to_chief(ClusterRefused(message=self._exclusion_reason))
        return True

    def _receive_messages(self, worker: int) -> None:
        seconds = self._join_request.silence_seconds / 4
        progress_seconds = min(max(len(self._slots) / _PROGRESS_PER_SECOND, 0.2), seconds)
        reference = self._slots[worker].actor.receive.remote(seconds, progress_seconds)
        self._call_with_result(reference, lambda messages: self._relay_messages(worker, messages), worker)

    def _relay_messages(self, worker: int, messages: list[bytes]) -> None:
        slot = self._slots.get(worker)
        if slot is None:
            return  # it was killed: its late messages are dropped
        slot.last_message = self._clock.now()
        for message in messages:
            self._connection.send_bytes(message)
        if has_exited(messages):
            self._kill_slot(worker)
        else:
            self._receive_messages(worker)

    def _forward_message(self, forward: Forward) -> None:
        slot = self._slots[forward.worker]
        slot.outbox.append(forward)
        if not slot.is_sending:
            self._send_next(slot)

    def _send_next(self, slot: _Slot) -> None:
        slot.is_sending = bool(slot.outbox)
        if slot.is_sending:
            forward = slot.outbox.popleft()
            paths = [Path(file) for file in forward.files]
            files = [self._file_reference(path) for path in paths]
            reference = slot.actor.send.remote(forward.message, [path.name for path in paths], files)
            self._call_with_result(reference, lambda _: self._send_next(slot), forward.worker)

    def _file_reference(self, path: Path) -> Any:
        """Puts a file into the object store, from which each node fetches it once. Returns its reference."""
        if path.name not in self._files:
            self._files[path.name] = ray.put(path.read_bytes())
        self._files.move_to_end(path.name)
        while len(self._files) > _MAX_FILES:
            self._files.popitem(last=False)
        return self._files[path.name]

    def _lose_worker(self, worker: int, message: str, *, lost: bool) -> None:
        slot = self._slots.get(worker)
        if slot is not None:
            if lost:
                self._report_loss(slot.node, f"has lost a worker ({message})")
            self._kill_slot(worker)
            self._send_to_chief(WorkerExited(worker=worker, message=message, lost=lost))

    def _report_loss(self, node: str, event: str) -> None:
        """Reports once that a node lost its workers. Nodes that had none are not reported."""
        if not node or node in self._mentioned_nodes:
            return
        self._mentioned_nodes.add(node)
        other_nodes = self._nodes.keys() - self._excluded_nodes - {node}
        consequence = (
            "runs elsewhere"
            if any(self._nodes[other_node][0] for other_node in other_nodes)
            else "waits for another node"
        )
        self._send_to_chief(Notice(message=f"{self._node_names[node]} {event}; what it held {consequence}"))

    def _kill_slot(self, worker: int) -> None:
        slot = self._slots.pop(worker, None)
        if slot is not None:
            # Runs in a thread, because `ray.kill` may wait for the head.
            threading.Thread(target=ray.kill, args=(slot.actor,), daemon=True).start()

    def _end_silent_slots(self, now: float, silence_seconds: float) -> None:
        for worker, slot in list(self._slots.items()):
            if slot.last_message is not None and now - slot.last_message > silence_seconds:
                self._report_loss(slot.node, f"has not answered for {silence_seconds:g} s")
                self._lose_worker(worker, f"its node has not answered for {silence_seconds:g} s", lost=True)

    def _update_nodes(self, nodes: dict[str, tuple[float, float]], names: dict[str, str]) -> None:
        gone_nodes = self._nodes.keys() - nodes.keys()
        self._nodes, self._nodes_seen_at = nodes, self._clock.now()
        self._node_names.update(names)
        for node in sorted(gone_nodes & {slot.node for slot in self._slots.values()}):
            self._report_loss(node, "is gone")
        if self._refuse_without_nodes():  # a slot was moved to a node that is gone now
            return
        sizes = [size for node, size in nodes.items() if node not in self._excluded_nodes]
        if sorted(sizes) != self._machines:
            self._machines = sorted(sizes)
            self._send_to_chief(ExecutorCapacity(machines=tuple(self._machines)))
        unplaced_sizes = {slot.size for slot in self._slots.values() if slot.last_message is None}
        unplaceable_sizes = {size for size in unplaced_sizes if not any(_is_large_enough(node, size) for node in sizes)}
        for cpus, gpus in sorted(unplaceable_sizes - self._unplaceable_sizes):
            text = f"no node has {cpus:g} cores" + (f" and {gpus:g} devices" if gpus else "")
            self._send_to_chief(Notice(message=f"{text}; what needs them waits for one"))
        self._unplaceable_sizes = unplaceable_sizes


def has_exited(messages: Sequence[bytes]) -> bool:
    """Returns whether a slot's worker has exited: no message follows, and the actor must release its cores."""
    return any(kind_of(message) == WorkerExited.kind_name() for message in messages)


def node_name(host: str, address: str, node: str) -> str:
    """Returns a unique name of a node. The host's name is not enough, because a host may run several nodes."""
    return f"node {host} ({address}, id {node[:8]})"


def _is_large_enough(node_size: tuple[float, float], needed_size: tuple[float, float]) -> bool:
    return node_size[0] >= needed_size[0] and node_size[1] >= needed_size[1]


def _join_cluster(address: str, *, insecure: bool) -> str:
    """Joins a cluster, or starts one below this process (`local`); returns HOST:PORT of its head."""
    if address.startswith("ray://"):
        raise LobenchError(
            "Ray Client addresses are not supported",
            got=address,
            next_step="run the watch on a node of the cluster, with --ray-address auto",
        )
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "WARNING"}
    if ":" in address:
        # A quick check, because Ray itself would retry for minutes.
        host, _, port = address.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS):
            pass
    is_protected: bool | None = None
    attempts = 1
    if address == "local":
        options["include_dashboard"] = False
        is_protected = has_token_mode()
        attempts = _START_ATTEMPTS
    elif head_address := canonicalize_bootstrap_address(address):
        check_token(head_address)
        is_protected = requires_token(head_address)
    _init_ray(options, attempts)
    joined_address: str = ray.get_runtime_context().gcs_address
    if not insecure:
        check_access(joined_address, is_protected=is_protected)
    return joined_address


def _init_ray(options: Mapping[str, Any], attempts: int) -> None:
    """Calls `ray.init`, again if a node was not up in time. Ray allows it 30 seconds, which a busy machine exceeds."""
    for attempt in range(1, attempts + 1):
        try:
            ray.init(**options)
            return
        except Exception as error:
            if "timed out during startup" not in str(error) or attempt == attempts:
                raise
            print(f"attempt {attempt}: {error}", file=sys.stderr)
            ray.shutdown()


def _is_loss(error: BaseException) -> bool:
    """Returns whether a failed call is due to the machine and not to the case.

    Out of memory is due to the case, and so are errors of the actor, except OSErrors such as a full disk.
    """
    if isinstance(error, ray.exceptions.RayTaskError):
        return isinstance(error.cause, OSError)
    return isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.OutOfMemoryError)


def _error_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, ray.exceptions.RayTaskError) and lines:
        return lines[-1]
    last_line = lines[-1] if len(lines) > 1 and not lines[-1].startswith("ip:") else ""
    return " ".join(shown_line for shown_line in (lines[0] if lines else repr(error), last_line) if shown_line)


def main(descriptor: int) -> None:
    """Runs the process. Its first message is the configuration."""
    connection = Connection(descriptor)
    RayDriver(connection, Join.from_bytes(connection.recv_bytes())).run()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the chief decides when this process ends
    main(int(sys.argv[1]))

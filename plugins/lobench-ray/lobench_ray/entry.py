"""The actor as it is sent to a node: whole, not by its name, so that a node that lacks what it is made of can say so.

An actor that cannot be imported does not tell where it failed, and Ray would place the next one on the same node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["SlotEntry", "Started"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Which node an actor is on, and what is wrong with that, a clause about it; "" where a worker starts there."""

    node: str
    host: str
    address: str
    problem: str


class SlotEntry:
    """A `lobench_ray.slot.Slot`, if this node can make one. What it imports, it imports when it is called."""

    def start(
        self,
        *,
        worker: int,
        num_cpus: int,
        num_gpus: float,
        expected: Mapping[str, str],
        plan: bytes,
        parcel: Sequence[Any],
    ) -> Started:
        """Calls `Slot.start`; what goes wrong in it is this node's problem, but for Ray's own errors."""
        import socket

        import ray
        from ray.exceptions import RayError

        try:
            from lobench_ray.slot import Slot

            self._slot = Slot()
            problem = self._slot.start(
                worker=worker, num_cpus=num_cpus, num_gpus=num_gpus, expected=expected, plan=plan, parcel=parcel
            )
        except RayError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is: no worker can be started here)
            problem = f"cannot run workers: {type(error).__name__}: {error}"
        node, address = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
        return Started(node=node, host=socket.gethostname(), address=address, problem=problem)

    def send(self, message: bytes, names: Sequence[str], files: Sequence[Any]) -> None:
        self._slot.send(message, names, files)

    def receive(self, seconds: float, progress_seconds: float) -> list[bytes]:
        return self._slot.receive(seconds, progress_seconds)

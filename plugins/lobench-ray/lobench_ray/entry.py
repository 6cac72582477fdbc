"""Actor that is sent to a node by value, so that a node with missing packages can report them.

If an actor cannot be imported, Ray does not report the node, and would place the next actor there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["SlotEntry", "Started"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Node of an actor. `problem` is the reason why no worker can start there, as a clause; "" if one has started."""

    node: str
    host: str
    address: str
    problem: str


class SlotEntry:
    """Wrapper of `lobench_ray.slot.Slot` that imports it on the node, when it is called."""

    def start(
        self,
        *,
        worker: int,
        num_cpus: int,
        num_gpus: float,
        expected: Mapping[str, str],
        plan: bytes,
        suite_archive: Sequence[Any],
    ) -> Started:
        """Calls `Slot.start`. Any error except Ray's own counts as a problem of this node."""
        import socket

        import ray
        from ray.exceptions import RayError

        try:
            from lobench_ray.slot import Slot

            self._slot = Slot()
            problem = self._slot.start(
                worker=worker,
                num_cpus=num_cpus,
                num_gpus=num_gpus,
                expected=expected,
                plan=plan,
                suite_archive=suite_archive,
            )
        except RayError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is: no worker can be started here)
            problem = f"cannot run workers: {type(error).__name__}: {error}"
        node = ray.get_runtime_context().get_node_id()
        address = ray.util.get_node_ip_address()
        return Started(node=node, host=socket.gethostname(), address=address, problem=problem)

    def send(self, message: bytes, names: Sequence[str], files: Sequence[Any]) -> None:
        self._slot.send(message, names, files)

    def receive(self, seconds: float, progress_seconds: float) -> list[bytes]:
        return self._slot.receive(seconds, progress_seconds)

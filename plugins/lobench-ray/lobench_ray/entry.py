"""The actor as it is sent to a node: whole, not by its name, so that a node that lacks what it is made of can say so.

An actor that cannot be imported does not tell where it failed, and Ray would place the next one on the same node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["SlotEntry"]


class SlotEntry:
    """A `lobench_ray.slot.Slot`, if this node can make one. What it imports, it imports when it is called."""

    def start(self, **values: Any) -> dict[str, Any]:
        """Calls `Slot.start`; what goes wrong in it is this node's problem, but for Ray's own errors."""
        import socket

        import ray
        from ray.exceptions import RayError

        try:
            from lobench_ray.slot import Slot

            self._slot = Slot()
            return self._slot.start(**values)
        except RayError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is: no worker can be started here)
            problem = f"node {socket.gethostname()} cannot run workers: {type(error).__name__}: {error}"
            return {"node": ray.get_runtime_context().get_node_id(), "problem": problem}

    def send(self, kind: str, values: dict[str, Any], thetas: Sequence[Any]) -> None:
        self._slot.send(kind, values, thetas)

    def receive(self, seconds: float, progress_seconds: float) -> list[tuple[str, dict[str, Any], bytes]]:
        return self._slot.receive(seconds, progress_seconds)

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
        """Calls `Slot.start`; what goes wrong in it is this node's problem, but for Ray's own errors.

        Returns:
          Which node this is, and the problem, if there is one: a clause about it.
        """
        import socket

        import ray
        from ray.exceptions import RayError

        context = ray.get_runtime_context()
        here = {
            "node": context.get_node_id(),
            "host": socket.gethostname(),
            "address": ray.util.get_node_ip_address(),
        }
        try:
            from lobench_ray.slot import Slot

            self._slot = Slot()
            return here | self._slot.start(**values)
        except RayError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is: no worker can be started here)
            return here | {"problem": f"cannot run workers: {type(error).__name__}: {error}"}

    def send(self, message: bytes, names: Sequence[str], files: Sequence[Any]) -> None:
        self._slot.send(message, names, files)

    def receive(self, seconds: float, progress_seconds: float) -> list[bytes]:
        return self._slot.receive(seconds, progress_seconds)

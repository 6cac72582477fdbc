"""Population based training: `lobench_pbt.client(address)` for trainers; `lobench pbt` for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lobench_pbt.lineage import replay
    from lobench_pbt.trainer import StudyClient, TrialSession, client

_MODULES_BY_NAME = {
    **dict.fromkeys(("StudyClient", "TrialSession", "client"), "lobench_pbt.trainer"),
    "replay": "lobench_pbt.lineage",
}

__all__ = ["StudyClient", "TrialSession", "client", "replay"]


def __getattr__(name: str) -> Any:
    """Imports the client on first use, because the plugin's declarations must not import gRPC."""
    if name not in _MODULES_BY_NAME:
        raise AttributeError(f"module 'lobench_pbt' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES_BY_NAME[name]), name)

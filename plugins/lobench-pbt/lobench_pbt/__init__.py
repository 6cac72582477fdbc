"""Population based training: `lobench_pbt.client(address)` for trainers; `lobench pbt` for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lobench_pbt.client import StudyClient, TrialSession, client

__all__ = ["StudyClient", "TrialSession", "client"]


def __getattr__(name: str) -> Any:
    """Loads the client when it is used: the plugin's declarations must not import gRPC."""
    if name not in __all__:
        raise AttributeError(f"module 'lobench_pbt' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("lobench_pbt.client"), name)

"""Configuration of this repository's own tests."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

# Tests start many workers that compile the same small programs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Bounds a hang; beside eight busy processes a test takes six times as long. Not in the ini file, which warns of options
# of a plugin that only tests of lobench itself install.
os.environ.setdefault("PYTEST_TIMEOUT", "1200")
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    # How long an example takes is the machine's doing.
    settings.register_profile("lobench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("lobench")
sys.path.insert(0, str(Path(__file__).parent / "tests"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` all tests of Ray go to one worker: they start and kill Ray on this machine."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder = "plugins/lobench-ray/"
            return folder if nodeid.startswith(folder) else str(super()._split_scope(nodeid))

    return Scheduler(config, log)

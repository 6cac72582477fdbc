"""Configuration of this repository's own tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Tests start many workers that compile the same small programs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
sys.path.insert(0, str(Path(__file__).parent / "tests"))

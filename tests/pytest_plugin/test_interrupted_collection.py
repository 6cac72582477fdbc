"""Ctrl-C while jax's callback of the garbage collector runs is no warning; what else is ignored there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import gc

def _xla_gc_callback(*arguments):
    gc.callbacks.remove(_xla_gc_callback)
    raise {error}

def test_it():
    gc.callbacks.append(_xla_gc_callback)
    gc.collect()
"""


@pytest.mark.parametrize(("error", "is_printed"), [("KeyboardInterrupt", False), ("ValueError", True)])
def test_only_the_interrupt_is_no_warning(error: str, is_printed: bool, tmp_path: Path) -> None:
    (tmp_path / "test_gc.py").write_text(TEST.format(error=error))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_gc.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0 and ("PytestUnraisableExceptionWarning" in done.stdout + done.stderr) == is_printed, (
        done
    )

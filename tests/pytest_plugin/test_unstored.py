"""Sessions whose results cannot be stored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shown import texts_of

from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("pytest")

GIN = """
Case.num_inner_steps = 2
Case.num_seeds = 1
a/Case.task = @Quadratic()
"""


@pytest.mark.parametrize("is_asked", [False, True])
def test_session_whose_store_is_busy_ends_with_3_if_the_store_was_asked_for(tmp_path: Path, is_asked: bool) -> None:
    (tmp_path / "tiny.gin").write_text(GIN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ".", "--lobench-optimizer=sgd()"]
    store = tmp_path / ("store" if is_asked else f".lobench/{tmp_path.name}")
    with Ledger.open(store, name="first"):
        options = ["--rootdir=.", *(["--lobench-store=store"] if is_asked else [])]
        done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert SHOWN["results-were-not-stored"] in done.stdout and "1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == (3 if is_asked else 0)

"""The workers that most tests have are forked: they compute what workers that are started anew compute."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny import content, make_run, make_suite, watch
from warm import WarmPopen

from lobench.engine.workers import process


def test_forked_worker_records_the_bits_of_one_that_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if process.subprocess.Popen is not WarmPopen:
        pytest.skip("workers are started anew here")
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    forked = []
    start = WarmPopen.__init__

    def recorded(self: WarmPopen, *arguments: object, **options: object) -> None:
        start(self, *arguments, **options)  # type: ignore[arg-type]
        forked.append(Path(f"/proc/{self.pid}/cmdline").read_text().find("warm.py") >= 0)
        assert int(Path(f"/proc/{self.pid}/stat").read_text().split()[3]) == os.getpid()

    monkeypatch.setattr(WarmPopen, "__init__", recorded)
    options = ("--once", "--checkpoints", "all", "--workers", "1")
    assert watch(run, suite, *options, "--store", str(tmp_path / "forked")).returncode == 0
    monkeypatch.setenv("PYTHONUTF8", "1")
    assert watch(run, suite, *options, "--store", str(tmp_path / "anew")).returncode == 0
    assert forked == [True, False]
    assert content(tmp_path / "forked") == content(tmp_path / "anew")

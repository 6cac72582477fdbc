"""A watch under a system clock that steps: nothing is lost, ended early, or evaluated twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

from failing_disk import COMPILING
from shown import texts_of
from stepping_clock import SteppingClock
from tiny import make_run, make_suite, results, watch_command, write_checkpoint

SHOWN = texts_of("lobench")

pytestmark = COMPILING


def test_watch_under_a_clock_that_steps_evaluates_each_checkpoint_once(tmp_path: Path) -> None:
    clock = SteppingClock(tmp_path)
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0), tmp_path / "store"
    options = ("--checkpoints", "all", "--workers", "1", "--until-step", "3", "--idle-timeout", "3000", "--quiet")
    with subprocess.Popen(
        [word for word in watch_command(run, suite, *options, "--store", str(store)) if word != "--verbose"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=clock.environment,
    ) as watch:
        assert watch.stdout is not None
        lines = []
        for step, seconds in enumerate((86_400.0, -86_400.0), start=1):
            for line in watch.stdout:
                lines.append(line)
                if line.startswith(f"outer step {step}:"):
                    break
            assert watch.poll() is None, "".join(lines)
            clock.set(seconds)
            write_checkpoint(run / f"theta_{step + 1}.npz", -3.0 + step / 2)
        lines += watch.stdout.readlines()
    assert watch.returncode == 0, "".join(lines)
    records = results(store)
    assert sorted(record["checkpoint"]["outer_step"] for record in records) == sorted([1, 2, 3] * 2)
    assert {record["outcome"] for record in records} == {"passed"}
    times = [record["recorded_at"] for record in records]
    assert max(times) - min(times) > 86_400.0, "the watch saw the steps"
    assert "lost" not in "".join(lines).replace(str(tmp_path), "")
    again = subprocess.run(
        watch_command(run, suite, "--once", "--checkpoints", "all", "--executor", "inline", "--store", str(store)),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert again.returncode == 0 and SHOWN["nothing-new"] in again.stdout, again.stdout + again.stderr

"""A watch under a system clock that steps: nothing is lost, ended early, or evaluated twice."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

from failing_disk import COMPILER, COMPILING
from tiny import make_run, make_suite, results, watch_command, write_checkpoint

pytestmark = COMPILING

# CLOCK_FILE: a file with one double, the seconds by which the system's clock is off. Monotonic clocks stay.
_SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long steps(void) {
    static volatile double *shared = NULL;
    if (!shared) {
        int file = open(getenv("CLOCK_FILE"), O_RDONLY);
        shared = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
        close(file);
    }
    return (long)*shared;
}
int clock_gettime(clockid_t clock, struct timespec *to) {
    int code = syscall(SYS_clock_gettime, clock, to);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) to->tv_sec += steps();
    return code;
}
int gettimeofday(struct timeval *to, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    to->tv_sec = now.tv_sec;
    to->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
"""


def test_watch_under_a_clock_that_steps_evaluates_each_checkpoint_once(tmp_path: Path) -> None:
    source, library, clock = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "clock"
    source.write_text(_SOURCE)
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    clock.write_bytes(struct.pack("d", 0.0))
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0), tmp_path / "store"
    options = ("--checkpoints", "all", "--workers", "1", "--until-step", "5", "--idle-timeout", "3000", "--quiet")
    with subprocess.Popen(
        [word for word in watch_command(run, suite, *options, "--store", str(store)) if word != "--verbose"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "LD_PRELOAD": str(library), "CLOCK_FILE": str(clock)},
    ) as watch:
        assert watch.stdout is not None
        lines = []
        for step, seconds in enumerate((3600.0, -3600.0, 86_400.0, -86_400.0), start=1):
            for line in watch.stdout:
                lines.append(line)
                if line.startswith(f"outer step {step}:"):
                    break
            assert watch.poll() is None, "".join(lines)
            with clock.open("r+b") as file:
                file.write(struct.pack("d", seconds))
            write_checkpoint(run / f"theta_{step + 1}.npz", -3.0 + step / 2)
        lines += watch.stdout.readlines()
    assert watch.returncode == 0, "".join(lines)
    records = results(store)
    assert sorted(record["checkpoint"]["outer_step"] for record in records) == sorted([1, 2, 3, 4, 5] * 2)
    assert {record["outcome"] for record in records} == {"passed"}
    times = [record["recorded_at"] for record in records]
    assert max(times) - min(times) > 86_400.0, "the watch saw the steps"
    assert "lost" not in "".join(lines)
    again = subprocess.run(
        watch_command(run, suite, "--once", "--checkpoints", "all", "--executor", "inline", "--store", str(store)),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert again.returncode == 0 and "nothing new" in again.stdout, again.stdout + again.stderr

"""A system clock that steps, in processes that a test starts: a library in place of the system's calls."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

from failing_disk import COMPILER

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


class SteppingClock:
    """Clock of the processes that are started with its `environment`."""

    def __init__(self, folder: Path) -> None:
        source, library, self._file = folder / "clock.c", folder / "clock.so", folder / "clock"
        source.write_text(_SOURCE)
        assert COMPILER is not None
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        self._file.write_bytes(struct.pack("d", 0.0))
        self.environment = {**os.environ, "LD_PRELOAD": str(library), "CLOCK_FILE": str(self._file)}

    def set(self, seconds: float) -> None:
        """Sets by how many seconds the clock is off, in processes that run, too."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("d", seconds))

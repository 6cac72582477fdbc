"""A disk that fails for a while: a library that answers an error number in place of the system, by the path."""

from __future__ import annotations

import atexit
import errno
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc")
COMPILING = pytest.mark.skipif(COMPILER is None, reason="a disk that fails needs a C compiler (cc)")

ALL_CALLS = ("open", "read", "write", "fsync", "rename", "stat", "unlink", "lock", "list", "mkdir")

# FAULT_PATHS: parts of paths, separated by ":". FAULT_CALLS: names of calls. Each process counts FAULT_SECONDS from its
# first call that matches. FAULT_EVERY: "N K" instead: of each N calls that match, call K fails.
# FAULT_ERRNO: error numbers, answered in turn. FAULT_LOG: a file that gets a line for each call that failed.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double began = 0;

static int fails(const char *call, const char *path) {
    const char *paths = getenv("FAULT_PATHS"), *calls = getenv("FAULT_CALLS");
    if (!calls) began = 0;  // a process that names calls again has another outage
    if (!paths || !calls || !path || !strstr(calls, call)) return 0;
    char copy[4096];
    strncpy(copy, paths, sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    int found = 0;
    for (char *rest = copy, *part; (part = strsep(&rest, ":"));) found |= *part && strstr(path, part);
    if (!found) return 0;
    int every, which;
    static int calls_so_far = 0;
    if (getenv("FAULT_EVERY") && sscanf(getenv("FAULT_EVERY"), "%d %d", &every, &which) == 2) {
        if (__sync_fetch_and_add(&calls_so_far, 1) % every != which) return 0;
    } else {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        double seconds = now.tv_sec + now.tv_nsec / 1e9;
        if (!began) began = seconds;
        if (seconds - began > atof(getenv("FAULT_SECONDS"))) return 0;
    }
    const char *log = getenv("FAULT_LOG");
    if (log) {
        int file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT, 0666);
        char line[5000];
        int size = snprintf(line, sizeof line, "%d %s %s\n", getpid(), call, path);
        if (syscall(SYS_write, file, line, size) < 0) {}
        syscall(SYS_close, file);
    }
    static int turn = 0;
    char *rest = (char *)getenv("FAULT_ERRNO"), *first = rest;
    for (int at = 0; at < turn && *rest; at++) strtol(rest, &rest, 10);
    while (*rest == ' ') rest++;
    if (!*rest) turn = 0, rest = first;
    turn++;
    errno = strtol(rest, NULL, 10);
    return 1;
}

static int fails_at(const char *call, int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); \
    mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *path, int flags, ...) { MODE return fails("open", path) ? -1 : REAL(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return fails("open", path) ? -1 : REAL(open64)(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) {
    MODE return fails("open", path) ? -1 : REAL(openat)(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) {
    MODE return fails("open", path) ? -1 : REAL(openat64)(at, path, flags, mode); }
ssize_t read(int file, void *to, size_t size) { return fails_at("read", file) ? -1 : REAL(read)(file, to, size); }
ssize_t pread(int file, void *to, size_t size, off_t at) {
    return fails_at("read", file) ? -1 : REAL(pread)(file, to, size, at); }
ssize_t pread64(int file, void *to, size_t size, off64_t at) {
    return fails_at("read", file) ? -1 : REAL(pread64)(file, to, size, at); }
ssize_t write(int file, const void *from, size_t size) {
    return fails_at("write", file) ? -1 : REAL(write)(file, from, size); }
DIR *opendir(const char *path) { return fails("list", path) ? NULL : REAL(opendir)(path); }
int mkdir(const char *path, mode_t mode) { return fails("mkdir", path) ? -1 : REAL(mkdir)(path, mode); }
int fsync(int file) { return fails_at("fsync", file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return fails_at("fsync", file) ? -1 : REAL(fdatasync)(file); }
int rename(const char *from, const char *to) { return fails("rename", to) ? -1 : REAL(rename)(from, to); }
int renameat(int at, const char *from, int into, const char *to) {
    return fails("rename", to) ? -1 : REAL(renameat)(at, from, into, to); }
int stat(const char *path, struct stat *to) { return fails("stat", path) ? -1 : REAL(stat)(path, to); }
int stat64(const char *path, struct stat64 *to) { return fails("stat", path) ? -1 : REAL(stat64)(path, to); }
int lstat(const char *path, struct stat *to) { return fails("stat", path) ? -1 : REAL(lstat)(path, to); }
int lstat64(const char *path, struct stat64 *to) { return fails("stat", path) ? -1 : REAL(lstat64)(path, to); }
int fstat(int file, struct stat *to) { return fails_at("stat", file) ? -1 : REAL(fstat)(file, to); }
int fstat64(int file, struct stat64 *to) { return fails_at("stat", file) ? -1 : REAL(fstat64)(file, to); }
int flock(int file, int how) { return fails_at("lock", file) ? -1 : REAL(flock)(file, how); }
static int control(int file, int command, void *argument, const char *name) {
    int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK;
    if (locks && fails_at("lock", file)) return -1;
    return ((int (*)(int, int, void *))dlsym(RTLD_NEXT, name))(file, command, argument);
}
int fcntl(int file, int command, ...) {
    va_list rest; va_start(rest, command); void *argument = va_arg(rest, void *); va_end(rest);
    return control(file, command, argument, "fcntl"); }
int fcntl64(int file, int command, ...) {
    va_list rest; va_start(rest, command); void *argument = va_arg(rest, void *); va_end(rest);
    return control(file, command, argument, "fcntl64"); }
int unlink(const char *path) { return fails("unlink", path) ? -1 : REAL(unlink)(path); }
"""


def failing_disk(
    folder: Path,
    *calls: str,
    paths: tuple[str, ...],
    numbers: tuple[int, ...] = (errno.EIO,),
    seconds: float = 1.0,
    every: tuple[int, int] | None = None,
) -> dict[str, str]:
    """Returns an environment in which calls fail for a while.

    Args:
      calls: Of `ALL_CALLS`.
      paths: Parts of the paths that are concerned.
      numbers: The error numbers, which calls get in turn.
      seconds: How long, from a process's first such call on.
      every: `(n, k)`: of each n calls of a process, call k fails, as long as it runs. None: all calls, for `seconds`.
    """
    return {
        **os.environ,
        "LD_PRELOAD": str(_library()),
        "FAULT_PATHS": ":".join(paths),
        "FAULT_CALLS": " ".join(calls),
        "FAULT_ERRNO": " ".join(map(str, numbers)),
        "FAULT_SECONDS": str(seconds),
        **({} if every is None else {"FAULT_EVERY": f"{every[0]} {every[1]}"}),
        "FAULT_LOG": str(folder / "faults.log"),
    }


@functools.cache
def _library() -> Path:
    """Compiles the library, once for all tests of a process, so that one server forks all processes with it."""
    folder = Path(tempfile.mkdtemp(prefix="failing-disk-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, library = folder / "failing_disk.c", folder / "failing_disk.so"
    source.write_text(_SOURCE)
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library

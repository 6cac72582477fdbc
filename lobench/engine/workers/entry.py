"""Worker entry point: `python -m lobench.engine.workers.entry FD`, with one end of a socket pair.

It sets up what every worker needs: it dies with its parent, ignores signals, and is configured by the first message.
Then it runs the function that this message names.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import pkgutil
import signal
import sys
from multiprocessing.connection import Connection

from lobench.engine.config.import_path import prepare_import_path
from lobench.engine.workers.child_python import cache_environment
from lobench.engine.workers.devices import set_blas_variables
from lobench.engine.workers.protocol import Configure

__all__ = ["main", "run_worker"]

_PR_SET_PDEATHSIG = 1


def run_worker(connection: Connection, configure: Configure, *, owns_process: bool) -> None:
    """Runs the function named in the configuration; see `Configure.serve`.

    >>> near, far = multiprocessing.Pipe()
    >>> far.send_bytes(Exit().to_bytes())
    >>> serve = "lobench.testing.contract_worker:serve"
    >>> configure = Configure(num_cpus=1, arguments=(), layers=Layers(), compilation_cache="", serve=serve)
    >>> run_worker(near, configure, owns_process=False)
    >>> kind_of(far.recv_bytes())
    'ready'
    """
    set_blas_variables(configure.num_cpus)
    serve = pkgutil.resolve_name(configure.serve)
    serve(connection, configure, owns_process=owns_process)


def main(descriptor: int) -> None:
    """Entry point of the process. Its output is already redirected to its log."""
    _die_with_parent()
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)  # only the chief reacts to signals
    connection = Connection(descriptor)
    configure = Configure.from_bytes(connection.recv_bytes())
    if configure.working_folder:
        with contextlib.suppress(OSError):
            os.chdir(configure.working_folder)
    prepare_import_path()
    os.environ["NPROC"] = str(configure.num_cpus)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that output before a crash is in the log
    for name, value in cache_environment(configure.compilation_cache).items():
        os.environ.setdefault(name, value)
    gc.disable()  # importing jax creates many objects but no garbage; collecting took a tenth of the start
    pkgutil.resolve_name(configure.serve)
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # tracing also creates many objects and little garbage
    gc.enable()
    run_worker(connection, configure, owns_process=True)
    gc.freeze()  # skips a collection of all of jax's objects at exit


def _die_with_parent() -> None:
    """Makes the kernel kill this process when the chief dies, even if it hangs outside of Python (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))

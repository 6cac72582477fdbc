"""Configuration of this repository's own tests."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import platform
import random
import sys
import types
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    # How long an example takes is the machine's doing. A suite that passed passes again: its examples are the same ones
    # until a test is changed. `--hypothesis-profile=search` looks for others.
    settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("lobench", settings.get_profile("search"), derandomize=True)
    settings.load_profile("lobench")
sys.path.insert(0, str(Path(__file__).parent / "tests"))
from forked import ALL, fork_processes
from left_behind import as_before
from lowered import share_contexts

_HERE = Path(__file__).parent
# jaxlib 0.11 has XLA's newer kernels alone, and ends a process that names their switch.
_HAS_OLDER_KERNELS = metadata.version("jaxlib").startswith("0.10.")
_ENVIRONMENT = {
    # Tests start many workers that compile the same small programs.
    "JAX_COMPILATION_CACHE_DIR": str(_HERE / ".pytest_cache" / "xla"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # Tests' own modules and folders are others each time: their executables would be kept and never found.
    "LOBENCH_EXECUTABLES": "off",
    # How tests compile, lobench's own programs too: at LLVM's lowest level; without XLA's newer kernels, which take
    # twice as long to make and are faster to run; all kernels in one piece. That is a third of the time. What users
    # have is asked by the golden bits.
    "XLA_FLAGS": " ".join(
        [
            "--xla_backend_optimization_level=0",
            *(["--xla_cpu_use_fusion_emitters=false"] if _HAS_OLDER_KERNELS else []),
            "--xla_cpu_parallel_codegen_split_count=1",
        ]
    ),
    # Bounds a hang; beside eight busy processes a test takes six times as long. Not in the ini file, which warns of
    # options of a plugin that only tests of lobench itself install.
    "PYTEST_TIMEOUT": "1000",
}


# A copy of this file, in a test, has no such list.
_LIST = _HERE / "tests" / "long.txt"
_LONG = frozenset(
    line
    for line in (_LIST.read_text(encoding="utf-8").splitlines() if _LIST.exists() else ())
    if line[:1] not in ("", "#")
)


_COLLECTED = set[str]()  # tests, also those that are left out later, their functions, classes and files


def pytest_itemcollected(item: pytest.Item) -> None:
    _COLLECTED.update(_names_of(item.nodeid), [item.nodeid.partition("::")[0]])
    if _is_long(item.nodeid):
        item.add_marker("long")


def _names_of(nodeid: str) -> tuple[str, str, str]:
    """Returns the names by which `tests/long.txt` may list a test: its own, its function's, its class's."""
    test = nodeid.partition("[")[0]
    return nodeid, test, test.rpartition("::")[0]


def _is_long(nodeid: str) -> bool:
    return not _LONG.isdisjoint(_names_of(nodeid))


@pytest.fixture(scope="session")
def stale_long_names(pytestconfig: pytest.Config) -> list[str]:
    """Names in `tests/long.txt` that no test of their file has, among the files that this session collected whole."""
    are_whole = not any("::" in argument for argument in pytestconfig.args)
    return sorted(name for name in _LONG - _COLLECTED if are_whole and name.partition("::")[0] in _COLLECTED)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.option.markexpr == "not long":
        terminalreporter.write_line(
            f"{len(_LONG)} tests and classes of tests, some with several parameters, are left for --all"
        )


def _is_of_tests(config: pytest.Config) -> bool:
    """Whether a session runs tests of lobench; a suite of this checkout is to have the bits that a watch has."""
    asked = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    tests = [_HERE / "tests", _HERE / "plugins"]
    return any(path == _HERE or path.is_relative_to(test) for path in asked for test in tests)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """jax's backend, where one is made meanwhile, is such that lobench evaluates here and not in a process beside.

    It compiles for the processors that a worker's compiles for: at LLVM's lowest level the bits hang on that.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPROC", os.environ.get("NPROC", "1"))
        if platform.machine() in ("x86_64", "AMD64"):
            patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX512")
        yield
        if "jax" in sys.modules:
            sys.modules["jax"].devices()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    with _wide_terminal():
        return (yield)


pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Gives every frame of an error a line, so that the test fails and the session goes on.

    A signal's handler may interrupt an instruction without a line, the jump at the end of a loop. pytest ends with an
    internal error there.
    """
    error, met = call.excinfo.value if call.excinfo else None, set[int]()
    while error is not None and id(error) not in met:
        met.add(id(error))
        error.__traceback__ = _with_lines(error.__traceback__)
        error = error.__cause__ or error.__context__
    if call.excinfo is not None:
        call.excinfo = pytest.ExceptionInfo.from_exception(call.excinfo.value)
    return (yield)


def _with_lines(traceback: types.TracebackType | None) -> types.TracebackType | None:
    made, entries = None, list[types.TracebackType]()
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    if all(entry.tb_lineno is not None for entry in entries):
        return entries[0] if entries else None
    for entry in reversed(entries):
        line = entry.tb_lineno or entry.tb_frame.f_code.co_firstlineno
        made = types.TracebackType(made, entry.tb_frame, entry.tb_lasti, line)
    return made


@contextlib.contextmanager
def _wide_terminal() -> Iterator[None]:
    """Lines that are looked for are not broken; tests of the width set their own. xdist gives its workers COLUMNS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "1000")
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    with one_thread() if _is_of_tests(session.config) else contextlib.nullcontext():
        return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="files, and the tests of each, in another order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("shuffle", None)) is None:
        return
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    chance = random.Random(seed)
    for tests in files.values():
        chance.shuffle(tests)
    items[:] = [item for file in chance.sample(list(files), len(files)) for item in files[file]]


@pytest.fixture(autouse=True, scope="module")
def no_file_leaves_anything(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from _nothing_left(request)


@pytest.fixture(autouse=True)
def no_test_leaves_anything(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves behind meets no later one: it is put back and told; with `--shuffle` the test fails."""
    yield from _nothing_left(request)


def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.node.nodeid.startswith(("tests/", "plugins/")):  # suites and examples are anybody's
        yield
        return
    with as_before() as told:
        yield
    if told:
        said = f"left behind in the process of the tests: {'; '.join(told)}"
        if request.config.getoption("shuffle", None) is not None:
            pytest.fail(said)
        warnings.warn(f"{request.node.nodeid}: {said}", stacklevel=1)


def pytest_collection_finish() -> None:
    if "jax" in sys.modules:
        share_contexts()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Gives tests an environment of their own.

    Sessions of pytest that they start, workers' too, do without hypothesis, which is imported when they end: it takes a
    worker a third of a second. xdist's own workers are started before: they have it.
    """
    if not _is_of_tests(config):
        return
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # What modules and tests are made of stays to the end: nobody looks for garbage among it. Of a test process on cold
    # caches that was a tenth.
    gc.disable()
    fork_processes()
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        given = os.environ.get("PYTEST_ADDOPTS", "")
        os.environ["PYTEST_ADDOPTS"] = f"{given} -p no:hypothesispytest".strip()


@pytest.hookimpl(optionalhook=True)  # `-p no:xdist` goes without
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` all tests of Ray go to one worker: they start and kill Ray on this machine.

    Files whose tests start processes come first, and those with the most long tests of them: what is short fills the
    gaps at the end, and all workers end together.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    ray = "plugins/lobench-ray/"

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return ray if nodeid.startswith(ray) else str(super()._split_scope(nodeid))

        def _assign_work_unit(self, node: Any) -> None:
            self.workqueue.move_to_end(max(self.workqueue, key=self._weight), last=False)
            super()._assign_work_unit(node)

        @functools.cache  # noqa: B019 - of one scheduler; a file waits with all of its tests until it is assigned
        def _weight(self, scope: str) -> tuple[bool, bool, int]:
            starts = scope == ray or any(word in _text(scope) for word in ("subprocess", "import tiny", "from tiny"))
            return scope == ray, starts, sum(20 if _is_long(test) else 1 for test in self.workqueue[scope])

    return Scheduler(config, log)


@functools.cache
def _text(file: str) -> str:
    return (Path(__file__).parent / file).read_text()


@pytest.fixture
def any_program_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks every Python program that a test starts, not only commands of lobench and pytest."""
    for name, value in ALL.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def compiled() -> Iterator[list[float]]:
    """Grows by one at each program that jax compiles, or finds compiled on disk."""
    from jax import monitoring

    found: list[float] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(duration_secs)

    monitoring.register_event_duration_secs_listener(listen)
    yield found
    monitoring.unregister_event_duration_listener(listen)

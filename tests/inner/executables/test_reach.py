"""The key of a kept executable is another one after any edit of what tracing could reach, and watched traces tell."""

from __future__ import annotations

import glob
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from executables_world import edits
from reference import ROOT
from shown import texts_of

from lobench.inner.executables.reach import WatchedTrace, are_as_then, installed_files
from lobench.inner.executables.state import StateHash, Unhashable

SHOWN = texts_of("inner")

REFUSED = {
    "a replaced function of jax",
    "an open file",
    "a generator",
    "numpy's generator",
    "results that are cached",
}


def test_every_edit_of_what_tracing_could_reach_is_a_miss(tmp_path: Path) -> None:
    """In a process of its own: here, all tests' modules would count."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "executables_world.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(edits()) >= 60 and found.keys() == {*edits(), "nothing", SHOWN["all-as-before"]}
    assert {name for name, what in found.items() if what == "hit"} == {"nothing", SHOWN["all-as-before"]}
    assert {name for name, what in found.items() if what.startswith("refused")} == REFUSED


def digest(*values: Any) -> str:
    state = StateHash()
    state.add(*values)
    return state.hexdigest()


def with_cell(value: Any) -> Callable[[], Any]:
    return lambda: value


PAIRS: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ("1", b"1"),
    ([1, 2], (1, 2)),
    ([[1], 2], [[1, 2]]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (np.zeros(2, np.float32), np.zeros(2, np.int32)),
    (np.zeros((2, 1)), np.zeros((1, 2))),
    (np.zeros(2), jnp.zeros(2)),
    (jax.random.key(0), jax.random.key(1)),
    (jax.random.key(0, impl="rbg"), jax.random.key(0, impl="unsafe_rbg")),
    (with_cell(1), with_cell(2)),
    (with_cell(with_cell(1)), with_cell(with_cell(2))),
    (SimpleNamespace(a=1), SimpleNamespace(a=2)),
    ([None, None], [None]),
    (float("inf"), float("-inf")),
    (np.float32(1), np.float64(1)),
    (np.array([1, "a"], object), np.array([1, "b"], object)),
    (jnp.tanh, jnp.sin),
    (jax.jit(with_cell(1)), jax.jit(with_cell(2))),
    (range(3), range(4)),
]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{n}-{pair[0]!r}"[:30] for n, pair in enumerate(PAIRS)])
def test_what_differs_has_another_hash_and_what_is_equal_the_same(first: Any, second: Any) -> None:
    assert digest(first) == digest(first) and digest(second) == digest(second)
    assert digest(first) != digest(second)
    assert digest([first, second]) != digest([second, first])


def test_what_holds_itself_ends_and_what_tells_no_state_is_refused() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert digest(loop) == digest(loop)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, iter([1]), (n for n in ()), random.Random(0), memoryview(b"a"), np.random.default_rng(0)):
        with pytest.raises(Unhashable):
            digest(value)
    with pytest.raises(Unhashable, match=SHOWN["being-traced"]):
        jax.make_jaxpr(lambda x: digest(x))(1.0)


def test_a_compiled_module_of_the_users_own_is_refused(tmp_path: Path) -> None:
    files = glob.glob(str(Path(sysconfig.get_config_var("DESTSHARED") or "") / "_lsprof.*"))
    if not files:
        pytest.skip("this Python has its modules inside")
    shutil.copy(files[0], tmp_path)
    ask = "import sys; sys.path.insert(0, sys.argv[1]); import _lsprof, lobench.inner.executables.reach as r\nr.reach()"
    done = subprocess.run([sys.executable, "-c", ask, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ("Unhashable" in done.stderr and SHOWN["which-is-not-python-code"] in done.stderr) or SHOWN[
        "that-is-not"
    ] in done.stderr


def no_module(tmp_path: Path) -> None:
    with pytest.raises(ImportError):
        __import__("no_such_module_of_anybody")


def of_a_module(tmp_path: Path) -> None:
    (tmp_path / "made_while_tracing.py").write_text("")
    sys.path.insert(0, str(tmp_path))
    try:
        __import__("made_while_tracing")
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("made_while_tracing", None)


def a_process(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def a_connection(tmp_path: Path) -> None:
    with socket.socket() as made:
        made.connect_ex(("127.0.0.1", 9))


@pytest.mark.parametrize(
    "does",
    [
        lambda folder: (folder / "data").touch() or (folder / "data").read_text(),
        lambda folder: np.save(folder / "a.npy", np.ones(2)),
        lambda folder: os.listdir(folder),
        lambda folder: list(folder.iterdir()),
        lambda folder: random.random(),
        lambda folder: np.random.rand(),
        no_module,
        of_a_module,
        a_process,
        a_connection,
    ],
    ids=lambda does: f"{does.__name__}-{does.__code__.co_firstlineno}",
)
def test_a_trace_that_looks_elsewhere_is_known(does: Callable[[Path], Any], tmp_path: Path) -> None:
    with WatchedTrace() as trace:
        does(tmp_path)
    assert trace.saw


def test_a_trace_of_functions_alone_is_quiet_and_another_threads_files_are_not_its_own(tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: (tmp_path / "data").write_text("x"))
    with WatchedTrace() as trace:
        thread.start()
        jax.make_jaxpr(lambda x: jax.nn.gelu(jnp.sin(x)) @ x)(jnp.ones(3))
        thread.join()
    assert trace.saw == ""


def test_installed_files_are_known_by_size_and_time(tmp_path: Path) -> None:
    assert str(Path(np.__file__)) in (found := installed_files()) and are_as_then(found)
    file = tmp_path / "module.py"
    file.write_text("A = 1\n")
    then = {str(file): (file.stat().st_size, file.stat().st_mtime_ns)}
    assert are_as_then(then)
    file.write_text("A = 2\n")
    os.utime(file, ns=(0, then[str(file)][1] + 1))
    assert not are_as_then(then)
    file.unlink()
    assert not are_as_then(then)

"""Plugins that raise, exit or return something else: named in one line with the hook, and nothing else is harmed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from commands import Done
from commands import lobench_here as lobench
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite, results

from lobench.core.wording import cause, headline
from lobench.plugins import PluginManager, installed_entry_points

SHOWN = texts_of("lobench")

DECLARED = {
    "lobench_checkpoint_sources": "source",
    "lobench_checkpoint_readers": "reader",
    "lobench_admission_policies": "policy",
}
HEADER = """
import os, sys
from lobench.hookspecs import Declaration

def HOOK():
    return [Declaration(name="mine", factory=":make")]

class Mine:
    poll_seconds = 0.1
    in_place = False
    def recognises(self, path): return path.suffix == ".mine"
    def is_complete(self, path): return True
    def read(self, path): BODY
    def poll(self): BODY
    def pending(self): return {}
    def admit(self, waiting, *, idle, last): BODY

def make(*arguments):
    return Mine()
"""
BODIES = {
    "raises": ("raise ZeroDivisionError('planted')", "failed; got ZeroDivisionError: planted"),
    "exits": ("sys.exit(0)", "failed; got SystemExit"),
    "leaves": ("os._exit(0)", "failed; got SystemExit"),
    "has no memory": ("raise MemoryError('planted')", "failed; got MemoryError: planted"),
    "text": ("return 'text'", "returned something of another type; got str: 'text'"),
    "none": ("return None", "returned something of another type; got NoneType: None"),
}
OPTIONS = {"source": ("--source", "mine"), "policy": ("--checkpoints", "mine")}
METHODS = {"source": "poll", "reader": "read", "policy": "admit"}


def watch(folder: Path, plugin: str, *options: str, checkpoint: str = "") -> Done:
    suite = make_suite(folder, ONE_CASE)
    (suite / "conftest.py").write_text(plugin)
    run = make_run(folder, -3.0)
    if checkpoint:
        (run / checkpoint).write_bytes(b"x")
    if not {"--checkpoints"}.intersection(options):
        options = (*options, "--checkpoints", "all")
    return lobench("watch", "run", "--suite", "tiny", "--once", "--executor", "inline", *options, cwd=folder)


@pytest.mark.parametrize(
    ("hook", "body"),
    [("lobench_checkpoint_sources", body) for body in ("raises", "leaves", "text")]
    + [("lobench_admission_policies", body) for body in ("exits", "has no memory", "none")],
)
def test_watch_with_a_failing_plugin_names_it_and_exits_with_3(tmp_path: Path, hook: str, body: str) -> None:
    kind, (code, message) = DECLARED[hook], BODIES[body]
    done = watch(tmp_path, HEADER.replace("HOOK", hook).replace("BODY", code), *OPTIONS[kind])
    (line,) = [text for text in done.stderr.splitlines() if text.strip()]
    assert "conftest.py" in line and f"hook {hook}" in line and f"{METHODS[kind]}() {message}" in line
    assert done.returncode == 3


@pytest.mark.parametrize("body", ["raises", "leaves", "text"])
def test_a_reader_that_fails_on_one_checkpoint_leaves_the_others(tmp_path: Path, body: str) -> None:
    code, message = BODIES[body]
    hook = "lobench_checkpoint_readers"
    plugin = HEADER.replace("HOOK", hook).replace("BODY", code)
    done = watch(tmp_path, plugin, checkpoint="theta_0.mine")
    assert f"hook {hook}" in done.stdout and f"read() {message}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    stored = {
        Path(one["checkpoint"]["uri"]).name: one["outcome"] for one in results(tmp_path / "run/lobench_results/tiny")
    }
    assert stored["theta_1.npz"] == "passed"


@pytest.mark.parametrize("code", ["raise ZeroDivisionError", "return 'yes'", "sys.exit(0)"])
def test_a_reader_that_recognises_nothing_properly_is_named_once(tmp_path: Path, code: str) -> None:
    plugin = HEADER.replace("HOOK", "lobench_checkpoint_readers").replace('return path.suffix == ".mine"', code)
    done = watch(tmp_path, plugin.replace("BODY", "return None"))
    assert done.returncode == 0
    assert done.stderr.count("recognises()") == 1 and SHOWN["going-on"] in done.stderr


@pytest.mark.parametrize(
    ("hook", "code"),
    [
        ("lobench_checkpoint_readers", "raise ZeroDivisionError"),
        ("lobench_metrics", "sys.exit(0)"),
        ("lobench_result_sinks", "raise GeneratorExit"),
    ],
)
def test_a_declaring_hook_that_raises_does_not_stop_a_watch_that_does_not_need_it(
    tmp_path: Path, hook: str, code: str
) -> None:
    done = watch(tmp_path, f"import sys\n\ndef {hook}():\n    {code}\n")
    assert done.returncode == 0, done.stderr
    assert hook == "lobench_result_sinks" or f"hook {hook} failed" in done.stdout


@pytest.mark.parametrize(("returned", "got"), [("None", "NoneType"), ("5", "int"), ("'mine'", "str")])
def test_declaring_hook_that_returns_no_declarations_is_named_with_what_it_returned(returned: str, got: str) -> None:
    manager = PluginManager()
    module = ModuleType("mine")
    exec(f"def lobench_metrics():\n    return {returned}", vars(module))
    manager.take(module, "mine")
    assert manager.usable_declarations("lobench_metrics") == {}
    (broken,) = manager.broken
    assert SHOWN["hook-lobench-metrics-returned-something"].format(got=got) in broken.cause


def test_headline_of_an_exception_without_a_text_names_its_class() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError("planted")

    assert headline(Silent()) == SHOWN["silent-its-text-cannot-be"]
    assert SHOWN["cannot-be-made"] in cause(Silent())


@pytest.mark.parametrize("code", ["raise ZeroDivisionError('planted')", "import sys; sys.exit(0)"])
def test_a_factory_module_that_fails_at_its_import_exits_with_3(tmp_path: Path, code: str) -> None:
    plugin = (
        "from lobench.hookspecs import Declaration\n\n"
        "def lobench_checkpoint_sources():\n"
        "    return [Declaration(name='mine', factory='broken_source:make')]\n"
    )
    suite = make_suite(tmp_path)
    (suite / "broken_source.py").write_text(code)
    (suite / "conftest.py").write_text(plugin)
    make_run(tmp_path, -3.0)
    done = lobench("watch", "run", "--suite", "tiny", "--once", "--source", "mine", cwd=tmp_path)
    assert done.returncode == 3
    assert SHOWN["cannot-load-mine-from-broken"] in done.stderr


def test_a_source_with_a_scheme_of_its_own_is_asked_for_its_checkpoints(tmp_path: Path) -> None:
    seen = f"SeenCheckpoint(uri={str(tmp_path / 'run' / 'theta_1.npz')!r}, reader='npz', index=1)"
    plugin = HEADER.replace("HOOK", "lobench_checkpoint_sources").replace(
        "def poll(self): BODY",
        "def poll(self):\n        from lobench.core.checkpoint import SeenCheckpoint\n"
        "        found, self.found = getattr(self, 'found', None), True\n"
        f"        return [] if found else [{seen}]",
    )
    suite = make_suite(tmp_path, ONE_CASE)
    (suite / "conftest.py").write_text(plugin.replace("BODY", "return None"))
    make_run(tmp_path, -3.0)
    options = ("--source", "mine", "--once", "--store", "store", "--executor", "inline")
    options = (*options, "--gin-param", "Case.learned_optimizer = @LearnableSGD()")
    done = lobench("watch", "fakes3://bucket/run", "--suite", "tiny", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(results(tmp_path / "store")) == 1
    done = lobench("watch", "fakes3://bucket/run", "--suite", "tiny", "--once", "--store", "other", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["nothing-reads-fakes3-here"] in done.stderr


def test_entry_points_of_a_package_installed_later_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert "later" not in installed_entry_points("lobench").names
    (tmp_path / "later-1.0.dist-info").mkdir()
    (tmp_path / "later-1.0.dist-info" / "entry_points.txt").write_text("[lobench]\nlater = later\n")
    assert "later" in installed_entry_points("lobench").names

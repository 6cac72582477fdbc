"""Plugins that fail in other commands than a watch: each is named in one line, and nothing else is harmed."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pytest
from forked import python
from report_store import make_store
from shown import texts_of
from tiny import make_suite

from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.cli.group import _guard_plugin_command
from lobench.core.containment import contain_plugins, restore_working_directory
from lobench.core.errors import LobenchError, PluginError, PluginFailure
from lobench.core.search.space import Kind, Parameter, Space
from lobench.core.trials import TrialHistory
from lobench.core.wording import describe_value
from lobench.drawing.svg import Chart, Series
from lobench.engine.config.binding import execute_import, import_plugin_modules
from lobench.engine.config.syntax import Import
from lobench.engine.workers import channel
from lobench.experiments.search.planned import _SEARCH_RESULTS
from lobench.hookspecs import Declaration, SinkContext
from lobench.plugins import BrokenPlugin, PluginManager, Registered, load_plugins
from lobench.pytest_plugin.recording import _affects_sessions
from lobench.report.charts.charts import _plugin_sections as section_of_plugin
from lobench.report.charts.sections import Figure, Section
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.formats.kinds import _guarded_format as format_of_plugin
from lobench.tools.curve_import.points import CurveRequest, CurveRun, Points

SHOWN = texts_of("lobench")


class WithoutText:
    def __repr__(self) -> str:
        raise ValueError("planted")


class Planted(BaseException):
    pass


def raise_(error: BaseException) -> Any:
    raise error


# What a call of a plugin does instead of its work: it never returns what was asked for.
DOES: dict[str, Callable[..., Any]] = {
    "raises": lambda *_: raise_(ZeroDivisionError("planted")),
    "interrupts": lambda *_: raise_(Planted("planted")),
    "generates": lambda *_: raise_(GeneratorExit("planted")),
    "has_no_memory": lambda *_: raise_(MemoryError("planted")),
    "fails_as_a_test": lambda *_: pytest.fail("planted"),
    "ends_pytest": lambda *_: pytest.exit("planted"),
    "exits": lambda *_: sys.exit(0),
    "leaves": lambda *_: os._exit(0),
    "none": lambda *_: None,
    "text": lambda *_: "two\nlines",
    "nan": lambda *_: float("nan"),
    "huge": lambda *_: 10**5000,
    "mixed": lambda *_: [1, None],
    "without_text": lambda *_: WithoutText(),
}


def registered(factory: Any) -> Registered:
    module = ModuleType("mine")
    vars(module)["make"] = factory
    return Registered(declaration=Declaration(name="mine", factory=":make"), plugin="mine", module=module)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a package with an entry point in the group `lobench`."""

    def installed(code: str) -> None:
        about = tmp_path / "planted_plugin-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-plugin\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[lobench]\nplanted = planted_plugin\n")
        (tmp_path / "planted_plugin.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)

    yield installed
    sys.modules.pop("planted_plugin", None)


@pytest.mark.parametrize(
    ("code", "got"),
    [
        ("import os; os._exit(0)", "SystemExit: os._exit(0)"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("raise GeneratorExit", "GeneratorExit"),
    ],
)
def test_an_entry_point_that_ends_the_process_is_named_and_the_others_are_loaded(
    install: Callable[[str], None], code: str, got: str
) -> None:
    install(code)
    manager = load_plugins()
    (broken,) = [one for one in manager.broken if one.name == "planted"]
    assert str(broken).startswith(SHOWN["planted-planted-plugin-does-not"]) and got in str(broken)
    assert len(manager.usable_declarations("lobench_checkpoint_readers")) > 1


def test_an_entry_point_that_changes_folder_and_closes_streams_leaves_both(install: Callable[[str], None]) -> None:
    install("import os, sys\nos.chdir('/')\nsys.stdout.close()\nsys.stderr.close()\n")
    folder = Path.cwd()
    load_plugins()
    assert Path.cwd() == folder
    print("still open", file=sys.stdout)
    print("still open", file=sys.stderr)


def test_plugins_contained_inside_another_restores_the_folder_and_not_the_process(tmp_path: Path) -> None:
    folder, leave = Path.cwd(), os._exit
    with contain_plugins():
        with contain_plugins():
            os.chdir(tmp_path)
        assert Path.cwd() == folder
        with pytest.raises(SystemExit):
            os._exit(3)
        with restore_working_directory():
            os.chdir(tmp_path)
            with restore_working_directory():
                pass
        assert Path.cwd() == folder
    assert os._exit is leave


def test_plugins_contained_that_overlap_last_until_the_last_one_has_ended(tmp_path: Path) -> None:
    folder, own = Path.cwd(), (os._exit, os.chdir, sys.stdout, sys.stderr)
    first, second = contain_plugins(), contain_plugins()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(SystemExit):
        os._exit(3)
    os.chdir(tmp_path)
    second.__exit__(None, None, None)
    assert (os._exit, os.chdir, sys.stdout, sys.stderr) == own and Path.cwd() == folder


def test_plugins_contained_restores_the_stream_that_a_plugin_did_not_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # restored after the test
    output, theirs = sys.stdout, io.StringIO()
    with contain_plugins():
        sys.stderr = theirs
    assert sys.stdout is output and sys.stderr is theirs


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return summary_of(make_store(tmp_path_factory.mktemp("report")))


def section(**changed: Any) -> list[Section]:
    return [Section(**{"id": "a", "title": "A", "note": "", "kind": "small", "figures": (), **changed})]


def chart(**changed: Any) -> tuple[Figure, ...]:
    line = Series(**{"label": "a", "x": [0.0, 1.0], "y": [1.0, 2.0], "style": "s1", **changed})
    return (Figure(chart=Chart(title="A", description="A.", x_label="x", y_label="y", series=(line,))),)


WRONG_SECTIONS: dict[str, Callable[..., Any]] = {
    **DOES,
    "title_none": lambda _: section(title=None),
    "figures_none": lambda _: section(figures=None),
    "figures_of_texts": lambda _: section(figures=("a",)),
    "chart_none": lambda _: section(figures=(Figure(chart=None),)),  # type: ignore[arg-type]
    "y_of_texts": lambda _: section(figures=chart(y=["a", "b"])),
    "too_few": lambda _: section(figures=chart(x=[0.0])),
    "unknown_view": lambda _: section(view="all"),
    "lines_of_numbers": lambda _: section(lines=(1,)),
}


@pytest.mark.parametrize("wrong", WRONG_SECTIONS)
def test_a_report_section_that_is_wrong_is_named_in_its_place(summary: Summary, wrong: str) -> None:
    (drawn,) = section_of_plugin("mine", registered(WRONG_SECTIONS[wrong]), summary)
    assert drawn.figures == () and SHOWN["plugin-mine-drew-nothing"] in drawn.note
    assert len(drawn.note.splitlines()) == 1


def test_a_report_section_that_is_right_is_drawn(summary: Summary) -> None:
    (drawn,) = section_of_plugin("mine", registered(lambda _: section(figures=chart())), summary)
    assert len(drawn.figures) == 1


def points(**changed: Any) -> Points:
    found = Points.of_curve(CurveRun("m", "c", "0"), "train/loss", [0, 1], [2.0, 1.0])
    for name, value in changed.items():
        object.__setattr__(found, name, value)
    return found


def read(*_: Any) -> Iterator[Points]:
    yield points()


def yielding(value: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def read(*_: Any) -> Iterator[Any]:
        yield value()

    return read


WRONG_FORMATS: dict[str, dict[str, Any]] = {
    **{f"read_{name}": {"read": does} for name, does in DOES.items()},
    **{f"points_{name}": {"read": yielding(does)} for name, does in DOES.items()},
    **{f"directions_{name}": {"directions": does} for name, does in DOES.items()},
    **{f"cases_{name}": {"cases": does} for name, does in DOES.items()},
    "steps_of_texts": {"read": yielding(lambda: points(step=np.asarray(["a", "b"])))},
    "a_step_too_many": {"read": yielding(lambda: points(step=np.arange(3)))},
    "no_such_run": {"read": yielding(lambda: points(run=np.asarray([0, 1])))},
    "runs_of_texts": {"read": yielding(lambda: points(runs=("m",)))},
    "directions_of_texts": {"directions": lambda *_: {"train/loss": "smaller"}},
}


@pytest.mark.parametrize("wrong", WRONG_FORMATS)
def test_an_import_format_that_is_wrong_is_one_line_with_plugin_and_hook(wrong: str) -> None:
    parts = {"about": "mine", "read": read} | WRONG_FORMATS[wrong]
    kind = format_of_plugin("mine", registered(lambda: FileKind(**parts)))
    with pytest.raises(PluginFailure) as caught:
        kind.cases(Path("a"))
        kind.directions(Path("a"), CurveRequest())
        list(kind.read(Path("a"), CurveRequest(), []))
    assert SHOWN["plugin-mine-hook-lobench-import"] in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("does", DOES)
def test_an_import_format_that_cannot_be_made_is_named_and_recognises_nothing(
    does: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = format_of_plugin("mine", registered(DOES[does]))
    (line,) = capsys.readouterr().err.splitlines()
    assert SHOWN["plugin-mine"] in line and line.endswith(SHOWN["going-on-2"])
    assert not kind.recognises(Path("a")) and SHOWN["cannot-be-used"] in kind.about
    with pytest.raises(PluginError, match="mine"):
        list(kind.read(Path("a"), CurveRequest(), []))


@pytest.mark.parametrize("does", [name for name in DOES if name not in ("none",)])
@pytest.mark.parametrize("method", ["size", "next_wave"])
def test_a_search_that_is_wrong_is_one_line_with_plugin_and_hook(does: str, method: str) -> None:
    class Mine:
        size = next_wave = staticmethod(DOES[does])

    if (method, does) == ("size", "huge"):
        pytest.skip("a number of trials")
    how = {"where": "x.gin", "hook": "lobench_search_strategies", "results": _SEARCH_RESULTS}
    with pytest.raises(PluginFailure, match=SHOWN["plugin-mine-hook-lobench-search"]) as caught:
        getattr(registered(Mine).make_guarded(**how), method)()
    assert len(str(caught.value).splitlines()) == 1


def test_a_search_that_leaves_its_space_is_named_by_its_own_class() -> None:
    class Mine:
        size = staticmethod(lambda *_: None)
        next_wave = staticmethod(lambda *_, **__: [{"rate": 3.0}])

    how = {"where": "x.gin", "hook": "lobench_search_strategies", "results": _SEARCH_RESULTS}
    space = Space([Parameter(path="rate", kind=Kind.REAL, high=1.0)])
    history = TrialHistory(registered(Mine).make_guarded(**how), space, seed=0, width=1, num_trials=2)
    with pytest.raises(PluginError, match=SHOWN["mine-the-search-proposes-settings"]):
        history.advance()


@pytest.mark.parametrize("does", DOES)
def test_a_sink_that_is_wrong_is_refused_in_one_line(tmp_path: Path, does: str) -> None:
    from lobench.api.components import _make_sink

    manager, module = PluginManager(), ModuleType("mine")
    module.make = DOES[does]  # type: ignore[attr-defined]
    module.lobench_result_sinks = lambda: [Declaration(name="mine", factory=":make")]  # type: ignore[attr-defined]
    manager.take(module, "mine")
    with pytest.raises(PluginError, match=SHOWN["sink-mine-a"]) as caught:
        _make_sink("mine:a", manager, SinkContext(store=tmp_path))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("code", ["raise ZeroDivisionError", "import sys; sys.exit(0)", "import os; os._exit(0)"])
def test_a_gin_module_of_a_plugin_that_does_not_import_is_named_once_and_the_others_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    name = f"planted_gin_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    statements = [Import(module=name, where="plugins"), Import(module="json", where="plugins")]
    (failed,) = import_plugin_modules(statements)
    import_plugin_modules(statements)
    assert SHOWN["cannot-import-2"].format(name=name) in failed
    assert capsys.readouterr().err.count(name) == 1
    with contain_plugins(), pytest.raises(LobenchError, match=SHOWN["cannot-import-3"].format(name=name)):
        execute_import(statements[0])


def test_a_gin_module_of_a_plugin_that_raises_an_error_of_lobench_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_usage.py").write_text("import lobench\nraise lobench.UsageError('planted')\n")
    monkeypatch.syspath_prepend(tmp_path)
    (failed,) = import_plugin_modules([Import(module="planted_usage", where="plugins")])
    assert failed == SHOWN["plugins-cannot-import-planted-usage"]


@pytest.mark.parametrize("does", ["raises", "interrupts", "generates", "has_no_memory", "ends_pytest"])
def test_a_command_of_a_plugin_that_raises_is_one_line_with_its_plugin(does: str) -> None:
    command = click.Command("hello", callback=DOES[does])
    own = command.invoke
    command.invoke = functools.wraps(own)(lambda context: own(context))  # type: ignore[method-assign]
    assert _guard_plugin_command(_guard_plugin_command(command, "hello", "mine"), "hello", "mine") is command
    with pytest.raises(PluginFailure, match=SHOWN["plugin-mine-hook-lobench-cli"]):
        command.main([], standalone_mode=False)


def test_a_command_of_a_plugin_that_ends_the_process_exits_with_3_and_is_named(tmp_path: Path) -> None:
    code = "import os, click\nfrom lobench.cli.group import _guard_plugin_command\n"
    code += "command = click.Command('hello', callback=lambda: os._exit(0))\n"
    code += "_guard_plugin_command(command, 'hello', 'mine').main([])\n"
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 3 and SHOWN["plugin-mine-hook-lobench-cli-ended"] in done.stderr, done.stderr


def test_described_shows_any_value_in_one_line() -> None:
    shown = [describe_value(does()) for name, does in DOES.items() if name in ("none", "text", "huge", "without_text")]
    assert shown[0] == SHOWN["nonetype-none"] and all(len(text.splitlines()) == 1 for text in shown)
    assert all(len(describe_value(value)) < 120 for value in (["x" * 1000] * 1000, np.zeros((100, 100))))


def test_summary_of_a_session_names_broken_plugins_that_it_might_have_used() -> None:
    def broken(distribution: str, *, imports: bool) -> BrokenPlugin:
        return BrokenPlugin(name="mine", distribution=distribution, cause="planted", imports=imports)

    assert _affects_sessions(broken("some-package", imports=False))
    assert _affects_sessions(broken("lobench_gin_modules", imports=True))
    assert not _affects_sessions(broken("lobench_result_sinks", imports=True))


def test_plugins_contained_leaves_a_worker_its_end() -> None:
    """A worker whose chief is gone ends at once, also in the middle of a plugin's call."""
    leave = os._exit
    with contain_plugins():
        assert os._exit is not leave
        assert channel._end_process is leave


def test_session_with_a_task_that_ends_the_process_fails(tmp_path: Path) -> None:
    code = "import os\nfrom tiny_tasks import Bowl\nfrom lobench import configurable\n\n@configurable\n"
    code += "class Leaves(Bowl):\n    def init(self, key):\n        os._exit(0)\n"
    suite = make_suite(tmp_path, "import leaving\nCase.num_inner_steps = 2\na/Case.task = @Leaves()\n")
    (suite / "leaving.py").write_text(code)
    done = python("-m", "pytest", "-q", "tiny", "--lobench-optimizer", "sgd()", "-pno:cacheprovider", cwd=tmp_path)
    assert done.returncode == 1 and "SystemExit: os._exit(0)" in done.stdout, done.stdout + done.stderr


def test_session_with_a_contract_of_a_plugin_that_ends_the_process_fails(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("import os\n\ndef metric(curves):\n    os._exit(0)\n")
    (tmp_path / "test_leaving.py").write_text(
        "from lobench.testing.metrics import MetricContract\n\n"
        "class TestLeaving(MetricContract):\n    factory = 'leaving:metric'\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-k", "gives_a_value", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "SystemExit: os._exit(0)" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("does", [name for name in DOES if name != "none"])
def test_an_executor_that_is_wrong_is_one_line_with_plugin_and_hook(does: str) -> None:
    class Mine:
        start = send = kill = close = staticmethod(lambda *_: None)
        wait = staticmethod(DOES[does])

        def __init__(self, config: object, wakeup: object) -> None:
            pass

    module = ModuleType("mine")
    vars(module).update(
        lobench_executors=lambda: [Declaration(name="mine", factory=":Mine")], Mine=Mine, __name__="mine"
    )
    manager = PluginManager()
    manager.take(module, "mine")
    with pytest.raises(PluginFailure, match=SHOWN["plugin-mine-hook-lobench-executors"]) as caught:
        manager.make_executor("mine", None, None).wait(0.0)
    assert len(str(caught.value).splitlines()) == 1

"""Contracts catch wrong plugins: each of `wrong_plugins` fails the test that it must, and a right one passes them."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wrong_plugins
from wrong_plugins import FAILS, sink_contents, sink_value, write_mine, write_triples

from lobench.core.lazy import loaded
from lobench.testing.commands import CommandContract
from lobench.testing.executors import ExecutorContract
from lobench.testing.gin_modules import GinModuleContract
from lobench.testing.import_formats import ImportFormatContract
from lobench.testing.metrics import MetricContract
from lobench.testing.policies import PolicyContract
from lobench.testing.readers import ReaderContract
from lobench.testing.report_sections import ReportSectionContract
from lobench.testing.searches import SearchContract, sample_spaces
from lobench.testing.sinks import SinkContract
from lobench.testing.sources import SourceContract
from lobench.testing.strategies import StrategyContract


class Readers(ReaderContract):
    def write(self, folder: Path, leaves: Mapping[str, np.ndarray]) -> Path:
        return write_mine(folder / "theta_3.mine", leaves)


class Sinks(SinkContract):
    metrics = ("train/loss",)

    def contents(self, store: Path) -> list[Any]:
        return sink_contents(store)

    def value_of(
        self, store: Path, run: str, generation: int, step: int, suite: str, case: str, metric: str
    ) -> float | None:
        return sink_value(store, run, generation, step, suite, case)


class Sources(SourceContract):
    num_polls = 1

    def publish(self, folder: Path, index: int) -> None:
        self.begin(folder, index)
        (folder / f"theta_{index}.npz.done").touch()

    def begin(self, folder: Path, index: int) -> None:
        np.savez(folder / f"theta_{index}.npz", w=np.full(3, index, np.float32))


class Metrics(MetricContract):
    def value_of(self, name: str, row: Any) -> float:
        value: float = row[-1]
        return value


class Executors(ExecutorContract):
    patience_seconds = 60.0


class Formats(ImportFormatContract):
    names = ("seed",)

    def write(self, folder: Path, curves: Mapping[Any, Any]) -> Path:
        return write_triples(folder / "adam.triples", curves)


class Commands(CommandContract):
    arguments = ("--name", "me")
    wrong_arguments = (("--fail", "x"),)


CONTRACTS: dict[str, tuple[type, str]] = {
    "readers": (Readers, "RightReader"),
    "sinks": (Sinks, "RightSink"),
    "sources": (Sources, "RightSource"),
    "policies": (PolicyContract, "RightPolicy"),
    "strategies": (StrategyContract, "RightStrategy"),
    "metrics": (Metrics, "right_metric"),
    "executors": (Executors, "RightExecutor"),
    "searches": (SearchContract, "RightSearch"),
    "sections": (ReportSectionContract, "right_section"),
    "formats": (Formats, "right_format"),
    "commands": (Commands, "right_command"),
}
WRONG = [(kind, plugin, test) for kind, plugins in FAILS.items() for plugin, test in plugins.items()]
RIGHT = sorted({(kind, test) for kind, _, test in WRONG})


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs one test of a contract, `test_name[parameter]`, on a plugin of `wrong_plugins`."""

    def run(kind: str, plugin: str, test: str) -> None:
        name, parameter = re.fullmatch(r"(\w+)(?:\[(.*)\])?", test).groups()  # type: ignore[union-attr]
        factory = f"{wrong_plugins.__name__}:{plugin}"
        contract = type(f"Test{plugin}", (CONTRACTS[kind][0],), {"factory": factory})()
        fixtures: dict[str, Any] = {"tmp_path": tmp_path, "monkeypatch": monkeypatch}
        method = getattr(contract, name)
        arguments = {}
        for argument, kept in inspect.signature(method).parameters.items():
            if argument == "strategy":
                arguments[argument] = loaded(factory)(contract.argument)
            elif argument == "space":
                arguments[argument] = sample_spaces()[parameter]
            else:
                convert = {"float": float, "int": int}.get(str(kept.annotation), str)
                arguments[argument] = fixtures[argument] if argument in fixtures else convert(parameter)
        method(**arguments)

    monkeypatch.chdir(tmp_path)
    return run


@pytest.mark.parametrize(("kind", "plugin", "test"), WRONG, ids=lambda text: text.removeprefix("test_"))
def test_a_wrong_plugin_fails_its_contract(
    call: Callable[..., None], monkeypatch: pytest.MonkeyPatch, kind: str, plugin: str, test: str
) -> None:
    folder, handler = Path.cwd(), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Executors, "patience_seconds", 3.0)
    try:
        with pytest.raises(Exception) as caught:
            call(kind, plugin, test)
        assert not isinstance(caught.value, pytest.skip.Exception | NotImplementedError)
    finally:
        os.environ.pop("LOBENCH_WRONG_SINK", None)
        os.chdir(folder)
        signal.signal(signal.SIGTERM, handler)
        if (folder / "pid").exists():  # of `LeavesChildren`, unless this machine was too slow to start one
            with contextlib.suppress(ProcessLookupError):
                os.kill(int((folder / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(("kind", "test"), RIGHT, ids=lambda text: text.removeprefix("test_"))
def test_a_right_plugin_passes_what_wrong_ones_fail(call: Callable[..., None], kind: str, test: str) -> None:
    call(kind, CONTRACTS[kind][1], test)


def test_enough_wrong_plugins_of_each_kind_are_caught() -> None:
    assert len(WRONG) >= 61
    assert set(FAILS) == set(CONTRACTS)


GIN_MODULES = {
    "right": ("import gin\n\n@gin.configurable(module='{name}')\ndef valley_{name}(narrowness=1.0):\n    pass\n", ""),
    "prints": (
        "import gin\nprint('hello')\n\n@gin.configurable(module='m')\ndef valley_{name}():\n    pass\n",
        "prints",
    ),
    "nothing": ("def valley_{name}():\n    pass\n", "no such names"),
    "backend": (
        "import gin, jax\njax.devices()\n\n@gin.configurable(module='m')\ndef valley_{name}():\n    pass\n",
        "backend",
    ),
    "lazy": (
        "import gin\n\n@gin.configurable(module='m')\ndef valley_{name}():\n    pass\n\n"
        "class lobench_on_use:\n    summary = 'names'\n    names = staticmethod(lambda: ['a'])\n"
        "    find = staticmethod(lambda selector: selector)\n",
        "find",
    ),
    "binding": ("import gin\n\n@gin.configurable(module='m')\ndef valley_{name}():\n    pass\n", "narrowness"),
}


@pytest.mark.parametrize("name", GIN_MODULES)
def test_a_wrong_gin_module_fails_its_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text, problem = GIN_MODULES[name]
    (tmp_path / f"gin_{name}.py").write_text(text.replace("{name}", name))
    monkeypatch.syspath_prepend(tmp_path)

    class Contract(GinModuleContract):
        module = f"gin_{name}"
        names = (f"valley_{name}",)
        bindings = (f"valley_{name}.narrowness = 2.0",) if name in ("right", "binding") else ()

    if name == "right":
        Contract().test_names_and_bindings_work_after_its_import()
    else:
        with pytest.raises(AssertionError, match=problem):
            Contract().test_names_and_bindings_work_after_its_import()

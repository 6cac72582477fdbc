"""Contract of gin modules: a plugin's test module subclasses `GinModuleContract`.

class TestTasks(GinModuleContract):
    module = "mypackage.tasks"
    names = ("Valley",)
    bindings = ("Valley.narrowness = 3.0",)
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import gin

from lobench.core.wording import headline
from lobench.engine.config.binding import execute_import, is_registered, matching_names
from lobench.engine.config.syntax import Import

__all__ = ["GinModuleContract"]


class GinModuleContract:
    """Tests that every gin module must pass. They run in their own process, because a name can be registered only once.

    Attributes:
      module: Name of the module, as in the declaration's factory, without the colon.
      names: Names that a gin file can use after its import.
      bindings: Lines of gin that a user may write.
    """

    module: ClassVar[str]
    names: ClassVar[Sequence[str]]
    bindings: ClassVar[Sequence[str]] = ()

    def import_in_fresh_process(self) -> dict[str, Any]:
        """Returns the output of `_main` in a fresh process."""
        command = [sys.executable, "-m", "lobench.testing.gin_modules", self.module, *self.names, "--", *self.bindings]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stderr
        import_results: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
        return import_results

    def test_names_and_bindings_work_after_its_import(self) -> None:
        bound = self.import_in_fresh_process()
        assert self.names, "names says nothing"
        assert not bound["unknown"], f"no such names after `import {self.module}`: {bound['unknown']}"
        assert not bound["problem"], bound["problem"]
        assert not bound["ambiguous"], f"several modules have these names: {bound['ambiguous']}"
        assert not bound["has_backend"], "its import starts a jax backend, before the number of threads is set"
        assert not bound["printed"], f"its import prints: {bound['printed']!r}"
        assert not bound["lazy_problem"], bound["lazy_problem"]


def _main(module: str, names_and_bindings: Sequence[str]) -> None:
    """Prints the results of the import, as one JSON object."""
    separator_index = list(names_and_bindings).index("--")
    names, bindings = names_and_bindings[:separator_index], names_and_bindings[separator_index + 1 :]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        imported = importlib.import_module(module)
        bridge = sys.modules.get("jax._src.xla_bridge")
        has_backend = bridge is not None and bool(bridge._backends)
        problem = _binding_problem(module, bindings)
    matches = {name: len(matching_names(name)) for name in names if is_registered(name)}
    import_results = {
        "unknown": [name for name in names if name not in matches],
        "ambiguous": [name for name, count in matches.items() if count > 1],
        "problem": problem,
        "lazy_problem": _lazy_problem(getattr(imported, "lobench_on_use", None)),
        "has_backend": has_backend,
        "printed": output.getvalue(),
    }
    print(json.dumps(import_results))


def _binding_problem(module: str, bindings: Sequence[str]) -> str:
    try:
        execute_import(Import(module=module, where="the contract:1"))
        gin.parse_config([f"import {module}", *bindings])
    except Exception as error:  # noqa: BLE001  (of a plugin's module: the contract reports it)
        return headline(error)
    return ""


def _lazy_problem(on_use: Any) -> str:
    """Returns an error if the module's `lobench_on_use` violates its documentation; "" otherwise."""
    if on_use is None:
        return ""
    names = on_use.names()
    if not names or not all(isinstance(name, str) for name in names):
        return "lobench_on_use.names() returns no list of names"
    if not isinstance(on_use.summary, str) or "\n" in on_use.summary:
        return "lobench_on_use.summary is not a line of text"
    if on_use.find("no_such_name_at_all") is not None:
        return "lobench_on_use.find() finds a name that it does not have"
    full_name = on_use.find(names[0])
    if not isinstance(full_name, str) or not is_registered(full_name):
        return f"lobench_on_use.find({names[0]!r}) returns {full_name!r}, which is not registered with gin"
    return ""


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])

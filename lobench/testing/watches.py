"""Helpers for contracts: a plugin manager with an added plugin, and a real watch of a tiny suite that uses it."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

import numpy as np

from lobench.api.settings import WatchKeywords
from lobench.core.result import Curves
from lobench.core.subject import Subject
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.hookspecs import Declaration
from lobench.plugins import PluginManager, load_plugins

__all__ = ["WatchedStore", "plugins_with", "watch_with", "write_run"]

NAME = "contract"  # name of the declaration, distinct from installed plugins

_CONFTEST = """
from lobench.hookspecs import Declaration

def {hook}():
    return [Declaration(name={name!r}, factory={factory!r}, metric_directions={directions!r})]
"""
_CASES = """
import lobench.inner.tasks.quadratic
Case.num_inner_steps = 2
Case.eval_every = 1
Case.num_seeds = 2
bowl/Case.task = @Quadratic()
"""


class WatchedStore:
    """Content of a store after a watch.

    Attributes:
      folder: Folder of the store.
      lines: Lines that the watch logged.
    """

    def __init__(self, folder: Path, lines: list[str]) -> None:
        self.folder, self.lines = folder, lines
        with Ledger.open(folder, read_only=True) as ledger:
            self.rows: list[EvaluationRow] = list(ledger.evaluations())
            self.sightings: list[Subject] = [subject for _, subject in sorted(ledger.sightings().items())]
            self.finished = [subject for _, subject, is_finished in ledger.run_standings() if is_finished]

    @property
    def curves(self) -> list[Curves]:
        return [row.curves for row in self.rows if row.curves is not None]


class _LineCollector(WatchProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


def plugins_with(hook: str, factory: str) -> PluginManager:
    """Returns the installed plugins and an additional one, which declares a factory under `NAME`."""
    manager = load_plugins()
    plugin = types.SimpleNamespace(**{hook: lambda: [Declaration(name=NAME, factory=factory)]})
    manager.register(plugin, name=NAME)
    return manager


def write_run(folder: Path, *, steps: tuple[int, ...] = (3,)) -> Path:
    """Writes a run with checkpoints that the case of `watch_with` can train with, and returns its folder."""
    run = folder / "run"
    run.mkdir(parents=True)
    for step in steps:
        np.savez(run / f"theta_{step}.npz", log_lr=np.float32(-3 - step / 100), outer_step=step)
        (run / f"theta_{step}.npz.done").touch()
    return run


def watch_with(
    folder: Path,
    hook: str,
    factory: str,
    location: str | Path,
    *,
    directions: Mapping[str, str] | None = None,
    needs_theta: bool = True,
    test: str = "",
    **options: Unpack[WatchKeywords],
) -> WatchedStore:
    """Watches a location once, and returns the content of the store.

    During the watch the working directory is `folder` and the store's path is relative, as on a command line.

    Args:
      folder: Folder for the suite and the store.
      hook: Declaring hook of the plugin, which is declared as "contract".
      factory: "module:attribute", as in the plugin's declaration.
      location: Text that a user would write for CKPT_DIR.
      directions: `metric_directions` of the declaration.
      needs_theta: Whether the case trains with the checkpoint's theta, `log_lr` of LearnableSGD. If not, it uses plain
        SGD.
      test: Content of a file of ordinary tests in the suite; "" for none.
      options: Keywords of `lobench.watch`.
    """
    from lobench.api.watch import watch

    folder.mkdir(parents=True, exist_ok=True)
    suite = folder / "contract_suite"
    suite.mkdir()
    conftest_text = _CONFTEST.format(hook=hook, name=NAME, factory=factory, directions=dict(directions or {}))
    (suite / "conftest.py").write_text(conftest_text)
    (suite / "bowl.gin").write_text(_CASES)
    if test:
        (suite / "test_contract.py").write_text(test)
    progress = _LineCollector()
    settings: WatchKeywords = {"executor": "inline", "checkpoints": "all", "store": "store", **options, "once": True}
    learned_bindings = ("Case.learned_optimizer = @LearnableSGD()",)
    plain_bindings = ("Case.optimizer = @sgd()", "sgd.learning_rate = 0.1")
    settings["gin_params"] = learned_bindings if needs_theta else plain_bindings
    search_path = list(sys.path)
    conftest = sys.modules.get("conftest")
    try:
        with contextlib.chdir(folder):
            watch(location, suite.name, progress=progress, **settings)
    finally:
        sys.path[:] = search_path  # removes the suite's folder, which the watch added
        sys.modules.pop("conftest", None)
        if conftest is not None:
            sys.modules["conftest"] = conftest
    return WatchedStore(folder / "store", progress.lines)

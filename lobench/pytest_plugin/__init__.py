"""The pytest plugin: `--lobench-*` options, gin files as tests, the `evaluate` fixture, results on reports."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from lobench.core.case import CaseSpec
from lobench.engine.config.imported_code import note_imports
from lobench.evaluation.result import Result
from lobench.inner.backend_guard import watch_for_backend

__all__: list[str] = []

watch_for_backend()  # before any conftest.py and test module


_INTERRUPTED_COLLECTION = (
    r"ignore:Exception ignored in. <function _xla_gc_callback[\s\S]*KeyboardInterrupt:"
    "pytest.PytestUnraisableExceptionWarning"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    from lobench.pytest_plugin.options import add_options

    add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None]:
    from lobench.pytest_plugin.arguments import prepare_restart

    note_imports()  # each session of this process inserts an import finder of pytest
    prepare_restart(early_config, args)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | pytest.ExitCode | None:
    from lobench.pytest_plugin.arguments import restart

    return restart(config)


def pytest_configure(config: pytest.Config) -> None:
    from lobench.experiments.pytest_items import take_experiment
    from lobench.pytest_plugin.arguments import take_named_suites
    from lobench.pytest_plugin.item_result import LAYERS
    from lobench.pytest_plugin.options import (
        gin_params_of,
        option,
        refuse_no_subject,
        refuse_repetition,
        resolve_names,
    )
    from lobench.pytest_plugin.recording import SessionRecorder

    # Ctrl-C during jax's garbage collector callback, which Python can only print. xdist's workers get it too, and end
    # the session.
    config.addinivalue_line("filterwarnings", _INTERRUPTED_COLLECTION)
    refuse_repetition(config)
    resolve_names(config)
    refuse_no_subject(config)
    take_named_suites(config)
    if LAYERS not in config.stash:  # a watch's worker evaluates only its own cases
        take_experiment(config, gin_params_of(config), option(config, "store"))
    recorder = SessionRecorder(config)
    config.pluginmanager.register(recorder, "lobench-recorder")
    if config.getoption("lobench_against") or config.getini("lobench_against"):
        from lobench.pytest_plugin.gating import make_reporter

        reporter = make_reporter(config, recorder)
        if reporter is not None:
            config.pluginmanager.register(reporter, "lobench-gate")
    if config.pluginmanager.hasplugin("xdist"):
        from lobench.pytest_plugin.parallel import Parallel

        config.pluginmanager.register(Parallel(config), "lobench-parallel")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Returns the number of workers for `-n auto`: one for each device, or else for each core."""
    from lobench.pytest_plugin.parallel import auto_num_workers

    return auto_num_workers(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects gin files with a case that no `test_*.py` in their folder uses."""
    if file_path.suffix != ".gin":
        return None
    from lobench.pytest_plugin.gin_items import collect_gin_file

    return collect_gin_file(file_path, parent)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    from lobench.experiments.pytest_items import multiply

    multiply(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    from lobench.experiments.pytest_items import rename

    rename(item, case_of(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    from lobench.experiments.pytest_items import select_named
    from lobench.pytest_plugin.parallel import refuse

    select_named(config, items)
    yield
    if config.option.collectonly or not any(case_of(item) is not None for item in items):
        return
    from lobench.pytest_plugin.options import cases_that_are_forked, cases_without_subject

    problem = cases_without_subject(config, items) or cases_that_are_forked(config, items)
    if problem:  # among the items selected by -k and -m
        refuse(config, items, problem)
    elif config.getoption("lobench_against") or config.getini("lobench_against"):
        from lobench.pytest_plugin.gating import problem_with_reference

        if problem := problem_with_reference(config, items):
            refuse(config, items, problem)


def pytest_sessionfinish(session: pytest.Session) -> None:
    from lobench.pytest_plugin.reuse import leave_out_hypothesis

    leave_out_hypothesis(session.config)
    is_suite = bool(session.items) and all(case_of(item) is not None for item in session.items)
    if is_suite and not gc.get_freeze_count():  # a worker or a test of lobench has frozen before
        # Otherwise the collector visits all objects of jax, a quarter of the time of a session without compilation.
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if case_of(item) is not None:
        from lobench.pytest_plugin.evaluate import attach_evaluations
        from lobench.pytest_plugin.planned import attach_plan

        attach_plan(item, report)
        attach_evaluations(item, call, report)
    return report


# The import of the submodule `evaluate` replaces the attribute of that name, so a second session in one process would
# not find a fixture with that name.
@pytest.fixture(name="evaluate")
def evaluate_fixture(request: pytest.FixtureRequest) -> Callable[[CaseSpec], Result]:
    """Trains a case with the session's checkpoint (or optimizer) and returns its `lobench.Result`.

    Example:
      @lobench.cases("mlp.gin")
      def test_final_loss(case, evaluate):
          assert evaluate(case).final("test/loss").max() < 0.2
    """
    from lobench.pytest_plugin.evaluate import evaluator

    return evaluator(request.node)


def case_of(item: pytest.Item) -> CaseSpec | None:
    """Returns the case that an item evaluates; None for an ordinary test."""
    spec = getattr(item, "case_spec", None)
    if spec is None and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        spec = next((value for value in item.callspec.params.values() if isinstance(value, CaseSpec)), None)
    return spec

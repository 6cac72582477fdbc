"""The pytest plugin: `--lobench-*` options, gin files as tests, the `evaluate` fixture, results on reports."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lobench.core.case import CaseSpec
from lobench.core.containment import contain_plugins
from lobench.engine.config.imported_code import record_imports
from lobench.evaluation.result import Result
from lobench.inner.backend_guard import watch_for_backend
from lobench.pytest_plugin.item_cases import case_of, collects_everything
from lobench.pytest_plugin.item_result import COLLECTED_CASES, IS_WHOLE, LAYERS, TESTS_ARE_CASES

if TYPE_CHECKING:
    from lobench.pytest_plugin.tested import MetricRecorder, TestedCheckpoint

__all__: list[str] = []

watch_for_backend()  # must come before any conftest.py and test module is imported


_INTERRUPTED_COLLECTION = (
    r"ignore:Exception ignored (in.|while calling GC callback) <function _xla_gc_callback[\s\S]*KeyboardInterrupt:"
    "pytest.PytestUnraisableExceptionWarning"
)


_IS_RUNNING: pytest.StashKey[bool] = pytest.StashKey()
_MARKER_LINE = "lobench(primary_metric, num_seeds, num_cpus, num_gpus, timeout_seconds, ...): case of an ordinary test"


def pytest_addoption(parser: pytest.Parser) -> None:
    from lobench.pytest_plugin.options import add_options

    add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None]:
    from lobench.pytest_plugin.session_arguments import prepare_restart

    record_imports()  # each session of this process inserts an import finder of pytest
    prepare_restart(early_config, args)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | pytest.ExitCode | None:
    from lobench.pytest_plugin.session_arguments import restart

    return restart(config)


def pytest_configure(config: pytest.Config) -> None:
    from lobench.experiments.pytest_items import replace_experiment_argument
    from lobench.pytest_plugin.options import (
        gin_params_of,
        option,
        refuse_gate_options,
        refuse_no_subject,
        refuse_repetition,
        resolve_names,
    )
    from lobench.pytest_plugin.recording import SessionRecorder
    from lobench.pytest_plugin.session_arguments import take_named_suites

    # Ctrl-C during jax's garbage collector callback, which Python can only print. xdist's workers get it too, and end
    # the session.
    config.addinivalue_line("filterwarnings", _INTERRUPTED_COLLECTION)
    refuse_repetition(config)
    resolve_names(config)
    refuse_no_subject(config)
    refuse_gate_options(config)
    take_named_suites(config)
    if LAYERS not in config.stash:  # a watch's worker evaluates only its own cases
        replace_experiment_argument(config, gin_params_of(config), option(config, "store"))
        config.stash[TESTS_ARE_CASES] = bool(option(config, "checkpoint"))
    config.addinivalue_line("markers", _MARKER_LINE)
    recorder = SessionRecorder(config)
    config.pluginmanager.register(recorder, "lobench-recorder")
    if config.getoption("lobench_against") or config.getini("lobench_against"):
        from lobench.pytest_plugin.gating import make_reporter

        reporter = make_reporter(config, recorder)
        if reporter is not None:
            config.pluginmanager.register(reporter, "lobench-gate")
    if config.pluginmanager.hasplugin("xdist"):
        from lobench.pytest_plugin.parallel import XdistPlugin

        config.pluginmanager.register(XdistPlugin(config), "lobench-parallel")


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
    from lobench.experiments.pytest_items import parametrize_members

    parametrize_members(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    from lobench.experiments.pytest_items import rename_item

    spec = case_of(item)
    if spec is not None:
        item.config.stash.setdefault(COLLECTED_CASES, {})[spec] = None
    rename_item(item, spec)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    from lobench.experiments.pytest_items import select_named
    from lobench.pytest_plugin.parallel import refuse_session

    collected_items = set(items)
    select_named(config, items)
    yield
    config.stash[IS_WHOLE] = collects_everything(session) and collected_items <= set(items)
    is_gate = bool(config.getoption("lobench_against") or config.getini("lobench_against"))
    if is_gate:
        from lobench.pytest_plugin.gating import has_training

        if has_training(items):
            config.stash[TESTS_ARE_CASES] = False  # a gate of trainings compares no ordinary tests, so these only run
    if config.option.collectonly or not any(case_of(item) is not None for item in items):
        return
    from lobench.pytest_plugin.items import unread_binding
    from lobench.pytest_plugin.options import cases_that_are_forked, cases_without_subject

    problem = (
        cases_without_subject(config, items) or cases_that_are_forked(config, items) or unread_binding(config, items)
    )
    if problem:  # among the items selected by -k and -m
        refuse_session(config, items, problem)
    elif is_gate:
        from lobench.pytest_plugin.gating import problem_with_reference

        if problem := problem_with_reference(config, items):
            refuse_session(config, items, problem)


def pytest_sessionfinish(session: pytest.Session) -> None:
    from lobench.pytest_plugin.reuse import leave_out_hypothesis

    leave_out_hypothesis(session.config)
    is_suite = bool(session.items) and all(case_of(item) is not None for item in session.items)
    if is_suite:
        _freeze_once()


@functools.cache
def _freeze_once() -> None:
    """Keeps the collector from visiting all objects of jax, a quarter of the time of a session without compilation."""
    if not gc.get_freeze_count():  # a worker or a test of lobench has frozen before
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    if _is_evaluation(item):
        from lobench.pytest_plugin.tested import prepare_run

        prepare_run(item)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    spec = case_of(item)
    item.stash[_IS_RUNNING] = True
    try:
        if spec is None or not spec.is_test:
            with contain_plugins() if _is_contract_test(item) else contextlib.nullcontext():
                return (yield)
        from lobench.pytest_plugin.items import blocks_of, case_info, variant_of
        from lobench.pytest_plugin.tested import run_and_record

        return (yield from run_and_record(item, spec, blocks_of(item, case_info(item, variant_of(item)))))
    finally:
        item.stash[_IS_RUNNING] = False


def _is_contract_test(item: pytest.Item) -> bool:
    """Returns whether an item is a contract test. Contract tests call plugins, which might end the session."""
    base_classes = getattr(getattr(item, "cls", None), "__mro__", ())
    return any(base_class.__module__.startswith("lobench.testing.") for base_class in base_classes)


def _is_evaluation(item: pytest.Item) -> bool:
    """Returns whether an item is an ordinary test that evaluates a checkpoint."""
    spec = case_of(item)
    return spec is not None and spec.is_test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    is_of_subtest = item.stash.get(_IS_RUNNING, False)
    if case_of(item) is not None and not is_of_subtest:
        from lobench.pytest_plugin.case_evaluator import attach_evaluations
        from lobench.pytest_plugin.planned import attach_plan

        attach_plan(item, report)
        attach_evaluations(item, call, report)
    return report


# Neither `evaluate` nor the name of a submodule: its import would replace the attribute, and a second session in one
# process would not find the fixture.
@pytest.fixture(name="evaluate")
def make_evaluate(request: pytest.FixtureRequest) -> Callable[[CaseSpec], Result]:
    """Trains a case with the session's checkpoint (or optimizer) and returns its `lobench.Result`.

    Example:
      @lobench.cases("mlp.gin")
      def test_final_loss(case, evaluate):
          assert evaluate(case).final("test/loss").max() < 0.2
    """
    from lobench.pytest_plugin.case_evaluator import evaluate_function

    return evaluate_function(request.node)


@pytest.fixture(name="checkpoint")
def checkpoint_fixture(request: pytest.FixtureRequest) -> TestedCheckpoint:
    """Checkpoint that the session or a watch evaluates: `path`, `outer_step`, `run`, `generation`, `sha256`, `theta()`.

    Example:
      def test_perplexity(checkpoint, record):
          record("valid/loss", evaluate(load(checkpoint.path)))
    """
    from lobench.pytest_plugin.tested import checkpoint_of

    return checkpoint_of(request.node)


@pytest.fixture(name="record")
def record_fixture(request: pytest.FixtureRequest) -> MetricRecorder:
    """Records a metric of the checkpoint: `record(name, value, seed=0)`."""
    from lobench.pytest_plugin.tested import recorder_of

    return recorder_of(request.node, case_of(request.node))

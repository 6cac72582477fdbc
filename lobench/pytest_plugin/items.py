"""Mapping between pytest's items and lobench's cases."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from lobench.core.case import CaseInfo, CaseSpec, Expectations, SeedBlock
from lobench.core.code import CodeFingerprint
from lobench.core.code_origin import Origin, file_of, origin_of_file
from lobench.core.errors import ConfigError
from lobench.core.subject import Variant
from lobench.engine.config import bound as binding
from lobench.engine.config.bound import BoundCase, BoundCommand
from lobench.engine.config.command_case import is_command
from lobench.engine.config.layers import Layers
from lobench.engine.config.scopes import check_scopes
from lobench.engine.config.user_code import code_fingerprint, united_fingerprint
from lobench.experiments.pytest_items import EXPERIMENT, member_of
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_names import plain_node_id, test_name
from lobench.pytest_plugin.item_result import COLLECTED_CASES, CURRENT_JOB, ON_PROGRESS, STATES
from lobench.pytest_plugin.options import layers_of, metrics_of, option
from lobench.pytest_plugin.ordinary_tests import bind_ordinary_test
from lobench.pytest_plugin.reuse import IS_REUSED

if TYPE_CHECKING:
    from lobench.evaluation.isolated import IsolatedRunner
    from lobench.evaluation.programs import Programs
    from lobench.evaluation.runner import BlockRunner
    from lobench.evaluation.together import JobRunner

__all__ = [
    "Runners",
    "blocks_of",
    "bound_command",
    "case_info",
    "expectations_of",
    "files_of_test",
    "info_of_item",
    "is_trained",
    "plain_node_id",
    "runners_of",
    "test_name",
    "unread_binding",
    "variant_of",
]

_RUNNERS_LOCK = threading.Lock()
_MAX_VARIANTS = 8  # variants whose programs stay warm


@dataclass(frozen=True, slots=True)
class Runners:
    """Runners for the cases of one variant.

    Attributes:
      layers: Gin text bound before and after each case's own file.
      in_process: Trains in this process.
      grouped: Trains several checkpoints of the variant together.
      isolated: Trains in a separate process, for all variants.
    """

    layers: Layers
    in_process: BlockRunner
    grouped: JobRunner
    isolated: IsolatedRunner


_RUNNERS: pytest.StashKey[OrderedDict[Variant, Runners]] = pytest.StashKey()
_SHARED_RUNNERS: pytest.StashKey[tuple[Programs, IsolatedRunner]] = pytest.StashKey()
_CHECKED_SCOPES: pytest.StashKey[set[tuple[str, Variant]]] = pytest.StashKey()  # files, with their variants
_CODE: pytest.StashKey[CodeFingerprint] = pytest.StashKey()  # code of an item's test
_LATE_FLAGS: pytest.StashKey[set[str]] = pytest.StashKey()  # flags set after jax's backend was made


def variant_of(item: pytest.Item) -> Variant:
    """Returns the variant of an item's method or of the worker's current job; without either, one without bindings."""
    member = member_of(item)
    if member is not None:
        subject = item.config.stash[EXPERIMENT].given.get(member.method.name)
        return subject.variant if subject is not None else Variant()
    job = item.config.stash.get(CURRENT_JOB, None)
    return job.variant if job is not None else Variant()


def runners_of(config: pytest.Config, variant: Variant, *, has_own_optimizer: bool = False) -> Runners:
    """Returns a variant's runners. Those of the last few variants are kept, with their compiled programs.

    Args:
      config: Configuration of the session.
      variant: The variant.
      has_own_optimizer: Whether the variant replaces the session's optimizer.
    """
    from lobench.evaluation.isolated import IsolatedRunner  # these import jax, which is not needed without training
    from lobench.evaluation.programs import Programs
    from lobench.evaluation.runner import BlockRunner
    from lobench.evaluation.together import JobRunner

    with _RUNNERS_LOCK:
        if _RUNNERS not in config.stash:
            keeps_executables = not option(config, "no_executables")
            programs = Programs(keeps_executables=keeps_executables)
            isolated_runner = IsolatedRunner(keeps_executables=keeps_executables)
            config.stash[_RUNNERS], config.stash[_SHARED_RUNNERS] = OrderedDict(), (programs, isolated_runner)
            config.add_cleanup(config.stash[_SHARED_RUNNERS][1].close)
        runners_by_variant, (programs, isolated_runner) = config.stash[_RUNNERS], config.stash[_SHARED_RUNNERS]
        if variant not in runners_by_variant:
            layers = _layers_of(config, variant)
            layers = replace(layers, optimizer="") if has_own_optimizer else layers
            late_flag_names = config.stash.setdefault(_LATE_FLAGS, set())
            block_runner = BlockRunner(layers, programs, config.stash.get(STATES, None), late_flag_names)
            runners_by_variant[variant] = Runners(layers, block_runner, JobRunner(block_runner), isolated_runner)
        runners_by_variant.move_to_end(variant)
        if len(runners_by_variant) > _MAX_VARIANTS:
            runners_by_variant.popitem(last=False)
        return runners_by_variant[variant]


def _layers_of(config: pytest.Config, variant: Variant) -> Layers:
    return replace(layers_of(config), variant=variant)


def expectations_of(item: pytest.Item) -> Expectations:
    """Returns the expectations in the gin file of an evaluated item. If it was not trained, its case is not bound."""
    spec = case_of(item)
    assert spec is not None
    if is_command(spec):
        return bound_command(item, spec, variant_of(item)).expectations
    if item.stash.get(IS_REUSED, False):
        expectations = binding.expectations_of(spec, _layers_of(item.config, variant_of(item)))
        if expectations is not None:
            return expectations
    return runners_of(item.config, variant_of(item)).in_process.bind(spec, test_name(item)).expectations


def case_info(item: pytest.Item, variant: Variant) -> CaseInfo:
    """Returns the description of an item's case in a variant. It is the same before and after the evaluation.

    Raises:
      ConfigError: The case cannot be bound, or has no optimizer.
    """
    spec = case_of(item)
    assert spec is not None
    if spec.is_test:
        return info_of_item(bind_ordinary_test(item, spec), item)
    _check_scopes(item.config, spec, variant)
    if is_command(spec):
        return info_of_item(bound_command(item, spec, variant), item)
    runners_by_variant = item.config.stash.get(_RUNNERS, None)
    runners = runners_by_variant.get(variant) if runners_by_variant is not None else None
    bound_case = runners.in_process.cached_bound_case(spec, test_name(item)) if runners is not None else None
    if bound_case is None:
        from lobench.evaluation.runner import collect_late_flags

        _claim_backend(item.config, spec)
        with collect_late_flags(item.config.stash.setdefault(_LATE_FLAGS, set())):
            bound_case = binding.bind_case(spec, _layers_of(item.config, variant), test=test_name(item), build=False)
        bound_case.require_optimizer()
    return info_of_item(bound_case, item)


def unread_binding(config: pytest.Config, items: Sequence[pytest.Item]) -> str:
    """Returns an error message if a case or an option binds something in a scope that nothing enters; else "".

    A worker of a watch checks the cases of each variant instead.
    """
    specs = [spec for item in items if (spec := case_of(item)) is not None and not spec.is_test]
    try:
        for spec in () if ON_PROGRESS in config.stash else specs:
            _check_scopes(config, spec, Variant())
    except ConfigError as error:
        return str(error)
    return ""


def _check_scopes(config: pytest.Config, spec: CaseSpec, variant: Variant) -> None:
    """Checks the scopes of a case's file once in a session; see `check_scopes`."""
    checked_files = config.stash.setdefault(_CHECKED_SCOPES, set())
    file = spec.text or spec.path, variant
    if file not in checked_files:
        collected_cases = config.stash.get(COLLECTED_CASES, None)
        check_scopes(spec, _layers_of(config, variant), collected_cases or ())
        checked_files.add(file)


def is_trained(spec: CaseSpec) -> bool:
    """Returns whether lobench trains a case. Otherwise it is a command or an ordinary test."""
    return not spec.is_test and not is_command(spec)


def bound_command(item: pytest.Item, spec: CaseSpec, variant: Variant) -> BoundCommand:
    """Returns the case of an item that evaluates a command. Imports no user code.

    Raises:
      ConfigError: The case cannot be bound.
    """
    bound_case = binding.bind_case(spec, _layers_of(item.config, variant), test=test_name(item))
    assert isinstance(bound_case, BoundCommand), spec
    return bound_case


def info_of_item(bound_case: BoundCase, item: pytest.Item) -> CaseInfo:
    """Returns a bound case as the case of an item. Code of its test, conftest files and metrics belongs to the case."""
    if _CODE not in item.stash:  # computed once, because the code that was imported counts
        item.stash[_CODE] = code_fingerprint(files_of_test(item), modules=_metric_modules(item.config))
    code = united_fingerprint((bound_case.code.case, item.stash[_CODE]))
    return replace(bound_case.info, node_id=plain_node_id(item), case_code=code.id)


def files_of_test(item: pytest.Item) -> list[str]:
    """Returns the files of an item's test, of the conftest modules around it and of the user's other pytest plugins."""
    paths = [str(item.path)] if item.path.suffix == ".py" else []
    plugins = item.config.pluginmanager.get_plugins()
    files = [Path(file) for plugin in plugins if isinstance(plugin, ModuleType) and (file := file_of(plugin))]
    conftests = {file.parent: str(file) for file in files if file.name == "conftest.py"}
    other_files = sorted(str(file) for file in files if file.name != "conftest.py")
    # Plugins of the user that were loaded by `-p`, or are installed as editable.
    user_files = [file for file in other_files if origin_of_file(file) is Origin.USER]
    return [*paths, *(conftests[folder] for folder in item.path.parents if folder in conftests), *user_files]


def _metric_modules(config: pytest.Config) -> list[str]:
    """Returns the modules of metrics, except conftest files, which `files_of_test` returns."""
    modules = set()
    for registered_metric in metrics_of(config).values():
        module, _, _ = registered_metric.declaration.factory.partition(":")
        if module:
            modules.add(module)
        elif isinstance(registered_metric.module, ModuleType) and Path(registered_metric.plugin).name != "conftest.py":
            modules.add(registered_metric.module.__name__)
    return sorted(modules)


def blocks_of(item: pytest.Item, info: CaseInfo) -> list[SeedBlock]:
    """Returns the seed blocks that an item evaluates: the block of its job or session, or all blocks of the case."""
    job = item.config.stash.get(CURRENT_JOB, None)
    member = member_of(item)
    if job is not None:
        return [job.seed_block]
    return info.blocks() if member is None else [member.block(info)]


def _claim_backend(config: pytest.Config, spec: CaseSpec) -> None:
    """Initialises jax's backend before a case's modules are imported.

    A watch's worker has a fixed number of threads.
    """
    from lobench.evaluation.runner import claim_for
    from lobench.inner.backend import claim_backend

    threads = os.environ.get("NPROC", "")
    if threads.isdecimal() and int(threads):
        claim_backend(int(threads))
    else:
        claim_for(spec, layers_of(config))

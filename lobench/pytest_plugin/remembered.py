"""Remembered cases of a session's store, so that reuse needs neither binding nor jax.

A chief stores the cases described by its workers, with the marks of all files that they depend on. If none of these has
changed, and this session has the same suites and the same gin text around them, its items have the stored cases.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lobench.core.case import CaseInfo
from lobench.core.errors import LobenchError
from lobench.core.subject import Variant
from lobench.engine.checkpoints.given import given_checkpoint, given_optimizer
from lobench.engine.config.layers import Layers
from lobench.experiments.pytest_items import EXPERIMENT, member_of
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_names import plain_node_id
from lobench.pytest_plugin.options import layers_of, option

__all__ = ["recalled_case_info"]

_TestPlace = tuple[Path, str]  # file and pytest's name of a test in it
_CaseByPlace = Mapping[_TestPlace, CaseInfo]
_RECALLED_CASES_KEY: pytest.StashKey[dict[tuple[Path, Variant], _CaseByPlace]] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class _CollectionConfig:
    """The suites and layers that a chief's worker would collect for the cases of this session."""

    arguments: tuple[str, ...]
    layers: Layers
    with_tests: bool


def recalled_case_info(item: pytest.Item, store: Path, variant: Variant) -> CaseInfo | None:
    """Returns the stored case of an item; None if it is not stored, or if a file has changed since."""
    spec = case_of(item)
    cases_by_place = item.config.stash.setdefault(_RECALLED_CASES_KEY, {})
    assert spec is not None
    if (store, variant) not in cases_by_place:
        cases_by_place[store, variant] = _recall_cases(item.config, store, variant)
    recalled_case = cases_by_place[store, variant].get((item.path.resolve(), _name_in_file(item, spec.name)))
    if recalled_case is None or recalled_case.suite != spec.suite:
        return None
    return dataclasses.replace(recalled_case, name=spec.name, node_id=plain_node_id(item))


def _name_in_file(item: pytest.Item, scope: str) -> str:
    """Returns the part of an item's id that follows its file, without the parts added by an experiment."""
    member = member_of(item)
    if member is None or item.parent is None:
        return plain_node_id(item).partition("::")[2]
    name = scope
    if isinstance(item, pytest.Function):
        name = f"{item.originalname}[{item.callspec.id.removesuffix(f'-{member}')}]"
    return "::".join(filter(None, (item.parent.nodeid.partition("::")[2], name)))


def _recall_cases(config: pytest.Config, store: Path, variant: Variant) -> _CaseByPlace:
    from lobench.engine.chief.case_cache import RecordedCases
    from lobench.engine.config.suite_files import SuiteFiles
    from lobench.engine.store.ledger import Ledger

    if not (store / "ledger.sqlite").is_file():
        return {}
    suites = tuple(dict.fromkeys(str(Path(str(arg).partition("::")[0]).resolve()) for arg in config.args))
    try:
        ledger = Ledger.open(store, read_only=True)
    except LobenchError:
        return {}  # the error is raised when results are recorded
    try:
        for (layers, chief_variant), with_tests in itertools.product(
            _layers_and_variants(config, variant), (False, True)
        ):
            collection_config = _CollectionConfig(arguments=suites, layers=layers, with_tests=with_tests)
            known_cases = RecordedCases(
                ledger,
                lambda collection_config=collection_config: collection_config,  # type: ignore[misc]
                SuiteFiles(suites, layers.gin_files),
            )
            if recalled_cases := known_cases.unchanged_cases(chief_variant):
                return _cases_by_place(recalled_cases, [Path(suite) for suite in suites])
    finally:
        ledger.close()
    return {}


def _layers_and_variants(config: pytest.Config, variant: Variant) -> Iterator[tuple[Layers, Variant]]:
    """Yields the layers and variants under which a chief may have stored the cases of this session.

    For a given checkpoint or optimizer, a chief uses the variant, and a session of pytest its layers.
    """
    layers = layers_of(config)
    if EXPERIMENT in config.stash:
        yield layers, variant
        return
    checkpoint = option(config, "checkpoint")
    if not layers.optimizer:
        yield layers, variant
        if checkpoint:
            yield dataclasses.replace(layers, trainer_config=None), given_checkpoint(checkpoint).variant
    elif not layers.gin_files and not layers.gin_params:
        # A chief binds the optimizer's text after gin files and parameters, this session before them. Without gin files
        # and parameters both bind the same.
        yield dataclasses.replace(layers, optimizer=""), given_optimizer(layers.optimizer).variant


def _cases_by_place(cases: tuple[CaseInfo, ...], suites: list[Path]) -> _CaseByPlace:
    """Returns cases by file and name; {} if the paths in their ids may be relative to more than one folder, or none."""
    files = {info.node_id.partition("::")[0] for info in cases}
    roots = [root for root in (suites[0], *suites[0].parents) if all((root / file).is_file() for file in files)]
    if len(roots) != 1:
        return {}
    files_and_names = [
        ((roots[0] / file).resolve(), name) for file, _, name in (info.node_id.partition("::") for info in cases)
    ]
    return dict(zip(files_and_names, cases, strict=True))

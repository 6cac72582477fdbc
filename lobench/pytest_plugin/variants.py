"""Variants of a session's cases: a suite's gin text with the bindings of each subject on top."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lobench.core.case import CaseInfo
from lobench.core.code_origin import LOBENCH, Origin, file_of, loaded_modules
from lobench.core.errors import LobenchError
from lobench.core.subject import Variant
from lobench.core.wording import counted
from lobench.engine.config.layers import Layers
from lobench.engine.config.run_configs import config_chain
from lobench.engine.config.suite_files import SuiteFiles, path_stamps
from lobench.engine.workers.protocol import Describe, FileMark
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_names import plain_node_id
from lobench.pytest_plugin.items import case_info, runners_of, test_name

__all__ = ["VariantCases", "VariantItems", "files_of_cases"]

_MAX_VARIANTS = 64  # variants whose cases are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantItems:
    """Cases of a variant, with the pytest items that evaluate them.

    Attributes:
      cases: Each case once, under a name that is unique in its suite.
      items: Item of each case, by the case's key.
      problems: Reasons why its cases cannot be bound. With a problem, `items` is empty.
    """

    cases: tuple[CaseInfo, ...] = ()
    items: dict[str, pytest.Item]
    problems: tuple[str, ...] = ()


class VariantCases:
    """Cases of a session's items, by variant.

    Args:
      items: Items that evaluate a case.
    """

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._items, self._lock = items, threading.Lock()
        self._traced_hashes: set[str] = set()  # hashes of cases and of optimizers
        self._items_of = functools.lru_cache(maxsize=_MAX_VARIANTS)(self._bind_variant)

    def of(self, variant: Variant) -> VariantItems:
        """Returns the cases of a variant, which are bound at the first call."""
        with self._lock:
            return self._items_of(variant)

    def problems_of_training(self, request: Describe) -> tuple[str, ...]:
        """Returns the reasons why cases of a variant cannot be trained. Equal reasons of several cases are listed once.

        Each case is traced with one optimizer, and each optimizer on one case, because tracing all pairs would take too
        long.
        """
        problems: dict[tuple[str, ...], list[LobenchError]] = {}
        variant_cases = self.of(request.variant)
        for info in variant_cases.cases:
            is_requested = not request.names or {*info.names} & {*request.names}
            if not is_requested or {info.identity, info.optimizer_hash} <= self._traced_hashes:
                continue
            item = variant_cases.items[info.key]
            spec = case_of(item)
            assert spec is not None
            if info.evaluator:
                continue  # binding it has checked all that can be checked
            try:
                runners_of(item.config, request.variant).in_process.trace(spec, test_name(item), info.blocks()[0])
            except LobenchError as error:
                problems.setdefault((error.what, error.got, error.expected), []).append(error)
            else:
                self._traced_hashes |= {info.identity, info.optimizer_hash}
        return tuple(
            f"{equal_errors[0]} (and {counted(len(equal_errors) - 1, 'more case')})"
            if equal_errors[1:]
            else str(equal_errors[0])
            for equal_errors in problems.values()
        )

    def _bind_variant(self, variant: Variant) -> VariantItems:
        problems: dict[str, None] = {}
        items: dict[str, pytest.Item] = {}
        infos: list[CaseInfo] = []
        for item in self._items:
            try:
                info = case_info(item, variant)
            except LobenchError as error:
                problems[str(error)] = None
                continue
            if info.key not in items:
                items[info.key] = item
                infos.append(info)
            elif (other_id := plain_node_id(items[info.key])) != plain_node_id(item):
                text = f"two tests of one name evaluate one case: {other_id} and {item.nodeid}; rename one"
                problems[text] = None
        if problems:
            return VariantItems(items={}, problems=tuple(problems))
        return VariantItems(cases=tuple(_unique_names(infos)), items=items)


def _unique_names(infos: list[CaseInfo]) -> list[CaseInfo]:
    """Makes names unique in their suite by adding the file's stem, and the test's own name if that is not enough."""
    for num_parts in (1, 2):
        counts = Counter((info.suite, info.name) for info in infos)
        infos = [
            info if counts[info.suite, info.name] == 1 else dataclasses.replace(info, name=_long_name(info, num_parts))
            for info in infos
        ]
    return infos


def _long_name(info: CaseInfo, num_parts: int) -> str:
    file, _, test = info.node_id.partition("::")
    return f"{Path(file).stem}.{info.name if num_parts == 1 else test}"


def files_of_cases(suites: Sequence[str], layers: Layers, code: Iterable[str] = ()) -> tuple[FileMark, ...]:
    """Returns the files on which the cases depend; see `Described.files`.

    Args:
      suites: Paths of the suites.
      layers: Bindings that are applied to every case, besides those of its file.
      code: Files of the user's code on which cases depend. They need not have been imported.
    """
    configs = config_chain(Path(layers.trainer_config)) if layers.trainer_config else []
    config_files = [*layers.gin_files, *map(str, configs)]
    files: list[str | Path] = [*SuiteFiles(suites, config_files).files(), *_loaded_files(), *code]
    return tuple(FileMark(path=path, size=size, changed_ns=changed_ns) for path, size, changed_ns in path_stamps(files))


def _loaded_files() -> Iterator[str]:
    """Yields the Python files of the user and of lobench that this process has imported."""
    for _, module in loaded_modules(Origin.USER, Origin.LOBENCH):
        if (name := file_of(module)).endswith(".py"):
            yield _real_path_of_lobench(name) if name.startswith(LOBENCH) else os.path.realpath(name)


@functools.cache
def _real_path_of_lobench(file: str) -> str:
    """Resolves one of several hundred files, which takes longer than to see whether it has changed."""
    return os.path.realpath(file)

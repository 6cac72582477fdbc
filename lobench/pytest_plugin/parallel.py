"""pytest-xdist integration: number of workers, longest cases first."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import statistics
from collections.abc import Generator, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lobench.core.errors import LobenchError
from lobench.engine.store.schema import open_ledger_database
from lobench.engine.workers.devices import devices_here, equal_shares
from lobench.experiments.pytest_items import EXPERIMENT
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.options import option

__all__ = ["XdistPlugin", "auto_num_workers", "longest_first_order", "refuse_session"]

_DURATIONS_KEY = "lobench_durations"
_PROBLEM_KEY = "lobench_problem"
_MAX_RECORDS = 5000  # newest evaluations read from a ledger

KeyT = TypeVar("KeyT", bound=Hashable)


def auto_num_workers(config: pytest.Config) -> int | None:
    """Returns the number of devices, or else of this process's cores; None if the session does not evaluate cases."""
    if not _evaluates_cases(config) or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return len(devices_here(os.environ)) or cores


def _evaluates_cases(config: pytest.Config) -> bool:
    return bool(option(config, "checkpoint") or option(config, "optimizer") or EXPERIMENT in config.stash)


def refuse_session(config: pytest.Config, items: list[pytest.Item], problem: str) -> None:
    """Ends a session with a usage error. A worker reports it to the controller, because its errors count as crashes.

    Raises:
      UsageError: This is not a worker.
    """
    if not hasattr(config, "workeroutput"):
        raise pytest.UsageError(problem)
    config.workeroutput[_PROBLEM_KEY] = problem
    items.clear()


class XdistPlugin:
    """The plugin object. Some of its hooks are called in the controller, others in the workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._durations: dict[str, float] = {}
        self._problem = ""

    # The controller.

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._problem = self._problem or getattr(node, "workeroutput", {}).get(_PROBLEM_KEY, "")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        result = yield
        if self._problem:
            raise pytest.UsageError(self._problem)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: Sequence[Any]) -> None:
        if not _evaluates_cases(config):
            return
        # Set in execnet's spec, because a replacement of a crashed worker gets the same spec.
        local_specs = [spec for spec in specs if spec.popen]
        for spec, environment in zip(
            local_specs, equal_shares(devices_here(os.environ), len(local_specs)), strict=True
        ):
            spec.env.update(environment)
        self._durations = _recorded_durations(config)
        if self._durations and config.option.dist == "load" and config.option.maxschedchunk is None:
            config.option.maxschedchunk = 1  # long lists handed out in advance would undo the order

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Assigns the sessions of a method on a case to one worker, so that a seed block is trained once."""
        if EXPERIMENT not in config.stash or config.option.dist != "load":
            return None
        from xdist.scheduler import LoadScopeScheduling

        prefix = f"{config.stash[EXPERIMENT].argument}::"

        class ByMethod(LoadScopeScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                return nodeid.rpartition("-")[0] if nodeid.startswith(prefix) else nodeid

        return ByMethod(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        # The controller reads them once, because all workers, including later ones, must agree on the order.
        node.workerinput[_DURATIONS_KEY] = self._durations

    # A worker.

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        workerinput: Mapping[str, Any] = getattr(config, "workerinput", {})
        durations: Mapping[str, float] = workerinput.get(_DURATIONS_KEY, {})
        if not durations:
            return
        specs = [case_of(item) for item in items]
        names = [f"{spec.suite}/{spec.name}" if spec is not None else "" for spec in specs]
        num_workers = workerinput["workercount"] if config.option.dist == "load" else 0
        order = longest_first_order(names, durations, num_workers=num_workers)
        items[:] = [items[index] for index in order]


def longest_first_order(names: Sequence[KeyT], durations: Mapping[KeyT, float], *, num_workers: int = 0) -> list[int]:
    """Returns an order of items with the longest first. Unknown durations are replaced by the median.

    >>> longest_first_order(["a", "b", "c"], {"a": 1.0, "b": 3.0, "c": 2.0})
    [1, 2, 0]

    Args:
      names: Names of the items.
      durations: Seconds by name, at least one.
      num_workers: Number of workers, if the scheduler first hands each worker two neighbours; else 0.
    """
    median_duration = statistics.median(durations.values())
    order = sorted(range(len(names)), key=lambda index: -durations.get(names[index], median_duration))
    num_paired = 2 * num_workers
    if not num_workers or len(order) < num_paired:
        return order
    # Pair the longest with the shortest of the first few, and so on.
    pairs = zip(order[:num_workers], reversed(order[num_workers:num_paired]), strict=True)
    return [index for pair in pairs for index in pair] + order[num_paired:]


def _recorded_durations(config: pytest.Config) -> dict[str, float]:
    """Returns the recorded seconds in this session's stores, by `suite/case`."""
    store_option = option(config, "store")
    stores = [Path(store_option)] if store_option else sorted((config.rootpath / ".lobench").glob("*"))
    seconds: dict[str, list[float]] = {}
    for store in stores:
        if (store / "ledger.sqlite").is_file():
            for name, value in _durations_of(store):
                seconds.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _durations_of(store: Path) -> list[tuple[str, float]]:
    try:
        database = open_ledger_database(store, read_only=True)
    except LobenchError:
        return []  # the order only affects speed; the error is raised when results are stored
    try:
        rows = database.execute(
            "SELECT case_json, seconds FROM evaluations WHERE seconds > 0 ORDER BY id DESC LIMIT ?", (_MAX_RECORDS,)
        ).fetchall()
        return [_case_duration(json.loads(text), value) for text, value in rows]
    except (sqlite3.Error, ValueError, TypeError, KeyError):
        return []
    finally:
        database.close()


def _case_duration(case: Mapping[str, Any], seconds: float) -> tuple[str, float]:
    block_size = max(case.get("block_sizes") or [case["num_seeds"]])
    num_blocks = math.ceil(case["num_seeds"] / (case["seed_block"] or block_size))
    return f"{case['suite']}/{case['name']}", seconds * num_blocks

"""How pytest's items and lobench's cases belong together."""

from __future__ import annotations

import os
import threading

import pytest

from lobench.core.case import CaseInfo, CaseSpec, Expectations
from lobench.engine.config.bound import bind_case
from lobench.evaluation.runner import BlockRunner, claim_for
from lobench.inner.backend import claim_backend
from lobench.pytest_plugin import case_of
from lobench.pytest_plugin.options import layers_of

__all__ = ["case_info", "expectations_of", "runner_of", "test_name"]

_RUNNER: pytest.StashKey[BlockRunner] = pytest.StashKey()
_MAKING = threading.Lock()


def runner_of(config: pytest.Config) -> BlockRunner:
    with _MAKING:
        if _RUNNER not in config.stash:
            config.stash[_RUNNER] = BlockRunner(layers_of(config))
        return config.stash[_RUNNER]


def test_name(item: pytest.Item) -> str:
    """Returns the test's part of a case's identity: with the parameters, where it has others than the case."""
    if not isinstance(item, pytest.Function):
        return ""
    name: str = item.function.__name__
    callspec = getattr(item, "callspec", None)  # none where the test gets its case otherwise
    if callspec is None or all(isinstance(value, CaseSpec) for value in callspec.params.values()):
        return name
    return f"{name}[{callspec.id}]"


def expectations_of(item: pytest.Item) -> Expectations:
    """Returns what the gin file of an evaluated item expects."""
    spec = case_of(item)
    assert spec is not None
    return runner_of(item.config).bind(spec, test_name(item)).expectations


def case_info(item: pytest.Item) -> CaseInfo:
    """Returns what a chief must know of the item's case; of one that was evaluated, as it was then."""
    spec = case_of(item)
    assert spec is not None
    runner = item.config.stash.get(_RUNNER, None)
    bound = runner.bound(spec, test_name(item)) if runner is not None else None
    if bound is None:
        _claim(item.config, spec)
        bound = bind_case(spec, layers_of(item.config), test=test_name(item), build=False)
        bound.require_optimizer()
    return bound.info(node_id=item.nodeid)


def _claim(config: pytest.Config, spec: CaseSpec) -> None:
    """Makes jax's backend before a case's modules are imported: a watch's worker has the number of its threads."""
    threads = os.environ.get("NPROC", "")
    if threads.isdecimal() and int(threads):
        claim_backend(int(threads))
    else:
        claim_for(spec, layers_of(config))

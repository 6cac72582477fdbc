"""How pytest's items and lobench's cases belong together."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass

import pytest

from lobench.core.case import CaseInfo, CaseSpec, Expectations
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.evaluation.isolated import IsolatedRunner
from lobench.evaluation.runner import BlockRunner, claim_for
from lobench.evaluation.together import JobRunner
from lobench.inner.backend import claim_backend
from lobench.pytest_plugin import case_of
from lobench.pytest_plugin.finished import CURRENT_JOB
from lobench.pytest_plugin.options import layers_of

__all__ = ["Runners", "case_info", "expectations_of", "runners_of", "test_name", "variant_of"]

_MAKING = threading.Lock()
_MOST_VARIANTS = 8  # whose programs stay warm


@dataclass(frozen=True, slots=True)
class Runners:
    """What trains the cases of one variant: here, several of its checkpoints together, or in a process of its own."""

    here: BlockRunner
    together: JobRunner
    apart: IsolatedRunner


_RUNNERS: pytest.StashKey[OrderedDict[tuple[str, ...], Runners]] = pytest.StashKey()


def variant_of(config: pytest.Config) -> tuple[str, ...]:
    """Returns the bindings of the job that this session runs now; () where it is no watch's worker."""
    job = config.stash.get(CURRENT_JOB, None)
    return job.bindings if job is not None else ()


def runners_of(config: pytest.Config, bindings: tuple[str, ...]) -> Runners:
    """Returns a variant's runners. Those of the last few variants are kept, with their compiled programs."""
    with _MAKING:
        if _RUNNERS not in config.stash:
            config.stash[_RUNNERS] = OrderedDict()
            config.add_cleanup(lambda: _close(config.stash[_RUNNERS], keep=0))
        known = config.stash[_RUNNERS]
        if bindings not in known:
            layers = _layers_of(config, bindings)
            here = BlockRunner(layers)
            known[bindings] = Runners(here, JobRunner(here), IsolatedRunner(layers))
        known.move_to_end(bindings)
        _close(known, keep=_MOST_VARIANTS)
        return known[bindings]


def _close(known: OrderedDict[tuple[str, ...], Runners], *, keep: int) -> None:
    while len(known) > keep:
        _, oldest = known.popitem(last=False)
        oldest.apart.close()


def _layers_of(config: pytest.Config, bindings: tuple[str, ...]) -> Layers:
    return layers_of(config).with_bindings(bindings)


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
    return runners_of(item.config, variant_of(item.config)).here.bind(spec, test_name(item)).expectations


def case_info(item: pytest.Item, bindings: tuple[str, ...]) -> CaseInfo:
    """Returns what a chief must know of the item's case with a variant's bindings; once evaluated, as it was then.

    Raises:
      ConfigError: the case cannot be bound, or has no optimizer.
    """
    spec = case_of(item)
    assert spec is not None
    known = item.config.stash.get(_RUNNERS, None)
    runners = known.get(bindings) if known is not None else None
    bound = runners.here.bound(spec, test_name(item)) if runners is not None else None
    if bound is None:
        _claim(item.config, spec)
        bound = bind_case(spec, _layers_of(item.config, bindings), test=test_name(item), build=False)
        bound.require_optimizer()
    return bound.info(node_id=item.nodeid)


def _claim(config: pytest.Config, spec: CaseSpec) -> None:
    """Makes jax's backend before a case's modules are imported: a watch's worker has the number of its threads."""
    threads = os.environ.get("NPROC", "")
    if threads.isdecimal() and int(threads):
        claim_backend(int(threads))
    else:
        claim_for(spec, layers_of(config))

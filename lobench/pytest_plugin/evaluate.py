"""`evaluate(case)` inside a pytest item, and how what it did travels on the item's report."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.headline import headline
from lobench.core.result import Curves, Outcome
from lobench.evaluation.metrics import with_metrics
from lobench.evaluation.result import Result
from lobench.evaluation.runner import DeadlinePassed, ThetaLeaves, WrongThreads
from lobench.inner.backend import foreign_maker
from lobench.pytest_plugin.experiments import member_of
from lobench.pytest_plugin.finished import CURRENT_JOB, ON_PROGRESS, Finished
from lobench.pytest_plugin.items import case_info, runners_of, test_name, variant_of
from lobench.pytest_plugin.options import LoadedSubject, method_subject, metrics_of, option, subject_of
from lobench.pytest_plugin.reuse import stored_curves

if TYPE_CHECKING:
    from lobench.pytest_plugin.measuring import Gate

__all__ = ["BLOCK_VERDICT", "attach_evaluations", "evaluator"]

_DONE: pytest.StashKey[list[tuple[SeedBlock, Curves]]] = pytest.StashKey()
_APART: pytest.StashKey[str] = pytest.StashKey()
_MEASURED: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()
_ONCE: pytest.StashKey[dict[object, Curves | Exception]] = pytest.StashKey()
# What counts for a whole seed block, where its item looks at one of its seeds alone.
BLOCK_VERDICT: pytest.StashKey[tuple[Outcome, str]] = pytest.StashKey()


def evaluator(item: pytest.Item) -> Callable[[CaseSpec], Result]:
    """Returns `evaluate` for one item."""
    config, test = item.config, test_name(item)

    def evaluated(case: CaseSpec) -> Result:
        job = config.stash.get(CURRENT_JOB, None)
        runners = runners_of(config, variant_of(item))
        bound = runners.here.bind(case, test)  # first: it makes jax's backend as this case wants it
        gate = _gate(item) if job is None and option(config, "against") else None
        info = bound.info(node_id=item.nodeid)

        def train(theta: ThetaLeaves, block: SeedBlock) -> Curves:
            try:
                on_progress = config.stash.get(ON_PROGRESS, None)
                if job is None:
                    curves = runners.here.run(case, test, theta, block, on_progress=on_progress)
                else:
                    curves = runners.together.run(case, test, job, theta, on_progress=on_progress)
            except WrongThreads:
                item.stash[_APART] = foreign_maker()
                curves = runners.apart.run(runners.layers, case, test, theta, block)
            return with_metrics(curves, metrics_of(config))

        if gate is not None:
            gate.scale(case, info)
        theta, blocks = _asked(item, info)
        done = item.stash.setdefault(_DONE, [])
        own = []
        for block in blocks:
            known = _known(item, info, block, partial(train, theta, block)) if job is None else None
            own.append((block, known or train(theta, block)))
            done.append(own[-1])
        if gate is not None:
            more = _further(info, train, theta, done)
            measured = gate.measure(case, info, bound.expectations.margin, own, train, more)
            item.stash.setdefault(_MEASURED, []).append(measured.to_record())
        return Result([curves for _, curves in own], bound.case)

    def evaluate(case: CaseSpec) -> Result:
        """What lobench says on purpose ends at the line of the test that called it."""
        __tracebackhide__ = operator.methodcaller("errisinstance", LobenchError)
        try:
            return evaluated(case)
        except LobenchError as error:
            raise error.with_traceback(None)  # noqa: B904  (the same error; what caused it stays)

    return evaluate


def _asked(item: pytest.Item, info: CaseInfo) -> tuple[ThetaLeaves, list[SeedBlock]]:
    """Returns what an item trains with, and on which seed blocks."""
    job, member = item.config.stash.get(CURRENT_JOB, None), member_of(item)
    if job is not None:
        return ThetaLeaves.at(job.theta_path, where=job.checkpoint_uri), [job.seed_block]
    return _subject_of(item).theta, info.blocks() if member is None else [member.block(info)]


def _subject_of(item: pytest.Item) -> LoadedSubject:
    member = member_of(item)
    return subject_of(item.config) if member is None else method_subject(item.config, member.method.name)


def _known(item: pytest.Item, info: CaseInfo, block: SeedBlock, train: Callable[[], Curves]) -> Curves | None:
    """Returns what the store has of a block, or what it gives all of its items in an experiment."""
    subject = _subject_of(item).subject
    stored = stored_curves(item.config, subject, info, block)
    if stored is None and member_of(item) is not None:
        return _once(item.config, (subject.key, info.key, block), train)
    return stored


def _once(config: pytest.Config, key: Hashable, train: Callable[[], Curves]) -> Curves:
    """Trains once a process; where that fails, it fails for all that ask."""
    known = config.stash.setdefault(_ONCE, {})
    if key not in known:
        try:
            known[key] = train()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is raised below)
            known[key] = error
    found = known[key]
    if isinstance(found, Exception):
        raise found.with_traceback(None)
    return found


def _gate(item: pytest.Item) -> Gate:
    from lobench.pytest_plugin.measuring import gate_of  # imports scipy

    return gate_of(item)


def _further(
    info: CaseInfo,
    train: Callable[[ThetaLeaves, SeedBlock], Curves],
    theta: ThetaLeaves,
    done: list[tuple[SeedBlock, Curves]],
) -> Iterator[tuple[SeedBlock, Curves]]:
    """Trains one block after another beyond the case's own seeds, as wide as those, and keeps them as done."""
    size = info.seed_block or info.num_seeds
    for start in itertools.count(info.first_seed + info.num_seeds, size):
        block = SeedBlock(start=start, size=size)
        done.append((block, train(theta, block)))
        yield done[-1]


def attach_evaluations(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Puts the item's evaluations on its report, as plain values: pytest-xdist carries the attribute."""
    ended = report.when == "call" or (report.when == "setup" and not report.passed)
    if not ended:
        return
    job, member = item.config.stash.get(CURRENT_JOB, None), member_of(item)
    if member is not None and member.method.kind == "command":
        return
    error = call.excinfo.value if call.excinfo is not None else None
    outcome, message = verdict(report, error)
    if outcome in (Outcome.PASSED, Outcome.FAILED):
        outcome, message = item.stash.get(BLOCK_VERDICT, (outcome, message))
    pairs: list[tuple[SeedBlock, Curves]] = item.stash.setdefault(_DONE, [])
    done = dict(pairs)
    item.stash[_DONE] = []
    try:
        info = case_info(item, variant_of(item))
        blocks = info.blocks() if job is None else [job.seed_block]
        if member is not None:
            blocks = [member.block(info)]
            report.lobench_member = [member.method.name, member.session]  # type: ignore[attr-defined]
            if report.failed:
                about = f"method {member.method.name}, session {member.session} (seed block {blocks[0]})"
                report.sections.append(("lobench", about))
    except ConfigError:
        return  # the report itself says what is wrong; without its bindings the case has no identity
    blocks += [block for block in done if block not in blocks]  # seeds that a gate added
    records = []
    for block in blocks:
        curves = done.get(block)
        finished = Finished(
            case=info,
            seed_block=block,
            outcome=outcome,
            message="; ".join(filter(None, (message, *(curves.problems if curves is not None else ())))),
            payload=curves.to_payload() if curves is not None else b"",
        )
        records.append(finished.to_bytes())
    report.lobench = records  # type: ignore[attr-defined]
    report.lobench_apart = item.stash.get(_APART, "")  # type: ignore[attr-defined]
    report.lobench_gate = item.stash.setdefault(_MEASURED, [])  # type: ignore[attr-defined]
    item.stash[_MEASURED] = []


def verdict(report: pytest.TestReport, error: BaseException | None) -> tuple[Outcome, str]:
    """Returns the outcome of an item, and one line on what went wrong."""
    if report.passed:
        return Outcome.PASSED, ""
    if report.skipped:
        if hasattr(report, "wasxfail"):
            return Outcome.SKIPPED, f"xfail: {report.wasxfail}".strip().splitlines()[0]
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return Outcome.SKIPPED, reason.splitlines()[0] if reason else ""
    message = headline(error) if error is not None else "no exception"
    if isinstance(error, DeadlinePassed):
        return Outcome.TIMEOUT, message
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in message:
        return Outcome.OOM, message
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return Outcome.FAILED, message
    return Outcome.ERROR, message

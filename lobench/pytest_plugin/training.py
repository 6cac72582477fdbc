"""Training behind `evaluate(case)`: binding, and computation of results that the store lacks."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.result import Curves
from lobench.core.subject import Subject
from lobench.engine.config.user_code import differing_parts_run
from lobench.engine.workers.child_python import cache_folder
from lobench.evaluation.plugin_metrics import with_metrics
from lobench.evaluation.request import EditedCode, ThetaLeaves, WrongThreads
from lobench.evaluation.result import Result
from lobench.experiments.pytest_items import member_of
from lobench.inner.backend import foreign_backend_maker, programs_kept_in
from lobench.pytest_plugin.item_result import CURRENT_JOB, FINISHED_BLOCKS, ISOLATION_REASON, MEASUREMENTS, ON_PROGRESS
from lobench.pytest_plugin.items import Runners, blocks_of, info_of_item, runners_of, test_name, variant_of
from lobench.pytest_plugin.options import loaded_subject, metrics_of, option
from lobench.pytest_plugin.reuse import store_path, stored_curves

if TYPE_CHECKING:
    from lobench.pytest_plugin.measuring import Gate

__all__ = ["evaluate_by_training"]

_OUTCOMES: pytest.StashKey[dict[object, Curves | Exception]] = pytest.StashKey()


def evaluate_by_training(item: pytest.Item, case: CaseSpec) -> Result:
    """Evaluates a case for an item. It trains the seed blocks that the store lacks, or that may not be reused."""
    config = item.config
    test = test_name(item)
    job = config.stash.get(CURRENT_JOB, None)
    runners = runners_of(config, variant_of(item))
    bound_case = runners.in_process.bind(case, test)  # first, because it makes jax's backend with the case's settings
    gate = _gate(item) if job is None and option(config, "against") else None
    info = info_of_item(bound_case, item)

    program_folder = cache_folder(store_path(config, case.suite)).absolute()

    def train(theta: ThetaLeaves, block: SeedBlock, runners: Runners = runners) -> Curves:
        # A watch's worker has its folder from the chief.
        with programs_kept_in(program_folder) if job is None else contextlib.nullcontext():
            on_progress = config.stash.get(ON_PROGRESS, None)
            try:
                if job is None:
                    curves = runners.in_process.run(case, test, theta, block, on_progress=on_progress)
                else:
                    curves = runners.grouped.run(case, test, job, theta, on_progress=on_progress)
            except WrongThreads:
                item.stash[ISOLATION_REASON] = foreign_backend_maker()
                runners.isolated.compilation_cache = str(program_folder)
                isolated_case = runners.in_process.bind(case, test)
                code_parts = isolated_case.code.parts
                key = isolated_case.info.whole_training_key
                curves = runners.isolated.run(
                    runners.layers, case, test, theta, block, code_hashes=code_parts, case_key=key
                )
                if job is not None:
                    reason = f"this worker has another number of threads than its num_cpus = {bound_case.case.num_cpus}"
                    curves = runners.grouped.add_reason_if_grouped(case, test, job, curves, reason)
            if job is None and (edited_parts := differing_parts_run(info)):  # a watch's worker returns the job
                raise EditedCode.of(case, edited_parts)
            return with_metrics(curves, metrics_of(config))

    if gate is not None:
        gate.scale_baseline(case, info)
    theta = _theta(item)
    blocks = blocks_of(item, info)
    finished_blocks = item.stash.setdefault(FINISHED_BLOCKS, [])
    own_blocks = []
    for block in blocks:
        known_curves = _stored_curves(item, info, block, partial(train, theta, block)) if job is None else None
        own_blocks.append((block, known_curves or train(theta, block)))
        finished_blocks.append(own_blocks[-1])
    if gate is not None:
        further_blocks = _further_blocks(info, train, theta, finished_blocks)
        measurement = gate.measure(
            case, info, bound_case.expectations.margin, own_blocks, _GateTraining(item, case, train), further_blocks
        )
        item.stash.setdefault(MEASUREMENTS, []).append(measurement.to_report())
    return Result([curves for _, curves in own_blocks], bound_case.case)


class _GateTraining:
    """Trains for the reference of a gate; see `references.TrainBlock`."""

    def __init__(self, item: pytest.Item, case: CaseSpec, train: Callable[..., Curves]) -> None:
        self._item, self._case, self._train = item, case, train

    def __call__(self, theta: ThetaLeaves, block: SeedBlock) -> Curves:
        return self._train(theta, block)

    def with_optimizer(self, optimizer: Subject, block: SeedBlock) -> tuple[Curves, CaseInfo]:
        runners = runners_of(self._item.config, optimizer.variant, has_own_optimizer=True)
        bound_case = runners.in_process.bind(self._case, test_name(self._item))
        curves = self._train(ThetaLeaves(leaves=None, where=optimizer.uri), block, runners)
        return curves, info_of_item(bound_case, self._item)


def _theta(item: pytest.Item) -> ThetaLeaves:
    """Returns the theta with which an item trains."""
    job = item.config.stash.get(CURRENT_JOB, None)
    return (
        ThetaLeaves.from_file(job.theta_path, where=job.checkpoint_uri)
        if job is not None
        else loaded_subject(item).theta
    )


def _stored_curves(item: pytest.Item, info: CaseInfo, block: SeedBlock, train: Callable[[], Curves]) -> Curves | None:
    """Returns the stored curves of a block, or in an experiment those shared by its items. None: not stored."""
    subject = loaded_subject(item).subject
    block_curves = stored_curves(item.config, subject, info, block)
    if block_curves is None and member_of(item) is not None:
        return _train_once(item.config, (subject.key, info.key, block), train)
    return block_curves


def _train_once(config: pytest.Config, key: Hashable, train: Callable[[], Curves]) -> Curves:
    """Trains once per process. A failure is raised for all later calls too."""
    outcomes = config.stash.setdefault(_OUTCOMES, {})
    if key not in outcomes:
        try:
            outcomes[key] = train()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is raised below)
            outcomes[key] = error
    outcome = outcomes[key]
    if isinstance(outcome, Exception):
        raise outcome.with_traceback(None)
    return outcome


def _gate(item: pytest.Item) -> Gate:
    from lobench.pytest_plugin.measuring import session_gate  # imports scipy

    return session_gate(item)


def _further_blocks(
    info: CaseInfo,
    train: Callable[[ThetaLeaves, SeedBlock], Curves],
    theta: ThetaLeaves,
    finished_blocks: list[tuple[SeedBlock, Curves]],
) -> Iterator[tuple[SeedBlock, Curves]]:
    """Trains blocks beyond the case's own seeds, of the same width, one by one, and adds them to `finished_blocks`."""
    size = info.seed_block or info.num_seeds
    for start in itertools.count(info.first_seed + info.num_seeds, size):
        block = SeedBlock(start=start, size=size)
        finished_blocks.append((block, train(theta, block)))
        yield finished_blocks[-1]

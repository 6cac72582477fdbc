"""A worker that evaluates cases, as its chief sees it: a real process, a real suite, many variants."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from shown import texts_of

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import theta_sha256
from lobench.core.codec import Message
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Variant
from lobench.engine.checkpoints.spool import dump_theta
from lobench.engine.config.layers import Layers
from lobench.engine.workers.pool import LocalPool, WorkerConfig
from lobench.engine.workers.protocol import (
    FROM_WORKER,
    Describe,
    Described,
    Failed,
    Job,
    JobResult,
    Progress,
    Ready,
)
from lobench.hookspecs import WorkerMessage
from lobench.plugins import CASE_WORKER

SHOWN = texts_of("pytest")

TASKS = """
import jax, jax.numpy as jnp
from lobench import Task, configurable

@configurable
class WorkerBowl(Task):
    def init(self, key):
        return jax.random.normal(key, (3,))
    def loss(self, params, key, data):
        return jnp.sum(params**2)
"""
GIN = """
import worker_tasks
Case.num_inner_steps = 4
Case.eval_every = 2
Case.num_seeds = 2
one/Case.task = @WorkerBowl()
two/Case.task = @WorkerBowl()
two/Case.num_inner_steps = 6
"""
TEST = "from lobench import cases\n\n@cases('worker.gin')\ndef test(case, evaluate):\n    evaluate(case)\n"
LEARNED = Variant(bindings=("Case.learned_optimizer = @LearnableSGD()",))
ADAM = Variant(bindings=("Case.optimizer = @adam()", "adam.learning_rate = 0.1"))
LONGER = Variant(bindings=(*ADAM.bindings, "Case.num_inner_steps = 8"))
PATIENT = 600.0
M = TypeVar("M", bound=Message)


class World:
    """One worker of a suite without an optimizer: each variant brings its own."""

    def __init__(self, folder: Path, *, broken: bool = False) -> None:
        self.suite, self.folder = folder / "worker_suite", folder
        self.suite.mkdir()
        (self.suite / "worker_tasks.py").write_text(TASKS)
        (self.suite / "worker.gin").write_text(GIN)
        (self.suite / "test_worker_suite.py").write_text("import nothing_of_that_name\n" if broken else TEST)
        leaves = {"log_lr": np.asarray(-3.0, np.float32)}
        (folder / "theta.npz").write_bytes(dump_theta(leaves))
        config = WorkerConfig(
            arguments=(str(self.suite),),
            layers=Layers(gin_modules=("lobench.inner.optimizers", "lobench.inner.tasks")),
            serve=CASE_WORKER,
            log_folder=folder / "logs",
            compilation_cache=folder / "cache",
        )
        self.pool = LocalPool(config)
        self.pool.start(0, 1)

    def received(self, kind: type[M]) -> M:
        """Returns the next message but progress, which must be of a kind."""
        deadline = time.monotonic() + PATIENT
        while time.monotonic() < deadline:
            for one in self.pool.wait(1.0):
                message = FROM_WORKER.from_bytes(one.message) if isinstance(one, WorkerMessage) else one
                if not isinstance(message, Progress):
                    assert isinstance(message, kind), message
                    return message
        raise AssertionError("nothing was heard")

    def ask(self, message: Message, kind: type[M]) -> M:
        self.pool.send(0, message.to_bytes())
        return self.received(kind)

    def described(self, variant: Variant) -> dict[str, CaseInfo]:
        found = self.ask(Describe(variant=variant), Described)
        assert found.variant_key == variant.key
        return {case.name: case for case in found.cases}

    def of(self, case: CaseInfo, variant: Variant, theta: str = "theta.npz") -> dict[str, Any]:
        return {
            "case_key": case.key,
            "seed_block": SeedBlock(start=0, size=2),
            "checkpoint_uri": "a",
            "theta_path": str(self.folder / theta) if theta else "",
            "variant": variant,
        }

    def trained_blocks(self, case: CaseInfo, variant: Variant, theta: str = "theta.npz") -> Curves:
        result = self.ask(Job(lease=3, **self.of(case, variant, theta)), JobResult)
        assert (result.outcome, result.message, result.lease) == (Outcome.PASSED, "", 3)
        return Curves.from_payload(result.payload)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("worker"))
    made.received(Ready)
    yield made
    made.pool.close()


def bits(curves: Curves) -> dict[str, bytes]:
    return {name: bytes(values) for name, values in curves.metrics.items()}


def test_a_variant_that_cannot_be_bound_fails_alone_and_the_worker_lives_on(world: World) -> None:
    failed = world.ask(Describe(), Failed)
    assert failed.variant_key == "" and SHOWN["no-optimizer"] in failed.messages[0]
    misspelt = Variant(bindings=("Case.optimizer = @admam()",))
    failed = world.ask(Describe(variant=misspelt), Failed)
    assert failed.variant_key == misspelt.key and "admam" in failed.messages[0]
    assert set(world.described(ADAM)) == {"one", "two"}


def test_variants_have_cases_of_their_own_and_one_gives_the_same_bits_after_another(world: World) -> None:
    learned, adam, longer = (world.described(variant) for variant in (LEARNED, ADAM, LONGER))
    assert [case.num_inner_steps for case in longer.values()] == [8, 8]
    assert learned["one"].identity == adam["one"].identity != longer["one"].identity
    assert learned["one"].optimizer_hash != adam["one"].optimizer_hash
    first = bits(world.trained_blocks(learned["one"], LEARNED))
    other = world.trained_blocks(adam["one"], ADAM, theta="")
    assert other.eval_steps[-1] == 4 and bits(other) != first
    assert world.trained_blocks(longer["one"], LONGER, theta="").eval_steps[-1] == 8
    again = world.trained_blocks(learned["one"], LEARNED)
    assert bits(again) == first and again.num_compilations == 0


def test_a_worker_reads_a_theta_once_for_all_its_jobs(world: World) -> None:
    learned, leaves = world.described(LEARNED), {"log_lr": np.asarray(-2.0, np.float32)}
    kept = world.folder / f"{theta_sha256(leaves)}.npz"
    kept.write_bytes(dump_theta(leaves))
    first = world.trained_blocks(learned["one"], LEARNED, theta=kept.name)
    kept.unlink()  # who reads it again finds nothing
    assert bits(world.trained_blocks(learned["one"], LEARNED, theta=kept.name)) == bits(first)
    assert world.trained_blocks(learned["two"], LEARNED, theta=kept.name).eval_steps[-1] == 6
    other = world.folder / f"{'0' * 64}.npz"
    other.write_bytes(dump_theta(leaves))
    refused = world.ask(Job(lease=5, **world.of(learned["one"], LEARNED, theta=other.name)), JobResult)
    assert refused.outcome is Outcome.ERROR and "damaged" in refused.message


def test_the_files_that_cases_hang_on_are_told(world: World) -> None:
    files = {mark.path: mark for mark in world.ask(Describe(variant=ADAM), Described).files}
    suite = [str(world.suite / name) for name in ("worker_tasks.py", "worker.gin", "test_worker_suite.py")]
    assert set(suite) <= set(files)
    for path in suite:
        found = os.stat(path)
        assert (files[path].size, files[path].changed_ns) == (found.st_size, found.st_ctime_ns)
    assert not any("site-packages" in path for path in files)


def test_a_job_of_a_case_that_the_worker_does_not_have_is_an_error_and_not_its_end(world: World) -> None:
    adam = world.described(ADAM)
    result = world.ask(Job(lease=9, **world.of(adam["one"], LEARNED)), JobResult)  # another variant
    assert (result.lease, result.outcome, result.replace) == (9, Outcome.ERROR, True)
    assert "edited" in result.message
    world.trained_blocks(adam["two"], ADAM, theta="")


@pytest.mark.parametrize("edited", ["num_inner_steps = 5", "num_inner_steps = ("])
def test_job_of_a_case_whose_gin_file_was_edited_before_its_first_training_is_given_back(
    world: World, edited: str
) -> None:
    faster = Variant(bindings=("Case.optimizer = @adam()", f"adam.learning_rate = 0.3{len(edited)}"))
    case, file = world.described(faster)["one"], world.suite / "worker.gin"
    file.write_text(GIN.replace("num_inner_steps = 4", edited))
    try:
        result = world.ask(Job(lease=7, **world.of(case, faster, theta="")), JobResult)
    finally:
        file.write_text(GIN)
    assert (result.outcome, result.replace, result.other_gin) == (Outcome.ERROR, True, True), result.message


def test_a_suite_that_cannot_be_collected_is_told_with_its_reason(tmp_path: Path) -> None:
    world = World(tmp_path, broken=True)
    try:
        failed = world.received(Failed)
        assert failed.variant_key is None and "nothing_of_that_name" in failed.messages[0]
    finally:
        world.pool.close()

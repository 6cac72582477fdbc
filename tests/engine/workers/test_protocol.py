"""Every message between a chief and its workers, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.codec import Message
from lobench.core.result import Outcome
from lobench.core.subject import Variant
from lobench.engine.config.layers import Layers
from lobench.engine.workers.protocol import (
    FROM_WORKER,
    TO_WORKER,
    Configure,
    Describe,
    Described,
    Exit,
    Failed,
    FileMark,
    Job,
    JobResult,
    Progress,
    Ready,
)

SHOWN = texts_of("workers")

TEXTS = st.lists(st.text(max_size=9), max_size=3).map(tuple)
VARIANTS = st.builds(Variant, bindings=TEXTS, trainer_config=st.none() | st.text(max_size=9))
BLOCKS = st.builds(SeedBlock, start=st.integers(0), size=st.integers(1))
CASES = st.builds(
    CaseInfo,
    identity=st.text(max_size=9),
    optimizer_hash=st.text(max_size=9),
    suite=st.text(max_size=9),
    name=st.text(max_size=9),
    node_id=st.text(max_size=9),
    num_inner_steps=st.integers(1),
    num_seeds=st.integers(1),
    seed_block=st.none() | st.integers(1),
    num_gpus=st.floats(0, 8) | st.integers(0, 8),
    timeout_seconds=st.floats(0) | st.integers(0),
    scale=st.none() | st.sampled_from(["log", "linear"]),
    minimum=st.none() | st.floats(allow_nan=False),
)
JOB: dict[str, Any] = {
    "case_key": st.text(max_size=9),
    "seed_block": BLOCKS,
    "checkpoint_uri": st.text(max_size=9),
    "theta_path": st.text(max_size=9),
    "variant": VARIANTS,
}
FOR_WORKERS = st.one_of(
    st.builds(Job, lease=st.integers(0), companions=st.lists(st.tuples(st.text(), st.text())).map(tuple), **JOB),
    st.builds(Describe, variant=VARIANTS),
    st.just(Exit()),
)
MARKS = st.builds(FileMark, path=st.text(max_size=9), size=st.integers(0), changed_ns=st.integers(0))
OF_WORKERS = st.one_of(
    st.just(Ready()),
    st.builds(
        Described,
        variant_key=st.text(max_size=9),
        cases=st.lists(CASES, max_size=2).map(tuple),
        files=st.lists(MARKS, max_size=2).map(tuple),
        edited=TEXTS,
    ),
    st.builds(Failed, messages=TEXTS, variant_key=st.none() | st.text(max_size=9)),
    st.builds(Progress, lease=st.integers(0), step=st.integers(0)),
    st.builds(
        JobResult,
        lease=st.integers(0),
        outcome=st.sampled_from(Outcome),
        message=st.text(max_size=9),
        replace=st.booleans(),
        other_code=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=2),
        payload=st.binary(max_size=99),
    ),
)


@given(FOR_WORKERS)
def test_what_a_chief_says_a_worker_hears(message: Any) -> None:
    assert TO_WORKER.from_bytes(message.to_bytes()) == message


@given(OF_WORKERS)
def test_what_a_worker_says_its_chief_hears(message: Any) -> None:
    assert FROM_WORKER.from_bytes(message.to_bytes()) == message


@given(TEXTS, TEXTS, st.none() | st.text(max_size=9))
def test_a_configuration_comes_with_its_layers(
    arguments: tuple[str, ...], gin_params: tuple[str, ...], trainer_config: str | None
) -> None:
    layers = Layers(trainer_config=trainer_config, gin_params=gin_params)
    message = Configure(num_cpus=2, arguments=arguments, layers=layers, compilation_cache="c", serve="a:b")
    assert Configure.from_bytes(message.to_bytes()) == message


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Exit(), SHOWN["unknown-kind-exit-expected-one"]),
        (Job(lease=1, case_key="", seed_block=SeedBlock(start=0, size=1), checkpoint_uri="", theta_path=""), "'job'"),
    ],
)
def test_a_worker_cannot_say_what_its_chief_says(message: Message, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FROM_WORKER.from_bytes(message.to_bytes())

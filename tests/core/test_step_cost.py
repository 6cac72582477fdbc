"""Costs of steps: from recorded times of chunks to a value, its mark, and the class of machine it is of."""

from __future__ import annotations

import dataclasses
import math
from array import array

import pytest
from shown import texts_of

from lobench.core.result import Curves, read_header
from lobench.core.step_cost import Overhead, StepCost, StepSeconds

SHOWN = texts_of("core")

# Seconds of a step, chunk by chunk, of the digits MLP: on a quiet machine, and beside a load that came and went.
QUIET = (1.31e-5, 1.30e-5, 1.33e-5, 1.31e-5, 1.32e-5)
LOADED = (1.31e-5, 2.60e-5, 1.35e-5, 2.71e-5, 2.55e-5)


def _cost(samples: tuple[float, ...], *, machine: str = "m", together: int = 1, busy: float = 1.0) -> StepCost:
    return StepCost(machine=machine, num_together=together, samples=samples, busy=busy, state_bytes=24)


def test_a_time_is_the_median_over_the_chunks_of_all_blocks_and_the_share_of_one_seed() -> None:
    found = StepSeconds.of([_cost(QUIET[:2], together=4), _cost((), together=4), _cost(QUIET[2:], together=4)])
    assert found.median == pytest.approx(1.31e-5 / 4) and found.num_samples == 5
    assert not found.is_unsteady


@pytest.mark.parametrize(
    ("samples", "busy"),
    [(LOADED, 1.0), (QUIET, 0.55), (QUIET[:2], 1.0), (QUIET[:1], 1.0)],
    ids=["spread", "others had the processor", "two chunks", "one chunk"],
)
def test_a_time_beside_load_or_of_few_chunks_is_unsteady(samples: tuple[float, ...], busy: float) -> None:
    assert StepSeconds.of([_cost(samples, busy=busy)]).is_unsteady


def test_on_a_device_that_is_no_processor_the_spread_alone_decides() -> None:
    assert not StepSeconds.of([_cost(QUIET, busy=math.nan)]).is_unsteady
    assert StepSeconds.of([_cost(LOADED, busy=math.nan)]).is_unsteady


def test_without_a_chunk_there_is_no_time_and_no_mark() -> None:
    found = StepSeconds.of([_cost(())])
    assert math.isnan(found.median) and not found.is_unsteady


@pytest.mark.parametrize("other", [{"machine": "n"}, {"together": 4}])
def test_times_of_two_classes_of_machines_are_never_one_value(other: dict[str, str | int]) -> None:
    with pytest.raises(AssertionError, match=SHOWN["several-classes"]):
        StepSeconds.of([_cost(QUIET), _cost(QUIET, **other)])  # type: ignore[arg-type]


def test_a_payload_holds_the_cost_and_one_of_before_reads_as_having_none() -> None:
    rows = memoryview(array("f", [2.0, 1.0])).cast("B").cast("f", (1, 2))
    bare = Curves(seeds=(3,), metrics={"train/loss": rows}, eval_steps=(0, 1), diverged_at=(-1,))
    assert "cost" not in read_header(bare.to_payload())[0]
    assert Curves.from_payload(bare.to_payload()).cost is None
    timed = dataclasses.replace(_cost(QUIET), gradient=_cost(QUIET[:3], busy=math.nan))
    for cost in (_cost(QUIET), dataclasses.replace(_cost(()), peak_bytes=7), dataclasses.replace(timed, busy=0.5)):
        read = Curves.from_payload(dataclasses.replace(bare, cost=cost).to_payload()).cost
        assert repr(read) == repr(cost), "NaN equals no NaN"


def test_an_overhead_is_of_the_evaluations_whose_gradient_was_timed() -> None:
    half = tuple(seconds / 2 for seconds in QUIET)
    timed = dataclasses.replace(_cost(QUIET, together=4), gradient=_cost(half, together=4))
    untimed = _cost(tuple(7 * seconds for seconds in QUIET), together=4)
    found = Overhead.of([timed, untimed])
    assert found.ratio == pytest.approx(2.0) and not found.is_unsteady
    assert Overhead.of([dataclasses.replace(timed, gradient=_cost(LOADED, together=4))]).is_unsteady
    assert math.isnan(Overhead.of([untimed]).ratio)


def test_many_chunks_are_stored_as_quantiles_with_the_same_median_and_quartiles() -> None:
    whole = _cost(tuple(1e-5 * (1 + place / 1000) for place in range(500)))
    read = StepCost.read(whole.header())
    assert len(read.samples) == 33
    before, after = StepSeconds.of([whole]), StepSeconds.of([read])
    assert (after.median, after.spread) == pytest.approx((before.median, before.spread), rel=1e-2)

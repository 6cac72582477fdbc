"""A summary has exactly the numbers that its curves give."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from case_infos import case_info
from hypothesis import given, settings
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.curve_summary import NUM_SPARKS, CurveSummary, read_summary, summarize
from lobench.core.metric import Direction, UnknownDirection, is_of_batch
from lobench.core.result import Curves, Provenance
from lobench.core.step_cost import StepCost

SHOWN = texts_of("core")

_VALUES = st.one_of(
    st.floats(width=32, allow_nan=True, allow_infinity=True), st.sampled_from([0.0, -0.0, 1e38, math.nan, 0.1])
)
_NAMES = ("train/loss", "test/loss", "test/accuracy", "test/score", "batch/loss")


@st.composite
def some_curves(draw: st.DrawFn) -> Curves:
    num_seeds, num_evals = draw(st.integers(1, 9)), draw(st.integers(1, 15))
    metrics = {}
    for name in draw(st.lists(st.sampled_from(_NAMES), min_size=1, unique=True)):
        length = draw(st.sampled_from([num_evals, 1]))  # one value a seed, as plugins declare some metrics
        size = num_seeds * length
        values = draw(st.lists(_VALUES, min_size=size, max_size=size))
        metrics[name] = memoryview(np.asarray(values, np.float32).reshape(num_seeds, length))
    first_step = draw(st.sampled_from([0, 7]))
    cost = StepCost(machine="m", num_together=2, samples=(0.5, 0.25), busy=math.nan, state_bytes=8)
    return Curves(
        seeds=tuple(range(5, 5 + num_seeds)),
        metrics=metrics,
        eval_steps=tuple(range(first_step, first_step + num_evals)),
        diverged_at=tuple(draw(st.lists(st.integers(-1, 2**40), min_size=num_seeds, max_size=num_seeds))),
        wall_seconds=draw(st.floats(0, 1e9)),
        compile_seconds=0.1,
        provenance=Provenance(host="h", git_revision="r", git_dirty=True, bindings="a/lobench.Case.task = @T()"),
        directions={"test/score": Direction.MAX} if draw(st.booleans()) else {},
        cost=draw(st.sampled_from([None, cost])),
    )


def bits(values: Sequence[float]) -> list[bytes]:
    """Returns the bits of numbers; all NaN alike, as everything that prints them takes them."""
    return [b"nan" if math.isnan(value) else struct.pack("<d", value) for value in values]


@settings(max_examples=60, deadline=None)
@given(some_curves(), st.sampled_from(_NAMES[:-1]), st.sampled_from([None, "log", "linear"]))
def test_summary_of_any_curves_has_the_bits_that_decoding_gives(
    curves: Curves, primary: str, scale: str | None
) -> None:
    decoded = Curves.from_payload(curves.to_payload())
    found = read_summary(*summarize(curves, primary), curves.complete)
    assert summarize(decoded, primary) == summarize(curves, primary)
    case = case_info("c", identity="i", num_inner_steps=9, num_seeds=2, primary_metric=primary, scale=scale)
    assert set(found.summarized_metrics) == {
        name for name, shape in decoded.shapes.items() if all(shape) and not is_of_batch(name)
    }
    for name in found.summarized_metrics:
        assert bits(found.first(name)) == bits(decoded.first(name))
        assert bits(found.final(name)) == bits(decoded.final(name))
        if decoded.direction(name) is None:
            with pytest.raises(UnknownDirection):
                found.best(name)
        else:
            assert bits(found.best(name)) == bits(decoded.best(name))
    if primary in found.summarized_metrics:
        rows = np.asarray(decoded.metrics[primary], np.float64)
        points = np.linspace(0, rows.shape[1] - 1, NUM_SPARKS).round().astype(int)
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(found.sparks(), rows[:, points].mean(axis=0), rtol=1e-12)
    else:
        assert found.sparks() == []
    for name in ("seeds", "eval_steps", "shapes", "diverged_at", "num_diverged", "wall_seconds", "compile_seconds"):
        assert getattr(found, name) == getattr(decoded, name), name
    assert found.directions == decoded.directions and found.training == decoded.training != ""
    assert found.origin == replace(decoded.origin, bindings="")
    assert repr(found.cost) == repr(decoded.cost)
    assert found.exploded(case) == decoded.exploded(case) and found.num_exploded(case) == decoded.num_exploded(case)


def test_summary_reads_the_curves_for_what_it_does_not_hold() -> None:
    values = memoryview(np.asarray([[1.0, 0.5]], np.float32))
    curves = Curves(seeds=(0,), metrics={"train/loss": values}, eval_steps=(0, 1), diverged_at=(-1,), num_params=3)
    calls = list[int]()

    def load() -> Curves:
        calls.append(1)
        return curves

    found = read_summary(*summarize(curves, "train/loss"), load)
    assert found.film is None and found.final("train/loss") == [0.5] and not calls
    assert found.metrics == curves.metrics and found.num_params == 3 and found.complete() is curves and len(calls) == 3


def test_damaged_summary_is_a_value_error() -> None:
    values = memoryview(np.asarray([[1.0, 0.5]], np.float32))
    curves = Curves(seeds=(0,), metrics={"train/loss": values}, eval_steps=(0, 1), diverged_at=(-1,))
    text, numbers = summarize(curves, "train/loss")
    assert isinstance(read_summary(text, numbers, curves.complete), CurveSummary)
    with pytest.raises(ValueError, match=SHOWN["damaged-summary"]):
        read_summary(text, numbers[:-1], curves.complete)

"""Times of inner steps: from chunks without an evaluation, which cost no bit of a result."""

from __future__ import annotations

import math

import optax
import pytest
from saved_worlds import BLOCK, Regression, bits, case_of, phases_of, program_of, theta_of

from lobench.core.case import Case
from lobench.inner.training.step_clock import StepClock

STEP, EVALUATION, CALL = 0.01, 0.3, 0.002


def _run(clock: StepClock, evaluations: list[int], num_steps: int, chunk: int = 25) -> list[range]:
    """Runs a training whose times are known, as `TrainingLoop` does, and returns its chunks."""
    chunks, start = [], 0
    while start < num_steps:
        stop = min(start + chunk, num_steps)
        stop = clock.chunk_end(start, stop) if start else stop
        evaluated = sum(start <= at < stop for at in evaluations) + (stop == num_steps)
        seconds = CALL + (stop - start) * STEP + evaluated * EVALUATION
        if start:
            clock.record_chunk(start, stop, seconds, seconds, evaluates_end=stop == num_steps)
            if clock.needs_call:
                clock.record_call(CALL)
        chunks.append(range(start, stop))
        start, chunk = stop, 2 * chunk
    return chunks


@pytest.mark.parametrize("every", [3, 10, 50, 400])
def test_a_time_holds_no_evaluation_and_no_call(every: int) -> None:
    evaluations = [*range(0, 400, every), 400]
    clock = StepClock(evaluations)
    chunks = _run(clock, evaluations, 400)
    assert clock.samples and clock.samples == pytest.approx([STEP] * len(clock.samples))
    assert [chunk.start for chunk in chunks[1:]] == [chunk.stop for chunk in chunks[:-1]]
    assert clock.busy == 1.0


def test_with_an_evaluation_before_every_step_there_is_no_time() -> None:
    evaluations = list(range(401))
    clock = StepClock(evaluations)
    _run(clock, evaluations, 400)
    assert clock.samples == () and clock.num_cuts == 0


def test_few_chunks_are_cut() -> None:
    evaluations = list(range(0, 20_001, 10))
    clock = StepClock(evaluations)
    _run(clock, evaluations, 20_000, chunk=50)
    assert len(clock.samples) >= 4 and clock.num_cuts < 60


@pytest.mark.parametrize(("step", "is_short"), [(1e-5, True), (1e-2, False)])
def test_a_short_training_has_one_sample_and_nine_calls_of_a_program_are_timed(
    step: float, is_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_run.__globals__, "STEP", step)
    monkeypatch.setitem(_run.__globals__, "EVALUATION", 0.0)
    evaluations, calls, known = list(range(0, 1001, 10)), list[float](), []
    for _ in range(5):
        clock = StepClock(evaluations)
        clock.calls = calls
        _run(clock, evaluations, 1000)
        assert (len(clock.samples) == 1) == is_short and clock.samples == pytest.approx([step] * len(clock.samples))
        known.append(len(calls))
    assert known == ([1, 2, 3, 4, 5] if is_short else [3, 6, 9, 9, 9])


@pytest.mark.parametrize("num_phases", [0, 2])
def test_a_result_has_its_cost_and_the_bits_are_those_without_a_clock(
    num_phases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(phases_of("adam", num_phases), eval_batches=2)
    if not num_phases:
        case = Case(num_inner_steps=90, eval_every=10, eval_batches=2, optimizer=optax.adam(0.01))
    task, theta = Regression("array"), theta_of(case)
    program = program_of(case, task)
    found = program.run(theta, BLOCK)
    assert found is not None and found.cost is not None
    assert found.cost.num_together == BLOCK.size and " x " in found.cost.machine
    assert num_phases or not math.isnan(found.cost.busy)  # of chunks without an evaluation, however long they took
    # Adam's two moments and its count, float32 and int32.
    assert num_phases or found.cost.state_bytes == 4 * (2 * found.num_params + 1)
    monkeypatch.setattr(StepClock, "chunk_end", lambda self, start, stop: stop)
    monkeypatch.setattr(StepClock, "needs_call", False)
    assert bits(program.run(theta, BLOCK)) == bits(found)

"""Step clock: wall time of inner steps, from chunks without an evaluation."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence

__all__ = ["StepClock"]

_MIN_SAMPLES = 4
_MAX_CUT_SHARE = 0.005  # largest fraction of the time for cut chunks
_MAX_TOTAL_SHARE = 0.02  # largest fraction of the training's time, until there are enough samples
_MIN_STEPS = 2
_MAX_CALLS = 9  # calls without steps per program; the first ones are slow, and the fastest counts


class StepClock:
    """Times of inner steps, without compilation and evaluations.

    A program runs steps and the evaluations between them. So some chunks are cut to lie between two evaluations. (The
    length of chunks changes no bits.) The overhead of a call is measured by nine calls without a step per program. A
    training of milliseconds has only one such call, because each takes a fiftieth of the training's time.

    Args:
      eval_steps: Inner steps before which an evaluation takes place, in order.

    Attributes:
      num_cuts: Number of chunks that were cut for the clock.
      calls: Seconds of calls without a step of the present program, including those of earlier trainings.
    """

    def __init__(self, eval_steps: Sequence[int]) -> None:
        self._eval_steps, self._samples = eval_steps, list[tuple[float, int, list[float]]]()
        self.calls = list[float]()
        self._wall_seconds = self._cpu_seconds = self._elapsed_seconds = 0.0
        self.num_cuts = self._num_calls = 0

    def _next_evaluation(self, step: int) -> float:
        index = bisect.bisect_left(self._eval_steps, step)
        return self._eval_steps[index] if index < len(self._eval_steps) else math.inf

    @property
    def needs_call(self) -> bool:
        """Whether a call without steps should be timed."""
        is_wanted = len(self.calls) < _MAX_CALLS and self._num_calls < min(3, len(self._samples))
        return is_wanted and self._has_time_for(self._num_calls)

    def record_call(self, seconds: float) -> None:
        """Records the duration of a call without steps."""
        self.calls.append(seconds)
        self._num_calls += 1

    def _has_time_for(self, num_further_calls: int) -> bool:
        """Returns whether the training is long enough for further calls. True as long as no times are known."""
        training_seconds = min(self.samples, default=math.inf) * self._eval_steps[-1]
        return (
            num_further_calls == 0
            or (num_further_calls + 1) * self._call_seconds <= _MAX_TOTAL_SHARE * training_seconds
        )

    @property
    def _call_seconds(self) -> float:
        return statistics.median(self.calls) if self.calls else 0.0

    def chunk_end(self, start: int, stop: int) -> int:
        """Returns the end of a chunk that starts at `start` and may continue to `stop`."""
        next_evaluation = self._next_evaluation(start)
        is_cheap = 3 * self._call_seconds * (self.num_cuts + 1) <= _MAX_CUT_SHARE * self._elapsed_seconds
        is_needed = len(self._samples) < _MIN_SAMPLES and self._has_time_for(self.num_cuts)
        if next_evaluation >= stop or not (is_needed or is_cheap):
            return stop
        if next_evaluation > start:
            chunk_end = int(next_evaluation) if next_evaluation - start >= _MIN_STEPS else stop
        else:
            second_evaluation = self._next_evaluation(start + 1)
            chunk_end = start + 1 if second_evaluation - (start + 1) >= _MIN_STEPS else stop
        self.num_cuts += chunk_end < stop
        return chunk_end

    def record_chunk(self, start: int, stop: int, wall: float, cpu: float, *, evaluates_end: bool) -> None:
        """Records the duration of a chunk; `evaluates_end`: the program evaluated after its last step."""
        self._elapsed_seconds += wall
        if stop - start >= _MIN_STEPS and self._next_evaluation(start) >= stop and not evaluates_end:
            self._samples.append((wall, stop - start, self.calls))
            self._wall_seconds, self._cpu_seconds = self._wall_seconds + wall, self._cpu_seconds + cpu

    @property
    def samples(self) -> tuple[float, ...]:
        """Seconds of a step, one value per chunk."""
        seconds_and_steps = [(wall - min(calls, default=0.0), steps) for wall, steps, calls in self._samples]
        return tuple(wall / steps for wall, steps in seconds_and_steps if wall > 0)

    @property
    def busy(self) -> float:
        """Processor seconds per wall second; NaN without samples."""
        return self._cpu_seconds / self._wall_seconds if self._wall_seconds else math.nan

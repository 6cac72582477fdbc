"""Step clock: wall time of inner steps, from chunks in which nothing is evaluated."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence

__all__ = ["StepClock"]

_LEAST_SAMPLES = 4
_MOST_SHARE = 0.005  # of the time, for chunks that are cut so that one has no evaluation
_LEAST_STEPS = 2


class StepClock:
    """Times of inner steps without compilation and evaluations.

    A program runs steps and the evaluations between them. So some chunks are cut to lie between two evaluations, where
    chunks are free to end anywhere: lengths of chunks change no bit. A call of no step says what a call costs.

    Args:
      eval_steps: Inner steps before which something is evaluated, in order.

    Attributes:
      num_cuts: Chunks that ended earlier for the clock.
    """

    def __init__(self, eval_steps: Sequence[int]) -> None:
        self._eval_steps, self._samples = eval_steps, list[tuple[float, int]]()
        self._calls = list[float]()
        self._wall = self._cpu = self._elapsed = 0.0
        self.num_cuts = 0

    def _next_evaluation(self, step: int) -> float:
        place = bisect.bisect_left(self._eval_steps, step)
        return self._eval_steps[place] if place < len(self._eval_steps) else math.inf

    @property
    def needs_call(self) -> bool:
        """Whether a call of no step is to be timed."""
        return len(self._calls) < min(3, len(self._samples))

    def called(self, seconds: float) -> None:
        """Takes how long a call of no step took."""
        self._calls.append(seconds)

    def stop(self, start: int, stop: int) -> int:
        """Returns where a chunk from `start` ends that may go on to `stop`."""
        first = self._next_evaluation(start)
        call = statistics.median(self._calls) if self._calls else 0.0
        is_cheap = 3 * call * (self.num_cuts + 1) <= _MOST_SHARE * self._elapsed
        if first >= stop or not (len(self._samples) < _LEAST_SAMPLES or is_cheap):
            return stop
        if first > start:
            cut = int(first) if first - start >= _LEAST_STEPS else stop
        else:
            after = self._next_evaluation(start + 1)
            cut = start + 1 if after - (start + 1) >= _LEAST_STEPS else stop
        self.num_cuts += cut < stop
        return cut

    def took(self, start: int, stop: int, wall: float, cpu: float, *, evaluates_end: bool) -> None:
        """Takes how long a chunk took; `evaluates_end`: the program evaluated after its last step."""
        self._elapsed += wall
        if stop - start >= _LEAST_STEPS and self._next_evaluation(start) >= stop and not evaluates_end:
            self._samples.append((wall, stop - start))
            self._wall, self._cpu = self._wall + wall, self._cpu + cpu

    @property
    def samples(self) -> tuple[float, ...]:
        """Seconds of a step, one a chunk."""
        call = min(self._calls, default=0.0)
        return tuple((wall - call) / steps for wall, steps in self._samples if wall > call)

    @property
    def busy(self) -> float:
        """Processor seconds over wall seconds; NaN without a sample."""
        return self._cpu / self._wall if self._wall else math.nan

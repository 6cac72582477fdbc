"""Pace of an incumbent: a candidate that falls far behind it is stopped during its run."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.engine.whole_file import write_whole

__all__ = ["STOP_PREFIX", "Pace", "PaceCurve"]

STOP_PREFIX = "stopped by lobench keep: "  # before the reason, in the last line of a stopped run's standard error
_LEAST_RUNS = 3
# A candidate is stopped if, after four times the incumbent's steps, it is still worse than the incumbent by more than
# two ranges of the incumbent's runs.
_SLOWDOWN = 4
_SPREADS = 2.0
_NOT_FINITE = 3  # this many values that are not finite, one after another, are a divergence

PaceCurve = tuple[Sequence[int], Sequence[float]]  # steps, and the values of the metric at them


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Runs of an incumbent that a candidate must keep up with.

    Attributes:
      candidate: Content of the candidate's manifest.
      metric: Metric that decides.
      maximize: Whether higher is better.
      curves: Path of the curves that a run writes, with placeholders.
      runs: Runs of the incumbent, one for each shared seed.
    """

    candidate: str
    metric: str
    maximize: bool
    curves: str
    runs: tuple[PaceCurve, ...]

    @classmethod
    def read(cls, path: Path) -> Pace:
        record = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**record, "runs": tuple((steps, values) for steps, values in record["runs"])})

    def write(self, path: Path) -> None:
        write_whole(path, json.dumps(dataclasses.asdict(self)) + "\n")

    def reason_to_stop(self, run: PaceCurve) -> str:
        """Returns the reason to stop a run that has diverged or is far behind; "" without one."""
        last_values = run[1][-_NOT_FINITE:]
        if len(last_values) == _NOT_FINITE and not any(map(math.isfinite, last_values)):
            return f"its last {_NOT_FINITE} values of {self.metric} are not finite, at step {run[0][-1]}"
        return self.shortfall(run)

    def shortfall(self, candidate_run: PaceCurve) -> str:
        """Returns the reason to stop a run that is far behind; "" if it keeps up.

        The test begins once the run has done a quarter of the incumbent's steps. The incumbent's runs are taken at a
        quarter of the run's present step. The run is far behind if its best value is worse than the best value of each
        of them, by more than twice the range of their best values.
        """
        steps = candidate_run[0]
        if len(self.runs) < _LEAST_RUNS or not steps:
            return ""
        if steps[-1] * _SLOWDOWN < min(candidate_run[0][-1] for candidate_run in self.runs):
            return ""
        early_step = steps[-1] // _SLOWDOWN
        if any(len(candidate_run[0]) < 2 or candidate_run[0][1] > early_step for candidate_run in self.runs):
            return ""  # only the first value is known there
        sign = 1.0 if self.maximize else -1.0
        incumbent_bests = [sign * _best_value(sign, candidate_run, early_step) for candidate_run in self.runs]
        best = sign * _best_value(sign, candidate_run, steps[-1])
        spread = max(incumbent_bests) - min(incumbent_bests)
        if not all(map(math.isfinite, incumbent_bests)) or best >= min(incumbent_bests) - _SPREADS * spread:
            return ""
        best_text = f"{sign * best:.4g}" if math.isfinite(best) else "none"
        bound = f"{sign * min(incumbent_bests):.4g}"
        incumbent = f"the incumbent had {bound} or better at step {early_step}"
        return f"its best {self.metric} is {best_text} at step {steps[-1]}; {incumbent}"


def _best_value(sign: float, run: PaceCurve, last_step: int) -> float:
    """Returns the best finite value up to a step."""
    import numpy as np  # a run of less than a poll is started without it

    steps = np.asarray(run[0])
    values = np.asarray(run[1], float)
    finite_values = values[(steps <= last_step) & np.isfinite(values)]
    return float(sign * (sign * finite_values).max()) if len(finite_values) else -sign * math.inf

"""Cost of an inner step: seconds, bytes of the optimizer's state, peak memory, and the class of machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["UNSTEADY_NOTE", "MachineClass", "Overhead", "StepCost", "StepSeconds"]

UNSTEADY_NOTE = "~: unreliable timing (a short run, or a busy machine)"

_MAX_SPREAD = 0.1  # between the quartiles, over the median
_MIN_BUSY = 0.9  # processor seconds over wall seconds, of one thread and more
_MIN_SAMPLES = 3
_MAX_SAMPLES = 33  # samples of an evaluation, so that its payload stays small


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MachineClass:
    """Class of machines whose times are comparable.

    Attributes:
      machine: Kind of the device or model of the processor, and the number of devices or threads.
      num_together: Number of trainings that one program steps at once: seeds of a block times checkpoints.
    """

    machine: str
    num_together: int

    def __str__(self) -> str:
        return f"{self.machine}, {self.num_together} trainings at once" if self.num_together > 1 else self.machine


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """Seconds of an inner step of one seed.

    Attributes:
      median: Median over the samples; NaN without samples.
      spread: Interquartile range divided by the median; NaN for fewer than two samples.
      busy: Processor seconds per wall second; NaN if the processor does not compute.
      num_samples: Number of samples, one per chunk of inner steps.
    """

    median: float
    spread: float
    busy: float
    num_samples: int

    @classmethod
    def of(cls, costs: Iterable[StepCost]) -> StepSeconds:
        """Returns the median time of an inner step, over the samples of all evaluations on one class of machines."""
        costs_with_samples = [cost for cost in costs if cost.samples]
        assert len({cost.machine_class for cost in costs_with_samples}) <= 1, "of several classes of machines"
        samples = [seconds for cost in costs_with_samples for seconds in cost.samples]
        if not samples:
            return cls(median=math.nan, spread=math.nan, busy=math.nan, num_samples=0)
        median = statistics.median(samples)
        spread = math.nan
        if len(samples) > 1:
            lower, _, upper = statistics.quantiles(samples, n=4, method="inclusive")
            spread = (upper - lower) / median if median > 0 else math.nan
        num_together = costs_with_samples[0].num_together
        return cls(
            median=median / num_together,
            spread=spread,
            busy=statistics.median(cost.busy for cost in costs_with_samples),
            num_samples=len(samples),
        )

    @property
    def error(self) -> float:
        """Standard error of the median, relative to the median, for nearly normal samples."""
        return 1.2533 * self.spread / 1.349 / math.sqrt(self.num_samples) if self.num_samples > 1 else math.nan

    @property
    def is_unsteady(self) -> bool:
        """Whether there are few samples, they vary much, or other processes used the processor meanwhile."""
        is_spread_large = not self.spread <= _MAX_SPREAD
        return self.num_samples > 0 and (self.num_samples < _MIN_SAMPLES or is_spread_large or self.busy < _MIN_BUSY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Time of an inner step relative to that of a bare gradient step.

    Attributes:
      step: Time of a step in the evaluations whose gradient was timed too.
      gradient: Time of a bare gradient step.
    """

    step: StepSeconds
    gradient: StepSeconds

    @classmethod
    def of(cls, costs: Iterable[StepCost]) -> Overhead:
        """Returns the overhead in evaluations on one class of machines."""
        timed_costs = [cost for cost in costs if cost.gradient is not None]
        return cls(
            step=StepSeconds.of(timed_costs),
            gradient=StepSeconds.of(cost.gradient for cost in timed_costs if cost.gradient),
        )

    @property
    def ratio(self) -> float:
        """Time of a step divided by that of a bare gradient step; NaN if not measured.

        1: the optimizer costs nothing.
        """
        return self.step.median / self.gradient.median if self.gradient.median > 0 else math.nan

    @property
    def is_unsteady(self) -> bool:
        return self.step.is_unsteady or self.gradient.is_unsteady


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Cost of the steps of one evaluation. Not part of its identity.

    Attributes:
      machine, num_together: See `MachineClass`.
      samples: Seconds of a step of the whole program, one value per chunk of inner steps without an evaluation.
      busy: Processor seconds per wall second in these chunks; NaN if the processor does not compute.
      state_bytes: Size of the optimizer's state of one seed, from the shapes of its leaves.
      peak_bytes: Peak memory of the device. None if its backend does not report it, or if an earlier program of the
        process needed more.
      gradient: Cost of a step that only adds the gradient to the parameters, in the same process, with as many
        trainings together. None unless `Case.time_gradient` is set.
    """

    machine: str
    num_together: int
    samples: tuple[float, ...] = ()
    busy: float = math.nan
    state_bytes: int = 0
    peak_bytes: int | None = None
    gradient: StepCost | None = None

    @property
    def machine_class(self) -> MachineClass:
        return MachineClass(machine=self.machine, num_together=self.num_together)

    def header(self) -> dict[str, Any]:
        """Returns the fields as stored in a payload's header."""
        fields = {
            "machine": self.machine,
            "num_together": self.num_together,
            "samples": [float(f"{seconds:.4g}") for seconds in _thin_out(self.samples)],
            "busy": None if math.isnan(self.busy) else round(self.busy, 3),
            "state_bytes": self.state_bytes,
            "peak_bytes": self.peak_bytes,
            "gradient": self.gradient.header() if self.gradient is not None else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> StepCost:
        return cls(
            machine=header["machine"],
            num_together=header["num_together"],
            samples=tuple(header["samples"]),
            busy=header.get("busy", math.nan),
            state_bytes=header["state_bytes"],
            peak_bytes=header.get("peak_bytes"),
            gradient=cls.read(header["gradient"]) if "gradient" in header else None,
        )


def _thin_out(samples: Sequence[float]) -> Sequence[float]:
    """Returns the samples, or quantiles of them if there are many. The median and the quartiles do not change."""
    if len(samples) <= _MAX_SAMPLES:
        return samples
    inner_quantiles = statistics.quantiles(samples, n=_MAX_SAMPLES - 1, method="inclusive")
    return [min(samples), *inner_quantiles, max(samples)]

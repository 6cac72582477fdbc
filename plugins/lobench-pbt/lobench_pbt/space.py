"""Search spaces: parameters by gin path, conditions among them, and how a child's values come from its parents'.

A parameter is active when each parameter that it depends on is active and holds one of the values named. All functions
are pure; each parameter draws from a stream of its own, so that one more parameter changes no other's values.
"""

from __future__ import annotations

import enum
import graphlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lobench import ConfigError
from lobench.extend import Draws
from lobench_pbt.trial import Value

__all__ = ["Kind", "Parameter", "Rule", "Scale", "Space", "check_parameters"]

_STEP = 0.2  # of the value (multiply) or of the range (add)
_NOISE = 0.1  # of the range
_INTEGERS = range(-(1 << 63), 1 << 63)  # what a message holds


class Kind(enum.StrEnum):
    """REAL and INT between bounds; DISCRETE: ordered numbers; CATEGORICAL: unordered values."""

    REAL = "real"
    INT = "int"
    DISCRETE = "discrete"
    CATEGORICAL = "categorical"


class Scale(enum.StrEnum):
    """How the prior of a range is uniform."""

    LINEAR = "linear"
    LOG = "log"


class Rule(enum.StrEnum):
    """How a range mutates: times 1.2 or 0.8; a fifth of the range up or down; by a normal draw, a tenth of the range
    wide; anew from the prior.
    """

    MULTIPLY = "multiply"
    ADD = "add"
    NOISE = "noise"
    RESAMPLE = "resample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One hyper-parameter.

    Attributes:
      path: gin path that it is bound to, `outer_adam.learning_rate`; its name everywhere.
      low, high: Bounds of a range, both within.
      values: Of DISCRETE (increasing numbers) and CATEGORICAL.
      when: For each parameter that it depends on, the values at which it is active.
    """

    path: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    scale: Scale = Scale.LINEAR
    rule: Rule = Rule.MULTIPLY
    values: tuple[Value, ...] = ()
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def is_range(self) -> bool:
        return self.kind in (Kind.REAL, Kind.INT)

    def contains(self, value: Value) -> bool:
        if not self.is_range:
            return any(value == known and type(value) is type(known) for known in self.values)
        if isinstance(value, bool) or not isinstance(value, int if self.kind is Kind.INT else (int, float)):
            return False
        return self.low <= value <= self.high

    def sample(self, draws: Draws) -> Value:
        """Draws from the prior."""
        if not self.is_range:
            return draws.choice(self.values)
        if self.kind is Kind.INT and self.scale is Scale.LINEAR:
            return int(self.low) + draws.below(int(self.high) - int(self.low) + 1)
        if self.scale is Scale.LOG:
            margin = 0.5 if self.kind is Kind.INT else 0.0  # what is rounded to the ends comes from both their sides
            value = math.exp(draws.uniform(math.log(self.low - margin), math.log(self.high + margin)))
        else:
            value = draws.uniform(self.low, self.high)
        return self._clip(value)

    def mutate(self, value: Value, draws: Draws, p_resample: float, p_switch: float) -> Value:
        """Moves a value; the result is in the domain, whatever the value was."""
        if self.kind is Kind.CATEGORICAL:
            return self.sample(draws) if draws.chance(p_switch) or not self.contains(value) else value
        up = draws.chance(0.5)
        if self.kind is Kind.DISCRETE:
            place = self.values.index(value) if value in self.values else draws.below(len(self.values))
            return self.values[min(max(place + (1 if up else -1), 0), len(self.values) - 1)]
        if self.rule is Rule.RESAMPLE or draws.chance(p_resample):
            return self.sample(draws)
        number, sign = float(value), 1 if up else -1
        if self.rule is Rule.MULTIPLY:
            moved = number * (1 + sign * _STEP)
        else:
            moved = number + self._range * (_NOISE * draws.normal() if self.rule is Rule.NOISE else sign * _STEP)
        result = self._clip(moved)
        if self.kind is Kind.INT and result == value:
            # Away from the value in the direction in which the real move went.
            result = self._clip(number + (1 if moved > number else -1))
        return result

    @property
    def _range(self) -> float:
        return self.high - self.low

    def _clip(self, value: float) -> float | int:
        clipped = min(max(value, self.low), self.high)
        return round(clipped) if self.kind is Kind.INT else float(clipped)


def check_parameters(parameters: Sequence[Parameter], where: str) -> None:
    """Refuses a space that cannot be searched.

    Raises:
      ConfigError: a reversed range, a multiplicative rule over a domain with 0, a cycle in the conditions, ...
    """
    by_path = {parameter.path: parameter for parameter in parameters}
    if len(by_path) != len(parameters):
        raise ConfigError("two parameters have one path", where=where)
    for parameter in parameters:
        _check_domain(parameter, f"{where}: parameter {parameter.path!r}")
        for parent, values in parameter.when.items():
            here = f"{where}: parameter {parameter.path!r}"
            if parent not in by_path:
                raise ConfigError(f"it depends on {parent!r}, which is no parameter", where=here)
            wrong = [value for value in values if not by_path[parent].contains(value)]
            if wrong or not values:
                raise ConfigError(f"no value of {parent!r} to depend on", where=here, got=repr(wrong or list(values)))
    try:
        _order(by_path)
    except graphlib.CycleError as error:
        raise ConfigError("the conditions form a cycle", where=where, got=" -> ".join(error.args[1])) from error


def _check_domain(parameter: Parameter, where: str) -> None:
    if not parameter.path:
        raise ConfigError("a parameter has no path", where=where, expected="a gin path such as 'adam.learning_rate'")
    if not parameter.is_range:
        values = parameter.values
        foreign = [value for value in values if not _crosses(value)]
        if foreign:
            expected = "texts, booleans, finite numbers, integers of 64 bits"
            raise ConfigError("values", where=where, got=repr(foreign), expected=expected)
        if not values or len(set(values)) != len(values):
            raise ConfigError("values", where=where, got=repr(list(values)), expected="one or more, each once")
        if parameter.kind is Kind.DISCRETE and (
            any(isinstance(value, str | bool) for value in values) or list(values) != sorted(values)
        ):
            raise ConfigError("values", where=where, got=repr(list(values)), expected="increasing numbers")
        return
    bounds = f"[{parameter.low:g}, {parameter.high:g}]"
    if not (math.isfinite(parameter.low) and math.isfinite(parameter.high)) or parameter.low > parameter.high:
        raise ConfigError("the range is reversed or not finite", where=where, got=bounds, expected="low <= high")
    if parameter.kind is Kind.INT and (parameter.low != int(parameter.low) or parameter.high != int(parameter.high)):
        raise ConfigError("the bounds of an int", where=where, got=bounds, expected="whole numbers")
    if parameter.kind is Kind.INT and not (_crosses(int(parameter.low)) and _crosses(int(parameter.high))):
        raise ConfigError("the bounds of an int", where=where, got=bounds, expected="integers of 64 bits")
    if parameter.scale is Scale.LOG and parameter.low <= 0:
        raise ConfigError("a log scale needs low > 0", where=where, got=bounds)
    if parameter.rule is Rule.MULTIPLY and parameter.low <= 0 <= parameter.high:
        raise ConfigError(
            "a multiplicative rule over a domain with 0",
            where=where,
            got=bounds,
            next_step="use rule 'add', 'noise' or 'resample'",
        )


def _crosses(value: object) -> bool:
    """Says whether a trainer gets this very value: None, say, would be another one on the other side."""
    if isinstance(value, int):
        return value in _INTEGERS
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _order(by_path: Mapping[str, Parameter]) -> list[str]:
    """Returns the paths, each after those that it depends on; a fixed order."""
    sorter = graphlib.TopologicalSorter({path: sorted(by_path[path].when) for path in sorted(by_path)})
    return list(sorter.static_order())


class Space:
    """The parameters of a study, checked before."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._by_path = {parameter.path: parameter for parameter in parameters}
        self._paths = _order(self._by_path)

    def is_active(self, path: str, params: Mapping[str, Value]) -> bool:
        when = self._by_path[path].when
        return all(parent in params and params[parent] in values for parent, values in when.items())

    def contains(self, params: Mapping[str, Value]) -> bool:
        """Says whether exactly the active parameters are there, each in its domain."""
        active = {path for path in self._paths if self.is_active(path, params)}
        return active == set(params) and all(self._by_path[path].contains(value) for path, value in params.items())

    def sample(self, seed: int) -> dict[str, Value]:
        """Draws the active parameters from the prior."""
        return self._walk({}, seed)

    def mutate(self, params: Mapping[str, Value], seed: int, *, p_resample: float, p_switch: float) -> dict[str, Value]:
        """Mutates what is active; what becomes active is drawn from the prior, what no longer is, dropped.

        Args:
          p_resample: Chance that a number is drawn anew.
          p_switch: Chance that a category is.
        """
        return self._walk(params, seed, (p_resample, p_switch))

    def cross(
        self, winner: Mapping[str, Value], loser: Mapping[str, Value], seed: int, probability: float
    ) -> tuple[dict[str, Value], bool]:
        """Returns the winner's values, some of them the loser's, and whether one was taken.

        Conditions are settled by the mutation that follows.
        """
        shared = sorted(set(winner) & set(loser))
        taken = {path: loser[path] for path in shared if Draws(seed, "cross", path).chance(probability)}
        return {**winner, **taken}, bool(taken)

    def settle(self, params: Mapping[str, Value], seed: int) -> dict[str, Value]:
        """Makes the active set right without mutating: newly active from the prior, newly inactive dropped."""
        return self._walk(params, seed)

    def _walk(
        self, known: Mapping[str, Value], seed: int, chances: tuple[float, float] | None = None
    ) -> dict[str, Value]:
        params: dict[str, Value] = {}
        for path in self._paths:
            if not self.is_active(path, params):
                continue
            parameter, draws = self._by_path[path], Draws(seed, "parameter", path)
            if path not in known:
                params[path] = parameter.sample(draws)
            else:
                params[path] = known[path] if chances is None else parameter.mutate(known[path], draws, *chances)
        return params

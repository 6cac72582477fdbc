"""Search spaces: parameters by gin path, priors, conditions among parameters.

A parameter is active if each parameter that it depends on is active and has one of the given values. All functions are
pure. Each parameter has its own random stream, so that an additional parameter does not change the values of others.

All searches use these spaces: populations sample and mutate, grids use `Parameter.grid`, and experiments find a
parameter in place of a value (`adam.learning_rate = @rate/Real()`; see `parameter_of`).
"""

from __future__ import annotations

import enum
import graphlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lobench.core.errors import ConfigError, suggestion
from lobench.core.number_checks import is_number, require_integer
from lobench.core.search.seeded_draws import Draws

__all__ = ["Kind", "Parameter", "Rule", "Scale", "Space", "Value", "check_parameters", "parameter_of"]

Value = str | bool | int | float

_STEP = 0.2  # change of a value, as a fraction of the value (multiply) or of the range (add)
_NOISE = 0.1  # standard deviation of noise, as a fraction of the range
_INTEGERS = range(-(1 << 63), 1 << 63)  # range of integers in messages


class Kind(enum.StrEnum):
    """Kind of a domain. REAL and INT are ranges, DISCRETE is ordered numbers, CATEGORICAL is unordered values.

    >>> Kind("categorical")
    <Kind.CATEGORICAL: 'categorical'>
    """

    REAL = "real"
    INT = "int"
    DISCRETE = "discrete"
    CATEGORICAL = "categorical"


class Scale(enum.StrEnum):
    """Scale on which the prior of a range is uniform.

    >>> Scale("log") is Scale.LOG
    True
    """

    LINEAR = "linear"
    LOG = "log"


class Rule(enum.StrEnum):
    """Mutation rule of a range.

    MULTIPLY multiplies by 1.2 or 0.8, ADD moves by a fifth of the range, NOISE adds a normal draw with a standard
    deviation of a tenth of the range, RESAMPLE draws from the prior.

    >>> Rule("multiply") is Rule.MULTIPLY
    True
    """

    MULTIPLY = "multiply"
    ADD = "add"
    NOISE = "noise"
    RESAMPLE = "resample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One hyperparameter.

    Attributes:
      path: gin path that it is bound to, such as `outer_adam.learning_rate`. It is the parameter's name everywhere.
      kind: Kind of its domain.
      low, high: Bounds of a range, inclusive.
      values: Values of DISCRETE (increasing numbers) and CATEGORICAL.
      when: Values at which this parameter is active, by path of the parameter that it depends on.
      num_values: Number of values of a range in a grid.

    >>> rate = Parameter(path="sgd.learning_rate", kind=Kind.REAL, low=1e-4, high=1.0, scale=Scale.LOG)
    >>> rate.contains(0.1), rate.contains(2.0)
    (True, False)
    """

    path: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    scale: Scale = Scale.LINEAR
    rule: Rule = Rule.MULTIPLY
    values: tuple[Value, ...] = ()
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    num_values: int | None = None

    @property
    def is_range(self) -> bool:
        return self.kind in (Kind.REAL, Kind.INT)

    @property
    def domain(self) -> str:
        """Domain as text, without the parameter's name."""
        if self.is_range:
            return f"{self.low:g} to {self.high:g}{', log' * (self.scale is Scale.LOG)}"
        return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in self.values)

    def contains(self, value: Value) -> bool:
        if not self.is_range:
            return any(value == allowed and type(value) is type(allowed) for allowed in self.values)
        if isinstance(value, bool) or not isinstance(value, int if self.kind is Kind.INT else (int, float)):
            return False
        return self.low <= value <= self.high

    def grid(self, num_values: int) -> tuple[Value, ...]:
        """Returns the values in a grid: `num_values` of a range, or all values of the other kinds."""
        return self.between(self.low, self.high, num_values) if self.is_range else self.values

    def between(self, low: float, high: float, num_values: int) -> tuple[Value, ...]:
        """Returns at most `num_values` distinct values of the domain from `low` to `high`, inclusive.

        Steps are equal, or ratios on a log scale. A single value is the mean of the ends, on a log scale their
        geometric mean. Reals are rounded to 15 digits, so that they print as written: 0.001 instead of
        0.0009999999999999998.
        """
        points = []
        for index in range(num_values):
            share = index / (num_values - 1) if num_values > 1 else 0.5
            if share in (0.0, 1.0):
                value = high if share else low
            elif self.scale is Scale.LOG:
                value = float(f"{low ** (1 - share) * high**share:.15g}")
            else:
                value = float(f"{low * (1 - share) + high * share:.15g}")
            points.append(self._clip(value))
        return tuple(dict.fromkeys(points))

    def sample(self, draws: Draws) -> Value:
        """Returns a value drawn from the prior, by the random numbers of `draws`."""
        if not self.is_range:
            return draws.choice(self.values)
        if self.kind is Kind.INT and self.scale is Scale.LINEAR:
            return int(self.low) + draws.below(int(self.high) - int(self.low) + 1)
        if self.scale is Scale.LOG:
            # With a margin of a half, all values that round to an end of a range of integers can be drawn.
            margin = 0.5 if self.kind is Kind.INT else 0.0
            value = math.exp(draws.uniform(math.log(self.low - margin), math.log(self.high + margin)))
        else:
            value = draws.uniform(self.low, self.high)
        return self._clip(value)

    def mutate(self, value: Value, draws: Draws, p_resample: float, p_switch: float) -> Value:
        """Mutates a value. The result is in the domain even if the value is not.

        Args:
          value: Value to mutate.
          draws: Random numbers.
          p_resample: Probability that a number is drawn from the prior instead of moved.
          p_switch: Probability that a category is drawn from the prior instead of kept.
        """
        if self.kind is Kind.CATEGORICAL:
            return self.sample(draws) if draws.chance(p_switch) or not self.contains(value) else value
        is_upward = draws.chance(0.5)
        if self.kind is Kind.DISCRETE:
            index = self.values.index(value) if value in self.values else draws.below(len(self.values))
            return self.values[min(max(index + (1 if is_upward else -1), 0), len(self.values) - 1)]
        if self.rule is Rule.RESAMPLE or draws.chance(p_resample):
            return self.sample(draws)
        number = float(value)
        sign = 1 if is_upward else -1
        if self.rule is Rule.MULTIPLY:
            moved_number = number * (1 + sign * _STEP)
        else:
            moved_number = number + self._range * (_NOISE * draws.normal() if self.rule is Rule.NOISE else sign * _STEP)
        result = self._clip(moved_number)
        if self.kind is Kind.INT and result == value:
            # An integer moves by at least 1, in the direction of the unrounded move.
            result = self._clip(number + (1 if moved_number > number else -1))
        return result

    @property
    def _range(self) -> float:
        return self.high - self.low

    def _clip(self, value: float) -> float | int:
        clipped = min(max(value, self.low), self.high)
        return round(clipped) if self.kind is Kind.INT else float(clipped)


def check_parameters(parameters: Sequence[Parameter], where: str) -> None:
    """Checks that a space can be searched.

    Args:
      parameters: Parameters of the space.
      where: File and method, for error messages.
    Raises:
      ConfigError: A reversed range, a multiplicative rule over a domain with 0, a cycle in the conditions, ...

    >>> check_parameters([Parameter(path="sgd.learning_rate", kind=Kind.REAL, low=2.0, high=1.0)], "study")
    Traceback (most recent call last):
    lobench.core.errors.ConfigError: ...
    """
    parameters_by_path = {parameter.path: parameter for parameter in parameters}
    if len(parameters_by_path) != len(parameters):
        raise ConfigError("two parameters have one path", where=where)
    for parameter in parameters:
        _check_domain(parameter, f"{where}: parameter {parameter.path!r}")
        for parent, values in parameter.when.items():
            parameter_label = f"{where}: parameter {parameter.path!r}"
            if parent not in parameters_by_path:
                next_step = suggestion(parent, parameters_by_path)
                problem = f"it depends on {parent!r}, which is not a parameter"
                raise ConfigError(problem, where=parameter_label, next_step=next_step)
            wrong_values = [value for value in values if not parameters_by_path[parent].contains(value)]
            if wrong_values or not values:
                raise ConfigError(
                    f"no value of {parent!r} to depend on",
                    where=parameter_label,
                    got=repr(wrong_values or list(values)),
                )
    try:
        _dependency_order(parameters_by_path)
    except graphlib.CycleError as error:
        raise ConfigError("the conditions form a cycle", where=where, got=" -> ".join(error.args[1])) from error


def _check_domain(parameter: Parameter, where: str) -> None:
    if not parameter.path:
        raise ConfigError("a parameter has no path", where=where, expected="a gin path such as 'adam.learning_rate'")
    if not parameter.is_range:
        values = parameter.values
        foreign_values = [value for value in values if not _is_transportable(value)]
        if foreign_values:
            expected = "texts, booleans, finite numbers, integers of 64 bits"
            raise ConfigError("values", where=where, got=repr(foreign_values), expected=expected)
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
    if parameter.kind is Kind.INT and not (
        _is_transportable(int(parameter.low)) and _is_transportable(int(parameter.high))
    ):
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


_KEYWORDS = {
    **dict.fromkeys((Kind.REAL, Kind.INT), ("low", "high", "scale", "num_values", "when")),
    **dict.fromkeys((Kind.DISCRETE, Kind.CATEGORICAL), ("values", "when")),
}


def parameter_of(path: str, kind_name: str, keywords: Mapping[str, Any], where: str) -> Parameter:
    """Returns the parameter of a search space that is bound in place of a value (`adam.learning_rate = @rate/Real()`).

    Args:
      path: Path that it is bound to, `adam.learning_rate` or `outer/adam.learning_rate`.
      kind_name: "Real", "Int", "Discrete" or "Categorical".
      keywords: Bindings of the space: `low`, `high`, `scale`, `num_values`; `values`; `when`.
      where: File and method, for error messages.
    Raises:
      ConfigError: An unknown keyword, a reversed or empty range, the log of 0, ...; conditions are checked by
        `check_parameters`, which sees all parameters.
    """
    kind = Kind(kind_name.lower())
    location = f"{where}: {kind_name} of {path!r}"
    for name in keywords:
        if name not in _KEYWORDS[kind]:
            keyword_names = _KEYWORDS[kind]
            raise ConfigError(
                f"{kind_name} takes no {name!r}",
                where=location,
                expected=f"one of {', '.join(keyword_names)}",
                next_step=suggestion(name, keyword_names),
            )
    when = keywords.get("when") or {}
    if not isinstance(when, Mapping) or not all(isinstance(values, list | tuple) for values in when.values()):
        raise ConfigError("when", where=location, got=repr(when), expected="{'the.path': [values]}")
    conditions = {parent: tuple(values) for parent, values in when.items()}
    if kind in (Kind.REAL, Kind.INT):
        parameter = Parameter(path=path, kind=kind, when=conditions, rule=Rule.ADD, **_range_of(keywords, location))
    else:
        values = keywords.get("values")
        if not isinstance(values, list | tuple):
            raise ConfigError("values", where=location, got=repr(values), expected="a list of values")
        parameter = Parameter(path=path, kind=kind, when=conditions, values=tuple(values))
    _check_domain(parameter, location)
    return parameter


def _range_of(keywords: Mapping[str, Any], location: str) -> dict[str, Any]:
    low, high, num_values = (keywords.get(name) for name in ("low", "high", "num_values"))
    for name, bound in (("low", low), ("high", high)):
        if not is_number(bound):
            raise ConfigError(name, where=location, got=repr(bound), expected="a number")
    if low == high:
        next_step = "write the value itself where one value is meant"
        raise ConfigError("the range is empty", where=location, got=f"[{low:g}, {high:g}]", next_step=next_step)
    scale = keywords.get("scale", "linear")
    if scale not in list(Scale):
        raise ConfigError("scale", where=location, got=repr(scale), expected=f"one of {', '.join(Scale)}")
    if num_values is not None:
        require_integer("num_values", num_values, where=location)
    return {"low": low, "high": high, "scale": Scale(scale), "num_values": num_values}


def _is_transportable(value: object) -> bool:
    """Returns whether a value reaches a trainer unchanged. None, for example, would arrive as another value."""
    if isinstance(value, int):
        return value in _INTEGERS
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _dependency_order(parameters_by_path: Mapping[str, Parameter]) -> list[str]:
    """Returns the paths in a fixed order, each after those that it depends on."""
    sorter = graphlib.TopologicalSorter(
        {path: sorted(parameters_by_path[path].when) for path in sorted(parameters_by_path)}
    )
    return list(sorter.static_order())


class Space:
    """Parameters of a study. `check_parameters` must have validated them.

    Attributes:
      parameters: Parameters in the given order.
      parents_first: Parameters in the given order, but each after those that it depends on.
      parents: Paths of the parameters that others depend on.

    >>> rate = Parameter(path="sgd.learning_rate", kind=Kind.REAL, low=1e-4, high=1.0, scale=Scale.LOG)
    >>> Space([rate]).contains({"sgd.learning_rate": 0.1})
    True
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = tuple(parameters)
        self._by_path = {parameter.path: parameter for parameter in parameters}
        self._paths = _dependency_order(self._by_path)
        self.parents = frozenset(path for parameter in self.parameters for path in parameter.when)
        parameters_by_path: dict[str, Parameter] = {}
        while len(parameters_by_path) < len(self.parameters):
            candidates = (
                p
                for p in self.parameters
                if p.path not in parameters_by_path and p.when.keys() <= parameters_by_path.keys()
            )
            next_parameter = next(candidates)
            parameters_by_path[next_parameter.path] = next_parameter
        self.parents_first = tuple(parameters_by_path.values())

    def active(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """Returns the values of the active parameters, in the order of the space.

        Args:
          params: Values by path, including those of all active parameters.
        Raises:
          KeyError: An active parameter has no value.
        """
        if not self.parents:
            return {parameter.path: params[parameter.path] for parameter in self.parameters}
        active_values: dict[str, Value] = {}
        for parameter in self.parents_first:
            if self.is_active(parameter.path, active_values):
                active_values[parameter.path] = params[parameter.path]
        return {
            parameter.path: active_values[parameter.path]
            for parameter in self.parameters
            if parameter.path in active_values
        }

    def is_active(self, path: str, params: Mapping[str, Value]) -> bool:
        when = self._by_path[path].when
        return all(parent in params and params[parent] in values for parent, values in when.items())

    def contains(self, params: Mapping[str, Value]) -> bool:
        """Returns whether the settings have exactly the active parameters, each with a value in its domain."""
        active_paths = {path for path in self._paths if self.is_active(path, params)}
        return active_paths == set(params) and all(
            self._by_path[path].contains(value) for path, value in params.items()
        )

    def sample(self, seed: int) -> dict[str, Value]:
        """Draws values of the active parameters from the prior; equal seeds give equal values."""
        return self._choose_values({}, seed)

    def mutate(self, params: Mapping[str, Value], seed: int, *, p_resample: float, p_switch: float) -> dict[str, Value]:
        """Mutates the active parameters. Newly active ones are drawn from the prior, and inactive ones are dropped.

        Args:
          params: Values by path.
          seed: Seed of the draws.
          p_resample: Probability that a number is drawn from the prior.
          p_switch: Probability that a category is drawn from the prior.
        """
        return self._choose_values(params, seed, (p_resample, p_switch))

    def cross(
        self, winner: Mapping[str, Value], loser: Mapping[str, Value], seed: int, probability: float
    ) -> tuple[dict[str, Value], bool]:
        """Returns the winner's values with some replaced by the loser's, and whether any was replaced.

        The mutation that follows corrects the set of active parameters.

        Args:
          winner, loser: Values by path.
          seed: Seed of the draws.
          probability: Probability that a parameter of both takes the loser's value.
        """
        shared_paths = sorted(set(winner) & set(loser))
        replaced_values = {path: loser[path] for path in shared_paths if Draws(seed, "cross", path).chance(probability)}
        return {**winner, **replaced_values}, bool(replaced_values)

    def with_active_values(self, params: Mapping[str, Value], seed: int) -> dict[str, Value]:
        """Corrects the set of active parameters: draws newly active ones from the prior and drops inactive ones.

        Args:
          params: Values by path.
          seed: Seed of the draws.
        """
        return self._choose_values(params, seed)

    def _choose_values(
        self, values: Mapping[str, Value], seed: int, chances: tuple[float, float] | None = None
    ) -> dict[str, Value]:
        params: dict[str, Value] = {}
        for path in self._paths:
            if not self.is_active(path, params):
                continue
            parameter = self._by_path[path]
            draws = Draws(seed, "parameter", path)
            if path not in values:
                params[path] = parameter.sample(draws)
            else:
                params[path] = values[path] if chances is None else parameter.mutate(values[path], draws, *chances)
        return params

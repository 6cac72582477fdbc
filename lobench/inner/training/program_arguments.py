"""Program arguments: the real-valued settings that a compiled program takes as arguments, and those that are constants.

A setting is an argument if the program can be traced with it. A setting that the optimizer reads in Python (`if
decay:`, `float(rate)`), or does not read at all, is a constant. This depends on the program and not on any value, so
that equal settings give equal bits whatever was computed before. A default is an argument only if that changes no bit
(`lobench.inner.training.default_arguments`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
from jax.interpreters import partial_eval

from lobench.core.case import UnboundDefault
from lobench.inner.optimizer import Theta
from lobench.inner.training.default_arguments import exact_arguments

__all__ = ["Arguments", "Constants", "Given", "SettingValues", "read_settings"]


Constants: TypeAlias = tuple[float | None, ...]  # by position of the setting; None for an argument


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SettingValues:
    """Values of all settings, as one program receives them.

    Attributes:
      arguments: Settings that are arguments, in order: numbers, or traced scalars inside of the program.
      constants: All other settings.
    """

    arguments: tuple[Any, ...]
    constants: Constants = field(metadata={"static": True})

    @classmethod
    def of(cls, values: Sequence[float], arguments: Set[int]) -> SettingValues:
        """Returns values in which the settings at some positions are arguments."""
        plain_values = [float(value) if isinstance(value, float) else value for value in values]
        constants = tuple(None if index in arguments else value for index, value in enumerate(plain_values))
        return cls(tuple(value for index, value in enumerate(plain_values) if index in arguments), constants)

    @property
    def values(self) -> tuple[Any, ...]:
        arguments = iter(self.arguments)
        return tuple(next(arguments) if constant is None else constant for constant in self.constants)

    @property
    def places(self) -> list[int]:
        """Returns the position of the setting of each argument."""
        return [index for index, constant in enumerate(self.constants) if constant is None]


Given: TypeAlias = tuple[Theta, SettingValues]
Trace: TypeAlias = Callable[[SettingValues], jax.stages.Traced]  # may raise anything if the program cannot be traced


class Arguments:
    """Chooses the arguments of a program, once for each set of settings with default values.

    Args:
      usual: A placeholder value per setting, for choices that must not depend on its value.
    """

    def __init__(self, usual: Sequence[float]) -> None:
        self._usual_values = tuple(usual)
        self._chosen_positions: dict[
            frozenset[int], frozenset[int]
        ] = {}  # by the positions of settings left to their defaults
        self._refused_constants: set[Constants] = set()

    def are_chosen(self, values: Sequence[float]) -> bool:
        return _default_positions(values) in self._chosen_positions

    def choose(self, values: Sequence[float], argument_positions: frozenset[int]) -> None:
        """Restores the choice made for the same program earlier."""
        self._chosen_positions[_default_positions(values)] = argument_positions

    def settle(self, values: Sequence[float], theta: Theta, trace: Trace) -> SettingValues:
        """Returns the settings in the form that the program receives.

        Args:
          values: Values of the settings; `UnboundDefault` for unbound ones.
          theta: Theta of the program.
          trace: Function that traces the program.
        """
        defaults = _default_positions(values)
        if defaults not in self._chosen_positions:
            bound_positions = self._choose(frozenset(range(len(values))) - defaults, theta, trace)
            self._chosen_positions[defaults] = bound_positions | self._exact_defaults(
                bound_positions, defaults, theta, trace
            )
        settings = SettingValues.of(values, self._chosen_positions[defaults])
        return SettingValues.of(values, frozenset()) if settings.constants in self._refused_constants else settings

    def refuse(self, settings: SettingValues) -> SettingValues:
        """Records that the program cannot be traced with these constants.

        Returns the values with all settings as constants.
        """
        self._refused_constants.add(settings.constants)
        return SettingValues.of(settings.values, frozenset())

    def _choose(self, positions: frozenset[int], theta: Theta, trace: Trace) -> frozenset[int]:
        argument_positions = self._read_arguments(positions, theta, trace)
        if argument_positions is None:
            readable_positions = frozenset(
                position for position in positions if self._read_arguments(frozenset({position}), theta, trace)
            )
            argument_positions = self._read_arguments(readable_positions, theta, trace)
        return argument_positions or frozenset()

    def _read_arguments(self, argument_positions: frozenset[int], theta: Theta, trace: Trace) -> frozenset[int] | None:
        """Returns the positions of settings that the program reads if they are arguments; None if tracing it fails."""
        if not argument_positions:
            return frozenset()
        settings = SettingValues.of(self._usual_values, argument_positions)
        traced_program = self._try_trace(argument_positions, trace)
        if traced_program is None:
            return None
        are_read = read_settings(traced_program, (theta, settings))
        return frozenset(position for position, is_read in zip(settings.places, are_read, strict=True) if is_read)

    def _exact_defaults(
        self, bound_positions: frozenset[int], defaults: frozenset[int], theta: Theta, trace: Trace
    ) -> frozenset[int]:
        """Returns the defaults that, together with the bound settings, can be arguments without a change of bits."""
        traced_without_defaults = self._try_trace(bound_positions, trace) if defaults else None
        if traced_without_defaults is None:
            return frozenset()
        while defaults:
            read_positions = self._read_arguments(bound_positions | defaults, theta, trace)
            if read_positions is None:
                defaults = self._traceable_defaults(bound_positions, defaults, trace)
                continue
            argument_positions = sorted(bound_positions | defaults)
            traced_program = self._try_trace(bound_positions | defaults, trace)
            assert traced_program is not None
            num_theta_leaves = len(jax.tree.leaves(theta))
            exact_positions = (
                exact_arguments(traced_without_defaults, traced_program, num_theta_leaves, argument_positions, defaults)
                & read_positions
            )
            if exact_positions == defaults:
                return defaults
            defaults = exact_positions
        return defaults

    def _traceable_defaults(
        self, bound_positions: frozenset[int], defaults: frozenset[int], trace: Trace
    ) -> frozenset[int]:
        """Returns fewer defaults after the program could not be traced with all of them as arguments.

        They are found by bisection. The caller tries the subset again, because only its parts were traced.
        """
        if len(defaults) == 1:
            return frozenset()
        positions = sorted(defaults)
        halves = (frozenset(positions[: len(positions) // 2]), frozenset(positions[len(positions) // 2 :]))
        narrowed_halves = [
            half
            if self._try_trace(bound_positions | half, trace) is not None
            else self._traceable_defaults(bound_positions, half, trace)
            for half in halves
        ]
        union = narrowed_halves[0] | narrowed_halves[1]
        return union if union != defaults else narrowed_halves[0]

    def _try_trace(self, argument_positions: frozenset[int], trace: Trace) -> jax.stages.Traced | None:
        try:
            return trace(SettingValues.of(self._usual_values, argument_positions))
        except Exception:  # noqa: BLE001  (an error of the optimizer, which needs a concrete number: then the value is a constant)
            return None


def _default_positions(values: Sequence[float]) -> frozenset[int]:
    return frozenset(index for index, value in enumerate(values) if isinstance(value, UnboundDefault))


def read_settings(traced_program: jax.stages.Traced, theta_and_settings: Given) -> list[bool]:
    """Returns for each setting whether a traced program reads it.

    Args:
      traced_program: Traced program.
      theta_and_settings: First argument of the program.
    """
    theta, settings = theta_and_settings
    num_theta_leaves = len(jax.tree.leaves(theta))
    program = traced_program.jaxpr.jaxpr
    _, are_read = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
    return list(are_read[num_theta_leaves : num_theta_leaves + len(settings.arguments)])

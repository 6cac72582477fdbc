"""Program arguments: the real-valued settings that a compiled program takes, and those that are constants.

A setting is an argument wherever the program can be traced with it. Where the optimizer asks for its value in Python
(`if decay:`, `float(rate)`), or does not read it at all, that setting alone is a constant. This hangs on what the
program is and not on any value, so that the same settings give the same bits whatever was computed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
from jax.interpreters import partial_eval

from lobench.inner.optimizer import Theta

__all__ = ["Arguments", "Constants", "Given", "SettingValues", "read_settings"]


Constants: TypeAlias = tuple[float | None, ...]  # by place, None where there is an argument


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SettingValues:
    """Values of all settings, as one program takes them.

    Attributes:
      arguments: Those that are its arguments, in order: numbers, or inside of it traced scalars.
      constants: The others.
    """

    arguments: tuple[Any, ...]
    constants: Constants = field(metadata={"static": True})

    @classmethod
    def of(cls, values: Sequence[float], arguments: Set[int]) -> SettingValues:
        """Returns values with those at some places as arguments."""
        constants = tuple(None if place in arguments else value for place, value in enumerate(values))
        return cls(tuple(value for place, value in enumerate(values) if place in arguments), constants)

    @property
    def values(self) -> tuple[Any, ...]:
        arguments = iter(self.arguments)
        return tuple(next(arguments) if constant is None else constant for constant in self.constants)

    @property
    def places(self) -> list[int]:
        """Returns the place of each argument."""
        return [place for place, constant in enumerate(self.constants) if constant is None]


Given: TypeAlias = tuple[Theta, SettingValues]
Reads: TypeAlias = Callable[[SettingValues], Sequence[bool]]  # traces the program: which of the arguments it reads


class Arguments:
    """Chooses the arguments of a program, once.

    Args:
      usual: A value of each setting that stands for it where its own must not count.
    """

    def __init__(self, usual: Sequence[float]) -> None:
        self._usual = tuple(usual)
        self._chosen: frozenset[int] | None = None
        self._refused: set[Constants] = set()

    @property
    def are_chosen(self) -> bool:
        return self._chosen is not None

    def choose(self, places: frozenset[int]) -> None:
        """Takes what was chosen of the same program before."""
        self._chosen = places

    def settle(self, values: Sequence[float], reads: Reads) -> SettingValues:
        """Returns the settings as the program takes them.

        Args:
          values: One for each of the usual ones.
          reads: May raise anything where the program cannot be traced.
        """
        if self._chosen is None:
            self._chosen = self._choose(reads)
        settings = SettingValues.of(values, self._chosen)
        return SettingValues.of(values, frozenset()) if settings.constants in self._refused else settings

    def refuse(self, settings: SettingValues) -> SettingValues:
        """Takes note that the program cannot be traced with these constants; returns the same values as constants."""
        self._refused.add(settings.constants)
        return SettingValues.of(settings.values, frozenset())

    def _choose(self, reads: Reads) -> frozenset[int]:
        every = frozenset(range(len(self._usual)))
        found = self._read(every, reads)
        if found is None:
            alone = frozenset(place for place in every if self._read({place}, reads))
            found = self._read(alone, reads)
        return found or frozenset()

    def _read(self, places: Set[int], reads: Reads) -> frozenset[int] | None:
        """Returns at which places the program reads an argument; None where it cannot be traced with all of them."""
        if not places:
            return frozenset()
        settings = SettingValues.of(self._usual, places)
        try:
            are_read = reads(settings)
        except Exception:  # noqa: BLE001  (the optimizer's own, about a number that is none: then that is a constant)
            return None
        return frozenset(place for place, is_read in zip(settings.places, are_read, strict=True) if is_read)


def read_settings(traced: jax.stages.Traced, given: Given) -> list[bool]:
    """Says which settings' arguments a traced program reads; `given` is the first of its arguments."""
    theta, settings = given
    first = len(jax.tree.leaves(theta))
    program = traced.jaxpr.jaxpr
    _, are_read = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
    return list(are_read[first : first + len(settings.arguments)])

"""Knobs: the bindings that two subjects differ in, and the subjects with some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lobench.core.errors import UsageError
from lobench.core.subject import Given, GivenCheckpoint, Subject, optimizer_sha256
from lobench.engine.config.syntax import Binding, Import, binding_text, gin_text, parse_text, references_in
from lobench.tools.ablate.search import Subset

__all__ = ["Knob", "Knobs", "knobs_of"]

_LEFT_OUT = "(its default)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A binding that A and B differ in.

    Attributes:
      path: `scope/selector.parameter`.
      a, b: The lines of gin; "" where it is left to the default.
      a_text, b_text: The values.
    """

    path: str
    a: str
    b: str
    a_text: str
    b_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What two subjects differ in.

    Attributes:
      base: A, as it is given.
      lines: A's statements, in order, by path; those without one (`import`, `include`) by their text.
    """

    base: Given
    lines: Mapping[str, str]
    knobs: tuple[Knob, ...]

    def __len__(self) -> int:
        return len(self.knobs)

    def given(self, subset: Subset) -> Given:
        """Returns A with some of B's values."""
        lines = dict(self.lines)
        for place in sorted(subset):
            lines[self.knobs[place].path] = self.knobs[place].b
        bindings = tuple(line for line in lines.values() if line)
        label = "A" + "".join(f" + {self.knobs[place].path}" for place in sorted(subset))
        variant = dataclasses.replace(self.base.variant, bindings=bindings)
        if isinstance(self.base, GivenCheckpoint):
            return dataclasses.replace(self.base, variant=variant, label=label)
        text = "; ".join(bindings)
        return dataclasses.replace(self.base, variant=variant, uri=text, sha256=optimizer_sha256(text), label=label)


def knobs_of(a: Given, b: Given, default: Callable[[Binding], str] = lambda binding: "") -> Knobs:
    """Returns what two subjects differ in.

    Args:
      default: Returns the gin text of what a parameter is where nothing binds it, "" where nobody knows. Where a side
        does not bind it, that is bound: a real value that is bound is an argument of the program, and a default is a
        constant of it, with which each configuration would be compiled anew.
    Raises:
      UsageError: they are two checkpoints, or call two optimizers, or differ in nothing.
    """
    sides = [_statements(one) for one in (a, b)]
    if isinstance(a, Subject) != isinstance(b, Subject) or (isinstance(a, GivenCheckpoint) and a.uri != b.uri):
        raise UsageError(
            "A and B differ in more than bindings",
            got=f"{a.uri} and {b.uri}",
            expected="one optimizer, or one checkpoint, with two sets of bindings",
        )
    knobs = []
    for path in dict.fromkeys([*sides[0], *sides[1]]):
        one, other = (side.get(path) for side in sides)
        if one is not None and other is not None and one.line != other.line and (one.is_call or other.is_call):
            raise UsageError(
                "A and B call two different things, and what is bound of one says nothing of the other",
                where=path,
                got=f"{one.text} and {other.text}",
                expected="one optimizer with two sets of bindings",
            )
        known = one or other
        assert known is not None
        left_out = known.left_out(default)
        one, other = one or left_out, other or left_out
        if one.line != other.line:
            knobs.append(Knob(path=path, a=one.line, b=other.line, a_text=one.text, b_text=other.text))
    if not knobs:
        raise UsageError("A and B differ in nothing", got=_text(a))
    lines = {path: one.line for path, one in sides[0].items()} | {one.path: one.a for one in knobs}
    return Knobs(base=a, lines=lines, knobs=tuple(knobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """A statement.

    Attributes:
      binding: None of an `import`.
    """

    line: str
    text: str
    is_call: bool = False
    binding: Binding | None = None

    def left_out(self, default: Callable[[Binding], str]) -> _Stated:
        """Returns what stands where this statement does not."""
        text = default(self.binding) if self.binding is not None and self.binding.parameter else ""
        if not text:
            return _Stated(line="", text=_LEFT_OUT)
        return _Stated(line=f"{self.line.partition(' = ')[0]} = {text}", text=f"{text} (its default)")


def _statements(given: Given) -> dict[str, _Stated]:
    """Returns each statement by its path."""
    found = {}
    for statement in parse_text("\n".join(given.variant.bindings), _text(given)):
        if isinstance(statement, Import):
            line = f"import {statement.module}"
            found[line] = _Stated(line=line, text=line)
            continue
        line, is_call = binding_text(statement), any(True for _ in references_in(statement.value))
        found[line.partition(" = ")[0]] = _Stated(
            line=line, text=gin_text(statement.value), is_call=is_call, binding=statement
        )
    return found


def _text(given: Given) -> str:
    return given.label or given.uri

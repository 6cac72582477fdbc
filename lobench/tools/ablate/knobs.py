"""Knobs: the bindings in which two subjects differ, singly or in groups, and subjects with some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lobench.core.errors import UsageError
from lobench.core.subject import GivenCheckpoint, RequestedSubject, Subject, optimizer_sha256
from lobench.engine.config.syntax import Binding, Import, binding_text, gin_text, parse_text, references_in
from lobench.tools.ablate.change_search import KnobSubset

__all__ = ["Knob", "Knobs", "differing_knobs"]

_DEFAULT_NOTE = "(its default)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """Binding that differs between A and B, or several that change together.

    Attributes:
      path: `scope/selector.parameter`. Paths of several bindings are joined by commas.
      a, b: Gin lines of A and B, joined by semicolons. "" if the parameter keeps its default.
      a_text, b_text: Values of A and B.
      lines_by_path: Line of A and line of B, by path.
    """

    path: str
    a: str
    b: str
    a_text: str
    b_text: str
    lines_by_path: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Settings in which two subjects differ.

    Attributes:
      base: A, as given.
      base_lines: Statements of A in order, by path. Statements without a path (`import`) are keyed by their text.
      knobs: The settings that differ.
      bound_defaults: Paths of the settings that one side binds to their defaults, and the other does not bind. Every
        configuration leaves such a setting as A has it.
    """

    base: RequestedSubject
    base_lines: Mapping[str, str]
    knobs: tuple[Knob, ...]
    bound_defaults: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.knobs)

    def configuration(self, subset: KnobSubset) -> RequestedSubject:
        """Returns A with the values of B for a subset of the knobs."""
        lines = dict(self.base_lines)
        for index in sorted(subset):
            lines |= {path: b_line for path, (_, b_line) in self.knobs[index].lines_by_path.items()}
        bindings = tuple(line for line in lines.values() if line)
        label = "A" + "".join(f" + {self.knobs[knob_index].path}" for knob_index in sorted(subset))
        variant = dataclasses.replace(self.base.variant, bindings=bindings)
        if isinstance(self.base, GivenCheckpoint):
            return dataclasses.replace(self.base, variant=variant, label=label)
        text = "; ".join(bindings)
        return dataclasses.replace(self.base, variant=variant, uri=text, sha256=optimizer_sha256(text), label=label)


def differing_knobs(
    a: RequestedSubject,
    b: RequestedSubject,
    default_text: Callable[[Binding], str] = lambda binding: "",
    groups: Sequence[Sequence[str]] = (),
) -> Knobs:
    """Returns the settings in which two subjects differ.

    Args:
      a, b: The two subjects.
      default_text: Returns the default of a parameter as gin text, "" if unknown. A side that does not bind a parameter
        gets this default as a binding. A bound number is an argument of the compiled program, and a default need not
        be, so otherwise each configuration would be compiled separately.
      groups: Paths of the bindings of each knob. (): each path that differs is a knob. Bindings in groups may call
        different functions.
    Raises:
      UsageError: A and B are different checkpoints, call different optimizers, or do not differ; or a group changes
        nothing.
    """
    statements_of_subjects = [_parse_statements(subject) for subject in (a, b)]
    if isinstance(a, Subject) != isinstance(b, Subject) or (isinstance(a, GivenCheckpoint) and a.uri != b.uri):
        raise UsageError(
            "A and B differ in more than bindings",
            got=f"{a.uri} and {b.uri}",
            expected="one optimizer, or one checkpoint, with two sets of bindings",
        )
    pairs = dict[str, tuple[_Statement, _Statement]]()
    bound_defaults = list[str]()
    for path in dict.fromkeys([*statements_of_subjects[0], *statements_of_subjects[1]]):
        a_statement, b_statement = (statements.get(path) for statements in statements_of_subjects)
        lines = {stated.line: stated for stated in (a_statement, b_statement) if stated is not None}
        if len(lines) == 2 and not groups and any(stated.is_call for stated in lines.values()):
            raise UsageError(
                "A and B use different functions, whose settings cannot be exchanged",
                where=path,
                got=" and ".join(stated.value_text for stated in lines.values()),
                expected="one optimizer with two sets of bindings",
            )
        statement = a_statement or b_statement
        assert statement is not None
        default_statement = statement.default_statement(default_text)
        pairs[path] = a_statement or default_statement, b_statement or default_statement
        if len(lines) == 1 and default_statement.line == statement.line and None in (a_statement, b_statement):
            bound_defaults.append(path)
    knobs = []
    for paths in groups or [[path] for path in pairs]:
        knob = _make_knob({path: pairs[path] for path in paths})
        if knob.a != knob.b:
            knobs.append(knob)
        elif groups:
            raise UsageError("a knob changes nothing", got=knob.b, expected="another value than the method has")
    if not knobs:
        if bound_defaults:
            raise UsageError(
                "A and B differ in nothing but a bound default",
                where=", ".join(bound_defaults),
                expected="a setting with two values",
                next_step="`lobench compare` compares the two",
            )
        raise UsageError("A and B differ in nothing", got=_subject_text(a))
    base_lines = {path: stated.line for path, stated in statements_of_subjects[0].items()}
    base_lines |= {path: line for knob in knobs for path, (line, _) in knob.lines_by_path.items()}
    return Knobs(base=a, base_lines=base_lines, knobs=tuple(knobs), bound_defaults=tuple(bound_defaults))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    """Statement of a subject's gin text.

    Attributes:
      line: The statement as a line of gin.
      value_text: Value of the binding.
      is_call: Whether the value refers to a configurable.
      binding: None for an `import`.
    """

    line: str
    value_text: str
    is_call: bool = False
    binding: Binding | None = None

    def default_statement(self, default_text: Callable[[Binding], str]) -> _Statement:
        """Returns a statement for a side without this statement: it binds the default, or is an empty line."""
        text = default_text(self.binding) if self.binding is not None and self.binding.parameter else ""
        if text in ("", "None"):  # None cannot be an argument of a compiled program
            return _Statement(line="", value_text=f"{text} {_DEFAULT_NOTE}".lstrip())
        return _Statement(line=f"{self.line.partition(' = ')[0]} = {text}", value_text=f"{text} {_DEFAULT_NOTE}")


def _make_knob(pairs: Mapping[str, tuple[_Statement, _Statement]]) -> Knob:
    a_statements, b_statements = zip(*pairs.values(), strict=True)
    return Knob(
        path=", ".join(pairs),
        a="; ".join(filter(None, (statement.line for statement in a_statements))),
        b="; ".join(filter(None, (statement.line for statement in b_statements))),
        a_text=", ".join(statement.value_text for statement in a_statements),
        b_text=", ".join(statement.value_text for statement in b_statements),
        lines_by_path={
            path: (a_statement.line, b_statement.line) for path, (a_statement, b_statement) in pairs.items()
        },
    )


def _parse_statements(subject: RequestedSubject) -> dict[str, _Statement]:
    """Returns the statements of a subject by path."""
    statements = {}
    for statement in parse_text("\n".join(subject.variant.bindings), _subject_text(subject)):
        if isinstance(statement, Import):
            line = f"import {statement.module}"
            statements[line] = _Statement(line=line, value_text=line)
            continue
        line = binding_text(statement)
        is_call = any(True for _ in references_in(statement.value))
        statements[line.partition(" = ")[0]] = _Statement(
            line=line, value_text=gin_text(statement.value), is_call=is_call, binding=statement
        )
    return statements


def _subject_text(subject: RequestedSubject) -> str:
    return subject.label or subject.uri

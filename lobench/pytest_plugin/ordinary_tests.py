"""Cases of ordinary tests, with the settings of their marks."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from typing import Any

import pytest

from lobench.core.case import ITEMS, PASSED, CaseSpec
from lobench.core.errors import ConfigError
from lobench.engine.config.bound import BoundCase, bind_test
from lobench.pytest_plugin.options import layers_of

__all__ = ["bind_ordinary_test"]

_MARK_NAME = "lobench"
_RECORD_FIXTURE = "record"  # name of the fixture


def bind_ordinary_test(item: pytest.Item, spec: CaseSpec) -> BoundCase:
    """Returns the case of an ordinary test: its location, and the settings of its `lobench` marks.

    Other seeds can be requested only if the test's code reads `record.seeds`. Values belong to items if the code calls
    `record` with `item`.

    Raises:
      ConfigError: A setting is unknown or invalid.
    """
    settings: dict[str, Any] = {}
    # The test's own mark is the first one of `iter_markers`, and must win.
    for pytest_mark in reversed([*item.iter_markers(_MARK_NAME)]):
        if pytest_mark.args:
            raise ConfigError(
                "the mark `lobench` takes settings by name", where=item.nodeid, got=repr(pytest_mark.args[0])
            )
        settings |= pytest_mark.kwargs
    nodes = [*ast.walk(_syntax_tree_of(item))] if _has_recorder(item) else []
    settings.setdefault("primary_metric", _first_metric_name(nodes) or PASSED)
    if _records_items(nodes):
        settings.setdefault("replicates", ITEMS)
    return bind_test(spec, settings, layers_of(item.config) if _reads_seeds(nodes) else None)


def _has_recorder(item: pytest.Item) -> bool:
    """Returns whether the test's fixture `record` is lobench's own, or a fixture that overrides and uses lobench's."""
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).get(_RECORD_FIXTURE, ())
    return any(fixture.func.__module__ == __package__ for fixture in fixtures) and (
        fixtures[-1].func.__module__ == __package__ or _RECORD_FIXTURE in fixtures[-1].argnames
    )


def _syntax_tree_of(item: pytest.Item) -> ast.Module:
    """Returns the syntax tree of a test's own code; an empty one if it has no source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(getattr(item, "function", None))))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def _first_metric_name(nodes: Iterable[ast.AST]) -> str:
    """Returns the name in the first call of `record`; "" if there is none with a literal name."""
    calls = [
        (node.lineno, node.col_offset, node.args[0].value)
        for node in _calls_of_record(nodes)
        if node.args and isinstance(node.args[0], ast.Constant)
    ]
    name = min(calls)[2] if calls else ""
    return name if isinstance(name, str) else ""


def _records_items(nodes: Iterable[ast.AST]) -> bool:
    """Returns whether a call of `record` names an item."""
    return any(keyword.arg == "item" for node in _calls_of_record(nodes) for keyword in node.keywords)


def _calls_of_record(nodes: Iterable[ast.AST]) -> list[ast.Call]:
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == _RECORD_FIXTURE]


def _reads_seeds(nodes: Iterable[ast.AST]) -> bool:
    """Returns whether the code contains `record.seeds`."""
    attribute_owners = [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "seeds"]
    return any(isinstance(value, ast.Name) and value.id == _RECORD_FIXTURE for value in attribute_owners)

"""Names of pytest's items without the parts that other plugins add."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

import pytest

from lobench.core.case import CaseSpec
from lobench.experiments.pytest_items import ItemMember, member_of

__all__ = ["plain_node_id", "test_name"]


def test_name(item: pytest.Item) -> str:
    """Returns the test's part of a case's identity: its name, with its parameters other than the case."""
    if not isinstance(item, pytest.Function):
        return ""
    name: str = item.function.__name__
    if not hasattr(item, "callspec"):  # the test does not get its case by parametrize
        return name
    params = _own_params(item)
    if all(isinstance(value, CaseSpec | ItemMember) for value in params.values()):
        return name
    own_id = _own_id(item, params)
    member = member_of(item)  # the last parameter, added by lobench
    return f"{name}[{own_id if member is None else own_id.removesuffix(f'-{member}')}]"


def plain_node_id(item: pytest.Item) -> str:
    """Returns an item's node id without the parts that other plugins add.

    Example: `test_a.py::test[relu-1-10]` of pytest-repeat, and `test_a.py::test[relu]@gpu` of pytest-xdist's groups,
    are `test_a.py::test[relu]`.
    """
    node_id = item.nodeid
    for pytest_mark in item.iter_markers("xdist_group"):
        group = pytest_mark.kwargs.get("name", next(iter(pytest_mark.args), "default"))
        node_id = node_id.removesuffix(f"@{group}")
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return node_id
    own_id = _own_id(item, _own_params(item))
    full_suffix = f"[{item.callspec.id}]"
    if own_id == item.callspec.id or not node_id.endswith(full_suffix):
        return node_id
    return node_id.removesuffix(full_suffix) + (f"[{own_id}]" if own_id else "")


def _own_params(item: pytest.Function) -> dict[str, object]:
    """Returns the parameters that the test or one of its fixtures takes, by name.

    A plugin may add others to each item, as pytest-repeat does for the number of the repetition. They are invisible to
    the test, so they do not affect the training, and all items that differ in them are the same case.
    """
    fixtures = item._fixtureinfo  # pytest has no public API for the fixtures of a test
    reached_fixtures = set[str]()
    pending_fixtures = [name for name in fixtures.initialnames if _is_user_fixture(item, name)]
    while pending_fixtures:
        name = pending_fixtures.pop()
        if name not in reached_fixtures:
            reached_fixtures.add(name)
            pending_fixtures += [
                argument for fixture in fixtures.name2fixturedefs.get(name, ()) for argument in fixture.argnames
            ]
    marked_names = {name for pytest_mark in item.iter_markers("parametrize") for name in _names_of(pytest_mark)}
    params: dict[str, object] = item.callspec.params
    return {
        name: value
        for name, value in params.items()
        if name in reached_fixtures or name in marked_names or isinstance(value, CaseSpec | ItemMember)
    }


def _is_user_fixture(item: pytest.Function, name: str) -> bool:
    """Returns whether an argument is the test's own, or an autouse fixture defined in the suite's own files."""
    if name in item._fixtureinfo.argnames:
        return True
    files = (inspect.getfile(fixture.func) for fixture in item._fixtureinfo.name2fixturedefs.get(name, ()))
    return any(Path(file).parent in item.path.parents for file in files)


def _names_of(pytest_mark: pytest.Mark) -> list[str]:
    names = pytest_mark.kwargs.get("argnames", pytest_mark.args[0] if pytest_mark.args else ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _own_id(item: pytest.Function, own_params: Mapping[str, object]) -> str:
    """Returns the part of an item's name that comes from some of its parameters."""
    callspec = item.callspec
    if own_params.keys() == callspec.params.keys():
        return str(callspec.id)
    groups = [names for pytest_mark in item.iter_markers("parametrize") if len(names := _names_of(pytest_mark)) > 1]
    # Names per call of parametrize. Each call has one part of the id.
    covered_names, names_of_calls = set[str](), list[list[str]]()
    for name in callspec.params:
        if name not in covered_names:
            names_of_calls.append(next((group for group in groups if name in group), [name]))
            covered_names.update(names_of_calls[-1])
    id_parts = list(callspec._idlist)
    if len(id_parts) != len(names_of_calls):
        return str(callspec.id)
    return "-".join(
        id_part
        for id_part, names in zip(id_parts, names_of_calls, strict=True)
        if not own_params.keys().isdisjoint(names)
    )

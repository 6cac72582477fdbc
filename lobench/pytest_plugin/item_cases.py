"""Case that a pytest item evaluates: that of a gin file, of a parameter, or of an ordinary test."""

from __future__ import annotations

import pytest

from lobench.core.case import CaseSpec
from lobench.pytest_plugin.item_result import TESTS_ARE_CASES

__all__ = ["case_of", "collects_everything", "ordinary_test_spec"]


def case_of(item: pytest.Item) -> CaseSpec | None:
    """Returns the case that an item evaluates, or None. An ordinary test is a case if the session has a checkpoint."""
    spec = getattr(item, "case_spec", None)
    if spec is not None or not isinstance(item, pytest.Function):
        return spec
    if hasattr(item, "callspec"):
        spec = next((value for value in item.callspec.params.values() if isinstance(value, CaseSpec)), None)
    return spec or (ordinary_test_spec(item) if item.config.stash.get(TESTS_ARE_CASES, False) else None)


def collects_everything(session: pytest.Session) -> bool:
    """Returns whether a session has collected every item of whole folders and files, without an error.

    Items that are deselected later, as by `-k`, do not count here.
    """
    option = session.config.option
    narrowing_options = ("lf", "ignore", "ignore_glob", "pyargs")
    return not (
        session.testsfailed
        or any(getattr(option, name, None) for name in narrowing_options)
        or any("::" in str(argument) for argument in session.config.args)
    )


def ordinary_test_spec(item: pytest.Item) -> CaseSpec:
    """Returns the `CaseSpec` of an ordinary test."""
    # Imported late, since it is not needed at the start of a session.
    from lobench.pytest_plugin.item_names import plain_node_id

    path = item.path.resolve()
    return CaseSpec(path=str(path), scope=plain_node_id(item).partition("::")[2], root=str(path.parent.parent))

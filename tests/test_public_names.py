"""The names that people and plugins use exist, are typed, and cost nothing before they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lobench
import lobench.extend


@pytest.mark.parametrize("package", [lobench, lobench.extend])
def test_each_name_loads(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert names == sorted(set(names))
    for name in names:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Taks'"):
        package.Taks  # type: ignore[attr-defined] # noqa: B018


def test_a_name_has_one_place() -> None:
    assert not set(lobench.__all__) & set(lobench.extend.__all__)


def test_what_nobody_asked_for_is_not_imported() -> None:
    code = "import sys, lobench.extend as extend; extend.fold; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"jax", "pandas", "numpy", "gin", "pytest"} & set(loaded)

"""The names that people and plugins use exist, are typed, and cost nothing before they are used."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest
from shown import texts_of

import lobench
import lobench.extend
from lobench import hookspecs

SHOWN = texts_of("lobench")


@pytest.mark.parametrize("package", [lobench, lobench.extend])
def test_each_name_loads(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert names == sorted(set(names))
    for name in names:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match=SHOWN["has-no-attribute-taks"]):
        package.Taks  # type: ignore[attr-defined] # noqa: B018


def test_a_name_has_one_place() -> None:
    assert not set(lobench.__all__) & set(lobench.extend.__all__)


def test_what_nobody_asked_for_is_not_imported() -> None:
    code = "import sys, lobench.extend as extend; extend.fold; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"jax", "pandas", "numpy", "gin", "pytest"} & set(loaded)


def test_types_in_signatures_of_hooks_are_public() -> None:
    """A plugin can name every type that it gets or returns."""
    public = {*lobench.__all__, *lobench.extend.__all__, *hookspecs.__all__}
    public |= {"Path", "Connection", "Iterable", "Iterator", "Mapping", "Sequence", "Callable", "Protocol", "None"}
    public |= {"Any", "Literal", "True", "False", "NDArray", "ArrayLike", "Collection"}
    places = [value for name in hookspecs.__all__ if inspect.isclass(value := getattr(hookspecs, name))]
    places += [hookspecs.HookSpecs, lobench.extend.FileKind, lobench.extend.CurveRequest, lobench.extend.Points]
    for place in places:
        annotations = dict(getattr(place, "__annotations__", {}))
        for method in (one for one in vars(place).values() if inspect.isfunction(one)):
            annotations |= {f"{method.__name__}({name})": text for name, text in method.__annotations__.items()}
        for where, text in annotations.items():
            unknown = set(re.findall(r"\b[A-Z]\w+", str(text))) - public
            if not where.startswith("_"):
                assert not unknown, f"{place.__name__}.{where}: {unknown}"

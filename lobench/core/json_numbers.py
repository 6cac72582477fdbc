"""Finite numbers for JSON: NaN and infinities become null."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, TypeVar, cast

__all__ = ["Finite", "finite_or_none"]

T = TypeVar("T")
Finite: TypeAlias = Annotated[float, {"type": "number"}]  # type of a record's field that is never NaN


def finite_or_none(value: T) -> T:
    """Replaces NaN and infinities by None in nested records, dicts, lists and tuples, because JSON cannot hold them.

    The return type is that of the value, although a float field of a returned record may be None.
    """
    return cast(T, _finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _finite(dataclasses.asdict(value))
    return None if isinstance(value, float) and not math.isfinite(value) else value

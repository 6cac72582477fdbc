"""Finite numbers for JSON: NaN and infinities become null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["finite_or_none"]


def finite_or_none(value: Any) -> Any:
    """Returns what JSON can hold of nested dicts, lists and tuples: NaN and infinities as None."""
    if isinstance(value, Mapping):
        return {key: finite_or_none(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

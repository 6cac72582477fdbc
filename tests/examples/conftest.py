"""Modules of the examples' folder, imported as its scripts import each other."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    def imported(name: str) -> ModuleType:
        sys.path.insert(0, str(EXAMPLES))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(EXAMPLES))

    return imported

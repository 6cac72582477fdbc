"""Prints the lowest version of each dependency that pyproject.toml allows, as constraints for pip."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lowest() -> list[str]:
    """Returns `name==version` of each dependency of lobench itself; what others are for follows from these."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pairs = (re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", line) for line in found)
    return [f"{pair[1]}=={pair[2]}" for pair in pairs if pair]


if __name__ == "__main__":
    print("\n".join(lowest()))

"""Prints the lowest version of each dependency that lobench and its plugins allow, as constraints for pip."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
OF_DEVELOPERS = {"dev", "docs", "test"}  # extras of which nobody but a contributor installs anything


def lowest() -> list[str]:
    """Returns `name==version` of each dependency and of each extra for users; what others are for follows from these.

    Where two packages name one dependency, the higher of their lowest versions counts: one environment holds all.
    """
    found: dict[str, str] = {}
    for file in (ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))):
        project = tomllib.loads(file.read_text())["project"]
        extras = project.get("optional-dependencies", {})
        lines = [
            *project["dependencies"],
            *(line for name in extras if name not in OF_DEVELOPERS for line in extras[name]),
        ]
        for line in lines:
            if pair := re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\d.]+)", line):
                name = pair[1].lower().replace("_", "-")
                found[name] = max(found.get(name, "0"), pair[2], key=lambda version: [*map(int, version.split("."))])
    found.pop("lobench", None)
    return [f"{name}=={version}" for name, version in found.items()]


if __name__ == "__main__":
    print("\n".join(lowest()))

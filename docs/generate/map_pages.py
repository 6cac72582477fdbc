"""The map of the code: each folder with its description, its files and the packages that it may import.

`python docs/generate/map_pages.py` prints the page.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from words import escaped, table

__all__ = ["map_page"]

ROOT = Path(__file__).parents[2]
_INTRODUCTION = """# Map of the code

Each folder, the sentence that its `__init__.py` says of it, its files, and what it may import. The page is made from
the code. [architecture.md](architecture.md) follows a value through the folders, and
[contributing.md](contributing.md) says which files a change needs.

Much that people add needs no file of lobench's: a task, an optimizer, a sink, a metric, a figure, a command, a reader
of checkpoints or of files of curves may stand in a plugin ([plugins.md](plugins.md)). What ships with lobench has its
place here."""


def map_page() -> str:
    """Returns the page."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contracts = {contract["name"]: contract for contract in found}
    rooms = [name for layer in contracts["rooms"]["layers"] for name in layer.split(" | ")]
    parts = [_INTRODUCTION, "## Rooms", "A room imports the rooms below it, which stand under it here, and none above."]
    lines = []
    for room in rooms:
        path, name = ROOT / "lobench" / room, f"lobench/{room}"
        link = f"[`{name}`](#{name.replace('/', '')})" if path.is_dir() else f"`{name}.py`"
        lines.append((link, _sentence(path), _imports(name, contracts)))
    parts.append(table(("room", "what it holds", "may import"), lines))
    for folder in (folder for room in rooms for folder in _folders(ROOT / "lobench" / room)):
        name, parent = (path.relative_to(ROOT).as_posix() for path in (folder, folder.parent))
        parts += [f"## {name}", _sentence(folder)]
        if parent == "lobench" or _imports(name, contracts) != _imports(parent, contracts):
            parts.append(f"May import: {_imports(name, contracts)}.")
        files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        if files:
            parts.append(table(("file", "what it holds"), [(f"`{path.name}`", _sentence(path)) for path in files]))
    parts += [
        "## Plugins",
        "Packages of their own, which import `lobench.extend`, `.hookspecs`, `.testing` and `lobench`.",
    ]
    packages = sorted(path.parent for path in ROOT.glob("plugins/*/lobench_*/__init__.py"))
    rows = [(f"`{path.relative_to(ROOT).as_posix()}`", _sentence(path)) for path in packages]
    parts.append(table(("package", "what it holds"), rows))
    return "\n\n".join(parts) + "\n"


def _folders(room: Path) -> Iterator[Path]:
    """Yields a package and its subpackages. Folders of templates are left out."""
    if (room / "__init__.py").exists():
        yield room
        for path in sorted(room.iterdir()):
            yield from _folders(path)


def _sentence(path: Path) -> str:
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return escaped((ast.get_docstring(ast.parse(file.read_text())) or "").split("\n")[0])


def _imports(name: str, contracts: dict[str, Any]) -> str:
    """Returns the packages that the import contracts allow and forbid in a folder."""
    module = name.replace("/", ".")
    below = _below(module, contracts["rooms"], "lobench")
    parts = ["every room below" if below else "no other room"]
    for contract in contracts.values():
        if contract["type"] == "independence" and any(_is_of(module, one) for one in contract["modules"]):
            parts.append("no other tool")
        for container in contract.get("containers", ()):
            if container != "lobench" and module.startswith(f"{container}."):
                layers = ", ".join(f"`{each}`" for each in _below(module, contract, container))
                parts.append(f"of `{container.partition('.')[2]}` {layers}")
    beside = next(layer for layer in contracts["rooms"]["layers"] if module.split(".")[1] in layer.split(" | "))
    known = {*below, module.split(".")[1]}
    refused = [each for each in beside.split(" | ") if each != module.split(".")[1]]
    refused += [
        each for each in _forbidden(module, contracts) if not each.startswith("lobench.") or each.split(".")[1] in known
    ]
    names = ", ".join(f"`{each.removeprefix('lobench.')}`" for each in refused)
    return "; ".join(parts) + (f"; not {names}" if refused else "")


def _is_of(module: str, pattern: str) -> bool:
    """Returns whether a pattern such as `lobench.tools.*` matches a package or a package above it."""
    return module.startswith(pattern.removesuffix("*")) if pattern.endswith("*") else module == pattern


def _below(module: str, contract: dict[str, Any], container: str) -> list[str]:
    own = module.removeprefix(f"{container}.").partition(".")[0]
    layers = [layer.split(" | ") for layer in contract["layers"]]
    (place,) = [position for position, layer in enumerate(layers) if own in layer]
    return [name for layer in layers[place + 1 :] for name in layer]


def _forbidden(module: str, contracts: dict[str, Any]) -> list[str]:
    """Returns the packages that contracts of the type "forbidden" name for a folder or a folder above it."""
    of_it = [
        each
        for contract in contracts.values()
        if contract["type"] == "forbidden"
        and any(f"{module}.".startswith(f"{source}.") for source in contract["source_modules"])
        for each in contract["forbidden_modules"]
    ]
    return list(dict.fromkeys(of_it))


if __name__ == "__main__":
    print(map_page(), end="")

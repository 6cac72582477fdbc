"""Files of loaded modules."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from lobench.core.code_origin import Origin, loaded_module_files, origin_of_file


@pytest.mark.parametrize(("place", "origin"), [(".", Origin.USER), ("site-packages", Origin.INSTALLED)])
def test_files_of_loaded_modules_are_real_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, origin: Origin
) -> None:
    """A linked folder and a linked file lead to the same file as its own path does."""
    root = tmp_path / place
    folder = root / "folder"
    folder.mkdir(parents=True)
    file = folder / "optimizer.py"
    file.touch()
    (root / "linked").symlink_to(folder)
    (folder / "alias.py").symlink_to(file)
    linked = root / "linked"
    paths = [file, linked / "optimizer.py", folder / "alias.py", linked / "../folder/alias.py"]
    assert {origin_of_file(str(path)) for path in paths} == {origin}
    for number, path in enumerate(paths):
        module = ModuleType(f"loaded_{number}")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "loaded_without_file", ModuleType("loaded_without_file"))
    found = {name: path for name, path in loaded_module_files() if name.startswith("loaded_")}
    assert found == {f"loaded_{number}": str(file.resolve()) for number in range(len(paths))}

"""Files of loaded modules."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from lobench.core.code_origin import loaded_module_files


def test_files_of_loaded_modules_are_real_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linked folder and a linked file lead to the same file as its own path does."""
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "optimizer.py"
    file.touch()
    (tmp_path / "linked").symlink_to(folder)
    (folder / "alias.py").symlink_to(file)
    paths = [file, tmp_path / "linked/optimizer.py", folder / "alias.py", tmp_path / "linked/../folder/alias.py"]
    for number, path in enumerate(paths):
        module = ModuleType(f"loaded_{number}")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "loaded_without_file", ModuleType("loaded_without_file"))
    found = {name: path for name, path in loaded_module_files() if name.startswith("loaded_")}
    assert found == {f"loaded_{number}": str(file.resolve()) for number in range(len(paths))}

"""What a package makes configurable is found, whichever module it is in."""

from __future__ import annotations

import sys
from pathlib import Path

import gin
import pytest

from lobench.inner.configurable import configurables_in


def test_a_module_is_found_by_being_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shapes_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    text = "from lobench import configurable\n\n@configurable\nclass {0}OfATest: ...\n\nclass Helper{0}: ...\n"
    for name in ("Round", "Angular"):
        (folder / f"{name.lower()}.py").write_text(text.format(name))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = configurables_in("shapes_of_a_test", [str(folder)])
    assert list(found) == ["AngularOfATest", "RoundOfATest"]
    assert found["RoundOfATest"] is sys.modules["shapes_of_a_test.round"].RoundOfATest
    assert type(gin.get_configurable("RoundOfATest")()) is found["RoundOfATest"]

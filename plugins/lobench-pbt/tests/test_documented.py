"""What docs/populations.md shows runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lobench_pbt.server import Security, start_server
from lobench_pbt.service import Service
from lobench_pbt.study_file import read_study
from pages import blocks_of
from pbt_simulation import PLUGINS

TEXT = (Path(__file__).parents[3] / "docs" / "populations.md").read_text()
TRAINER = """
import gin
@gin.configurable
def outer(learning_rate=0.1, momentum=0.9, kind="sgd"):
    return learning_rate
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    import gin

    (found,) = [block.text for block in blocks_of("populations.md") if block.title == "study.gin"]
    (tmp_path / "study.gin").write_text(found)
    (tmp_path / "my_trainer.py").write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    gin.clear_config()


def test_the_study_and_the_trainer(folder: Path) -> None:
    """As written, with a short study whose trainer knows its own fitness."""
    text = (folder / "study.gin").read_text()
    for name, value in (("population", "2"), ("generations", "1"), ("fitness_from", '"trainer"')):
        text += f"Study.{name} = {value}\n"
    (folder / "study.gin").write_text(text)
    service = Service(folder / "store", plugins=PLUGINS)
    service.create_study(read_study(folder / "study.gin"))
    server, address = start_server(service, "127.0.0.1:0", Security())
    (code,) = re.findall(r"The trainer:\n\n```python\n(.*?)```", TEXT, re.DOTALL)
    code = code.replace("127.0.0.1:6006", address)
    assert code.count('trial.folder("runs/population")))') == 1
    code = code.replace('trial.folder("runs/population")))', 'trial.folder("runs/population")), {"train/loss": state})')

    def save(state: float, to: Path) -> Path:
        np.savez(to / "theta.npz", state=state)
        return to / "theta.npz"

    names = {
        "restore": lambda path: float(np.load(path)["state"]),
        "init": float,
        "train": lambda state, step: state * 0.9,
        "save": save,
    }
    import my_trainer  # type: ignore[import-not-found]  # noqa: F401

    exec(compile(code, "populations.md", "exec"), names)
    assert [str(trial.state) for trial in service.list_trials("")] == ["succeeded"] * 4
    server.stop(grace=None).wait()
    service.close()

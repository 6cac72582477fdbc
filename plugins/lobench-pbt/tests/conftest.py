"""What tests of the service share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lobench_pbt.server import Security
from pbt_served import STUDY, TRAINER, Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    yield from serving(tmp_path, Security())


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A trainer's folder: its module, and the study of its one parameter."""
    import gin

    (tmp_path / "pbt_trainer.py").write_text(TRAINER)
    (tmp_path / "study.gin").write_text(STUDY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    gin.clear_config()

"""One SLURM for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from one_node import OneNode


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    node = OneNode(tmp_path_factory.mktemp("slurm"))
    yield node
    node.end_jobs()
    node.stop()


@pytest.fixture
def in_slurm(slurm: OneNode, monkeypatch: pytest.MonkeyPatch) -> OneNode:
    """The SLURM, with this process as a machine of it."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    return slurm

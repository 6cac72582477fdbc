"""One cluster for all tests of this folder that do not need another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from two_nodes import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    two = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        two.start_head()
        two.start_second()
        yield two
    finally:
        two.kill()

"""One Chromium for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import started
from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with started() as browser:
        yield browser

"""Chromium for tests of pages, headless."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright import sync_api
from playwright.sync_api import Browser, Page, expect

PATIENCE = 180_000  # milliseconds; a step takes a second on a free machine
expect.set_options(timeout=PATIENCE)


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs a machine with Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # As root, as in most containers, Chromium has no sandbox; the page is our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=PATIENCE)
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Browser, address: str, width: int, scheme: Literal["light", "dark"]) -> Iterator[Page]:
    """A page; afterwards: no error on the console, no dialogue, and no request to anybody else."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page, problems, requests = context.new_page(), [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"dialogue: {dialog.message}"))
    page.on("request", lambda one: requests.append(one.url))
    page.goto(address)
    yield page
    assert problems == []
    base = address.partition("?")[0].partition("#")[0]
    assert [url for url in requests if not url.startswith((base, "data:"))] == []
    context.close()

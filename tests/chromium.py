"""Chromium for tests of pages, headless."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from playwright import sync_api
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, expect

PATIENCE = 180_000  # milliseconds; a step takes a second on a free machine
expect.set_options(timeout=PATIENCE)
_FREE: dict[Browser, list[Page]] = {}  # tabs that no test has


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
        _FREE.pop(browser, None)
        browser.close()


@contextlib.contextmanager
def opened(browser: Browser, address: str, width: int, scheme: Literal["light", "dark"]) -> Iterator[Page]:
    """A page; afterwards: no error on the console, no dialogue, and no request to anybody else.

    It is loaded anew in the tab of the one before: a context of its own costs three times as much. Pages store nothing
    but a cookie, and where one has failed its tab goes.
    """
    free = _FREE.setdefault(browser, [])
    tab = free.pop() if free else _tab(browser)
    problems, requests = list[str](), list[str]()

    def note(message: ConsoleMessage) -> None:
        if "409 (Conflict)" not in message.text:  # what was asked of a page that a newer one has just replaced
            problems.append(message.text)

    def refuse(dialog: Dialog) -> None:
        problems.append(f"dialogue: {dialog.message}")
        dialog.dismiss()

    listeners: list[tuple[Any, Callable[[Any], None]]] = [
        ("console", note),
        ("pageerror", lambda error: problems.append(str(error))),
        ("dialog", refuse),
        ("request", lambda one: requests.append(one.url)),
    ]
    for event, listener in listeners:
        tab.on(event, listener)
    try:
        tab.context.clear_cookies()
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(media="null", color_scheme=scheme)
        tab.goto(address)
        yield tab
        assert tab.evaluate("localStorage.length + sessionStorage.length") == 0
        tab.goto("about:blank")  # an address that differs in its fragment alone would not be loaded
        assert problems == [], problems
        base = address.partition("?")[0].partition("#")[0]
        assert [url for url in requests if not url.startswith((base, "data:", "about:blank"))] == []
        for event, listener in listeners:
            tab.remove_listener(event, listener)
        free.append(tab)
    except BaseException:
        tab.context.close()
        raise


def _tab(browser: Browser) -> Page:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    return context.new_page()

"""The page in Firefox beside Chromium, where it is installed: Marionette, Firefox's own remote control, drives it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_store import make_store

from lobench.analysis.comparisons.summary import summary_of
from lobench.report.page.page import write_page

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
pytestmark = pytest.mark.skipif(FIREFOX is None, reason="Firefox is not installed")
SECONDS = 60


class Firefox:
    """One window; a message is its length, a colon and `[type, id, command, parameters]`."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._file = self._socket.makefile("rb")
        self._read()  # its greeting
        self.call("WebDriver:NewSession")

    def call(self, command: str, **parameters: object) -> Any:
        text = json.dumps([0, 1, command, parameters])
        self._socket.sendall(f"{len(text)}:{text}".encode())
        _, _, error, result = self._read()
        assert error is None, error
        return result

    def script(self, text: str) -> Any:
        return self.call("WebDriver:ExecuteScript", script=text, args=[])["value"]

    def _read(self) -> Any:
        digits = b""
        while (digit := self._file.read(1)) != b":":
            assert digit, "Firefox ended"
            digits += digit
        return json.loads(self._file.read(int(digits)))


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    profile = tmp_path_factory.mktemp("profile")
    (profile / "user.js").write_text('user_pref("marionette.port", 0);\nuser_pref("ui.systemUsesDarkTheme", 1);\n')
    command = [str(FIREFOX), "--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    with (profile / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"HOME": str(profile), "PATH": "/usr/bin:/bin"})
    try:
        port, end = profile / "MarionetteActivePort", time.monotonic() + SECONDS
        while not (port.exists() and port.read_text()):
            assert process.poll() is None and time.monotonic() < end, (profile / "log").read_text()
            time.sleep(0.1)
        yield Firefox(int(port.read_text()))
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("page")
    write_page(summary_of(make_store(folder)), folder / "report.html")
    return (folder / "report.html").as_uri()


VIEWS = ("overview", "cases", "curves?case=*all", "evaluations", "failures")


@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_each_view_is_drawn_and_nothing_sticks_out(firefox: Firefox, address: str, width: int) -> None:
    firefox.call("WebDriver:SetWindowRect", width=width, height=900)
    for view in VIEWS:
        firefox.call("WebDriver:Navigate", url="about:blank")
        firefox.call("WebDriver:Navigate", url=f"{address}#/{view}")
        end = time.monotonic() + SECONDS
        shown = "return [...document.querySelectorAll('[data-view]')].filter(one => one.offsetHeight).length"
        while not firefox.script(shown):
            assert time.monotonic() < end, f"{view} shows nothing"
            time.sleep(0.05)
        sizes = "return [document.documentElement.scrollWidth, innerWidth, document.body.innerText.length]"
        found, room, letters = firefox.script(sizes)
        assert found <= room and letters > 100, f"{view} is {found} pixels wide in a window of {room}"


def test_a_click_filters_and_a_canvas_has_more_than_one_colour(firefox: Firefox, address: str) -> None:
    firefox.call("WebDriver:SetWindowRect", width=1280, height=900)
    firefox.call("WebDriver:Navigate", url=f"{address}#/curves?case=*all")
    colours = """const canvas = [...document.querySelectorAll('canvas')].find(one => one.offsetHeight);
    if (!canvas) return 0;
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(data.buffer)).size;"""
    end = time.monotonic() + SECONDS
    while firefox.script(colours) < 3:
        assert time.monotonic() < end, "no curve is drawn"
        time.sleep(0.05)
    firefox.script("location.hash = '#/evaluations'")
    element = firefox.call(
        "WebDriver:FindElement", using="css selector", value="[data-view=evaluations] input[type=search]"
    )
    (identity,) = element["value"].values()
    firefox.call("WebDriver:ElementSendKeys", id=identity, text="case1 FAILED")
    count = "return document.querySelector('[data-view=evaluations] .count').innerText"
    while "1 of 12 evaluations" not in firefox.script(count):
        assert time.monotonic() < end, firefox.script(count)
        time.sleep(0.05)

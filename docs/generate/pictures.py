"""Pictures of a store: the viewer in its states, figures, TensorBoard, and a watch's terminal as text.

python docs/generate/pictures.py WORK IMAGES      # WORK as docs/pictures.sh has filled it
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

MOST_BYTES = 150_000
LOOKS = {"light": (1280, 900, "light"), "dark": (1280, 900, "dark"), "phone": (400, 800, "light")}
_RUNNING = re.compile(r"^outer step \d+ .*(?:compiling .*|\d+/\d+)$", re.MULTILINE)
STATES = {  # what the window shows, by the name of its picture; the last two in the light alone
    "overview": "#/overview",
    "curves": "#/curves?case=*all&smooth=0.6",
    "case": "#/case/{case}?show=run",
    "compare": "#/compare/{best}/{first}",
    "evaluation": "#/evaluation/{best}/{case}",
}
FIGURES = {"outer": "store", "scores": "store", "profiles": "store", "curves": "store"}  # by name, the store
FIGURES |= {"search": "search", "tasks": "tasks", "matrix": "matrix"}
# What is there when all of a window has been requested and drawn.
_CARD = "text=Chance that a seed ends better >> visible=true"
_DRAWN = {"overview": (_CARD,), "compare": (_CARD, "canvas:visible")}
_ALL_LOOKS = ("overview", "curves", "case")
_WITHOUT_FOLDER = "one => { one.textContent = one.textContent.replace(/; store \\/.*/, ''); }"


@contextlib.contextmanager
def serving(command: list[str], port: int, folder: Path) -> Iterator[str]:
    """Runs a server in a folder until the context ends; returns its address when it answers."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/"
    try:
        while True:
            if process.poll() is not None:
                raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
            try:
                urllib.request.urlopen(address, timeout=10).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
            else:
                yield address
                return
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def save(page: Page, path: Path) -> None:
    """Takes what the window shows."""
    save_image(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), path)


def save_image(shown: Image.Image, path: Path) -> None:
    """Writes a picture, in fewer colours where the file would be too large.

    By maximum coverage: the median cut gives a page of text its greys, and a line's own colour to its neighbour.
    """
    for colours in (None, 256):
        fewer = shown.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE) if colours else shown
        fewer.save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            return
    raise SystemExit(f"{path}: {path.stat().st_size} bytes; expected at most {MOST_BYTES}")


@contextlib.contextmanager
def opened(browser: Browser, address: str, look: str) -> Iterator[Page]:
    width, height, scheme = LOOKS[look]
    viewport = {"width": width, "height": height}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


def explorer_data(address: str) -> Any:
    """Returns what the viewer's page draws, as soon as the viewer has read the store."""
    data = None
    while data is None:
        time.sleep(0.2)
        with urllib.request.urlopen(f"{address}data.json") as answer:
            data = json.load(answer)["explorer"]
    return data


def picture_viewer(browser: Browser, address: str, images: Path) -> None:
    data = explorer_data(address)
    subjects = data["subjects"]
    best = next(one["key"] for one in subjects if one.get("best"))
    first = next(one["key"] for one in subjects if "run" in one)
    keys = {"case": data["cases"][0]["name"], "best": best, "first": first}
    quoted = {name: quote(key, safe="") for name, key in keys.items()}
    for look in LOOKS:
        for state, route in STATES.items():
            if look != "light" and state not in _ALL_LOOKS:
                continue
            with opened(browser, address + route.format(**quoted), look) as page:
                for part in _DRAWN.get(state, ("canvas:visible",)):
                    page.locator(part).first.wait_for()
                page.mouse.move(0, 0)
                page.locator("header .quiet").evaluate(_WITHOUT_FOLDER)
                save(page, images / f"view-{state}-{look}.png")


def picture_figures(work: Path, images: Path) -> None:
    """Draws what `--figure` names."""
    for figure, store in FIGURES.items():
        command = ["lobench", "report", "--store", store, "--figure", figure, "--format", "png"]
        subprocess.run([*command, "--output", f"figures/{figure}"], cwd=work, check=True, stdout=subprocess.DEVNULL)
        (drawn,) = (work / "figures" / figure).iterdir()  # `search` has the name of its method too
        save_image(Image.open(drawn).convert("RGB"), images / f"figure-{figure}.png")


def picture_tensorboard(browser: Browser, address: str, images: Path) -> None:
    with opened(browser, f"{address}?darkMode=false#timeseries", "light") as page:
        page.locator("scalar-card svg, scalar-card canvas").first.wait_for(state="attached", timeout=60_000)
        page.get_by_role("button", name="Settings").last.click()  # the pane closes, and gives its room to charts
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(3000)  # its charts say nothing when they are drawn
        save(page, images / "tensorboard.png")


def screens(typescript: str) -> list[str]:
    """Returns what a terminal showed each time before something was erased; it knows what rich asks of a terminal."""
    lines, row, found = [""], 0, []
    for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\x1b\][^\x07]*\x07|\r\n|\n|\r|[^\x1b\r\n]+", typescript):
        if token in ("\n", "\r\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token == "\r":
            continue  # what follows erases the line, or moves up
        elif token.startswith("\x1b"):
            count, letter = token[2:-1], token[-1]
            if letter == "A":
                row = max(row - int(count or 1), 0)
            elif letter == "K":
                found.append("\n".join(lines))
                lines[row] = ""
        else:
            lines[row] += token
    return [*found, "\n".join(lines)]


def picture_terminal(typescript: Path, images: Path) -> None:
    """Writes the screen in the middle of the run, and the one at its end."""
    text = typescript.read_bytes().decode(errors="replace")  # lone carriage returns stay
    text = text.partition("\n")[2].rpartition("\nScript done")[0] or text
    found = [re.sub(r"[ \t]+$", "", screen, flags=re.MULTILINE).strip("\n") for screen in screens(text)]
    busy = [screen for screen in found if "score" in screen and len(_RUNNING.findall(screen)) > 1]
    (images / "watch-running.txt").write_text((busy or found)[len(busy or found) // 2] + "\n")
    (images / "watch-ended.txt").write_text(found[-1] + "\n")


def main() -> None:
    work, images = Path(sys.argv[1]), Path(sys.argv[2])
    images.mkdir(parents=True, exist_ok=True)
    picture_terminal(work / "terminal", images)
    picture_figures(work, images)
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        port = free_port()
        with serving(["lobench", "view", "store", "--port", str(port)], port, work) as address:
            picture_viewer(browser, address, images)
        port = free_port()
        tensorboard = ["tensorboard", "--logdir", "store/tensorboard", "--port", str(port), "--load_fast", "false"]
        with serving(tensorboard, port, work) as address:
            picture_tensorboard(browser, address, images)
        browser.close()


if __name__ == "__main__":
    main()

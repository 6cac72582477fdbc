"""10,000 evaluations in `lobench view` and in its file: seconds until Chromium shows them, and of what people do then.

Usage: python benchmarks/view_speed.py [EVALUATIONS]

The store is written here: 300 checkpoints of a run and 200 methods (fewer of both for fewer evaluations), on 20
cases, 4 seeds, 41 points a curve, train and test. First paint is Chromium's first contentful paint, from the
navigation on; ready is when the comparison of the overview is there. A filter is from the input to the table that it
leaves, and the longest of five. New evaluations show, from their commit on, if the subtitle of the open overview counts
them; tables and charts follow. Pages are opened three times, of which one stays open, and evaluations added nine times
(once and three times for fewer than 1,000).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import answer_help

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from many_evaluations import NUM_CASES, add_method, make_store
from playwright.sync_api import Page, sync_playwright

from lobench.engine.store.ledger import Ledger

_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_IS_WHOLE = "() => document.getElementById('live').dataset.version !== ''"
_NEW = "() => document.querySelector('header').textContent.includes('{:,} evaluations')"
_FILTER = """words => {
  const filter = document.getElementById('filter'), started = performance.now();
  filter.value = words;
  filter.dispatchEvent(new Event('input'));
  document.getElementById('evaluations').offsetHeight;
  return performance.now() - started;
}"""


def main() -> None:
    evaluations = int(sys.argv[1]) // NUM_CASES * NUM_CASES if len(sys.argv) > 1 else 10_000
    repeats = 3 if evaluations >= 1000 else 1
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        playwright = stack.enter_context(sync_playwright())
        folder = Path(name)
        store = make_store(folder, evaluations)
        Ledger.open(store).close()  # names the programs of its rows once, which changes all of them
        command = [sys.executable, "-m", "lobench.cli"]
        output = folder / "report.html"
        started = time.perf_counter()
        subprocess.run(
            [*command, "report", "--store", store, "--output", output], check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.perf_counter() - started
        print(f"{evaluations:,} evaluations: report {seconds:.1f} s, {output.stat().st_size / 1e6:.2f} MB")
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        _say("the file", [_opened(browser.new_page(), output.as_uri()) for _ in range(repeats)])
        started = time.perf_counter()
        served = subprocess.Popen([*command, "view", store, "--port", "0"], stdout=subprocess.PIPE, text=True)
        stack.callback(served.kill)
        assert served.stdout is not None
        address = served.stdout.readline().split()[-4]
        print(f"lobench view is ready after {time.perf_counter() - started:.1f} s")
        pages = [browser.new_page() for _ in range(repeats)]
        _say("lobench view", [_opened(page, address) for page in pages])
        *others, page = pages
        for other in others:
            other.close()  # each open page draws what is new
        page.evaluate("location.hash = '#/evaluations'")
        page.locator("#evaluations tbody tr").first.wait_for()
        words = ["case1", "case1 adam", "failed", "nothing of it", ""]
        print(f"a filter takes {max(page.evaluate(_FILTER, word) for word in words) / 1000:.3f} s at most")
        started = time.perf_counter()
        page.evaluate("location.hash = '#/curves?show=run&case=*all'")
        page.locator("#explorer-charts canvas").first.wait_for()
        print(f"the checkpoints along the run are drawn after {time.perf_counter() - started:.2f} s")
        page.evaluate("location.hash = '#/'")
        with Ledger.open(store) as ledger:  # and keeps it open, as a watch does
            for number in range(3 * repeats):
                page.wait_for_function(_IS_WHOLE, timeout=300_000)
                used = _processor_seconds(served.pid)
                with ledger.transaction():
                    add_method(ledger, f"sgd(); sgd.learning_rate = 0.{number + 1}", np.random.default_rng(number))
                started = time.perf_counter()
                page.wait_for_function(_NEW.format(evaluations + (number + 1) * NUM_CASES), timeout=120_000)
                wall, used = time.perf_counter() - started, _processor_seconds(served.pid) - used
                print(
                    f"{NUM_CASES} new evaluations show after {wall:.2f} s, {used:.2f} s of the server's processor time"
                )
        browser.close()
        used = Path(f"/proc/{served.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        os.kill(served.pid, signal.SIGINT)
        print(f"the server took {int(used) / 1024:,.0f} MiB at most, and ended with {served.wait()}")


def _opened(page: Page, address: str) -> tuple[float, float]:
    started = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator("[data-view='compare overview'] option").first.wait_for(state="attached", timeout=300_000)
    ready = time.perf_counter() - started
    while (paint := page.evaluate(_PAINT)) is None:
        page.wait_for_timeout(10)
    return paint / 1000, ready


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _say(what: str, times: list[tuple[float, float]]) -> None:
    paints, ready = (", ".join(f"{one[place]:.2f}" for one in times) for place in (0, 1))
    print(f"{what}: first paint after {paints} s, ready after {ready} s")


if __name__ == "__main__":
    answer_help(__doc__)
    main()

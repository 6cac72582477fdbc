"""10,000 evaluations in `lobench view` and in its file: seconds until Chromium has them open, and until new ones show.

Usage: python benchmarks/view_speed.py [EVALUATIONS]

The store is written here: 25 cases a checkpoint, 4 seeds, 41 points a curve, train and test. A page is open when the
explorer's first charts are drawn and the table of evaluations is there.
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

import report_store
from playwright.sync_api import Page, sync_playwright
from stores import add

_CASES = 25
_OPEN = """() => document.querySelectorAll('#explorer-charts svg').length >= 6
  && document.querySelector('#evaluations tbody tr')"""
_NEW = "() => document.querySelector('header').textContent.includes('{:,} evaluations')"


def main() -> None:
    evaluations = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    report_store.STEPS = tuple(range(0, 1001, 25))
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        playwright = stack.enter_context(sync_playwright())
        folder = Path(name)
        store = report_store.make_store(folder, num_checkpoints=evaluations // _CASES, num_cases=_CASES)
        command = [sys.executable, "-m", "lobench.cli"]
        started = time.perf_counter()
        output = folder / "report.html"
        subprocess.run(
            [*command, "report", "--store", store, "--output", output], check=True, stdout=subprocess.DEVNULL
        )
        print(
            f"{evaluations:,} evaluations: report {time.perf_counter() - started:.1f} s, "
            f"{output.stat().st_size / 1e6:.2f} MB"
        )
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        print(
            f"the file opens in {', '.join(f'{_opened(browser.new_page(), output.as_uri()):.2f}' for _ in range(3))} s"
        )
        started = time.perf_counter()
        served = subprocess.Popen([*command, "view", store, "--port", "0"], stdout=subprocess.PIPE, text=True)
        stack.callback(served.kill)
        assert served.stdout is not None
        address = served.stdout.readline().split()[-4]
        print(f"lobench view is ready after {time.perf_counter() - started:.1f} s")
        print(f"it opens in {', '.join(f'{_opened(browser.new_page(), address):.2f}' for _ in range(3))} s")
        page = browser.new_page()
        _opened(page, address)
        started = time.perf_counter()
        page.evaluate("document.querySelector('#explorer select[name=show]').value = 'run'")
        page.evaluate("document.querySelector('#explorer select[name=show]').dispatchEvent(new Event('change'))")
        page.wait_for_function("() => document.querySelector('#explorer-charts .mark')")
        print(f"400 checkpoints along the run are drawn after {time.perf_counter() - started:.2f} s")
        started = time.perf_counter()
        add(store, 10_000, {"new": {"train/loss": [1.0, 0.5]}})
        page.wait_for_function(_NEW.format(evaluations + 1), timeout=120_000)
        print(f"a new evaluation shows after {time.perf_counter() - started:.1f} s")
        browser.close()
        used = Path(f"/proc/{served.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        os.kill(served.pid, signal.SIGINT)
        print(f"the server took {int(used) / 1024:,.0f} MiB at most, and ended with {served.wait()}")


def _opened(page: Page, address: str) -> float:
    started = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(_OPEN, timeout=60_000)
    return time.perf_counter() - started


if __name__ == "__main__":
    answer_help(__doc__)
    main()

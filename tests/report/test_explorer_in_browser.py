"""The explorer in Chromium: as a file and served, in light, dark and on a phone; a link holds what is picked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from chromium import opened
from commands import lobench
from playwright.sync_api import Browser, Page, expect
from reader import environment
from report_store import NASTY, make_baseline, make_store
from served import serve
from shown import texts_of
from stores import add
from tiny import make_suite

from lobench.analysis.comparisons.summary import summary_of
from lobench.drawing.svg import format_number, round_value
from lobench.engine.store.ledger import Ledger
from lobench.report.page.page import write_page
from lobench.tools.viewer import page_cache

SHOWN = texts_of("report")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("explorer")
    store = make_store(folder)
    add(store, 0, {"other": {"train/loss": [1.0, 1e-4]}}, optimizer="adam(); adam.learning_rate = 0.1")
    write_page(summary_of(store, [make_baseline(folder)]), folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture
def page(chromium: Browser, file: str) -> Iterator[Page]:
    with opened(chromium, f"{file}#/curves", 1280, "light") as page:
        yield page


def picked(page: Page, kind: str) -> list[str]:
    """Returns what the link says of a kind."""
    return parse_qs(page.evaluate("location.hash").partition("?")[2]).get(kind, [])


def plots(page: Page) -> list[dict[str, Any]]:
    """Returns what the charts are drawn of."""
    found: list[dict[str, Any]] = page.evaluate(
        "[...document.querySelectorAll('#explorer-charts .plot')].map(({plot}) => ({...plot.spec, log: plot.log}))"
    )
    return found


def check(page: Page, kind: str, label: str) -> None:
    """Picks something, or no longer, with the keyboard."""
    if not page.locator(f"#pick-{kind}").evaluate("one => one.open"):
        page.locator(f"#pick-{kind} summary").press("Enter")
    page.locator(f"#pick-{kind}").get_by_label(label, exact=True).press("Space")


def test_scripts_say_numbers_as_the_page_does(page: Page) -> None:
    heads = (1, 1.2346, 9.9996, -1, -1.2346)
    values = [value * 10.0**power for power in range(-9, 12) for value in heads]
    values = [round_value(value) for value in [0.0, 12_345.0, 123_456.7, 999_999.0, *values]]
    assert page.evaluate("values => values.map(lobench.number)", values) == [format_number(value) for value in values]


@pytest.fixture
def phone_page(chromium: Browser, file: str) -> Iterator[Page]:
    with opened(chromium, f"{file}#/curves", 400, "dark") as page:
        yield page


def test_people_pick_what_is_drawn_and_the_link_holds_it(phone_page: Page) -> None:
    page, charts = phone_page, phone_page.locator("#explorer-charts figure")
    expect(charts).to_have_count(4)
    assert page.evaluate("location.hash") == "#/curves"
    assert page.locator(".pick summary").all_inner_texts() == [
        "Subjects: 3 of 5",
        "Cases: 4 of 4",
        SHOWN["metrics-headline-of-2"],
    ]
    page.locator("#pick-case button.none").evaluate("one => one.click()")
    expect(charts).to_have_count(0)
    check(page, "case", "digits/case1")
    check(page, "metric", "test/loss")
    expect(charts).to_have_count(2)
    page.locator("#pick-subject input[type=search]").evaluate("one => one.value = 'step 1'")
    page.locator("#pick-subject input[type=search]").dispatch_event("input")
    check(page, "subject", "outer step 1")
    expect(page.locator("#explorer-legend")).to_contain_text("outer step 1")
    page.get_by_label("Seeds").select_option("interval")
    page.get_by_label("Scale").select_option("log")
    assert picked(page, "case") == ["digits/case1"] and picked(page, "metric") == ["*primary", "test/loss"]
    assert picked(page, "band") == ["interval"] and picked(page, "scale") == ["log"]
    drawn = plots(page)
    page.reload()
    expect(charts).to_have_count(2)
    assert plots(page) == drawn, "the link holds the view"
    page.evaluate("location.hash = '#/curves'")
    expect(charts).to_have_count(4)


def test_a_run_is_one_line_with_its_best_and_last_marked_and_an_optimizer_goes_across(page: Page) -> None:
    page.evaluate("location.hash = '#/curves?show=run&case=digits/case1&subject=*last&subject=*best'")
    figure = page.locator("#explorer-charts figure")
    expect(figure).to_have_count(1)
    (line,) = plots(page)[0]["lines"]
    assert line["x"] == [0, 1, 2, 3], "every checkpoint, whichever is picked"
    assert [text for _, text in line["marks"]] == ["best", "last"] and "lower" in line
    page.locator("#pick-case button.none").evaluate("one => one.click()")
    check(page, "case", "s/other")
    page.locator("#pick-subject button.none").evaluate("one => one.click()")
    check(page, "subject", "adam(); adam.learning_rate = 0.1")
    (line,) = plots(page)[0]["lines"]
    assert line["flat"] and line["style"].endswith("dashed") and len(set(line["y"])) == 1
    expect(page.locator("#explorer-note")).to_contain_text("No checkpoint of a run is picked.")


def test_scales_are_logarithmic_where_losses_span_decades(page: Page) -> None:
    page.evaluate("location.hash = '#/curves?case=s/other&case=digits/case1&band=none&subject=*last&subject=*best'")
    expect(page.locator("#explorer-charts figure")).to_have_count(2)
    check(page, "subject", "adam(); adam.learning_rate = 0.1")
    output = page.locator("#explorer-charts figure > p.quiet")
    expect(output.nth(0)).to_have_text("train/loss, lower is better.")
    assert [plot["log"] for plot in plots(page)] == [False, False]
    page.get_by_label("Seeds").select_option("quantiles")
    assert all("lower" in plot["lines"][0] for plot in plots(page))
    page.get_by_label("Scale").select_option("log")
    assert [plot["log"] for plot in plots(page)] == [True, True]


def test_the_commands_compute_the_same_bits_whatever_was_bound(chromium: Browser, tmp_path: Path) -> None:
    make_suite(tmp_path)
    first = ["--lobench-store", "store", "--lobench-gin-param", "Case.num_inner_steps = 7"]
    optimizer = "sgd(); sgd.learning_rate = 0.1"
    run = [sys.executable, "-m", "pytest", "-q", "tiny", "-k", "b", "--lobench-optimizer", optimizer, *first]
    subprocess.run(run, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    write_page(summary_of(tmp_path / "store", []), tmp_path / "report.html")
    with opened(chromium, (tmp_path / "report.html").as_uri() + "#/evaluations", 1280, "light") as page:
        page.locator("#evaluations tbody a").click()
        text = page.get_by_label("the commands that repeat it", exact=True).inner_text()
    done = subprocess.run(
        ["bash", "-ec", text], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    again = json.loads(done.stdout[done.stdout.index("\n[") :])
    before = json.loads(lobench("results", "--store", tmp_path / "store", "--format", "json").stdout)
    assert len(again) == 1 and again[0]["num_inner_steps"] == 7
    assert again[0]["metrics"] == before[0]["metrics"] and again[0]["case"] == before[0]["case"]


FAIL_ONCE = """() => {
  const fetchReally = window.fetch;
  window.fetch = (address, ...options) => {
    if (address !== "./" || window.hasFailed) return fetchReally(address, ...options);
    window.hasFailed = true;
    return Promise.reject(new TypeError("once"));
  };
}"""


def test_what_is_new_arrives_and_what_is_picked_stays(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_SLOW", 0.0)  # new evaluations come first, and tables and charts after them
    store = make_store(tmp_path)
    served = serve(store, token="a token of its own")
    link = f"{served.address}#/curves?metric=test%2Floss&metric=*primary&subject=*last"
    with opened(chromium, link, 400, "dark") as page:
        expect(page.locator("#explorer-legend")).to_contain_text("outer step 3")
        assert "token" not in page.url and picked(page, "metric") == ["test/loss", "*primary"]
        page.evaluate("location.hash = '#/evaluations?filter=case1'")
        expect(page.locator("[data-view=evaluations] .count")).to_contain_text("4 of 12 evaluations")
        page.locator("#evaluations thead button").filter(has_text="outer step").press("Enter")
        losses = {"train/loss": [0.1, 0.2], "test/loss": [0.3, 0.4]}
        page.evaluate(FAIL_ONCE)  # a request that fails is repeated
        add(store, 7, {"case1": losses}, uri=f"/runs/{NASTY}/theta_7.npz", identities={"case1": "identity of case1"})
        expect(page.locator("header")).to_contain_text("5 checkpoints")
        expect(page.locator("[data-view=evaluations] .count")).to_contain_text("5 of 13 evaluations")
        assert page.get_by_role("searchbox", name="Filter").input_value() == "case1"
        assert page.locator("#evaluations th[aria-sort=ascending]").inner_text() == "outer step"
        expect(page.locator("#live")).to_have_attribute("data-version", re.compile("."))
        assert page.evaluate("window.hasFailed")
        page.evaluate("history.back()")
        expect(page.locator("#explorer-legend")).to_contain_text("outer step 7")
        assert picked(page, "metric") == ["test/loss", "*primary"] and picked(page, "subject") == ["*last"]
        expect(page.locator("#live")).to_be_hidden()


def test_the_first_results_and_the_end_of_a_store_show_by_themselves(chromium: Browser, tmp_path: Path) -> None:
    store = tmp_path / "store"
    Ledger.open(store).close()
    with opened(chromium, f"{serve(store).address}#/curves", 400, "dark") as page:
        expect(page.locator("h1")).to_have_text("No result yet")
        add(store, 1, {"a": {"train/loss": [1.0, 0.5]}})
        expect(page.locator("h1")).to_have_text("lobench: s")
        expect(page.locator("#explorer-charts canvas")).to_have_count(1)
        page.evaluate("location.hash = '#/overview'")
        expect(page.locator("#h-compare")).to_be_hidden()
        for step in (2, 3):
            add(store, step, {"a": {"train/loss": [1.0, 0.5 / step]}})
        expect(page.locator("header")).to_contain_text("3 checkpoints")
        expect(page.locator("#live")).to_have_attribute("data-version", re.compile("."))
        expect(page.locator("#h-compare")).to_be_visible()
        headings = "[...document.querySelectorAll('main h2')].map((one) => one.textContent)"
        grown = page.evaluate(headings)
        page.reload()
        expect(page.locator("#h-compare")).to_be_visible()
        assert grown == page.evaluate(headings), "the sections of an open page are those of a new one"
        page.evaluate("location.hash = '#/curves'")
        expect(page.locator("#explorer-charts canvas")).to_have_count(1)  # its curves have come
        (store / "ledger.sqlite").rename(store / "elsewhere")
        expect(page.locator("#live")).to_contain_text("What is shown is from before.")
        assert page.locator("#explorer-charts canvas").count() == 1

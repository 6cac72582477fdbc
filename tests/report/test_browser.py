"""The page in a real browser: Chromium, headless, without a network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from chromium import opened
from playwright.sync_api import Browser, Page
from report_store import NASTY, make_baseline, make_store

from lobench.analysis.comparisons.summary import summary_of
from lobench.report.page.page import write_page


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    write_page(summary_of(make_store(folder), [make_baseline(folder)]), folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(params=[(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")], ids=lambda p: f"{p[0]} {p[1]}")
def page(request: pytest.FixtureRequest, chromium: Browser, address: str) -> Iterator[Page]:
    """The page as opened; afterwards: no error on the console, no request but the page itself, no dialogue."""
    with opened(chromium, address, *request.param) as page:
        yield page


def cells(page: Page, table: str, column: str) -> list[str]:
    """Returns the texts of a column from top to bottom."""
    rows: list[list[str]] = page.evaluate(
        "id => [...document.getElementById(id).rows].map(row => [...row.cells].map(cell => cell.innerText.trim()))",
        table,
    )
    # A head's arrow is the style sheet's, no part of its text.
    return [row[rows[0].index(column)] for row in rows[1:]]


def test_sorting_filtering_hovering_and_no_violation_of_accessibility(page: Page) -> None:
    sort, texts = page.locator("#evaluations thead button"), cells(page, "evaluations", "outer step")
    assert len(texts) == 12
    outer_step = sort.filter(has_text="outer step")
    outer_step.click()
    assert cells(page, "evaluations", "outer step") == sorted(texts, key=int)
    outer_step.click()
    assert cells(page, "evaluations", "outer step") == sorted(texts, key=int, reverse=True)
    sort.filter(has_text="train final").click()
    assert cells(page, "evaluations", "train final")[-1] == "diverged", "what diverged is last in either direction"
    sort.filter(has_text="train final").click()
    assert cells(page, "evaluations", "train final")[-1] == "diverged"
    page.locator("#cases thead button").filter(has_text="diverged").click()
    assert cells(page, "cases", "diverged") == ["0", "0", "1"]

    page.get_by_label("Filter").fill("case1 FAILED")
    assert cells(page, "evaluations", "outcome") == ["failed"]
    assert "1 of 12 evaluations" in page.locator("#count").inner_text()
    page.get_by_label("Filter").fill("<script>")
    assert set(cells(page, "evaluations", "case")) >= {f"digits/{NASTY}"}
    page.get_by_label("Filter").fill("")

    chart = page.locator("[aria-labelledby=h-outer] svg.chart").first
    chart.scroll_into_view_if_needed()
    chart.hover()
    tip = page.locator("#tip")
    assert tip.is_visible() and "score on train/loss" in tip.inner_text()
    box, width = tip.bounding_box(), page.viewport_size
    assert box is not None and width is not None and box["x"] >= 0 and box["x"] + box["width"] <= width["width"]
    page.mouse.move(0, 0)

    film, place = page.locator("svg.film").first, "svg => svg.querySelector('circle').cx.animVal.value"
    film.evaluate("svg => svg.pauseAnimations()")
    places = [
        film.evaluate(f"(svg, at) => {{ svg.setCurrentTime(at); return ({place})(svg); }}", at) for at in (0, 0.1, 0.2)
    ]
    assert places == pytest.approx([50, 100, 150], abs=0.1)
    button = page.locator("button.play").first
    assert button.inner_text() == "Pause"
    button.click()  # it is stopped already: the click goes on
    assert button.inner_text() == "Pause" and not film.evaluate("svg => svg.animationsPaused()")
    button.click()
    assert button.inner_text() == "Play" and film.evaluate("svg => svg.animationsPaused()")

    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, "the page scrolls sideways"
    axe = Axe()
    assert axe.run(page).generate_report().strip() == "Found 0 accessibility violations:"


def test_a_film_stands_still_for_who_asks_for_less_motion(chromium: Browser, address: str) -> None:
    context = chromium.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(address)
    assert page.locator("button.play").first.inner_text() == "Play"
    assert page.locator("svg.film").first.evaluate("svg => svg.animationsPaused()")
    context.close()

"""The page in a real browser: Chromium, headless, without a network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """The page as opened; afterwards: no error on the console, no request but the page itself, no dialogue."""
    with opened(chromium, address, 1280, "light") as page:
        yield page


def cells(page: Page, table: str, column: str) -> list[str]:
    """Returns the texts of a column from top to bottom."""
    rows: list[list[str]] = page.evaluate(
        "id => [...document.getElementById(id).rows].map(row => [...row.cells].map(cell => cell.innerText.trim()))",
        table,
    )
    # A head's arrow is the style sheet's, no part of its text.
    return [row[rows[0].index(column)] for row in rows[1:]]


def test_tables_are_sorted_and_filtered_and_films_stop(page: Page) -> None:
    page.goto(page.url + "#/evaluations")
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
    page.evaluate("location.hash = '#/cases'")
    page.locator("#cases thead button").filter(has_text="diverged").click()
    assert cells(page, "cases", "diverged") == ["0", "0", "1"]

    page.evaluate("location.hash = '#/evaluations'")
    page.get_by_role("searchbox", name="Filter").fill("case1 FAILED")
    assert cells(page, "evaluations", "outcome") == ["failed"]
    assert "1 of 12 evaluations" in page.locator("[data-view=evaluations] .count").inner_text()
    page.get_by_role("searchbox", name="Filter").fill("<script>")
    assert set(cells(page, "evaluations", "case")) >= {f"digits/{NASTY}"}
    page.get_by_role("searchbox", name="Filter").fill("")
    page.evaluate("location.hash = '#/cases'")

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


def test_a_film_stands_still_for_who_asks_for_less_motion(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{page.url}#/cases")
    page.reload()
    assert page.locator("button.play").first.inner_text() == "Play"
    assert page.locator("svg.film").first.evaluate("svg => svg.animationsPaused()")
    page.emulate_media(reduced_motion="null")

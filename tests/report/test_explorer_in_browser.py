"""The explorer in Chromium: as a file and served, in light, dark and on a phone; a link holds what is picked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from axe_playwright_python.sync_playwright import Axe
from chromium import opened
from commands import lobench
from playwright.sync_api import Browser, Page, expect
from report_store import NASTY, make_baseline, make_store
from served import serve
from stores import add
from tiny import make_suite

from lobench.analysis.comparisons.summary import summary_of
from lobench.report.charts.svg import number, rounded
from lobench.report.page.page import write_page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("explorer")
    store = make_store(folder)
    add(store, 0, {"other": {"train/loss": [1.0, 1e-4]}}, optimizer="adam(); adam.learning_rate = 0.1")
    write_page(summary_of(store, [make_baseline(folder)]), folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(params=[(1280, "light"), (1280, "dark"), (400, "light")], ids=lambda p: f"{p[0]} {p[1]}")
def page(request: pytest.FixtureRequest, chromium: Browser, file: str) -> Iterator[Page]:
    with opened(chromium, file, *request.param) as page:
        yield page


def picked(page: Page, kind: str) -> list[str]:
    """Returns what the link says of a kind."""
    return parse_qs(page.evaluate("location.hash").removeprefix("#")).get(kind, [])


def check(page: Page, kind: str, label: str) -> None:
    """Picks something, or no longer, with the keyboard."""
    if not page.locator(f"#pick-{kind}").evaluate("one => one.open"):
        page.locator(f"#pick-{kind} summary").press("Enter")
    page.locator(f"#pick-{kind}").get_by_label(label, exact=True).press("Space")


def test_scripts_say_numbers_as_the_page_does(page: Page) -> None:
    heads = (1, 1.2346, 9.9996, -1, -1.2346)
    values = [value * 10.0**power for power in range(-9, 12) for value in heads]
    values = [rounded(value) for value in [0.0, 12_345.0, 123_456.7, 999_999.0, *values]]
    assert page.evaluate("values => values.map(lobench.number)", values) == [number(value) for value in values]


def test_people_pick_what_is_drawn_and_the_link_holds_it(page: Page) -> None:
    charts = page.locator("#explorer-charts figure")
    expect(charts).to_have_count(4)
    assert page.evaluate("location.hash") == ""
    assert page.locator(".pick summary").all_inner_texts() == [
        "Subjects: 3 of 5",
        "Cases: 4 of 4",
        "Metrics: headline of 2",
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
    page.locator("nav a").filter(has_text="Evaluations").press("Enter")
    assert page.evaluate("document.activeElement.id") == "h-evaluations"
    drawn = page.locator("#explorer-charts").inner_html()
    page.reload()
    expect(charts).to_have_count(2)
    assert page.locator("#explorer-charts").inner_html() == drawn, "the link holds the view"
    page.evaluate("location.hash = ''")
    expect(charts).to_have_count(4)


def test_a_run_is_one_line_with_its_best_and_last_marked_and_an_optimizer_goes_across(page: Page) -> None:
    page.evaluate("location.hash = 'show=run&case=digits/case1&subject=*last&subject=*best'")
    figure = page.locator("#explorer-charts figure")
    expect(figure).to_have_count(1)
    assert figure.locator("path.line").count() == 1
    assert re.findall("best|last", figure.locator("text.noted").first.text_content() or "")
    assert figure.locator("circle.dot").count() == 4, "every checkpoint, whichever is picked"
    page.locator("#pick-case button.none").evaluate("one => one.click()")
    check(page, "case", "s/other")
    page.locator("#pick-subject button.none").evaluate("one => one.click()")
    check(page, "subject", "adam(); adam.learning_rate = 0.1")
    expect(figure.locator("path.line.dashed")).to_have_count(1)
    expect(page.locator("#explorer-note")).to_contain_text("No checkpoint of a run is picked.")


def test_values_are_told_to_who_has_no_pointer_and_nothing_is_inaccessible(page: Page) -> None:
    chart = page.locator("#explorer-charts svg.chart").nth(1)
    chart.focus()
    chart.press("End")
    expect(page.locator("#said")).to_contain_text("inner step 100; outer step 3")
    chart.press("ArrowLeft")
    expect(page.locator("#tip")).to_contain_text("inner step 75")
    chart.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()
    for summary in page.locator(".pick summary, #explorer-charts summary").all():
        summary.press("Enter")
    expect(page.locator("#explorer-charts pre")).to_have_count(4)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, "the page scrolls sideways"
    assert Axe().run(page).generate_report().strip() == "Found 0 accessibility violations:"


def test_scales_are_logarithmic_where_losses_span_decades(page: Page) -> None:
    page.evaluate("location.hash = 'case=s/other&case=digits/case1&band=none&subject=*last&subject=*best'")
    expect(page.locator("#explorer-charts figure")).to_have_count(2)
    check(page, "subject", "adam(); adam.learning_rate = 0.1")
    output = page.locator("#explorer-charts figure > p")
    expect(output.nth(0)).to_have_text("train/loss, lower is better.")
    page.get_by_label("Seeds").select_option("quantiles")
    assert page.locator("#explorer-charts figure polygon").count() >= 2


def test_the_command_and_the_bindings_of_a_number_stand_beside_it(chromium: Browser, file: str) -> None:
    link = f"{file}#case=digits/case0&subject=*last"
    with opened(chromium, link, 1280, "light") as page:
        details = page.locator("#explorer-charts details")
        details.locator("summary").press("Enter")
        uri = f"/runs/{NASTY}/theta_3.npz".replace("'", "'\"'\"'")
        assert details.locator("pre").inner_text().splitlines() == [
            "cat > bound.gin <<'END_OF_BINDINGS'",
            f"x = '{NASTY}'",
            "END_OF_BINDINGS",
            f"pytest nowhere/digits.gin::case0 --lobench-store again --lobench-checkpoint '{uri}' "
            "--lobench-gin-file bound.gin",
            "lobench results --store again --case digits/case0 --format json",
        ]
        expect(details).to_contain_text("seed 3 diverged at inner step 42")
        expect(details).to_contain_text("not finite")


def test_the_commands_compute_the_same_bits_whatever_was_bound(chromium: Browser, tmp_path: Path) -> None:
    make_suite(tmp_path)
    first = ["--lobench-store", "store", "--lobench-gin-param", "Case.num_inner_steps = 7"]
    optimizer = "sgd(); sgd.learning_rate = 0.1"
    run = [sys.executable, "-m", "pytest", "-q", "tiny", "-k", "b", "--lobench-optimizer", optimizer, *first]
    subprocess.run(run, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    write_page(summary_of(tmp_path / "store", []), tmp_path / "report.html")
    with opened(chromium, (tmp_path / "report.html").as_uri(), 1280, "light") as page:
        details = page.locator("#explorer-charts details")
        details.locator("summary").press("Enter")
        text = details.locator("pre").inner_text()
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", text], cwd=tmp_path, env=path, capture_output=True, text=True, check=False)
    again = json.loads(done.stdout[done.stdout.index("\n[") :])
    before = json.loads(lobench("results", "--store", tmp_path / "store", "--format", "json").stdout)
    assert len(again) == 1 and again[0]["num_inner_steps"] == 7
    assert again[0]["metrics"] == before[0]["metrics"] and again[0]["case"] == before[0]["case"]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (400, "light")])
def test_what_is_new_arrives_and_what_is_picked_stays(
    chromium: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    store = make_store(tmp_path)
    served = serve(store, token="a token of its own")
    link = f"{served.address}#metric=test%2Floss&metric=*primary&subject=*last"
    with opened(chromium, link, width, scheme) as page:  # type: ignore[arg-type]
        expect(page.locator("#explorer-legend")).to_contain_text("outer step 3")
        assert "token" not in page.url and picked(page, "metric") == ["test/loss", "*primary"]
        page.get_by_label("Filter").fill("case1")
        page.locator("#cases thead button").filter(has_text="diverged").press("Enter")
        details = page.locator("#explorer-charts details").first
        details.locator("summary").press("Enter")
        losses = {"train/loss": [0.1, 0.2], "test/loss": [0.3, 0.4]}
        add(store, 7, {"case1": losses}, uri=f"/runs/{NASTY}/theta_7.npz", identities={"case1": "identity of case1"})
        expect(page.locator("header")).to_contain_text("5 checkpoints")
        expect(page.locator("#explorer-legend")).to_contain_text("outer step 7")
        assert picked(page, "metric") == ["test/loss", "*primary"] and picked(page, "subject") == ["*last"]
        assert details.evaluate("one => one.open")
        assert page.get_by_label("Filter").input_value() == "case1"
        expect(page.locator("#count")).to_contain_text("5 of 13 evaluations")
        assert page.locator("#cases th[aria-sort=ascending]").inner_text() == "diverged"
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0, "the page scrolls sideways"
        assert Axe().run(page).generate_report().strip() == "Found 0 accessibility violations:"


def test_the_first_results_and_the_end_of_a_store_show_by_themselves(chromium: Browser, tmp_path: Path) -> None:
    from lobench.engine.store.ledger import Ledger

    store = tmp_path / "store"
    Ledger.open(store).close()
    with opened(chromium, serve(store).address, 400, "dark") as page:
        expect(page.locator("h1")).to_have_text("No result yet")
        add(store, 1, {"a": {"train/loss": [1.0, 0.5]}})
        expect(page.locator("h1")).to_have_text("lobench: s")
        expect(page.locator("#explorer-charts svg")).to_have_count(1)
        (store / "ledger.sqlite").rename(store / "elsewhere")
        expect(page.locator("#live")).to_contain_text("What is shown is from before.")
        assert page.locator("#explorer-charts svg").count() == 1

"""The page as an application in Chromium: an address a view, charts that people look into, and nothing inaccessible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from chromium import opened
from playwright.sync_api import Browser, Locator, Page, expect
from report_store import NASTY, make_baseline, make_store
from shown import texts_of
from stores import add

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.methods import read_methods
from lobench.core.experiment import SessionMember
from lobench.core.planner import EvaluationId
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.config.origin import Revision
from lobench.engine.store.experiments import TrialRow
from lobench.engine.store.ledger import Ledger
from lobench.report.page.page import write_page

SHOWN = texts_of("report")

VIEWS = {
    "overview": "h-verdict", "cases": "h-cases", "curves": "h-explore", "evaluations": "h-evaluations",
    "compare": "h-compare", "failures": "h-failures", "provenance": "h-provenance",
}  # fmt: skip
BEST = "adam(); adam.learning_rate = 0.01"
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of four checkpoints on three cases, and Adam at four rates on one of them."""
    folder = tmp_path_factory.mktemp("app")
    store = make_store(folder)
    for rate in (0.1, 0.01, 0.3, 1.0):
        losses = {"train/loss": [2 * rate, 2.1 * rate]}
        add(store, 0, {"other": losses}, optimizer=f"adam(); adam.learning_rate = {rate}")
    write_page(summary_of(store, [make_baseline(folder)]), folder / "report.html")
    return (folder / "report.html").as_uri()


STUDY = """
sgd/Method.optimizer = @sgd()
lion/Method.optimizer = @lion()
adam/Method.optimizer = @adam()
adam/Method.label = 'Adam, tuned'
adam/Method.search = @grid()
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two suites, `images` and `bowls`; Lion, an SGD that diverges on a bowl, and Adam with the best of three rates."""
    store, rates = tmp_path_factory.mktemp("study") / "store", (0.001, 0.01, 0.1)
    trained: list[tuple[str, int]] = []

    def train(method: str, trial: int, optimizer: str, image: float, bowl: float, start: int = 0) -> None:
        values = [(1 + 0.1 * seed) * image for seed in range(4)]
        images = {"relu": {"train/loss": values}, "tanh": {"train/loss": values[::-1]}}
        add(store, 0, images, optimizer=optimizer, suite="images", start=start)
        bowls = {"round": {"train/loss": [bowl, bowl, 1.1 * bowl, 1.2 * bowl]}}
        add(store, 0, bowls, optimizer=optimizer, suite="bowls", start=start)
        trained.extend([(method, trial)] * 3)

    train("lion", 0, "lion()", 0.21, 0.5)
    train("sgd", 0, "sgd(); sgd.learning_rate = 3.0", 1.5, float("nan"))
    for trial, (rate, image) in enumerate(zip(rates, (1.0, 0.5, 0.2), strict=True)):
        train("adam", trial, f"adam(); adam.learning_rate = {rate}", image, 1e-3 * image)
    train("adam", 2, f"adam(); adam.learning_rate = {rates[2]}", 0.2, 2e-4, start=FIRST_REPORT_SEED)
    ledger = Ledger.open(store)
    rows = [row.key for row in ledger.evaluations()]
    experiment = ledger.record_experiment("study", STUDY, revision=Revision(), versions={})
    members = [
        SessionMember(
            method=method,
            trial=trial,
            session=key.seed_block.start + seed,
            evaluation=EvaluationId(key.checkpoint_sha256, f"{key.case_identity}:{key.optimizer_hash}", key.seed_block),
        )
        for (method, trial), key in zip(trained, rows, strict=True)
        for seed in range(4)
    ]
    programs = {key.program_version for key in rows}
    assert ledger.add_memberships(experiment, members, programs=programs) == len(members)
    for trial, rate in enumerate(rates):
        values = {"adam.learning_rate": rate}
        ledger.record_trial(
            experiment, TrialRow(method="adam", number=trial, parameters=values, state="done", fitness=rate)
        )
    ledger.close()
    add(store, 0, {"relu": {"train/loss": [0.1] * 4}}, optimizer="nadam()", suite="images")
    write_page(summary_of(store, [], snapshot=read_methods(store, "study")), store / "study.html")
    return (store / "study.html").as_uri()


class Walk:
    """A visitor who counts clicks, and sees what is on the page without one."""

    def __init__(self, page: Page) -> None:
        self.page, self.clicks = page, 0

    def click(self, link: Locator) -> None:
        link.click()
        self.clicks += 1


@pytest.fixture
def walk(chromium: Browser, study: str) -> Iterator[Walk]:
    with opened(chromium, study, 1280, "light") as page:
        yield Walk(page)


@pytest.fixture
def page(chromium: Browser, file: str) -> Iterator[Page]:
    with opened(chromium, file, 1280, "light") as page:
        yield page


def go(page: Page, route: str) -> None:
    page.evaluate("hash => { location.hash = hash; }", f"#/{route}")


def shown(page: Page) -> list[str]:
    """Returns the first headings of the sections that are shown."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('main > section:not([hidden]) > h2')].map((one) => one.id)"
    )
    return found


def x_range(chart: Locator) -> list[float]:
    found: list[float] = chart.evaluate("one => [one.plot.u.scales.x.min, one.plot.u.scales.x.max]")
    return found


def chart_on(page: Page, route: str) -> Locator:
    go(page, route)
    expect(page.locator("#explorer-charts .plot canvas")).to_have_count(1)
    return page.locator("#explorer-charts .plot")


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.long), (390, "dark")])
def test_each_view_has_an_address_and_no_violation_of_accessibility(
    chromium: Browser, file: str, width: int, scheme: Any
) -> None:
    case = quote("digits/case0", safe="")
    others = {f"case/{case}": "h-case", f"evaluation/{quote('00000000@3')}/{case}": "h-evaluation"}
    with opened(chromium, file, width, scheme) as page:
        for route, heading in (VIEWS | others).items():
            if width < 500 and heading not in ("h-verdict", "h-evaluations", "h-case"):
                continue
            go(page, route)
            expect(page.locator(f"#{heading}")).to_be_visible()
            assert shown(page)[0] == heading
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide == 0, f"{route} scrolls sideways"
            assert Axe().run(page).generate_report().strip() == SHOWN["found-0-accessibility-violations"], route
        go(page, "searches")
        expect(page.locator("#nothing")).to_be_visible()


def test_back_and_forward_the_keyboard_and_print(page: Page) -> None:
    assert shown(page)[:2] == ["h-verdict", "h-compare"]
    page.get_by_role("link", name="Evaluations", exact=True).press("Enter")
    expect(page.locator("#h-evaluations")).to_be_focused()
    page.locator("#evaluations tbody a").first.press("Enter")
    expect(page.locator("#h-evaluation")).to_be_focused()
    page.go_back()
    expect(page.locator("#evaluations")).to_be_visible()
    page.go_back()
    assert shown(page)[0] == "h-verdict"
    page.go_forward()
    page.go_forward()
    expect(page.locator("#h-evaluation")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator("#views")).to_be_hidden()
    expect(page.locator("#h-evaluation")).to_be_visible()
    page.emulate_media(media="screen")
    for odd in (
        "case/nobody",
        "evaluation/nobody/nothing",
        "compare/nobody/none",
        "%E0%A4%A",
        "nothing/%",
        "case",
        "__proto__",
    ):
        go(page, odd)  # and no error on the console
    go(page, "case/nobody")
    expect(page.locator("#h-case")).to_have_text("Not here")


def test_the_list_of_evaluations_is_in_its_address(page: Page) -> None:
    go(page, "evaluations?filter=case1&sort=-outer+step")
    steps = page.locator("#evaluations tbody td:nth-child(2)")
    assert steps.all_inner_texts() == ["3", "2", "1", "0"]
    page.get_by_role("searchbox", name="Filter").fill("case1 failed")
    assert page.evaluate("location.hash") == "#/evaluations?filter=case1+failed&sort=-outer+step"
    page.locator("#evaluations tbody a").click()
    expect(page.locator("#h-evaluation")).to_have_text("outer step 3 on digits/case1")
    expect(page.locator(".found pre").first).to_have_text(f"failed: AssertionError: {NASTY}")
    page.go_back()
    assert page.get_by_role("searchbox", name="Filter").input_value() == "case1 failed"


def test_the_pair_of_the_headline_is_picked(page: Page) -> None:
    section = page.locator("[data-view='compare overview']")
    expect(section.locator(".label").first).to_have_text("Outer step 3 against outer step 0")
    section.locator("select[name=b]").select_option(BEST)
    section.get_by_label("better than").select_option("adam(); adam.learning_rate = 1.0")
    expect(section.locator(".label").first).to_have_text(f"{BEST} against adam(); adam.learning_rate = 1.0")
    assert shown(page)[0] == "h-verdict" and "#/overview/" in page.evaluate("location.hash")
    section.get_by_role("link", name="case by case").click()
    expect(page.locator("#pair-cases tbody tr")).to_have_count(1)
    expect(page.locator("#explorer-legend button")).to_have_count(2)
    page.go_back()
    expect(section.locator(".label").first).to_contain_text(BEST)
    section.get_by_label("better than").select_option("outer step 1")
    expect(section.locator(".found")).to_contain_text("lobench view")


def test_a_drag_zooms_and_a_double_click_or_a_key_resets(page: Page) -> None:
    chart = chart_on(page, "case/digits%2Fcase1")
    whole, box = x_range(chart), chart.locator(".u-over").bounding_box()
    assert whole == [0, 100] and box is not None
    chart.scroll_into_view_if_needed()
    box = chart.locator(".u-over").bounding_box()
    assert box is not None

    def drag() -> None:
        page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 60, steps=4)
        page.mouse.up()
        assert x_range(chart) == pytest.approx([25, 75], abs=1)

    drag()
    chart.locator(".u-over").dblclick()
    assert x_range(chart) == whole
    drag()
    page.get_by_role("button", name="Reset zoom").click()
    assert x_range(chart) == whole and page.evaluate("document.activeElement.classList.contains('plot')")
    chart.press("+")
    low, high = x_range(chart)
    assert high - low == 50
    chart.press("0")
    assert x_range(chart) == whole


def test_the_legend_hides_and_stresses_lines(page: Page) -> None:
    chart = chart_on(page, "case/digits%2Fcase1")
    entry = page.locator("#explorer-legend button").first
    label = entry.inner_text()
    series = f"one => one.plot.u.series.filter((s) => s.label === {label!r}).map((s) => s.show)"
    entry.press("Enter")
    assert chart.evaluate(series) == [False] * 3 and entry.get_attribute("aria-pressed") == "false", "with its band"
    page.get_by_label("Seeds").select_option("interval")
    assert chart.evaluate(series) == [False] * 3, "it stays hidden"
    entry.press("Enter")
    assert chart.evaluate(series) == [True] * 3
    page.locator("#explorer-legend button").nth(1).hover()
    assert chart.evaluate("one => one.plot.u.series[1]._focus") is False


def test_smoothing_and_seconds_are_said_on_the_chart(page: Page) -> None:
    chart = chart_on(page, "case/digits%2Fcase1")
    before = chart.evaluate("one => one.plot.lines[0].y")
    page.get_by_label("Smoothing").select_option("0.6")
    after = chart.evaluate("one => one.plot.lines[0].y")
    expected = (0.4 * before[1] + 0.6 * 0.4 * before[0]) / 0.64
    assert after[:2] == pytest.approx([before[0], expected])
    assert chart.evaluate("one => one.plot.spec.y") == SHOWN["train-loss-smoothed-0-6"]
    assert "smoothed 0.6" in (chart.get_attribute("aria-label") or "")
    page.get_by_label("Axis").select_option("seconds")
    assert x_range(chart) == [0, 0.25] and chart.evaluate("one => one.plot.spec.x") == SHOWN["seconds-of-training"]
    page.get_by_label("Axis").select_option("gradients")
    expect(page.locator("#explorer-charts figure > p.quiet")).to_contain_text("Nobody measured the times")
    page.get_by_label("Axis").select_option("seconds")
    page.get_by_role("button", name="Log", exact=True).click()
    assert chart.evaluate("one => one.plot.u.scales.y.distr") == 3
    assert "x=seconds" in page.evaluate("location.hash") and "smooth=0.6" in page.evaluate("location.hash")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_tooltip_is_sorted_and_never_covers_what_it_tells_of(chromium: Browser, file: str, width: int) -> None:
    with opened(chromium, file, width, "light") as page:
        chart = chart_on(page, f"case/s%2Fother?{'&'.join('subject=' + quote(one) for one in keys(page))}")
        assert chart.evaluate("one => one.plot.lines.length") == 4
        chart.scroll_into_view_if_needed()
        page.evaluate(TWO_FRAMES)  # scrolling hides a tooltip, and is told in the next frame
        over, tip = chart.locator(".u-over").bounding_box(), page.locator("#tip")
        assert over is not None
        for share in (0.02, 0.5, 0.98):
            x, y = over["x"] + share * over["width"], over["y"] + over["height"] / 2
            for _ in range(50):  # what scrolls or is drawn again meanwhile hides a tooltip until the mouse moves
                page.mouse.move(x, y - 1)
                page.mouse.move(x, y)
                page.evaluate(TWO_FRAMES)
                if tip.is_visible():
                    break
            expect(tip).to_be_visible()
            box = tip.bounding_box()
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
            inside = box["x"] <= x <= box["x"] + box["width"] and box["y"] <= y <= box["y"] + box["height"]
            assert not inside, share
        lines = tip.locator("p").all_inner_texts()
        values = [float(line.rpartition(": ")[2].split()[0]) for line in lines[1:]]
        assert lines[0] == SHOWN["inner-step-10"] and values == sorted(values, reverse=True) and len(values) == 4
        page.mouse.move(0, 0)
        chart.focus()
        chart.press("Home")
        expect(page.locator("#said")).to_contain_text("inner step 0; ")
        chart.press("ArrowRight")
        expect(tip).to_contain_text("inner step 5")
        chart.press("Escape")
        expect(tip).to_be_hidden()


def keys(page: Page) -> list[str]:
    """Returns the keys of the optimizers."""
    found: list[str] = page.evaluate(
        "JSON.parse(document.getElementById('data').textContent).subjects.filter((one) => one.run === undefined)"
        ".map((one) => one.key)"
    )
    return found


def test_a_method_has_one_colour_through_all_charts(page: Page) -> None:
    def styles(route: str, label: str) -> set[str]:
        go(page, route)
        page.locator("main > section:not([hidden]) button.entry").first.wait_for()
        found: list[str] = page.evaluate(
            "label => [...document.querySelectorAll('main > section:not([hidden]) button.entry')]"
            ".filter((one) => one.textContent.startsWith(label)).map((one) => one.firstElementChild.className)",
            label,
        )
        return {one.split()[1] for one in found}

    for label in (BEST, "outer step 3"):
        found = [styles(route, label) for route in ("overview", "cases", "curves")]
        assert len(found[0]) == 1 and found[0] == found[1] == found[2], label


def test_where_a_checkpoint_broke_and_how_its_seed_is_repeated(page: Page) -> None:
    walk = Walk(page)
    walk.click(page.get_by_role("link", name="Cases", exact=True))
    walk.click(page.locator("#cases").get_by_role("link", name="digits/case0"))
    walk.click(page.locator("#case-subjects tr").filter(has_text="seed 3 diverged").get_by_role("link"))
    assert walk.clicks == 3
    expect(page.locator("#h-evaluation")).to_have_text("outer step 3 on digits/case0")
    row = page.locator("[data-view=evaluation] tbody tr").nth(3)
    assert row.locator("th, td").all_inner_texts()[:3] == ["3", "42", "diverged"]
    uri = "theta_3.npz"
    assert page.get_by_label("the commands that repeat it", exact=True).inner_text().splitlines() == [
        "cat > bound.gin <<'END_OF_BINDINGS'",
        f"x = '{NASTY}'",
        "END_OF_BINDINGS",
        SHOWN["pytest-nowhere-digits-gin-case0"].format(uri=uri),
        SHOWN["lobench-results-store-again-case"],
    ]


def test_which_method_is_best_on_images_and_how_sure_that_is(walk: Walk) -> None:
    figure = walk.page.locator("figure").filter(has_text="Score on train/loss, images")
    expect(figure).to_contain_text("Adam, tuned is not significantly better than lion (level .05 for all together).")
    other = walk.page.locator("figure").filter(has_text="Score on train/loss, bowls")
    expect(other).to_contain_text("Adam, tuned is better than each of the others")
    expect(walk.page.locator("header")).to_contain_text("; 1 optimizer outside this experiment: see --all")
    assert walk.clicks == 0


def test_which_seed_diverged_and_how_it_is_repeated(walk: Walk) -> None:
    walk.click(walk.page.get_by_role("link", name="Failures", exact=True))
    entry = walk.page.locator("section[data-view=failures] li")
    expect(entry).to_contain_text("4 of 4 seeds diverged: seed 0 at inner step 7")
    walk.click(entry.get_by_role("link", name="sgd, bowls/round:"))
    expect(walk.page.locator("#h-evaluation")).to_have_text("sgd on bowls/round")
    repeated = walk.page.get_by_label("the commands that repeat it", exact=True).inner_text()
    assert SHOWN["lobench-optimizer-sgd-sgd-learning"] in repeated and walk.clicks == 2


def test_whether_the_tuned_adam_is_fair(walk: Walk) -> None:
    walk.click(walk.page.get_by_role("link", name="Searches", exact=True))
    section = walk.page.locator("section[data-view=searches]")
    assert section.locator("li").all_inner_texts() == [
        SHOWN["tried-3-settings-of-this"],
        SHOWN["its-results-on-the-other"],
        SHOWN["best-adam-learning-rate-0"],
    ]
    assert walk.clicks == 1


def test_what_it_cost(walk: Walk) -> None:
    card = walk.page.locator(".card").filter(has_text="Time of all trainings")
    expect(card).to_contain_text("9.0 s")
    expect(card).to_contain_text("18 evaluations; 0.0 s more to compile; 3 trials of searches included")
    assert walk.clicks == 0


def test_a_logarithmic_axis_has_places_whatever_it_begins_at(walk: Walk) -> None:
    """uPlot's own places never ended on an axis that begins just below 0.001, as that of most learning rates."""
    walk.click(walk.page.get_by_role("link", name="Searches", exact=True))
    chart = walk.page.locator("figure").filter(has_text="log scale").locator(".plot").first
    expect(chart.locator("canvas")).to_be_visible()
    redrawn = f"""async ({{ plot: {{ u }} }}) => {{
        const [axis, shown] = [u.axes[1], []], values = axis.values;
        axis.values = (...given) => {{ shown.push(...values(...given)); return values(...given); }};
        u.redraw(false, true);
        await {TWO_FRAMES};
        return shown.filter((text) => text);
    }}"""
    assert {"0.001", "0.01", "0.1"} <= set(chart.evaluate(redrawn))
    for low, high in ((9.6e-4, 0.11), (1e-6, 1e38), (0.31, 0.39), (1e-300, 1e300)):
        places = chart.evaluate(f"one => one.plot.u.axes[1].splits(one.plot.u, 1, {low}, {high})")
        assert 3 <= len(places) < 30 and low <= min(places) and max(places) <= high


def test_without_scripts_everything_but_what_they_draw_is_there(chromium: Browser, file: str, tmp_path: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file)
    for heading in ("h-verdict", "h-cases", "h-failures", "h-provenance"):
        expect(page.locator(f"#{heading}")).to_be_visible()
    assert page.locator("svg.chart").count() > 5
    context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_name_hides_no_number_and_the_menu_has_all_its_entries(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    """A name has several lines where it would push the numbers beside it out of sight."""
    for place, name in enumerate(("adam()", f"sgd(); {'many words of settings; ' * 9}")):
        add(tmp_path, 0, {"a": {"train/loss": [1.0 + place, 0.5]}}, optimizer=name, sha256=f"{place:064d}")
    page_file = tmp_path / "report.html"
    write_page(summary_of(tmp_path, []), page_file)
    with opened(chromium, page_file.as_uri(), width, "light") as page:
        for route in ("overview", "compare", "evaluations", f"case/{quote('s/a', safe='')}"):
            go(page, route)
            assert page.evaluate("document.documentElement.scrollWidth") == width, route
            for link in page.locator("#views a").all():
                box = link.bounding_box()
                assert box is not None and box["x"] + box["width"] <= width
            if (width, route) == (390, "evaluations"):
                continue  # its numbers are beyond the second column
            beside = [one.bounding_box() for one in page.locator("tbody .long:visible + td").all()]
            assert beside or route == "compare", route
            assert all(box is not None and box["x"] + min(box["width"], 60) <= width for box in beside), route
        go(page, "provenance")
        page.locator("dt:visible").first.evaluate("one => { one.textContent = 'many words of settings; '.repeat(9); }")
        value = page.locator("dd:visible").first.bounding_box()
        assert value is not None and value["width"] > width / 2


def test_tables_of_nine_methods_on_six_cases_do_not_scroll_at_1280_pixels(chromium: Browser, tmp_path: Path) -> None:
    for place in range(9):
        finals = {f"case{case}": {"train/loss": [1e-5 * 7**place, 3e-5 * 7**place, 2e-4]} for case in range(6)}
        name = f"adam(); adam.learning_rate = 0.0{place + 1}"
        add(tmp_path, 0, finals, optimizer=name, sha256=f"{place:064d}")
    page_file = tmp_path / "report.html"
    write_page(summary_of(tmp_path, []), page_file)
    with opened(chromium, page_file.as_uri(), 1280, "light") as page:
        go(page, "overview")
        widths = page.evaluate(
            "[...document.querySelectorAll('table.methods')].map(t => [t.scrollWidth, t.parentNode.clientWidth])"
        )
        assert widths and all(table <= room for table, room in widths), widths


def test_page_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    uri = str(tmp_path / "run" / "theta_1.npz")
    add(tmp_path / "store", 1, {"a": {"train/loss": [0.5]}}, uri=uri)
    write_page(summary_of(tmp_path / "store", []), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "theta_1.npz" in text and uri not in text

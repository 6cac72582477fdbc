"""Pages of many bundles: groups, links that lead somewhere, and audits that count."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commands import lobench
from playwright.sync_api import Browser
from report_store import NASTY, make_store
from shown import texts_of
from stores import add

from lobench.engine.store.bundle import ResultBundle

SHOWN = texts_of("site")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One of a run with names to escape, and two of methods on two suites' cases, the second far better."""
    folder = tmp_path_factory.mktemp("bundles")
    found = [folder / "run.lobench"]
    lobench("publish", make_store(folder), "--output", found[0])
    for number, (text, finals) in enumerate([("adam()", [1.0, 1.1, 0.9, 1.0]), ("sgd()", [0.1, 0.11, 0.09, 0.1])]):
        add(folder / f"store{number}", 0, {"a": {"train/loss": finals}, "b": {"train/loss": finals}}, optimizer=text)
        found.append(folder / f"{number}.lobench")
        done = lobench("publish", folder / f"store{number}", "--output", found[-1])
        assert done.returncode == 0, done.stderr
    return found


class _Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "href" and tag == "a":
                self.links.append(value or "")
            if name == "id":
                self.ids.add(value or "")


def test_every_link_leads_somewhere(bundles: list[Path], tmp_path: Path) -> None:
    assert lobench("site", *bundles, "--output", tmp_path / "site").returncode == 0
    pages = list((tmp_path / "site").rglob("index.html"))
    assert len(pages) == 4
    seen = 0
    for page in pages:
        for link in _Links(page.read_text()).links:
            place, _, anchor = link.partition("#")
            target = (page.parent / place) if place else page
            assert target.is_file(), link
            assert not anchor or anchor in _Links(target.read_text()).ids, link
            seen += bool(anchor)
    assert seen >= 7


def test_methods_that_are_told_apart_are_in_groups(bundles: list[Path], tmp_path: Path) -> None:
    lobench("site", *bundles[1:], "--output", tmp_path / "site")
    rows = re.findall(r"<tr class=\"method.*?</tr>", (tmp_path / "site/index.html").read_text())
    assert [re.findall('<td>(\\d+)</td><th scope=\\"row\\">(.*?)</th>', row)[0] for row in rows] == [
        ("1", "sgd()"),
        ("2", "adam()"),
    ]


def test_a_name_is_text(bundles: list[Path], tmp_path: Path) -> None:
    lobench("site", *bundles, "--output", tmp_path / "site", "--title", NASTY)
    for page in (tmp_path / "site").rglob("index.html"):
        assert "<script" not in page.read_text()


def test_a_bundle_that_nobody_audited_is_named_and_one_that_failed_refused(bundles: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "results.lobench"
    copy.write_bytes(bundles[1].read_bytes())
    command = ("site", copy, "--output", tmp_path / "site", "--format", "json")
    assert json.loads(lobench(*command).stdout)["not_audited"] == [str(copy)]
    done = lobench("audit", copy, "--sample", "0", "--format", "json")
    audit = tmp_path / "results.lobench.audit.json"
    document = json.loads(done.stdout)
    checked = [
        {
            "subject": "adam()",
            "case": f"{case['suite']}/{case['name']}",
            "verdict": "identical",
            "why": "",
            "first_seed": first,
            "num_seeds": count,
        }
        for case, first, count in _evaluations(copy)
    ]
    for made_again, names in (([], [str(copy)]), (checked[:1], []), (checked, [])):
        audit.write_text(json.dumps(document | {"checked": made_again}))
        record = json.loads(lobench(*command).stdout)
        assert record["not_audited"] == names
        (line,) = record["boards"][0]["methods"]
        assert line["checked"] == [bool(made_again), made_again == checked]
        page = (tmp_path / "site/index.html").read_text()
        assert ("†" in page, SHOWN["not-audited-none-of-2"] in page) == (made_again != checked, not made_again)
    named = "metric train/loss of s/a, by which it is ranked"
    audit.write_text(json.dumps(document | {"checked": checked, "not_auditable": [named]}))
    assert json.loads(lobench(*command).stdout)["boards"][0]["methods"][0]["checked"] == [False, False]
    assert named in (tmp_path / "site/index.html").read_text()
    audit.write_text(json.dumps(document | {"passed": False}))
    failed = lobench(*command)
    assert (failed.returncode, SHOWN["audit-failed"] in failed.stderr) == (2, True)
    audit.write_text(json.dumps(document | {"root": "0" * 64}))
    assert json.loads(lobench(*command).stdout)["not_audited"] == [str(copy)]
    audit.write_text("no JSON")
    assert lobench(*command).returncode == 2


def _evaluations(bundle: Path) -> list[tuple[dict[str, str], int, int]]:
    columns, rows = ResultBundle(bundle).read_table("evaluations")
    places = [columns.index(name) for name in ("case_json", "seed_start", "seed_count")]
    found = [[row[place] for place in places] for row in rows]
    return [(json.loads(case), first, count) for case, first, count in found]


def test_seeds_of_several_bundles_are_said_to_be_pooled(tmp_path: Path) -> None:
    for number in range(2):
        add(
            tmp_path / f"store{number}",
            0,
            {"a": {"train/loss": [1.0, 1.1 + number]}},
            optimizer="sgd()",
            start=2 * number,
        )
        lobench("publish", tmp_path / f"store{number}", "--output", tmp_path / f"{number}.lobench")
    bundles = sorted(tmp_path.glob("*.lobench"))
    done = lobench("site", *bundles, "--output", tmp_path / "site", "--format", "json")
    (board,) = json.loads(done.stdout)["boards"]
    assert board["methods"][0]["bundles"] == ["0.lobench", "1.lobench"]
    assert SHOWN["seeds-of-sgd-are-those"] in board["pooled"]
    assert all(line in (tmp_path / "site/index.html").read_text() for line in board["pooled"])
    alone = lobench("site", bundles[0], "--output", tmp_path / "alone", "--format", "json")
    assert json.loads(alone.stdout)["boards"][0]["pooled"] == []


def test_what_is_no_bundle_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.lobench").write_text("x")
    for path in (tmp_path / "x.lobench", tmp_path / "none", tmp_path):
        done = lobench("site", path, "--output", tmp_path / "site")
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert not (tmp_path / "site").exists()


def test_a_choice_of_suite_hides_the_others(bundles: list[Path], tmp_path: Path, chromium: Browser) -> None:
    lobench("site", *bundles, "--output", tmp_path / "site")
    page = chromium.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto((tmp_path / "site/index.html").as_uri())
    boards = page.locator("section.board")
    assert boards.count() == 2
    page.get_by_role("radio", name="digits").check()
    assert sum(boards.nth(number).is_visible() for number in range(2)) == 1
    assert problems == []
    page.close()


def test_its_tables_are_printed_as_markdown(bundles: list[Path], tmp_path: Path) -> None:
    done = lobench("site", *bundles[1:], "--output", tmp_path / "site", "--format", "markdown")
    assert done.returncode == 0, done.stderr
    about, _, *lines = done.stdout.strip().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert lines[-1].startswith("†: ") and any(line.startswith(SHOWN["compared-across-2-bundles"]) for line in lines)
    assert SHOWN["steps-scores-0-is-untrained"] in about
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert rows[0][:3] == ["group", "method", SHOWN["mean-score-95"]] and rows[0][3:] == ["a", "b"]
    assert [row[:2] for row in rows[2:]] == [["1", "sgd()"], ["2", "adam()"]]
    record = json.loads(lobench("site", *bundles[1:], "--output", tmp_path / "site", "--format", "json").stdout)
    (board,) = record["boards"]
    assert [f"{value:.4g}†" for value in board["methods"][0]["finals"]] == rows[2][3:]


def test_a_theta_of_two_names_is_one_method(tmp_path: Path) -> None:
    bundles = []
    for number, name in enumerate(["run/theta_7.npz", "best.npz"]):
        add(tmp_path / f"store{number}", 7, {"a": {"train/loss": [1.0, 1.1]}}, sha256="7" * 64, uri=name)
        bundles.append(tmp_path / f"{number}.lobench")
        assert lobench("publish", tmp_path / f"store{number}", "--output", bundles[-1]).returncode == 0
    done = lobench("site", *bundles, "--output", tmp_path / "site", "--format", "json")
    assert [len(board["methods"]) for board in json.loads(done.stdout)["boards"]] == [1]

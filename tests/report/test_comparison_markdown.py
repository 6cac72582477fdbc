"""A comparison as a comment: it fits, the verdict is on top, and no name steers it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import lobench
from report_store import make_store
from shown import texts_of
from stores import add

from lobench import import_curves
from lobench.report.tables.comparison_markdown import MOST_LETTERS

SHOWN = texts_of("report")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("compared"))


def test_the_verdict_is_on_top_then_one_table_then_a_fold(store: Path) -> None:
    done = lobench("compare", "0", "3", "--store", store, "--format", "markdown")
    first, *lines = done.stdout.splitlines()
    assert re.fullmatch(SHOWN["lobench-pass-regressed-inconclusive"], first)
    assert sum(line.startswith("| ---") for line in lines) == 1
    assert done.stdout.count("<details>") == done.stdout.count("</details>") == 1
    assert done.stdout.index("| ---") < done.stdout.index("<details>")


def test_a_row_has_as_many_cells_as_the_header_whatever_the_names(store: Path) -> None:
    done = lobench("compare", "0", "3", "--store", store, "--format", "markdown")
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert len(rows) >= 5 and len(counts) == 1
    outside = re.sub(r"```.*?```", "", done.stdout, flags=re.DOTALL)
    assert "<script>" not in outside


def test_the_mean_over_cases_of_imports_is_in_the_column_of_scores(tmp_path: Path) -> None:
    rows = [
        f"{method},{case},{seed},{step},val/loss,{end * (1 + 0.1 * seed) if step else 5.0}"
        for method, end in (("a", 1.0), ("b", 0.9))
        for case in "xy"
        for seed in range(3)
        for step in (0, 100)
    ]
    (tmp_path / "c.csv").write_text("\n".join(["method,case,seed,step,metric,value", *rows]) + "\n")
    import_curves(tmp_path / "c.csv", store=tmp_path / "store")
    done = lobench("compare", "a", "b", "--store", tmp_path / "store", "--format", "markdown")
    header, mean = (
        [cell.strip() for cell in line.split(" | ")]
        for line in done.stdout.splitlines()
        if line.startswith(("| means of", "| **mean"))
    )
    found = dict(zip(header, mean, strict=True))
    assert re.match(r"\+0\.\d+", found[SHOWN["score-is-better"]]) and not found["as printed, + is better"]
    assert found["effect"] and found["gate"]
    page = lobench("report", "--store", tmp_path / "store", "--output", tmp_path / "page.html")
    assert page.returncode == 0 and SHOWN["not-paired-by-seed"] in (tmp_path / "page.html").read_text()


def test_a_comparison_of_many_cases_fits_a_comment(tmp_path: Path) -> None:
    names = [f"case_of_a_long_name_{'x' * 60}_{number}" for number in range(300)]
    for step in range(2):
        finals = [1.0 / (step + 1), 2.0, 1.5, 1.2]
        add(tmp_path / "many", step, {name: {"train/loss": finals} for name in names})
    done = lobench("compare", "0", "1", "--store", tmp_path / "many", "--format", "markdown")
    assert 1000 < len(done.stdout) <= MOST_LETTERS, done.stderr
    assert SHOWN["more-cases"] in done.stdout


@pytest.mark.parametrize("option", [("--race", "--suite", "quick"), ("--rule", "track3")])
def test_what_has_no_comment_says_so(option: tuple[str, ...]) -> None:
    done = lobench("compare", "a", "b", "--format", "markdown", *option)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)


def test_a_badge_is_svg_with_the_score(store: Path, tmp_path: Path) -> None:
    done = lobench("report", "--store", store, "--format", "badge", "--output", tmp_path / "badge.svg")
    assert done.returncode == 0, done.stderr
    found = ElementTree.fromstring((tmp_path / "badge.svg").read_text())
    texts = [one.text for one in found.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "lobench"
    assert re.match(r"score -?\d", texts[1] or "")


def test_columns_of_one_optimizer_are_told_apart_by_the_end_of_their_names(tmp_path: Path) -> None:
    names = [f"adam(); adam.learning_rate = {rate}" for rate in (0.001, 0.01)]
    for place, name in enumerate(names):
        add(tmp_path, 0, {"a": {"train/loss": [1.0 + place, 0.5]}}, optimizer=name, sha256=f"{place:064d}")
    done = lobench("compare", *names, "--store", tmp_path, "--details")
    assert re.search(SHOWN["train-loss-by-case-adam"], done.stdout)

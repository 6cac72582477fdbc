"""The documentation's tables of results say what its bundles say."""

from __future__ import annotations

import sys

import pytest
from reference import ROOT


def test_the_tables_are_those_of_the_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    from result_pages import with_tables

    page = (ROOT / "docs" / "shipped-checkpoints.md").read_text()
    assert page.count("by lobench site") >= 4
    assert with_tables(page) == page, "python docs/generate/result_pages.py writes them"
    sys.modules.pop("result_pages")


def test_a_bundle_contradicts_nothing_and_was_audited() -> None:
    bundles = sorted((ROOT / "docs" / "results").glob("*.lobench"))
    assert bundles
    for bundle in bundles:
        assert bundle.with_name(f"{bundle.name}.audit.json").is_file(), bundle

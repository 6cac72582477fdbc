"""The documentation's tables of results say what its bundles say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from reference import ROOT
from shown import texts_of

from lobench.engine.store.bundle import ResultBundle

SHOWN = texts_of("lobench")


def test_the_tables_are_those_of_the_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    from result_pages import PAGES, with_tables

    for page in PAGES:
        text = page.read_text()
        assert SHOWN["by-lobench-site"] in text
        assert with_tables(text) == text, "python docs/generate/result_pages.py writes them"
    sys.modules.pop("result_pages")


def test_a_bundle_was_audited_and_names_no_folder_of_a_machine() -> None:
    bundles = sorted((ROOT / "docs" / "results").glob("*.lobench"))
    assert bundles
    for bundle in bundles:
        assert bundle.with_name(f"{bundle.name}.audit.json").is_file(), bundle
        about = json.loads(ResultBundle(bundle).read("about.json"))
        assert not [place for place in (*about["suites"], *about["thetas"].values()) if Path(place).is_absolute()]

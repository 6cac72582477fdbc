"""Pages of `lobench view` equal those of a new reading, and show new evaluations before the tables that they change."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from report_store import SEEDS, case_info, curves, make_baseline, make_store
from shown import texts_of
from store_histories import HISTORIES, Step, checkpoint, evaluate, forget, take

from lobench.core.case import SeedBlock
from lobench.core.errors import LobenchError, StoreError
from lobench.core.program import PROGRAM_VERSION
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger
from lobench.tools.viewer import page_cache
from lobench.tools.viewer.page_cache import Page, PageCache

SHOWN = texts_of("page")


@pytest.fixture(autouse=True, scope="module")
def _every_page_is_slow() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_cache, "_SLOW", 0.0)
        yield


def explorer(page: Page) -> dict[str, Any]:
    """Returns the data of a page that do not depend on scores, with each cell's texts in place of their indices."""
    found = json.loads(page.data)
    found["texts"] = [found["texts"][place] if place >= 0 else "" for place in found["cells"]]
    found["subjects"] = [[one["key"], one["label"], one.get("run"), one.get("step")] for one in found["subjects"]]
    names = ("subjects", "cases", "metrics", "runs", "finals", "seconds", "evaluations", "texts")
    return {name: found[name] for name in names}


def with_new(cache: PageCache) -> Page:
    """Makes the page that shows new evaluations alone, if there was a page."""
    cache._whole_at = math.inf
    cache.refresh()
    return cache.current_page()[0]


def whole(cache: PageCache) -> Page:
    cache._whole_at = 0.0
    cache.refresh()
    return cache.current_page()[0]


@settings(deadline=None, max_examples=10)
@given(HISTORIES)
def test_page_of_a_continued_reading_equals_one_of_the_whole_store(history: list[tuple[Step, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        Ledger.open(store).close()
        cache = PageCache(store, ())
        for number, (step, is_read) in enumerate(history):
            take(store, step, number)
            if is_read or number == len(history) - 1:
                early, found, expected = with_new(cache), whole(cache), whole(PageCache(store, ()))
                assert (found.version, found.html, found.data) == (expected.version, expected.html, expected.data)
                if early.subtitle:
                    assert explorer(early) == explorer(found)


def test_evaluations_of_a_former_run_stay_listed_beside_new_ones(tmp_path: Path) -> None:
    for content in "aba":
        evaluate(tmp_path, checkpoint(0, content), [1.0, 0.5])
    cache = PageCache(tmp_path, ())
    assert len(explorer(whole(cache))["evaluations"]["rows"]) == 2
    evaluate(tmp_path, checkpoint(0), [1.0, 0.25])
    early = with_new(cache)
    assert early.subtitle and explorer(early) == explorer(whole(cache))


def test_new_evaluations_are_shown_before_the_tables_that_they_change(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    cache = PageCache(store, ())
    first = whole(cache)
    with Ledger.open(store) as ledger:
        ledger.record_event("skipped", position=0)
    assert with_new(cache) == first, "without new evaluations nothing is announced"
    record(store)
    early = with_new(cache)
    assert early.html == first.html and early.version != first.version
    assert first.note == "" and early.note.startswith(SHOWN["new-evaluations-are-listed"])
    are_listed = [any("sgd()" in row for row in explorer(page)["evaluations"]["rows"]) for page in (first, early)]
    assert are_listed == [False, True] and "1 optimizer" in early.subtitle
    found = whole(cache)
    assert found.note == "" and early.subtitle in found.html.decode()


def test_a_store_whose_results_are_all_gone_waits_for_others(tmp_path: Path) -> None:
    evaluate(tmp_path, checkpoint(0), [1.0, 0.5])
    cache = PageCache(tmp_path, ())
    first = whole(cache)
    forget(tmp_path, "a", "1", "o", checkpoint(0))
    assert with_new(cache).data == "null" != first.data


def test_a_look_that_waits_has_the_evaluations_of_that_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_PATIENCE", 600.0)
    store = make_store(tmp_path)
    cache = PageCache(store, ())
    first = whole(cache)
    cache._next_at, cache._whole_at = 0.0, math.inf
    record(store)
    found, _ = cache.current_page(waits=True)
    assert found.html == first.html and "1 optimizer" in found.subtitle


@pytest.mark.parametrize("name", ["peat.py", "baselines/adam-velo.json", "baselines/new.json"])
def test_page_is_due_after_an_edit_of_the_code_behind_results_or_of_a_baseline(tmp_path: Path, name: str) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path)
    (suite / "peat.py").write_text("rate = 1")
    with Ledger.open(store) as ledger:
        ledger.record_suites({("digits", str(suite)): {}})
        ledger.record_code({"0123456789abcdef": {"peat.py": "a" * 64}})
    cache = PageCache(store, ())
    whole(cache)
    cache._next_at = 0.0
    assert not cache._is_due()
    (suite / name).write_text("{}")
    assert cache._is_due()
    with contextlib.suppress(LobenchError):
        whole(cache)
    cache._next_at, cache._retry_at = 0.0, math.inf
    assert not cache._is_due()


def test_a_problem_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_PATIENCE", 600.0)
    cache = PageCache(make_store(tmp_path), ())
    whole(cache)
    shutil.rmtree(tmp_path)
    cache._next_at = cache._whole_at = 0.0
    _, problem = cache.current_page(waits=True)
    assert problem.endswith("is the path right?")


def test_a_store_whose_disk_failed_for_a_moment_is_read_again_although_it_has_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_PATIENCE", 600.0)
    store = make_store(tmp_path)
    cache = PageCache(store, ())
    whole(cache)
    cache._next_at = 0.0
    record(store)

    def fail(*_: object, **__: object) -> None:
        raise StoreError("cannot be read", got="EIO")

    with monkeypatch.context() as failing:
        failing.setattr(page_cache, "read_methods", fail)
        page, problem = cache.current_page(waits=True)
    assert "EIO" in problem and "1 optimizer" not in page.subtitle
    assert not cache._is_due(), "not at once"
    monkeypatch.setattr(cache, "_retry_at", 0.0)
    page, problem = cache.current_page(waits=True)
    assert not problem and "1 optimizer" in (page.subtitle or page.html.decode())


def record(store: Path) -> None:
    """Evaluates a further method on a case of the store."""
    subject, case = Subject.of_optimizer("sgd()"), case_info("case0")
    key = EvaluationKey(
        checkpoint_sha256=subject.sha256,
        optimizer_hash="o",
        case_identity=case.identity,
        seed_block=SeedBlock(start=0, size=SEEDS),
        program_version=PROGRAM_VERSION,
    )
    with Ledger.open(store) as ledger:
        ledger.record_admission(ledger.record_sighting(subject), "admitted")
        ledger.record_evaluation(key, case, Outcome.PASSED, curves=curves(0.5, np.random.default_rng(0)))

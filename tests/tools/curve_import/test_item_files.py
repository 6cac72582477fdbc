"""Imported values of items: lobench's own files, logs of inspect_ai, and samples of lm-evaluation-harness."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from commands import lobench
from scipy.stats import binomtest
from shown import texts_of
from tiny import results

import lobench as lobench_api
from lobench import UsageError, import_curves

SHOWN = texts_of("import")
RIGHT = {"small": {*range(0, 40, 2)}, "large": {*range(0, 40, 2), *range(1, 20, 2)} - {0, 2}}


def write_items(folder: Path, *, extra: str = "") -> list[Path]:
    """Writes two files of 40 items, of which the second has 10 more that are right, and 2 more that are wrong."""
    folder.mkdir(exist_ok=True)
    for name, right in RIGHT.items():
        rows = [{"item": f"q{place}", "correct": place in right, "text": "?"} for place in range(40)]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + extra)
    return [folder / f"{name}.jsonl" for name in RIGHT]


def compared(store: Path, a: str, b: str) -> dict[str, Any]:
    """Returns the cases of a comparison by name."""
    done = lobench("compare", a, b, "--store", store, "--format", "json")
    assert done.stdout, done.stderr
    (metric,) = json.loads(done.stdout)[0]["metrics"].values()
    return dict(metric["cases"])


def test_imported_items_are_paired_by_name(tmp_path: Path) -> None:
    files, store = write_items(tmp_path / "in"), tmp_path / "store"
    made = import_curves(*files, store=store, case="qa")
    assert (made.num_new, made.methods, made.cases) == (2, ("small", "large"), ("imported/qa",))
    case = compared(store, "small", "large")["imported/qa"]
    assert case["method"] == "mcnemar" and case["p_value"] == pytest.approx(binomtest(2, 12).pvalue)
    again = import_curves(*files, store=store, case="qa")
    assert (again.num_new, again.num_known) == (0, 2)
    write_items(tmp_path / "in", extra='{"item": "q40", "correct": 1}\n')
    with pytest.raises(UsageError, match=SHOWN["other-values-of-its-41-items"]):
        import_curves(*files, store=store, case="qa")
    assert import_curves(*files, store=store, case="qa", replace=True).num_replaced == 2
    assert {len(one["items"]) for one in results(store, "--curves")} == {41}


def test_items_that_two_cases_both_number_from_0_are_named_in_a_note(tmp_path: Path) -> None:
    notes = {}
    for case, names in (("arc", ["0", "1"]), ("boolq", ["0", "1", "2"]), ("copa", ["c0", "c1"])):
        file = tmp_path / f"{case}.jsonl"
        file.write_text("".join(f"{json.dumps({'item': name, 'correct': 1})}\n" for name in names))
        notes[case] = import_curves(file, store=tmp_path / "store", method="m", case=case).notes
    assert notes["arc"] == notes["copa"] == ()
    (note,) = notes["boolq"]
    assert SHOWN["items-of-the-same-numbers"] in note


def test_curves_of_seeds_and_items_of_one_case_are_refused(tmp_path: Path) -> None:
    files = write_items(tmp_path / "in")
    (tmp_path / "curve.csv").write_text("method,case,seed,step,metric,value\nx,qa,0,0,correct,1\nx,qa,0,1,correct,1\n")
    with pytest.raises(UsageError, match=SHOWN["case-qa-has-items"]):
        import_curves(*files, tmp_path / "curve.csv", store=tmp_path / "store", case="qa")
    assert not (tmp_path / "store").exists()


def test_items_exported_as_json_are_the_same_items_elsewhere(tmp_path: Path) -> None:
    import_curves(*write_items(tmp_path / "in"), store=tmp_path / "store", case="qa")
    exported = tmp_path / "exported.json"
    exported.write_text(lobench("results", "--store", tmp_path / "store", "--format", "json", "--curves").stdout)
    import_curves(exported, store=tmp_path / "other")
    both = [compared(tmp_path / store, "small", "large")["imported/qa"] for store in ("store", "other")]
    assert both[0]["p_value"] == both[1]["p_value"]


def write_samples(folder: Path, right: set[int], task: str = "gsm8k", filters: tuple[str, ...] = ("none",)) -> None:
    """Writes a file of samples as lm-evaluation-harness does, and one of its aggregated results."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "doc_id": place,
            "doc": {"question": f"{place}?"},
            "target": "1",
            "arguments": [["1", "2"]],
            "filtered_resps": ["3"],
            "filter": name,
            "metrics": ["exact_match"],
            "doc_hash": f"{task}{place:059}",
            "exact_match": float(place in right),
        }
        for name in filters
        for place in range(20)
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / f"samples_{task}_2025-11-29T12-00-01.123456.jsonl").write_text(text)
    means = {"results": {task: {"exact_match,none": 0.5}}, "configs": {}, "versions": {task: 3.0}}
    (folder / "results_2025-11-29T12-00-01.123456.json").write_text(json.dumps(means, indent=2))


def test_samples_of_lm_evaluation_harness_are_named_by_folder_and_task(tmp_path: Path) -> None:
    for model, right in (("org__a", {1, 2}), ("org__b", {*range(1, 12)})):
        write_samples(tmp_path / "lm" / model, right)
        write_samples(tmp_path / "lm" / model, right, "arc_easy", ("strict", "flexible"))
    wanted = ("exact_match", "exact_match/strict")
    made = import_curves(tmp_path / "lm", store=tmp_path / "store", metrics=wanted)
    assert made.methods == ("org__a", "org__b") and set(made.cases) == {"imported/gsm8k", "imported/arc_easy"}
    assert SHOWN["files-are-not-curves"] in "".join(made.notes)
    found = compared(tmp_path / "store", "org__a", "org__b")
    assert [case["p_value"] for case in found.values()] == [pytest.approx(binomtest(0, 9).pvalue)] * 2
    by_case = [
        set(one["items"]) for one in results(tmp_path / "store", "--curves") if one["label"].startswith("org__a")
    ]
    assert len(by_case) == 2 and not by_case[0] & by_case[1]  # each task numbers its documents from 0


def inspect_log(model: str, scores: dict[str, list[Any]]) -> dict[str, Any]:
    """Returns the parts of a log of inspect_ai that matter here. A score of None is that of a sample with an error."""
    samples = [
        {
            "id": name,
            "epoch": epoch,
            "input": "?",
            "target": "!",
            "scores": {"match": {"value": value}} if value else {},
        }
        for name, values in scores.items()
        for epoch, value in enumerate(values, 1)
    ]
    about = {"task": "arith", "model": model, "dataset": {"name": "sums", "samples": len(scores)}}
    return {"version": 2, "status": "success", "eval": about, "samples": samples}


@pytest.mark.parametrize("kind", ["json", "eval"])
def test_logs_of_inspect_ai_have_the_mean_of_epochs(tmp_path: Path, kind: str) -> None:
    scores = {"q1": ["C", "I"], "q2": ["C", "P"], "q3": [{"a": "C", "b": 3}, {"a": "I", "b": 1}], "q4": [None, None]}
    log, path = inspect_log("org/model", scores), tmp_path / f"2025_arith.{kind}"
    if kind == "json":
        path.write_text(json.dumps(log))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("summaries.json", json.dumps(log.pop("samples")))
            archive.writestr("header.json", json.dumps(log))
    made = import_curves(path, store=tmp_path / "store", metrics=("match",))
    assert SHOWN["samples-without-a-score"] in "".join(made.notes)
    (one,) = results(tmp_path / "store", "--curves")
    assert (one["label"], one["case"]["name"]) == (SHOWN["org-model-imported"], "arith")
    values = dict(zip(one["items"], (row[0] for row in one["curves"]["match"]), strict=True))
    assert values == {"sums/q1": 0.5, "sums/q2": 0.75}
    other = import_curves(path, store=tmp_path / "other", metrics=("match/a",), maximize=("match/a",))
    assert other.num_points == 1 and lobench_api.open_results(tmp_path / "other").rows[0].case.has_items


def test_log_of_inspect_ai_that_this_python_cannot_unpack_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "{}")
    path.write_bytes(
        path.read_bytes().replace(
            b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x62\x00"
        )
    )
    with pytest.raises(UsageError, match=SHOWN["cannot-be-unpacked"]):
        import_curves(path, store=tmp_path / "store")


def test_log_of_inspect_ai_that_was_written_anew_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "arith.json"
    for store, letter in (("first", "C"), ("second", "P")):
        path.write_text(json.dumps(inspect_log("org/model", {"q1": [letter], "q2": ["I"]})))
        import_curves(path, store=tmp_path / store)
        (one,) = results(tmp_path / store, "--curves")
        assert sorted(row[0] for row in one["curves"]["match"]) == [0.0, {"C": 1.0, "P": 0.5}[letter]]

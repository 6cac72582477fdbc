"""Files with a value for each item."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.errors import LobenchError
from lobench.core.items import item_seed, seeds_of_items
from lobench.engine.item_values import read_items

SHOWN = texts_of("engine")

ROWS = [{"item": "q1", "correct": 1, "length": 3.5}, {"item": "q2", "correct": 0, "length": 2}]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(map(json.dumps, ROWS)),
        json.dumps(ROWS),
        "item,correct,length,answer\nq1,1,3.5,yes\nq2,0,2,no\n",
        '{"item": "q1", "correct": true, "length": 3.5, "answer": "a"}\n{"item": "q2", "correct": false, "length": 2}',
    ],
)
def test_each_format_has_the_values_of_the_items(tmp_path: Path, text: str) -> None:
    (tmp_path / "answers").write_text(text)
    found = read_items(tmp_path / "answers", "correct")
    assert found.seeds == tuple(sorted(map(item_seed, ("q1", "q2")))) and set(found.metrics) == {"correct", "length"}
    assert dict(zip(found.items, found.metrics["correct"], strict=True)) == {"q1": 1.0, "q2": 0.0}
    assert dict(zip(found.items, found.metrics["length"], strict=True)) == {"q1": 3.5, "q2": 2.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"item": "q1", "correct": 1}\n{"item": "q1", "correct": 0}', SHOWN["line-2-item-q1-occurs"]),
        ('{"item": "q1", "correct": 1}\n{"item": "q2", "corr', SHOWN["line-2-this-is-no"]),
        ('{"item": "q1", "right": 1}', SHOWN["no-item-has-correct-got"]),
        ('{"item": "q1", "correct": 1}\n{"item": "q2", "other": 0}', SHOWN["item-has-no-correct-got"]),
        ('{"correct": 1}', SHOWN["line-1-no-item-got"]),
        ("question,correct\nq1,1\n", SHOWN["file-has-no-column-item"]),
        ("item,correct\nq1,1,2\n", SHOWN["line-2-a-row-is"]),
        (f"item,correct,answer\nq1,1,{'x' * 200_000}\n", SHOWN["after-line-1-this-is"]),
        ("", SHOWN["file-has-no-column-item-got"]),
    ],
)
def test_file_that_cannot_be_read_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "answers.txt").write_text(text)
    with pytest.raises(LobenchError) as raised:
        read_items(tmp_path / "answers.txt", "correct")
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_line_of_json_may_have_separators_of_unicode_in_its_texts(tmp_path: Path) -> None:
    rows = [{"item": "q\u20281", "correct": 1, "answer": "a\x85b"}, {"item": "q2", "correct": 0, "answer": "\u2029"}]
    text = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "a.jsonl").write_text(text, encoding="utf-8")
    assert set(read_items(tmp_path / "a.jsonl", "correct").items) == {"q\u20281", "q2"}


def test_metric_that_some_items_lack_is_left_out_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"item": "q1", "correct": 1, "f1": 0.5}\n{"item": 2, "correct": NaN}')
    found = read_items(tmp_path / "a.jsonl", "correct")
    assert set(found.metrics) == {"correct"} and found.problems == (SHOWN["f1-is-left-out-1"],)
    assert set(found.items) == {"q1", "2"}


@given(st.sets(st.text(), max_size=20), st.sets(st.text(), max_size=20))
def test_number_of_an_item_does_not_depend_on_the_others(some: set[str], others: set[str]) -> None:
    found = seeds_of_items(some | others)
    assert list(found) == sorted(found) and set(found.values()) == some | others
    assert {seed: name for seed, name in found.items() if name in some} == seeds_of_items(some)
    assert all(2**52 <= seed < 2**53 for seed in found)

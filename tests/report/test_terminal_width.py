"""Tables and lines that fit the terminal."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown import texts_of

from lobench.analysis.comparisons.steps_to_target import StepsToTarget
from lobench.analysis.stats.intervals import Interval
from lobench.core.wording import significant_text
from lobench.report.tables.comparison import _steps_cell
from lobench.report.tables.text import (
    description_list,
    factor_mark,
    factor_text,
    ratio_cell,
    terminal_width,
    text_table,
    wrap_lines,
)

SHOWN = texts_of("report")

LABELS = [f"adam(); adam.learning_rate = {rate}; adam.b1 = 0.9; adam.b2 = 0.999" for rate in (0.001, 0.003)]


def methods(num_cases: int) -> list[list[str]]:
    header = ["method", *(f"case {case}" for case in range(num_cases)), "mean score"]
    return [header, *([label, *["0.1234 [0.1, 0.2]"] * num_cases, "0.5"] for label in LABELS)]


def test_a_table_that_fits_is_one_panel_with_whole_names() -> None:
    table = text_table([["method", "score"], ["a method", "1.5"]], left={0}, width=40)
    assert table == "method    score\na method    1.5"


def test_long_names_are_shortened_in_the_middle_and_stay_distinct() -> None:
    lines = text_table(methods(1), left={0}, width=80).splitlines()
    assert len(lines) == 3 and all(len(line) <= 80 for line in lines)
    first, second = (line.split("  ")[0] for line in lines[1:])
    assert first != second and "…" in first and first.startswith("adam();")


def test_what_does_not_fit_is_in_panels_that_begin_with_the_name_of_the_row() -> None:
    table = text_table(methods(12), left={0}, width=100)
    panels = table.split("\n\n")
    assert len(panels) > 1 and all(panel.startswith("method") for panel in panels)
    assert all(f"case {case}" in table for case in range(12)), "no column is lost"
    assert max(map(len, table.splitlines())) <= 100


def test_description_that_is_too_long_is_wrapped_beside_its_name() -> None:
    text = description_list(
        [("agem", "projects gradients onto those of a memory"), ("a-name-of-30-letters-or-a-bit-more", "x")], 30
    )
    assert text.splitlines() == [
        SHOWN["agem-projects"],
        "                 gradients",
        "                 onto those",
        "                 of a memory",
        "a-name-of-30-letters-or-a-bit-more",
        "                 x",
    ]


def test_table_of_one_row_without_header_keeps_its_columns() -> None:
    assert "word" in text_table([("agem", " ".join(["word"] * 20))], width=40)


def test_numbers_are_never_shortened() -> None:
    value = "1.23456e-07 [1.1e-07, 1.3e-07]"
    table = text_table([["method", *"abcdefgh"], ["x" * 60, *[value] * 8]], left={0}, width=80)
    assert table.count(value) == 8


def test_long_header_above_numbers_is_shortened_and_the_numbers_are_not() -> None:
    value = "1.23456e-07 [1.1e-07, 1.3e-07]"
    lines = text_table([["case", "a method " * 20], ["b", value]], width=80).splitlines()
    assert value in lines[1] and max(map(len, lines)) <= 80


def test_wide_characters_take_two_columns() -> None:
    lines = text_table([["名前", "a"], ["学習率の長い名前" * 6, "1"]], left={0}, width=40).splitlines()
    assert "…" in lines[1]
    ends = [len(line.encode("utf-16-le")) for line in lines]
    assert len(ends) == 2


def test_commands_and_what_stands_in_backquotes_stay_whole() -> None:
    command = "`lobench results --store a/b/c --by method`"
    assert command in wrap_lines(f"{'word ' * 15}{command} {'word ' * 15}", 60)
    again = "  again: pytest 'suites/demo/test_demo.py::test_demo[a]' --lobench-checkpoint runs/today/theta_60.npz"
    assert wrap_lines(again, 60) == again


@given(st.lists(st.text(st.sampled_from("ab 1.`"), max_size=30), max_size=12), st.integers(20, 90))
def test_wrapping_keeps_every_word(words: list[str], width: int) -> None:
    line = " ".join(words)
    assert wrap_lines(line, width).split() == line.split()


def test_width_is_that_of_the_variable_or_100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    assert terminal_width() == 132


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.3, "0.300"), (0.9996, "1.00"), (123456.0, "123456"), (1.234e-7, "1.23e-07"), (2.5e9, "2.50e+09"), (0.0, "0")],
)
def test_numbers_have_three_digits_in_every_format(value: float, text: str) -> None:
    assert significant_text(value, 3) == text


def test_factors_have_no_exponent() -> None:
    assert [factor_text(value) for value in (0.37, 33.0, 1234.0, 4.61e5, 2e-9)] == [
        *("0.370", "33.0", "1,230", "> 10,000", "< 0.0001")
    ]
    assert [factor_mark(value) for value in (1.25, 1234.0, 4.61e5)] == ["x1.25", "x1,230", "> 10,000 times"]
    far = Interval(mean=3e7, lower=2e7, upper=4e7)
    assert ratio_cell(far) == "> 10,000 times" and ratio_cell(Interval(mean=1.5, lower=1, upper=2e4)).endswith(
        "[1.00, > 10,000]"
    )


def test_alignment_of_a_folded_line_is_kept() -> None:
    lines = wrap_lines(f"ok     plugins: {'a_plugin, ' * 12}", 60).splitlines()
    assert len(lines) > 1 and lines[0].startswith(SHOWN["ok-plugins-a-plugin"])


def test_steps_that_few_seeds_reach_are_not_shortened() -> None:
    median = Interval(mean=math.inf, lower=math.inf, upper=math.inf)
    steps = StepsToTarget(
        steps=dict.fromkeys(range(16), math.inf),
        mean=Interval(mean=math.nan, lower=math.nan, upper=math.nan),
        median=median,
        horizon=100.0,
    )
    cell = _steps_cell(steps)
    table = text_table([["steps", "A", "B"], ["trial/digits, train/loss 1", cell, cell]], width=80)
    assert table.count("> 100 [> 100, > 100] (median), 0 of 16 seeds") == 2, table

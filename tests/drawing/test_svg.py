"""Numbers of a page: the digits of each, as arrays and one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lobench.drawing.svg import Chart, Series, inner_chart, round_rows, round_value, round_values, shortened

ANY = st.one_of(st.floats(), st.floats(-1e4, 1e4), st.integers(-(10**8), 10**8).map(lambda value: value / 1000))


@given(values=st.lists(ANY, max_size=8))
@example(values=[0.12345, 1.0005, 2.0015, 99995.0, 999999.5, 1e6, 0.99995, 9.9995, -0.0, 5e-324, 1e308])
def test_numbers_of_an_array_have_the_digits_of_each(values: list[float]) -> None:
    expected = [round_value(value) if math.isfinite(value) else None for value in values]
    assert list(map(repr, round_values(values))) == list(map(repr, expected))


def test_many_numbers_have_the_digits_of_each() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=20_000) * 10.0 ** draw.integers(-12, 12, 20_000)
    values = np.concatenate([values, np.round(values, 4), values.astype(np.float32)])
    assert round_values(values.reshape(3, -1)) == [round_value(value) for value in values.tolist()]
    blocks = [values[:12].reshape(3, 4), values[12:14].reshape(1, 2)]
    assert round_rows(blocks) == [[round_values(row) for row in block] for block in blocks] and round_rows([]) == []
    assert round_values([]) == [] and round_values([math.nan, math.inf]) == [None, None]


@pytest.mark.parametrize(("value", "text"), [(0.123456, 0.1235), (123456.0, 123456), (1234567.0, 1235000.0), (2.0, 2)])
def test_a_number_has_four_digits_and_a_whole_one_all(value: float, text: float) -> None:
    assert round_values([value]) == [text] and type(round_values([value])[0]) is type(text)


def test_a_band_has_a_gap_where_a_bound_is_missing() -> None:
    mean, half = np.asarray([3.0, 2.0, math.nan, 2.0, 1.0, math.nan, 1.0]), 0.1
    series = Series(
        label="a", x=list(range(7)), y=mean.tolist(), lower=(mean - half).tolist(), upper=(mean + half).tolist()
    )
    drawn = str(inner_chart("case", "loss", [series], log_y=False).svg())
    assert drawn.count('class="band ') == 2 and drawn.count('class="whisker ') == 1


def test_a_name_beside_an_axis_keeps_its_end_in_which_settings_differ() -> None:
    names = [f"adam(); adam.learning_rate = 0.000{digit}" for digit in range(3)]
    assert [shortened(name, 16) for name in names] == [f"adam(); … 0.000{digit}" for digit in range(3)]
    assert shortened("adam()", 6) == "adam()" and len(shortened("adam();", 6)) == 6
    chart = Chart(title="", description="", x_label="", y_label="", series=(), y_names=tuple(names))
    assert all(f"000{digit}</text>" in chart.svg() for digit in range(3))

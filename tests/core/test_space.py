"""Spaces as searches of an experiment use them; how they are sampled and mutated is tested with populations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.core.search.space import Kind, Parameter, Rule, Scale, Space, check_parameters, parameter_of

SHOWN = texts_of("core")

RANGE = {"low": 1e-4, "high": 1e-1}


def real(path: str = "adam.learning_rate", **keywords: Any) -> Parameter:
    return parameter_of(path, "Real", {**RANGE, **keywords}, "e.gin")


def test_values_of_a_grid() -> None:
    assert real(scale="log").grid(4) == (0.0001, 0.001, 0.01, 0.1), "as they are written"
    assert real(low=0, high=1).grid(5) == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert real(low=0, high=1).grid(1) == (0.5,)
    assert real(low=1, high=100, scale="log").grid(1) == (10.0,), "the geometric mean"
    assert parameter_of("a.b", "Int", {"low": 1, "high": 100, "scale": "log"}, "").grid(5) == (1, 3, 10, 32, 100)
    assert parameter_of("a.b", "Int", {"low": 2, "high": 4}, "").grid(9) == (2, 3, 4), "each once"
    assert parameter_of("a.b", "Discrete", {"values": [1, 2.5]}, "").grid(9) == (1, 2.5)
    assert parameter_of("a.b", "Categorical", {"values": ["b", "a"]}, "").grid(1) == ("b", "a")


@given(
    st.floats(1e-12, 1e12),
    st.floats(1.001, 1e9),
    st.integers(1, 40),
    st.sampled_from(Scale),
    st.sampled_from([Kind.REAL, Kind.INT]),
)
def test_a_grid_is_even_and_within_the_range(low: float, factor: float, num: int, scale: Scale, kind: Kind) -> None:
    if kind is Kind.INT:
        low = math.ceil(low)
        high: float = math.ceil(low * factor)
    else:
        high = low * factor
    parameter = Parameter(path="a.b", kind=kind, low=low, high=high, scale=scale, rule=Rule.ADD)
    values = [float(value) for value in parameter.grid(num)]
    assert values == sorted(set(values)) and all(map(parameter.contains, parameter.grid(num)))
    assert num == 1 or (values[0], values[-1]) == (low, high)
    if kind is Kind.REAL and len(values) > 2:
        numbers = [math.log(value) for value in values] if scale is Scale.LOG else values
        steps = [after - before for before, after in itertools.pairwise(numbers)]
        assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "keywords", "expected"),
    [
        ("Real", {"low": 0.1, "high": 0.01}, SHOWN["range-is-reversed"]),
        ("Real", {"low": 0.1, "high": 0.1}, SHOWN["range-is-empty-got-0"]),
        ("Real", {"low": 0.0, "high": 0.1, "scale": "log"}, SHOWN["log-scale-needs-low-0"]),
        ("Real", {"low": 0.1}, SHOWN["high-got-none-expected-a"]),
        ("Real", {"low": "0.1", "high": 1}, SHOWN["low-got-0-1-expected"]),
        ("Real", {"low": 0, "high": math.inf}, SHOWN["range-is-reversed-or-not"]),
        ("Real", {"low": 0, "high": math.nan}, SHOWN["range-is-reversed-or-not"]),
        (
            "Real",
            {"lwo": 0.1, "high": 1},
            SHOWN["real-takes-no-lwo-expected"],
        ),
        ("Real", {**RANGE, "scale": "lgo"}, SHOWN["scale-got-lgo-expected-one"]),
        ("Real", {**RANGE, "num_values": 0}, SHOWN["num-values-got-0-expected"]),
        ("Real", {**RANGE, "num_values": True}, SHOWN["num-values-got-true"]),
        ("Real", {**RANGE, "when": {"a.b": 1}}, SHOWN["when-got-expected"]),
        ("Int", {"low": 1.5, "high": 3}, SHOWN["bounds-of-an-int-got"]),
        ("Discrete", {"values": [2, 1]}, SHOWN["values-got-2-1-expected"]),
        ("Discrete", {}, SHOWN["values-got-none-expected-a"]),
        ("Categorical", {"values": "ab"}, SHOWN["values-got-ab-expected-a"]),
        ("Categorical", {"values": []}, SHOWN["values-got-expected-one-or"]),
        ("Categorical", {"values": [1], "low": 3}, SHOWN["categorical-takes-no-low"]),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(kind: str, keywords: Mapping[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        parameter_of("outer/adam.learning_rate", kind, keywords, "e.gin: method 'adam'")
    assert str(error.value).startswith(SHOWN["e-gin-method-adam-of"].format(kind=kind, expected=expected))
    assert "\n" not in str(error.value)


def test_a_condition_on_nothing_has_a_suggestion() -> None:
    kind = parameter_of("adam.kind", "Categorical", {"values": ["a"]}, "")
    with pytest.raises(ConfigError, match=SHOWN["which-is-not-a-parameter"]):
        check_parameters([kind, real(when={"adam.knd": ["a"]})], "e.gin")


def test_the_order_of_the_file_stays_and_parents_come_first_where_it_matters() -> None:
    rate = real("a.rate", when={"b.kind": ["x"]})
    kind = parameter_of("b.kind", "Categorical", {"values": ["x", "y"]}, "")
    last = real("c.rate")
    space = Space([rate, kind, last])
    assert [parameter.path for parameter in space.parents_first] == ["b.kind", "a.rate", "c.rate"]
    assert [*space.active({"c.rate": 0.1, "b.kind": "x", "a.rate": 0.2})] == ["a.rate", "b.kind", "c.rate"]
    assert [*space.active({"c.rate": 0.1, "b.kind": "y", "a.rate": 0.2})] == ["b.kind", "c.rate"]

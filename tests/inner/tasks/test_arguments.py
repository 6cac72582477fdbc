import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.tasks import arguments

SHOWN = texts_of("inner")


def test_good_values_come_back():
    assert arguments.integer("T", "n", 3) == 3
    assert arguments.number("T", "x", 2) == 2.0
    assert arguments.sizes("T", "s", [4, 5]) == (4, 5)
    assert arguments.sizes("T", "s", ()) == ()
    arguments.choice("T", "c", None, (None, "a"))


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", None])
def test_integer_refuses(value):
    with pytest.raises(ConfigError, match=SHOWN["t-n-got-expected-an"]):
        arguments.integer("T", "n", value)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), True, "1", None])
def test_number_refuses(value):
    with pytest.raises(ConfigError, match=SHOWN["t-x-got-expected-a"]):
        arguments.number("T", "x", value)


@pytest.mark.parametrize("value", [32, "32", (0,), (3.5,), (True,), None, {32}], ids=repr)
def test_sizes_refuses(value):
    with pytest.raises(ConfigError, match=r"T\.s; got .*; expected a tuple"):
        arguments.sizes("T", "s", value)


@pytest.mark.parametrize(("value", "message"), [((), SHOWN["to-2-of-them"]), ((1, 2, 3), SHOWN["to-2-of-them"])])
def test_sizes_counts(value, message):
    with pytest.raises(ConfigError, match=message):
        arguments.sizes("T", "s", value, min_count=1, max_count=2)
    assert arguments.sizes("T", "s", (1, 2), min_count=1, max_count=2) == (1, 2)


def test_choice_names_the_choices():
    with pytest.raises(ConfigError, match=SHOWN["t-c-got-rleu-expected"]):
        arguments.choice("T", "c", "rleu", ["relu", "tanh"])

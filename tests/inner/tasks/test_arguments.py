from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner import tasks
from lobench.inner.task import Task, TaskFamily
from lobench.inner.tasks import arguments

SHOWN = texts_of("inner")


def test_good_values_come_back():
    assert arguments.integer("T", "n", 3) == 3
    assert arguments.number("T", "x", 2) == 2.0
    assert arguments.sizes("T", "s", [4, 5]) == (4, 5)
    assert arguments.sizes("T", "s", ()) == ()
    assert arguments.sizes("T", "s", (1, 2), min_count=1, max_count=2) == (1, 2)
    arguments.choice("T", "c", None, (None, "a"))


@pytest.mark.parametrize(
    ("function", "values", "text"),
    [
        (arguments.integer, [0, -1, 1.0, True, "3", None], "t-n-got-expected-an"),
        (arguments.number, [-0.1, float("nan"), float("inf"), True, "1", None], "t-n-got-expected-a"),
        (arguments.sizes, [32, "32", (0,), (3.5,), (True,), None, {32}], "t-n-got-expected-a-tuple"),
        (partial(arguments.sizes, min_count=1, max_count=2), [(), (1, 2, 3)], "to-2-of-them"),
        (partial(arguments.choice, choices=["relu", "tanh"]), ["rleu"], "t-n-got-rleu-expected"),
    ],
    ids=["integer", "number", "sizes", "counted sizes", "choice"],
)
def test_check_of_a_wrong_value_says_what_it_expects(function: Callable[..., object], values: list[Any], text: str):
    for value in values:
        with pytest.raises(ConfigError, match=SHOWN[text]):
            function("T", "n", value)


@pytest.mark.parametrize(
    ("task", "name", "value"),
    [
        ("Ackley", "noise_std", float("nan")),
        ("BlockModelGCN", "contrast", 0.5),
        ("BlockModelGCN", "num_nodes", 3),
        ("ByteRNN", "batch_size", "16"),
        ("ByteRNN", "cell", "rnn"),
        ("ByteRNN", "grammar", "french"),
        ("ByteRNN", "sequence_length", 1.5),
        ("ConvClassifier", "data", "wine"),
        ("ConvClassifier", "norm", "group"),
        ("DatasetDistillation", "images_per_class", 0),
        ("DigitsAutoencoder", "loss", "l1"),
        ("DigitsConv", "channels", ()),
        ("DigitsConv", "channels", (1, 1, 1, 1, 1)),
        ("DigitsMLP", "activation", "rleu"),
        ("DigitsMLP", "hidden_sizes", 32),
        ("DigitsMLP", "norm", "group"),
        ("ESSmoothed", "std", 0.0),
        ("ESSmoothed", "task", 3),
        ("HeatPINN", "hidden_sizes", ()),
        ("ImageVAE", "code_size", 0),
        ("MLPClassifier", "data", "mnist9"),
        ("MetaTraining", "family", tasks.PermutedDigits()),
        ("MetaTraining", "family", tasks.Quadratic()),
        ("MixerClassifier", "patch", 5),
        ("ModularAddition", "modulus", 3),
        ("ModularAddition", "network", "rnn"),
        ("ModularAddition", "num_heads", 3),
        ("PatchDenoiser", "noise_std", 0.0),
        ("PatchDenoiser", "side", 99),
        ("Permuted", "task", tasks.DiabetesMLP()),
        ("PythonText", "sequence_length", 0),
        ("Quadratic", "condition", 0.5),
        ("Quadratic", "dim", 0),
        ("Quadratic", "problem_seed", -1),
        ("QuadraticFamily", "max_condition", 0.1),
        ("ResNetClassifier", "norm", None),
        ("Rosenbrock", "dim", 1),
        ("SeriesClassifier", "network", "rnn"),
        ("SignalConv", "data", "digits"),
        ("SinusoidFamily", "noise_std", -1.0),
        ("StiffODE", "stiffness", 0.5),
        ("ViTClassifier", "width", 33),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Task | TaskFamily) else str(value),
)
def test_task_with_a_wrong_argument_is_refused_by_its_name(task: str, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"\b{task}\.{name}\b"):
        getattr(tasks, task)(**{name: value})

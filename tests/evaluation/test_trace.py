"""A training that is traced says which value is wrong, and compiles nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.case import SeedBlock
from lobench.core.errors import ConfigError
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.programs import Programs
from lobench.evaluation.runner import BlockRunner

SHOWN = texts_of("evaluation")

SUITES = Path(__file__).parents[2] / "suites"
MODULES = ("lobench.inner.optimizers", "lobench.inner.schedules", "lobench.inner.tasks")


def trace(path: Path, *gin_params: str) -> int:
    """Returns how many programs were compiled for it."""
    programs, block = Programs(), SeedBlock(start=0, size=1)
    before = programs.compilations.count
    layers = Layers(gin_modules=MODULES, gin_params=gin_params)
    BlockRunner(layers, programs).trace(specs_in(path)[0], "", block)
    return programs.compilations.count - before


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("quadratic/quadratic.gin", ["Case.optimizer = @adam()"]),
        ("quadratic/quadratic.gin", ["Case.learned_optimizer = @Celo()"]),
        ("continual/continual.gin", ["Case.optimizer = @adam()", "Case.primary_metric = 'test/forgetting'"]),
    ],
)
def test_what_can_be_trained_is_traced_and_nothing_is_compiled(path: str, lines: list[str]) -> None:
    trace(SUITES / path, *lines)  # what making the data compiles counts here
    assert trace(SUITES / path, *lines) == 0


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["Case.optimizer = @adam()", "adam.learning_rate = 'fast'"],
            SHOWN["adam-learning-rate-got-fast"],
        ),
        (["Case.optimizer = @adam()", "adam.b1 = None"], SHOWN["adam-b1-got-none-expected"]),
        (
            ["Case.learned_optimizer = @MLPLOpt()", "MLPLOpt.hidden_size = 'x'"],
            SHOWN["mlplopt-hidden-size-got-x"],
        ),
        (["Case.optimizer = @adam()", "Quadratic.dim = 2.5"], SHOWN["quadratic-dim-got-2-5"]),
        (
            ["Case.optimizer = @adam()", "Case.primary_metric = 'test/los'"],
            SHOWN["case-primary-metric-got-test"],
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_named(lines: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        trace(SUITES / "quadratic" / "quadratic.gin", *lines)
    assert expected in str(caught.value) and "case " in str(caught.value)

"""A binding in a scope that nothing enters is refused, and the scope that was meant is suggested."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.core.subject import Subject, Variant
from lobench.engine.config.layers import Layers
from lobench.engine.config.scopes import check_scopes, scopes_of_subjects
from lobench.engine.config.suite import specs_in

SHOWN = texts_of("config")
_GIN = """
include "common.gin"
bowl/Case.task = @wide/Bowl()
wide/Bowl.dim = 3
Case.num_seeds = %few/seeds
few/seeds = 2
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Suite of two cases in two files, which include bindings of both."""
    suite = tmp_path / "tiny.gin"
    suite.write_text(_GIN)
    (tmp_path / "common.gin").write_text("pan/Case.num_seeds = 1\n")
    (tmp_path / "other.gin").write_text("pan/Case.task = @Bowl()\n")
    return suite


def _check(suite: Path, layers: Layers) -> None:
    (spec,) = specs_in(suite)
    check_scopes(spec, layers)


def test_scopes_of_cases_references_and_macros_are_known(suite: Path) -> None:
    lines = ("bowl/Case.num_seeds = 1", "wide/Bowl.dim = 7", "few/seeds = 1", "bowl/in/Bowl.dim = 2", "mine/sgd.x = 1")
    subject = Subject.of_optimizer("@mine/sgd()")
    _check(suite, Layers(gin_params=lines, variant=subject.variant))
    # Another subject of the same command is trained without this scope.
    _check(suite, Layers(gin_params=lines, scopes=scopes_of_subjects([subject])))


def test_cases_of_another_suite_and_of_the_same_folder_are_known(suite: Path) -> None:
    layers = Layers(gin_params=("pan/Case.num_seeds = 1",))
    (suite.parent / "broken.gin").write_text("pot/Case.task = \n")  # not of this session
    _check(suite, layers)
    (suite.parent / "far").mkdir()
    (spec,) = specs_in(suite)
    (far_spec,) = specs_in((suite.parent / "other.gin").rename(suite.parent / "far" / "other.gin"))
    check_scopes(spec, layers, [far_spec])
    with pytest.raises(ConfigError, match="pan/Case"):
        check_scopes(spec, layers)


def test_a_phase_may_be_defined_before_a_case_has_it(suite: Path) -> None:
    suite.write_text(f"{_GIN}cool/Phase.num_inner_steps = 3\ncool/sgd.learning_rate = 0.1\n")
    _check(suite, Layers(gin_params=("cool/Phase.num_inner_steps = 4",)))
    with pytest.raises(ConfigError, match="cold/Phase"):
        _check(suite, Layers(gin_params=("cold/Phase.num_inner_steps = 4",)))


def test_a_trainers_scopes_and_lines_of_an_experiment_are_not_checked(suite: Path) -> None:
    _check(suite, Layers(variant=Variant(trainer_config="outer/train.steps = 3\n")))
    _check(suite, Layers(gin_params=("bwol/Case.num_seeds = 1",), import_folders=("experiments",)))


def test_a_scope_that_nothing_enters_is_refused_wherever_it_is_written(suite: Path) -> None:
    line = "bwol/Case.num_seeds = 1"
    (suite.parent / "given.gin").write_text(line)
    for layers in (
        Layers(gin_params=(line,)),
        Layers(gin_files=(str(suite.parent / "given.gin"),)),
        Layers(variant=Variant(bindings=(line,))),
    ):
        with pytest.raises(ConfigError, match=SHOWN["bwol-is-not-a-case"]):
            _check(suite, layers)
    with pytest.raises(ConfigError, match=SHOWN["x-is-not-a-case"]):
        _check(suite, Layers(gin_params=("x/Case.num_seeds = 1",)))
    suite.write_text(f"{_GIN}{line}\n")
    with pytest.raises(ConfigError, match=f"tiny.gin:7: .*{SHOWN['bwol-is-not-a-case']}"):
        _check(suite, Layers())

"""Configurables of a user's package that have the names of lobench's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shown import texts_of

import lobench.inner.optimizers
import lobench.inner.schedules
import lobench.inner.tasks  # noqa: F401  (registers their names)
from lobench.core.errors import ConfigError
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.experiment.file import read_experiment
from lobench.engine.config.gin_state import CONFIGURABLES, forget_configurables
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.engine.config.syntax import last_name

SHOWN = texts_of("config")

OWN = sorted(last_name(name) for name, _ in CONFIGURABLES.items() if name.startswith("lobench."))
KEYWORDS = {"Case", "Checkpoint", "Experiment", "Method", "Phase", "Suite", "expect"}
HEAD = "import optax\nfrom lobench import configurable\nfrom lobench.inner.tasks.quadratic import Quadratic as Bowl\n"
NAMESAKE = """
@configurable
def {name}(value=0.5, task=None):
    return (optax.sgd(value), Bowl())
"""
CASE = "import lobench.inner.tasks.quadratic\n{imports}\na/lobench.Case.task = @lobench.Quadratic()\n"
PLAIN = "import lobench.inner.tasks.quadratic\na/Case.task = @Quadratic()\nQuadratic.dim = 5\n"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A suite whose package defines a configurable for each name of lobench's."""
    folder = tmp_path_factory.mktemp("suite_of_namesakes")
    (folder / "namesakes").mkdir()
    (folder / "namesakes" / "__init__.py").write_text("from .all import *\n")
    (folder / "namesakes" / "all.py").write_text(HEAD + "".join(NAMESAKE.format(name=name) for name in OWN))
    (folder / "indirect_namesakes.py").write_text("import namesakes.all\n")
    (folder / "x.gin").write_text(CASE.format(imports="import namesakes"))
    (folder / "indirect.gin").write_text(CASE.format(imports="import indirect_namesakes"))
    (folder / "plain.gin").write_text(PLAIN)
    yield folder
    modules = [name for name in sys.modules if name.startswith(("namesakes", "indirect_namesakes"))]
    for name in modules:
        del sys.modules[name]
    forget_configurables(modules)


def bind(file: Path, *params: str, build: bool = False) -> BoundCase:
    (spec,) = specs_in(file)
    return bind_case(spec, Layers(gin_params=params), build=build)


def test_a_namesake_works_by_its_qualified_name(package: Path) -> None:
    assert len(OWN) > 100
    for name in OWN:
        for path in (f"namesakes.{name}", f"namesakes.all.{name}"):
            bound = bind(package / "x.gin", f"lobench.Case.optimizer = @{path}()", f"{path}.value = 0.25")
            assert bound.optimizer_bindings == (
                f"lobench.Case.optimizer = @{path}()\nnamesakes.all.{name}.value = 0.25"
            )
            assert bound.settings.make_optimizer([0.25])[0].init({}) is not None


def test_a_namesakes_short_name_is_an_error_with_both_names(package: Path) -> None:
    for name in OWN:
        for file in ("x.gin", "indirect.gin"):
            with pytest.raises(ConfigError) as error:
                bind(package / file, f"lobench.Case.optimizer = @{name}()")
            assert SHOWN["write-which-one-is-meant-lobench"].format(name=name) in str(error.value)


def test_a_namesake_of_a_keyword_makes_no_case(package: Path) -> None:
    for name in KEYWORDS:
        bound = bind(package / "x.gin", f"b/namesakes.{name}.task = 1", f"namesakes.{name}.value = 0.75")
        assert bound.spec.scope == "a"
    (package / "case.gin").write_text(CASE.format(imports="import namesakes") + "b/namesakes.Case.task = @Bowl()\n")
    assert [spec.scope for spec in specs_in(package / "case.gin")] == ["a"]


def test_a_binding_of_a_keyword_is_lobenchs_beside_a_namesake(package: Path) -> None:
    bound = bind(package / "x.gin", "Case.optimizer = @lobench.sgd()", "Case.num_inner_steps = 7")  # as lobench writes
    assert (bound.info.num_inner_steps, bound.spec.scope) == (7, "a")


def test_a_suite_without_the_namesakes_goes_on_with_short_names(package: Path) -> None:
    before = bind(package / "plain.gin", "Case.optimizer = @adam()", "adam.learning_rate = 0.1", build=True)
    bind(package / "x.gin", "lobench.Case.optimizer = @namesakes.adam()")
    assert "namesakes.all" in sys.modules
    after = bind(package / "plain.gin", "Case.optimizer = @adam()", "adam.learning_rate = 0.1", build=True)
    assert after.info == before.info
    assert after.optimizer_bindings == "lobench.Case.optimizer = @adam()\nlobench.adam.learning_rate = 0.1"


EXPERIMENT = """
import namesakes
a/lobench.Case.task = @lobench.Quadratic()
Experiment.num_sessions = 2
searched/Method.optimizer = @lobench.adam()
searched/lobench.adam.learning_rate = @rate/Real()
searched/Method.search = @grid()
rate/Real.low = 0.01
rate/Real.high = 0.1
rate/Real.num_values = 2
grid.order = "given"
"""


def test_methods_of_an_experiment_may_be_namesakes_of_all_that_it_uses(tmp_path: Path) -> None:
    names = sorted({*OWN, *KEYWORDS, "Categorical", "Discrete", "Int", "Real", "grid", "random"})
    lines = [f"m{name}/Method.optimizer = @namesakes.{name}()\nm{name}/namesakes.{name}.value = 0.25" for name in names]
    (tmp_path / "x.gin").write_text("\n".join([EXPERIMENT, *lines]))
    found = read_experiment(tmp_path / "x.gin")
    for name in names:
        assert found.method(f"m{name}").bindings == (f"namesakes.{name}.value = 0.25",), name
    searched = found.method("searched")
    assert [one.path for one in searched.space] == ["lobench.adam.learning_rate"]
    assert searched.search is not None and searched.search.keywords == (("order", "given"),)


def test_a_method_that_binds_a_part_of_the_case_is_refused_beside_namesakes(tmp_path: Path) -> None:
    for name in ("Quadratic", "lobench.Quadratic", "Case"):
        line = f"searched/{name}.{'num_seeds' if name == 'Case' else 'dim'} = 3\n"
        (tmp_path / "x.gin").write_text(EXPERIMENT + line)
        with pytest.raises(ConfigError, match=SHOWN["must-be-equal-for-all"]):
            read_experiment(tmp_path / "x.gin")


def test_a_name_that_gin_has_too_is_lobenchs(package: Path) -> None:
    bound = bind(package / "plain.gin", "Case.optimizer = @sgd()", "sgd.learning_rate = @constant()")
    assert "lobench.sgd.learning_rate = @constant()" in bound.optimizer_bindings


def test_two_users_packages_may_share_a_name(tmp_path: Path) -> None:
    for package in ("first_of_two", "second_of_two"):
        (tmp_path / f"{package}.py").write_text(HEAD + NAMESAKE.format(name="SharedRule"))
    only, both = tmp_path / "only.gin", tmp_path / "both.gin"
    only.write_text(CASE.format(imports="import second_of_two"))
    both.write_text(CASE.format(imports="import first_of_two\nimport second_of_two"))
    chain = "Case.optimizer = @first_of_two.SharedRule()", "first_of_two.SharedRule.task = @second_of_two.SharedRule()"
    bound = bind(both, *chain, "first_of_two.SharedRule.value = 0.1", "second_of_two.SharedRule.value = 0.2")
    swapped = bind(both, *chain, "first_of_two.SharedRule.value = 0.2", "second_of_two.SharedRule.value = 0.1")
    assert bound.info.optimizer_hash != swapped.info.optimizer_hash
    with pytest.raises(ConfigError, match=SHOWN["first-of-two-sharedrule-or"]):
        bind(both, "Case.optimizer = @SharedRule()")
    alone = bind(only, "Case.optimizer = @SharedRule()", "SharedRule.value = 0.3")
    assert alone.optimizer_bindings == "lobench.Case.optimizer = @SharedRule()\nlobench.SharedRule.value = 0.3"
    older = bind(only, "Case.optimizer = @SharedRule()", "lobench.SharedRule.value = 0.3")
    assert older.info == alone.info

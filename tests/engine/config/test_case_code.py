"""Code of bound cases: which edits of the user's files change the fingerprint of the case or of the optimizer."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import gin
import pytest
from edited_world import edit, make_world

from lobench.engine.config import case_code
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.case_code import modules_imported_for_effects
from lobench.engine.config.gin_state import CONFIGURABLES
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.engine.config.suite_files import temporary_modules
from lobench.engine.config.syntax import parse_text
from lobench.engine.config.user_code import forget_edited_code

TEXTS = """
from lobench import configurable

@configurable
def named(module="", file="", data=""):
    return 0.5
"""
BOUND = """
import texts
bowl/Bowl.center = @named()
named.module = "steps:Step"
named.file = "tables/rate.py"
named.data = "tables/rates.toml"
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Path]:
    folder = make_world(tmp_path)
    with temporary_modules([str(folder / "suite"), str(folder)]):
        yield folder


def bound(folder: Path) -> BoundCase:
    """Returns the case as a process binds it that has read the folder before, such as a notebook."""
    forget_edited_code()
    (spec,) = specs_in(folder / "suite" / "bowl.gin")
    return bind_case(spec, Layers(gin_params=("Case.optimizer = @signs()",)), build=False)


@pytest.mark.parametrize(
    ("name", "is_of_case", "is_of_subject"),
    [
        ("constant", False, True),
        ("default argument", False, True),
        ("helper two imports away", False, True),
        ("task", True, False),
        ("data function", True, False),
        ("module named in a text", True, False),
        ("comment", False, False),
        ("docstring", False, False),
        ("unrelated file", False, False),
    ],
)
def test_code_of_case_after_an_edit_differs_where_it_reaches(
    world: Path, name: str, is_of_case: bool, is_of_subject: bool
) -> None:
    before = bound(world)
    edit(world, name)
    after = bound(world)
    assert (before.code.case.id != after.code.case.id) == is_of_case
    assert (before.code.subject.id != after.code.subject.id) == is_of_subject


@pytest.mark.parametrize("name", ["steps.py", "tables/rate.py"])
def test_code_of_case_has_modules_and_files_that_its_bindings_name(world: Path, name: str) -> None:
    suite = world / "suite"
    (suite / "tables").mkdir()
    for file in ("steps.py", "tables/rate.py", "tables/rates.toml"):
        (suite / file).write_text("X = 1\n")
    (suite / "texts.py").write_text(TEXTS)
    (suite / "bowl.gin").write_text((suite / "bowl.gin").read_text() + BOUND)
    before = bound(world)
    assert before.code.case.data_files == {str(suite / "tables" / "rates.toml")}
    (suite / name).write_text("X = 2\n")
    assert bound(world).code.case.id != before.code.case.id
    (suite / name).write_text("X = 1  # as before\n")
    assert bound(world).code.case.id == before.code.case.id


def _make(**values: object) -> object:
    return values


def test_module_whose_name_another_case_used_still_counts_for_cases_that_do_not_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules_on_use.py").write_text("class Rule:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("rules_on_use")
    imports = parse_text("import rules_on_use", "e.gin")
    assert modules_imported_for_effects(imports) == {"rules_on_use"}
    # A method of the same process binds the class, which a plugin registers then, as lobench-torch does.
    gin.external_configurable(_make, name="Rule", module="rules_on_use")
    monkeypatch.setattr(case_code, "REGISTERED_ON_USE", {"rules_on_use.Rule"})
    try:
        assert modules_imported_for_effects(imports) == {"rules_on_use"}
        assert (
            modules_imported_for_effects([*imports, *parse_text("Case.optimizer = @rules_on_use.Rule()", "m")]) == set()
        )
    finally:
        CONFIGURABLES.pop("rules_on_use.Rule")
        sys.modules.pop("rules_on_use")

"""Code of bound cases: which edits of the user's files change the fingerprint of the case or of the optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from edited_world import edit, make_world

from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.engine.config.suite_files import modules_meanwhile
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
    with modules_meanwhile([str(folder / "suite"), str(folder)]):
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
    assert (before.case_code.id != after.case_code.id) == is_of_case
    assert (before.subject_code.id != after.subject_code.id) == is_of_subject


@pytest.mark.parametrize("name", ["steps.py", "tables/rate.py"])
def test_code_of_case_has_modules_and_files_that_its_bindings_name(world: Path, name: str) -> None:
    suite = world / "suite"
    (suite / "tables").mkdir()
    for file in ("steps.py", "tables/rate.py", "tables/rates.toml"):
        (suite / file).write_text("X = 1\n")
    (suite / "texts.py").write_text(TEXTS)
    (suite / "bowl.gin").write_text((suite / "bowl.gin").read_text() + BOUND)
    before = bound(world)
    assert before.case_code.data == {str(suite / "tables" / "rates.toml")}
    (suite / name).write_text("X = 2\n")
    assert bound(world).case_code.id != before.case_code.id
    (suite / name).write_text("X = 1  # as before\n")
    assert bound(world).case_code.id == before.case_code.id

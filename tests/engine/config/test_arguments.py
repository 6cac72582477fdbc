"""Which bindings are arguments of a program, what names it without them, and making the optimizer again."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gin.config as gin_state
import pytest
from case_infos import case_info

from lobench.core.case import CaseInfo, UnboundDefault
from lobench.engine.config.arguments import OptimizerSettings
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in

MODULE = """
import gin

@gin.register
class Nothing:
    def __init__(self, size=1.0):
        self.size = size

class Made(dict):
    pass

@gin.register
def rule(rate=0.1, decay=0.0, width=4, name="x", is_fast=False, parts=(), inner=None, table=()):
    return Made(rate=rate, decay=decay, width=width, name=name, is_fast=is_fast, parts=parts, inner=inner, table=table)

@gin.register
def both(parts):
    return Made(parts=parts)

@gin.register
def required(rate):
    return rate

@gin.configurable
def hidden(bound=1.0):
    return bound

@gin.register
def calls_another(rate=0.1):
    return Made(rate=rate, bound=hidden())
"""
HEAD = "import plain_rules\na/Case.task = @Nothing()\nb/Case.task = @Nothing()\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose module every test's suite imports: gin knows a name once."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "plain_rules.py").write_text(MODULE)
    return folder


@pytest.fixture
def bound(tmp_path: Path, home: Path) -> Callable[[str], BoundCase]:
    """Returns text -> the case `a` with it."""
    numbers = itertools.count()

    def bind(text: str) -> BoundCase:
        suite = tmp_path / str(next(numbers)) / "s" / "x.gin"
        suite.parent.mkdir(parents=True)
        suite.write_text(HEAD + text)
        spec = next(spec for spec in specs_in(suite) if spec.scope == "a")
        return bind_case(spec, Layers(import_folders=(str(home),)))

    return bind


def settings(bound: BoundCase) -> dict[str, float]:
    found: OptimizerSettings = bound.settings
    return {name.split(".", 1)[-1]: value for name, value in zip(found.names, found.values, strict=True)}


def keys(bound: BoundCase) -> tuple[str, str]:
    info: CaseInfo = bound.info
    return info.key, info.program_key


def test_real_numbers_that_an_optimizer_reaches_are_settings_and_nothing_else_is(bound: Any) -> None:
    text = "Case.optimizer = @rule()\nrule.rate = 0.2\nrule.width = 8\nrule.name = 'y'\nrule.is_fast = True\n"
    text += "rule.table = [0.1, 0.2]\nNothing.size = 2.0\nhidden.bound = 3.0\nCase.timeout_seconds = 60.5\n"
    found = settings(bound(text))
    assert found == {"rule.decay": 0.0, "rule.rate": 0.2}
    assert [isinstance(value, UnboundDefault) for value in found.values()] == [True, False]


def test_a_default_and_its_value_bound_have_one_program_and_two_keys(bound: Any) -> None:
    text = "Case.optimizer = @rule()\n"
    texts = (
        text,
        f"{text}rule.rate = 0.3\n",
        f"{text}rule.decay = 0.0\n",
        f"{text}rule.rate = 0.3\nrule.decay = 0.5\n",
    )
    found = [bound(each) for each in texts]
    assert len({keys(each)[0] for each in found}) == 4 and len({keys(each)[1] for each in found}) == 1
    assert [each.settings.bound_defaults for each in found] == [(), (), ("plain_rules.rule.decay",), ()]
    assert found[0].settings.make_optimizer([7, 8]) == {**found[0].case.optimizer, "decay": 7, "rate": 8}
    assert found[0].settings.make_optimizer(found[0].settings.values) == found[0].case.optimizer


def test_the_value_of_a_setting_parts_evaluations_and_no_programs(bound: Any) -> None:
    text = "Case.optimizer = @rule()\nrule.rate = {}\nrule.decay = {}\n"
    one, other = bound(text.format(0.1, 1e-4)), bound(text.format(0.2, 1e-3))
    assert keys(one)[0] != keys(other)[0] and keys(one)[1] == keys(other)[1]
    assert one.settings.usual == (0.0, 0.1) and other.settings.values == (1e-3, 0.2)
    without_default = bound("Case.optimizer = @required()\nrequired.rate = 0.5\n").settings
    assert (without_default.usual, without_default.bound_defaults) == ((0.5,), ())


@pytest.mark.parametrize(
    "line",
    [
        "rule.width = 5",
        "rule.name = 'z'",
        "rule.is_fast = True",
        "rule.rate = 1",
        "rule.rate = None",
        "rule.table = [0.5]",
        "rule.inner = @hidden()",
        "hidden.bound = 0.5",  # not reached; what calls it in Python reads it all the same
        "a/Nothing.size = 0.5",
    ],
)
def test_what_is_no_setting_parts_programs(bound: Any, line: str) -> None:
    text = "Case.optimizer = @rule()\nrule.rate = 0.1\n"
    assert keys(bound(text))[1] != keys(bound(f"{text}{line}\n"))[1]


def test_what_no_program_hangs_on_parts_none(bound: Any) -> None:
    text = "Case.optimizer = @rule()\nrule.rate = 0.1\n"
    for line in ("Case.first_seed = 7", "Case.block_sizes = (2, 2)", "Case.scale = 'log'"):
        assert keys(bound(text))[1] == keys(bound(f"{text}{line}\n"))[1], line
    text += "m/Method.label = 'x'\n"  # an experiment's own case, wherever it stands: another one than a suite's
    assert keys(bound(text))[1] == keys(bound(f"{text}n/Method.label = 'y'\n"))[1]


def test_scopes_macros_and_nested_references(bound: Any) -> None:
    text = """
Case.optimizer = @both()
both.parts = [@one/rule(), @two/rule()]
one/rule.rate = 0.1
two/rule.rate = %shared
one/rule.decay = %shared
two/rule.inner = @three/required()
three/required.rate = 0.3
shared = 0.2
"""
    found = bound(text)
    assert found.settings.names == tuple(sorted(found.settings.names))
    assert sorted(found.settings.values) == [0.0, 0.1, 0.2, 0.3]
    made = found.settings.make_optimizer([f"{name}!" for name in found.settings.names])
    one, two = made["parts"]
    ends = [one["rate"], one["decay"], two["rate"], two["inner"]]
    assert ends[1] == ends[2] and "macro" in ends[1]
    assert ends[0].startswith("one/") and ends[3].startswith("three/")
    assert two["decay"].startswith("two/")


def test_one_binding_that_two_scopes_read_is_two_settings_as_their_lines_are(bound: Any) -> None:
    """However it is written, an evaluation with the same key goes the same way."""
    head = "Case.optimizer = @both()\nboth.parts = [@one/required(), @two/required()]\n"
    together, apart = (
        bound(f"{head}required.rate = 0.1\n"),
        bound(f"{head}one/required.rate = 0.1\ntwo/required.rate = 0.1\n"),
    )
    assert together.info.optimizer_hash == apart.info.optimizer_hash
    assert together.settings.names == apart.settings.names and len(together.settings.names) == 2
    for each in (together, apart):
        assert each.settings.make_optimizer([1, 2])["parts"] == [1, 2]


def test_the_scope_of_the_case_parts_no_settings(bound: Any) -> None:
    text = "Case.optimizer = @rule()\n{}rule.rate = 0.1\n"
    assert bound(text.format("")).settings.names == bound(text.format("a/")).settings.names


def test_an_optimizer_is_made_again_as_it_was_and_gins_state_is_as_before(bound: Any) -> None:
    text = "Case.optimizer = @rule()\nrule.rate = 0.2\nrule.inner = @it/gin.singleton()\n"
    found = bound(f"{text}it/singleton.constructor = @hidden\n")
    marker = object()
    gin_state._CONFIG["", "marker"] = {"x": marker}
    gin_state._SINGLETONS["it"] = 17.0
    try:
        config, singletons = copy.copy(gin_state._CONFIG), dict(gin_state._SINGLETONS)
        values = [marker if name.endswith("rule.rate") else value for name, value in settings(found).items()]
        again = found.settings.make_optimizer(values)
        assert again["rate"] is marker and again["inner"] == 1.0
        assert {**again, "rate": 0.2} == found.case.optimizer == found.settings.make_optimizer(found.settings.values)
        assert config == gin_state._CONFIG and singletons == gin_state._SINGLETONS
    finally:
        del gin_state._CONFIG["", "marker"]
        del gin_state._SINGLETONS["it"]


def test_what_reads_a_setting_where_it_is_not_reached_reads_the_new_value_too(bound: Any) -> None:
    found = bound("Case.optimizer = @calls_another()\ncalls_another.rate = 0.2\nhidden.bound = 0.7\n")
    assert found.settings.make_optimizer([5]) == {"rate": 5, "bound": 0.7}


def test_of_two_optimizers_the_settings_of_the_one_that_counts(bound: Any) -> None:
    found = bound(
        "Case.learned_optimizer = @required()\nrequired.rate = 0.3\nCase.optimizer = @rule()\nrule.rate = 0.2\n"
    )
    assert list(settings(found)) == ["rule.decay", "rule.rate"]
    assert found.settings.make_optimizer([0, 1])["rate"] == 1


def test_a_case_without_an_optimizer_has_none(bound: Any) -> None:
    found = bound("")
    assert found.settings.values == () and found.settings.make_optimizer(()) is None


def test_cases_that_older_stores_know_have_a_program_of_their_own() -> None:
    info = case_info("n", identity="i", node_id="")
    assert info.program_key == info.key == "i:o"
    assert dataclasses.replace(info, program_hash="p").program_key == "i:p"

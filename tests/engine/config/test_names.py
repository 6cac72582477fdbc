"""Names in gin as Python has them, and why a name is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in

SHOWN = texts_of("config")

RULES = """
import optax
from lobench import configurable

@configurable
def TinyStep(rate=0.5):
    return optax.sgd(rate)

class TinyRule:
    pass
"""
SUITE = """
import lobench.inner.tasks.quadratic
import {package}
a/Case.task = @Quadratic()
"""


@pytest.fixture
def package(tmp_path: Path) -> str:
    """A package that shows what a module of it defines; each has a name of its own, since a process imports it once."""
    name = f"lofty_{abs(hash(tmp_path)):x}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "rules.py").write_text(RULES.replace("Tiny", name))
    (tmp_path / name / "more.py").write_text("")
    (tmp_path / "x.gin").write_text(SUITE.format(package=name))
    (tmp_path / name / "__init__.py").write_text(f"from .rules import {name}Rule, {name}Step\n")
    return name


def bind(folder: Path, *params: str, **layers: str) -> BoundCase:
    (spec,) = specs_in(folder / "x.gin")
    return bind_case(spec, Layers(gin_params=params, **layers), build=False)  # type: ignore[arg-type]


def test_a_qualified_name_is_what_python_calls_so(tmp_path: Path, package: str) -> None:
    for path in (f"{package}.{package}Step", f"{package}.rules.{package}Step", f"{package}Step"):
        bound = bind(tmp_path, f"Case.optimizer = @{path}()", f"{path}.rate = 0.25")
        assert f"lobench.{package}Step.rate = 0.25" in bound.optimizer_bindings
        with pytest.raises(ConfigError, match=SHOWN["has-no-parameter-rat-did"]):
            bind(tmp_path, f"Case.optimizer = @{path}()", f"{path}.rat = 0.25")


def test_an_unknown_name_says_why(tmp_path: Path, package: str) -> None:
    def output(optimizer: str, **layers: str) -> str:
        with pytest.raises(ConfigError) as error:
            bind(tmp_path, f"Case.optimizer = @{optimizer}()", **layers)
        assert "\n" not in str(error.value)
        return str(error.value)

    put = "exists and is not configurable: put `@lobench.configurable` on it"
    assert SHOWN["unknown-name-rule-rule"].format(package=package, put=put) in output(f"{package}Rule")
    assert SHOWN["unknown-name-rule-rule-2"].format(package=package, put=put) in output(f"{package}.{package}Rule")
    assert SHOWN["import-more-is-missing-in"].format(package=package) in output(f"{package}.more.Rule")
    assert SHOWN["did-you-mean-step"].format(package=package) in output(f"{package}Stp")
    assert SHOWN["is-an-import-missing-in"] in output("no_such_package.Rule")
    config = tmp_path / "config.gin"
    config.write_text("import no_such_package.rules\n")
    failed = SHOWN["import-no-such-package-rules"].format(config=config)
    assert failed in output("NoSuchRule", trainer_config=str(config))

"""Keywords of the functions of Python, and the settings that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lobench
from lobench.api.evaluate import evaluate_into
from lobench.api.settings import (
    BaselineKeywords,
    BaselineSettings,
    CompareKeywords,
    CompareSettings,
    ImportKeywords,
    ImportSettings,
    WatchKeywords,
    WatchSettings,
)
from lobench.core.settings_field import changed_fields, option, settings_from
from lobench.experiments.run import RunKeywords, RunSettings
from lobench.tools.ablate.ablate_settings import AblateKeywords, AblateSettings
from lobench.tools.alarm.alarm_rules import AlarmKeywords, AlarmRules
from lobench.tools.bisect.bisect_settings import BisectKeywords, BisectSettings
from lobench.tools.debug.debug import debug
from lobench.tools.debug.debug_settings import DebugKeywords, DebugSettings
from lobench.tools.falsify.falsify_settings import FalsifyKeywords, FalsifySettings
from lobench.tools.keep.keep_settings import KeepKeywords, KeepSettings
from lobench.tools.publish.publish import publish
from lobench.tools.publish.publish_settings import PublishKeywords, PublishSettings

# Fields that are arguments of their own, or that lobench sets itself.
_NO_KEYWORDS = {
    WatchSettings: {"location", "suites", "traced", "elsewhere", "replan", "with_tests"},
    RunSettings: {"experiment"},
    BisectSettings: {"case"},
    KeepSettings: {"command", "metric"},
}
_KEYWORDS: dict[type, tuple[type[Any], ...]] = {
    WatchKeywords: (WatchSettings,),
    CompareKeywords: (CompareSettings, WatchSettings),
    RunKeywords: (RunSettings,),
    BaselineKeywords: (BaselineSettings,),
    ImportKeywords: (ImportSettings,),
    AblateKeywords: (AblateSettings, WatchSettings),
    AlarmKeywords: (AlarmRules, WatchSettings),
    BisectKeywords: (BisectSettings, WatchSettings),
    FalsifyKeywords: (FalsifySettings, WatchSettings),
    KeepKeywords: (KeepSettings, WatchSettings),
    DebugKeywords: (DebugSettings,),
    PublishKeywords: (PublishSettings,),
}


def _as_keyword(annotation: str) -> str:
    """Returns the type of a keyword for a field's type: several values may be a list, and a text may be a path."""
    return annotation.replace("tuple[", "Sequence[").replace(", ...]", "]")


@pytest.mark.parametrize("keywords", _KEYWORDS, ids=lambda kind: kind.__name__)
def test_keywords_of_a_function_are_the_fields_of_its_settings(keywords: type) -> None:
    own, *further = _KEYWORDS[keywords]
    types = {name: each.__forward_arg__ for name, each in keywords.__annotations__.items()}
    expected = {
        each.name: _as_keyword(str(each.type))
        for kind in (*further, own)
        for each in fields(kind)
        if each.name not in _NO_KEYWORDS.get(kind, ())
    }
    wanted = {each.name for each in fields(own)} - _NO_KEYWORDS.get(own, set())
    assert wanted <= types.keys()
    assert {name: each.replace("str | Path", "str") for name, each in types.items()} == {
        name: expected[name].replace("str | Path", "str") for name in types
    }


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lobench.watch, ("run", "suite")),
        (lobench.compare, ("a", "b")),
        (evaluate_into, ("store", ["sgd()"], "suite")),
        (partial(lobench.race, suites="suite"), ("a", "b")),
        (lobench.run, ("experiment.gin",)),
        (lobench.baseline, ("suite",)),
        (partial(lobench.import_curves, store="store"), ("curves.csv",)),
        (lobench.best, ("run", "suite")),
        (partial(lobench.bisect, case="case"), ("run", "suite")),
        (lobench.alarm, ("run", "suite")),
        (lobench.ablate, ("a", "b")),
        (partial(lobench.falsify, suite="suite"), ("theta.npz",)),
        (partial(lobench.keep, metric="loss"), ("command",)),
        (debug, ("case",)),
        (publish, (Path("store"), Path("bundle"))),
    ],
)
def test_function_refuses_a_keyword_that_it_does_not_have(
    function: Callable[..., object], arguments: tuple[object, ...]
) -> None:
    with pytest.raises(TypeError, match=r"^\w+\(\) got an unexpected keyword argument 'worker'"):
        function(*arguments, worker=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    name: str
    rate: float = option(0.05, "Rate.")
    suites: tuple[str, ...] = option((), "Suites.")


@pytest.mark.parametrize("suites", [Path("a"), "a", ["a"], ("a",)])
def test_settings_from_options_takes_its_own_fields_and_one_value_or_several(suites: object) -> None:
    options = {"rate": 0.1, "workers": 2, "suites": suites}
    settings = settings_from(_Settings, options, name=Path("b"))
    assert settings == _Settings(name="b", rate=0.1, suites=("a",))
    assert changed_fields(settings) == {"name": "b", "rate": 0.1, "suites": ("a",)}

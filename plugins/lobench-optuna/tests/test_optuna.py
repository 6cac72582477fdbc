"""What optuna would do by itself, what it says of wrong input, and that nothing but its values is ours."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from lobench_optuna.optuna_search import _ask_trial, _Domain, optuna_search
from shown import texts_of

from lobench import ConfigError, LobenchError
from lobench.extend import Space, load_plugins
from lobench.testing.searches import quadratic, run_search, sample_spaces

SHOWN = texts_of("optuna")

SAMPLERS = {
    "tpe": {},
    "cmaes": {"popsize": 4},
    "nsgaii": {"population_size": 4},
    "qmc": {},
}


def search(name: str) -> Any:
    return optuna_search(name, **SAMPLERS[name])


def unbroken(name: str, space: Space, *, seed: int, width: int, num_trials: int) -> list[dict[str, Any]]:
    """Runs one study from its beginning to its end, which is never rebuilt."""
    sampler = search(name).sampler
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    domains = {each.path: _Domain(each, is_grid=False) for each in space.parents_first}
    study, found = optuna.create_study(direction="maximize"), list[dict[str, Any]]()
    for wave in range(1000):
        study.sampler = sampler.make(seed, wave)
        asked = [_ask_trial(study, space, domains) for _ in range(min(width, num_trials - len(found)))]
        for params in asked:
            study.tell(len(found), quadratic(params))
            found.append(params)
        if not asked:
            break
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("space", sorted(sample_spaces()))
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_study_that_is_rebuilt_for_each_wave_loses_nothing(name: str, space: str) -> None:
    """A generation, a covariance, a place in a sequence: what optuna notes beside the values of a trial."""
    found = sample_spaces()[space]
    ours = run_search(lambda: search(name), found, seed=3, width=4, num_trials=26)
    theirs = unbroken(name, found, seed=3, width=4, num_trials=26)
    assert [dict(trial.parameters) for trial in ours] == theirs


def test_another_process_proposes_the_same() -> None:
    code = """
import json
from lobench.testing.searches import run_search, sample_spaces
from lobench_optuna.optuna_search import optuna_search
trials = run_search(lambda: optuna_search("tpe"), sample_spaces()["conditional"], num_trials=16)
print(json.dumps([dict(trial.parameters) for trial in trials]))
"""
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        for hash_seed in ("1", "2")
    ]
    here = run_search(lambda: optuna_search("tpe"), sample_spaces()["conditional"], num_trials=16)
    for done in printed:
        assert json.loads(done.stdout) == [dict(trial.parameters) for trial in here]
        assert not done.stderr, "optuna's own lines stay away"


def test_each_wave_has_a_seed_of_its_own() -> None:
    space = sample_spaces()["ranges"]
    for name in SAMPLERS:
        trials = run_search(lambda name=name: search(name), space, width=2, num_trials=12)
        found = {frozenset(trial.parameters.items()) for trial in trials}
        assert len(found) == 12 or (name == "nsgaii" and len(found) > 6), "a child may equal its parent"


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        (
            {"sampler": "tep"},
            SHOWN["unknown-sampler-tep-expected-one"],
        ),
        ({"sampler": "CMAES-"}, None),
        (
            {"sampler": "nsga"},
            SHOWN["unknown-sampler-nsga-expected-one"],
        ),
        ({"sampler": "tpe", "seed": 1}, SHOWN["unknown-option-of-the-sampler"]),
        ({"n_startup_trails": 1}, SHOWN["unknown-option-of-the-sampler-tpe"]),
        ({"gamma": [1]}, SHOWN["option-got-1-expected-a"]),
        ({"sampler": "nsgaii", "population_size": 1}, SHOWN["optuna-refuses-the-settings-of"]),
    ],
)
def test_wrong_input_is_one_clear_line(keywords: Mapping[str, Any], expected: str | None) -> None:
    found = load_plugins().find("lobench_search_strategies", "optuna", kind="search")
    if expected is None:
        found.make(where="e.gin: method 'adam'", **keywords)
        return
    with pytest.raises(ConfigError) as error:
        found.make(where="e.gin: method 'adam'", **keywords)
    assert re.fullmatch(SHOWN["e-gin-method-adam-optuna"].format(expected=re.escape(expected)), str(error.value))


def test_what_a_sampler_stumbles_over_later_is_one_clear_line() -> None:
    make = lambda: optuna_search("tpe", n_startup_trials="few")  # noqa: E731
    with pytest.raises(LobenchError) as error:
        run_search(make, sample_spaces()["ranges"], num_trials=12)
    expected = "wave 0: optuna's sampler 'tpe' proposes nothing; got TypeError: "
    assert str(error.value).startswith(expected) and "n_startup_trials = 'few'" in str(error.value)


@pytest.mark.parametrize(("sampler", "package"), [("gp", "torch"), ("cmaes", "cmaes"), ("qmc", "scipy")])
def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, sampler: str, package: str) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else there(name))
    with pytest.raises(LobenchError) as error:
        optuna_search(sampler)
    expected = f"optuna's sampler {sampler!r} needs {package}, which is not installed; pip install {package}"
    assert str(error.value) == expected


def test_optunas_own_settings_stay_as_they_were() -> None:
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    filters = list(warnings.filters)
    run_search(lambda: optuna_search("qmc"), sample_spaces()["conditional"], num_trials=3)
    assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    assert warnings.filters == filters
    optuna.logging.set_verbosity(optuna.logging.INFO)


def test_tpe_finds_more_than_chance() -> None:
    space = sample_spaces()["ranges"]
    random = load_plugins().find("lobench_search_strategies", "random", kind="search")

    def regret(make: Any) -> float:
        best = [max(quadratic(t.parameters) for t in run_search(make, space, seed=s, num_trials=40)) for s in range(8)]
        return -sorted(best)[4]

    assert regret(lambda: optuna_search("tpe")) < regret(lambda: random.make(where="here"))

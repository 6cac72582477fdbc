"""`lobench tune`: an experiment with one method, written as gin and run as any other."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lobench.analysis.scores.baseline_grids import BaselineSearch
from lobench.api.settings import NAME, TuneSettings
from lobench.core.errors import UsageError
from lobench.core.experiment import Search
from lobench.core.number_checks import is_number
from lobench.core.search.search import num_trials_of, search_seed
from lobench.core.search.space import Kind, Space
from lobench.core.subject import canonical_optimizer
from lobench.engine.config.shipped import find_suite, shipped_suite
from lobench.engine.config.space_syntax import space_of
from lobench.engine.config.syntax import only_bindings, parse_text, statement_text
from lobench.engine.whole_file import write_whole
from lobench.experiments.search.planned import strategy_of
from lobench.plugins import PluginManager

__all__ = ["DEFAULT_VARY", "baseline_search", "experiment_text", "tune_file", "tune_text"]

_DEFAULT_SPACE = 'Real(1e-5, 1.0, scale="log", num_values=11)'
DEFAULT_VARY = f"learning_rate = {_DEFAULT_SPACE}"

_EXPECTED_LINE = "a line such as 'learning_rate = Real(1e-4, 1e-1, scale=\"log\", num_values=7)', or '... = [0.1, 0.3]'"


def tune_text(settings: TuneSettings, folder: Path) -> str:
    """Returns the experiment as the text of a gin file in a folder.

    Raises:
      UsageError: A space cannot be read.
    """
    name = settings.method
    lines = _head_lines(settings, folder)
    if settings.sessions is not None:
        lines.append(f"Experiment.num_sessions = {settings.sessions}")
    optimizer, bindings = _optimizer_line(settings)
    lines += ["", f"{name}/{optimizer}"]
    lines.append(f"{name}/Method.search = @{settings.search_name}()")
    for key in ("num_trials", "report_sessions"):
        if (value := getattr(settings, key)) is not None:
            lines.append(f"{name}/Method.{key} = {value}")
    lines += [f"{name}/{binding}" for binding in bindings]
    for line in _space_texts(settings):
        lines += _space_lines(name, settings.selector, line)
    return "\n".join(lines) + "\n"


def race_text(settings: TuneSettings, folder: Path, manager: PluginManager) -> str:
    """Returns the experiment that races the settings of a search, each of them a method.

    Raises:
      UsageError: The search proposes settings that depend on results, which a race cannot evaluate on fresh seeds.
      ConfigError: As in `searched`.
    """
    if settings.report_sessions is not None:
        raise UsageError("--report-sessions needs a search: a race has bounds on all seeds")
    name, search_name = settings.method, settings.search_name
    bindings = only_bindings(parse_text(tune_text(settings, folder), "--vary"))
    space_bindings = [
        binding for binding in bindings if binding.scope.split("/")[0] == name and binding.name != "Method"
    ]
    strategy = strategy_of(Search(name=search_name), manager, where="--search")
    space = Space(space_of(name, space_bindings, bindings))
    num_settings = num_trials_of(strategy, space, settings.num_trials, where="--search")
    num_trials = settings.num_trials
    settings_of_wave = strategy.next_wave(space, (), seed=search_seed(0, name), width=1, num_trials=num_trials)
    if len(settings_of_wave) != num_settings:
        raise UsageError(
            "a search that learns from its trials does not race them",
            where="--search",
            got=search_name,
            expected="grid, or random with --num-trials",
        )
    lines = _head_lines(settings, folder)
    lines += [f"Experiment.num_sessions = {settings.sessions or 24}", "Experiment.race = @race()"]
    optimizer, fixed_bindings = _optimizer_line(settings)
    for number, values in enumerate(settings_of_wave):
        settings_text = ", ".join(f"{path.rpartition('.')[2]} {_value_text(value)}" for path, value in values.items())
        own_lines = [optimizer, f"Method.label = {f'{name} {number}: {settings_text}'!r}", *fixed_bindings]
        own_lines += [f"{path} = {value!r}" for path, value in values.items()]
        lines += ["", *(f"{name}_{number}/{line}" for line in own_lines)]
    return "\n".join(lines) + "\n"


def _value_text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _head_lines(settings: TuneSettings, folder: Path) -> list[str]:
    suites = [_suite_reference(suite, folder) for suite in settings.suites]
    return [f"Experiment.name = {settings.name!r}", f"Experiment.suites = {suites!r}"]


def _optimizer_line(settings: TuneSettings) -> tuple[str, list[str]]:
    """Returns the line `Method.optimizer = @adam()`, and the bindings that followed the optimizer's call."""
    call, *bindings = (binding_text.strip() for binding_text in canonical_optimizer(settings.optimizer).split(";"))
    return f"Method.optimizer = @{call.lstrip('@')}", [binding for binding in bindings if binding]


def baseline_search(settings: TuneSettings, manager: PluginManager) -> BaselineSearch:
    """Returns the search, for callers that train its points themselves: values of the optimizer's own parameters.

    Raises:
      UsageError: A space cannot be read.
      ConfigError: A range is invalid, or the search is unknown.
    """
    name = settings.method
    bindings = only_bindings(parse_text(tune_text(settings, Path()), "--vary"))
    space_bindings = [
        binding for binding in bindings if binding.scope == name and binding.selector == settings.selector
    ]
    parameters = space_of(name, space_bindings, bindings)
    if len(parameters) != len(_space_texts(settings)) or any(parameter.when for parameter in parameters):
        raise UsageError("--vary", got=repr(settings.vary), expected=f"parameters of {name} alone, without conditions")
    own_parameters = [replace(parameter, path=parameter.path.rpartition(".")[2]) for parameter in parameters]
    search_name = settings.search_name
    strategy = strategy_of(Search(name=search_name), manager, where="--search")
    space = Space(own_parameters)
    num_trials_of(strategy, space, settings.num_trials, where="--search")
    return BaselineSearch(name=search_name, space=space, strategy=strategy, num_trials=settings.num_trials)


def tune_file(settings: TuneSettings, folder: Path, manager: PluginManager, gin_params: Sequence[str] = ()) -> Path:
    """Writes the experiment into a folder, and returns the file's path. Arguments are as in `experiment_text`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "experiment.gin"
    write_whole(path, experiment_text(settings, folder, manager, gin_params))
    return path


def experiment_text(
    settings: TuneSettings, folder: Path, manager: PluginManager, gin_params: Sequence[str] = ()
) -> str:
    """Returns the text of the experiment: a search, or a race of its settings.

    Args:
      settings: Options of the command.
      folder: Folder of the file.
      manager: Plugins.
      gin_params: Texts of `--gin-param`, whose statements come last.

    Raises:
      ConfigError: A text of `--gin-param` has a syntax error.
      LobenchError: As in `tune_text` and `race_text`.
    """
    text = race_text(settings, folder, manager) if settings.race else tune_text(settings, folder)
    lines = [
        statement_text(statement) for param in gin_params for statement in parse_text(param, f"--gin-param {param!r}")
    ]
    return "\n".join([text, *lines, ""]) if lines else text


def _suite_reference(suite: str, folder: Path) -> str:
    """Returns the name of a suite in a file of the folder: a relative path, or the name of a shipped suite."""
    if find_suite(suite) == shipped_suite(suite):
        return suite
    return Path(os.path.relpath(suite, folder)).as_posix()


def _space_texts(settings: TuneSettings) -> Sequence[str]:
    """Returns the spaces of a search: the given ones, or else a space of the learning rate (`lr` in torch)."""
    is_torch = settings.selector.startswith("torch.")
    return settings.vary or (f"lr = {_DEFAULT_SPACE}" if is_torch else DEFAULT_VARY,)


def _space_lines(method: str, selector: str, line: str) -> list[str]:
    """Returns the gin lines of a space and of its fields."""
    path, _, text = (side.strip() for side in line.partition("="))
    if not re.fullmatch(rf"({NAME}[/.])*{NAME}", path):
        raise UsageError("--vary", got=repr(line), expected=_EXPECTED_LINE)
    path = path if "." in path else f"{selector}.{path}"
    scope = re.sub(r"\W", "_", path.removeprefix(f"{selector}."))
    kind, values = _parse_space(text, line)
    field_lines = [f"{scope}/{kind}.{key} = {value!r}" for key, value in values.items()]
    return ["", f"{method}/{path} = @{scope}/{kind}()", *field_lines]


def _parse_space(text: str, line: str) -> tuple[str, dict[str, object]]:
    """Returns the kind of a space and its keywords: `Real(1e-4, 1e-1, scale="log")`, `[0.1, 0.3]`."""
    try:
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Call):
            values = list(ast.literal_eval(node))
            are_numbers = all(map(is_number, values))
            return ("Discrete" if are_numbers and values == sorted(values) else "Categorical"), {"values": values}
        if not isinstance(node.func, ast.Name) or node.func.id not in [kind.capitalize() for kind in Kind]:
            raise ValueError(text)
        names: Sequence[str] = ("low", "high") if node.func.id in ("Real", "Int") else ("values",)
        positional_values = dict(zip(names, map(ast.literal_eval, node.args), strict=False))
        keyword_values = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
    except (SyntaxError, ValueError, TypeError) as error:
        raise UsageError("--vary", got=repr(line), expected=_EXPECTED_LINE) from error
    return node.func.id, positional_values | keyword_values

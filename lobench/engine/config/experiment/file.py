"""Experiment file: methods from scopes that bind `Method.*`, and bindings for all of them.

Nothing that the file names is imported, so errors in it are reported before a worker starts.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from lobench.core.case import Case
from lobench.core.errors import ConfigError, UsageError, suggestion
from lobench.core.experiment import METHOD_KINDS, Experiment, Method, expected_value_text
from lobench.engine.config.command_files import check_no_shell_syntax
from lobench.engine.config.experiment.environments import library_at, portable_python, python_at
from lobench.engine.config.experiment.reach import ReferenceGraph, suite_statements
from lobench.engine.config.scopes import unread_scope_error
from lobench.engine.config.shipped import find_suite
from lobench.engine.config.space_syntax import (
    RENAMED_KEYS,
    SEARCH_KEYS,
    check_spaces,
    effective_bindings,
    is_of_search,
    is_space,
    race_of,
    search_of,
    space_of,
)
from lobench.engine.config.syntax import (
    Binding,
    Import,
    Reference,
    Statement,
    binding_text,
    case_scopes,
    gin_text,
    last_name,
    only_bindings,
    parse_file,
    parse_text,
    statement_text,
)

__all__ = ["ExperimentFile", "chosen_methods", "is_experiment", "read_experiment"]

_COMMAND_FIELDS = ("checkpoints", "files", "num_cpus", "num_gpus")
# Further settings of scripts.
_SCRIPT_FIELDS = ("files", "num_cpus", "num_gpus", "metrics", "paired_seeds", "until_step")
_CURVE_FIELDS = (
    "metrics",
    "pattern",
    "case_from",
    "method_from",
    "seed_from",
    "paired_seeds",
    "until_step",
    "last_counts",
)
_OPTIMIZER_FIELDS = ("python",)
_METHOD_KEYS = (*METHOD_KINDS, "label", "knobs", *_OPTIMIZER_FIELDS, *_COMMAND_FIELDS, *_CURVE_FIELDS, *SEARCH_KEYS)
_EXPERIMENT_KEYS = tuple(field.name for field in fields(Experiment) if field.name != "methods")
_REFERENCES = {
    "optimizer": "a reference such as @adam()",
    "search": "a call such as @random()",
    "race": "@race()",
}
_PLACEHOLDERS = ("session", "folder", "out", "gin")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w./]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentFile:
    """An experiment file with the gin parameters over it.

    Attributes:
      path: Path of the file.
      experiment: The experiment.
      shared_lines: gin lines bound over the cases for every method: imports and `--gin-param`, and the root bindings of
        a file without cases.
      text: All statements, including those of included files and parameters, without comments.
    """

    path: Path
    text: str
    experiment: Experiment
    shared_lines: tuple[str, ...]

    @property
    def import_folders(self) -> tuple[str, ...]:
        """Folders in which workers search for modules and for Pythons of other environments."""
        folder = self.path.parent
        pythons = [method.python for method in self.experiment.methods if method.python]
        return tuple(dict.fromkeys((str(folder), *(portable_python(python, folder)[1] for python in pythons))))

    def method(self, name: str) -> Method:
        return next(method for method in self.experiment.methods if method.name == name)


def is_experiment(statements: Sequence[Statement]) -> bool:
    """Returns whether gin statements are an experiment: whether they bind `Method` or `Experiment`."""
    return any(binding.name in ("Experiment", "Method") for binding in only_bindings(statements))


def read_experiment(path: Path, gin_params: Sequence[str] = (), *, is_elsewhere: bool = False) -> ExperimentFile:
    """Reads an experiment.

    Args:
      path: Path of the file.
      gin_params: Lines bound after those of the file.
      is_elsewhere: Whether the experiment ran on another machine. Checkpoints, files of curves and environments of
        methods need not exist then, and methods in another environment lack the bindings of the environment.
    Raises:
      ConfigError: A line is not used by anything, a method has no subject or two, a method binds a field that must be
        equal for all methods, a checkpoint or command is missing, or there is no case.
    """
    path = path.resolve()
    file_statements = parse_file(path)
    param_statements = [statement for text in gin_params for statement in parse_text(text, f"--gin-param {text!r}")]
    statements = [*file_statements, *param_statements]
    bindings = only_bindings(statements)
    own_cases = case_scopes(statements)
    experiment = _read_experiment_fields(path, bindings, has_cases=bool(own_cases))
    names = _method_names(bindings)
    _check_names(names, own_cases, path)
    reach = ReferenceGraph(
        bindings, suite_statements([Path(suite) for suite in experiment.suites if Path(suite) != path])
    )
    _check_scopes(bindings, reach)
    check_spaces(bindings, names)
    methods = tuple(_read_method(name, bindings, path.parent, experiment.fixed, reach, is_elsewhere) for name in names)
    _check_labels(methods, path)
    _check_pythons(methods, path)
    kinds = {method.kind for method in methods}
    if not experiment.suites and (kinds - {"script", "curves"} or kinds == {"curves"}):
        raise _no_case_error(path)
    if experiment.race is not None:
        _check_race(replace(experiment, methods=methods), path)
    shared_statements = [
        candidate
        for candidate in file_statements
        if _applies_to_all(candidate, names, bindings, has_cases=bool(own_cases))
    ]
    shared_statements += [
        candidate for candidate in param_statements if _applies_to_all(candidate, names, bindings, has_cases=False)
    ]
    return ExperimentFile(
        path=path,
        text="".join(f"{statement_text(statement)}\n" for statement in statements),
        experiment=replace(experiment, methods=methods),
        shared_lines=tuple(dict.fromkeys(map(statement_text, shared_statements))),
    )


def chosen_methods(experiment: Experiment, names: Sequence[str]) -> tuple[Method, ...]:
    """Returns the methods with given names; all methods without names.

    Raises:
      UsageError: The experiment has no method of a given name.
    """
    methods = {method.name: method for method in experiment.methods}
    for name in names:
        if name not in methods:
            raise UsageError(
                f"unknown method {name!r}",
                where="--method",
                expected="one of " + ", ".join(methods),
                next_step=suggestion(name, methods),
            )
    return tuple(method for method in experiment.methods if not names or method.name in names)


def _is_outside_cases(binding: Binding, methods: Sequence[str], bindings: Sequence[Binding]) -> bool:
    """Returns whether a binding belongs to the experiment, a method or a search, rather than to a case."""
    is_of_method = binding.name in ("Experiment", "Method") or binding.scope.split("/")[0] in methods
    return is_of_method or is_of_search(binding, bindings)


def _applies_to_all(
    statement: Statement, methods: Sequence[str], bindings: Sequence[Binding], *, has_cases: bool
) -> bool:
    """Returns whether a statement applies to every suite, such as an import or a macro."""
    if isinstance(statement, Import):
        return True
    return not _is_outside_cases(statement, methods, bindings) and not (has_cases and statement.parameter)


def _read_experiment_fields(path: Path, bindings: Sequence[Binding], *, has_cases: bool) -> Experiment:
    values: dict[str, Any] = {"name": path.stem}
    for binding in bindings:
        if binding.name != "Experiment":
            continue
        key = binding.parameter
        if binding.scope or key not in _EXPERIMENT_KEYS:
            problem = f"nothing reads {binding_text(binding).split(' = ')[0]}"
            advice = _similar_key_advice(binding)
            expected = (
                "" if advice else "one of " + ", ".join(f"Experiment.{known_key}" for known_key in _EXPERIMENT_KEYS)
            )
            raise ConfigError(problem, where=binding.where, expected=expected, next_step=advice)
        _check_value("Experiment", key, binding)
        values[key] = tuple(binding.value) if isinstance(binding.value, list | tuple) else binding.value
    try:
        suites = [str(find_suite(suite, path.parent).resolve()) for suite in values.get("suites", ())]
    except UsageError as error:
        problem = f"Experiment.suites: {error.what}"
        raise ConfigError(problem, where=str(path), got=repr(error.where), next_step=error.next_step) from error
    if has_cases:
        suites.append(str(path))
    if not values["name"].strip() or "/" in values["name"]:
        raise ConfigError("Experiment.name", where=str(path), got=repr(values["name"]), expected="a name of a folder")
    return Experiment(**{**values, "suites": tuple(suites), "race": race_of(bindings)})


def _similar_key_advice(binding: Binding) -> str:
    """Returns advice for an unknown `Experiment` parameter: the binding that was probably meant; "" if unclear."""
    key = binding.parameter
    if key in _EXPERIMENT_KEYS:
        return f"write Experiment.{key} without a scope"
    if difflib.get_close_matches(key, ("num_seeds", "seeds"), cutoff=0.8):
        return "did you mean 'num_sessions' (the number of seeds)?"
    if similar_keys := difflib.get_close_matches(key, _EXPERIMENT_KEYS, n=1):
        return f"did you mean '{similar_keys[0]}'?"
    if key in {field.name for field in fields(Case)}:
        return f"it is a setting of cases: write Case.{key}, or in the suite's file"
    return ""


def _no_case_error(path: Path) -> ConfigError:
    return ConfigError(
        "the experiment has no case",
        where=str(path),
        expected="Experiment.suites, or a scope that binds Case.task or Case.command",
        next_step='write `Experiment.suites = ["suites/quick"]`; paths are relative to the file; "quick" is ours',
    )


def _check_value(kind: str, key: str, binding: Binding) -> None:
    value = binding.value
    if key in _REFERENCES:
        is_valid = isinstance(value, Reference) and (value.evaluate or key == "optimizer")
        expected = "" if is_valid else _REFERENCES[key]
    else:
        expected = expected_value_text(key, value)
    if expected:
        raise ConfigError(f"{kind}.{key}", where=binding.where, got=gin_text(value), expected=expected)


def _method_names(bindings: Sequence[Binding]) -> list[str]:
    names: dict[str, None] = {}
    for binding in bindings:
        if binding.name != "Method":
            continue
        if not binding.scope or "/" in binding.scope:
            raise ConfigError(
                "a method is a scope",
                where=binding.where,
                got=binding_text(binding).split(" = ")[0],
                expected="a line such as `adam/Method.optimizer = @adam()`",
            )
        names[binding.scope] = None
    return list(names)


def _check_names(names: Sequence[str], cases: Sequence[str], path: Path) -> None:
    if not names:
        next_step = ""
        if cases:
            next_step = (
                f"if it is a suite, name it in Experiment.suites, or in `lobench compare A B --suite {path.name}`"
            )
        raise ConfigError(
            "the experiment has no method",
            where=str(path),
            expected="a scope that binds Method.optimizer, Method.checkpoint, Method.command or Method.curves",
            next_step=next_step,
        )
    if ambiguous_names := sorted(set(names) & set(cases)):
        raise ConfigError(
            "a scope is a method and a case", where=str(path), got=repr(ambiguous_names[0]), next_step="rename one"
        )


def _check_scopes(bindings: Sequence[Binding], reach: ReferenceGraph) -> None:
    """Raises ConfigError for bindings in scopes that are never entered."""
    for binding in bindings:
        outer_scope = binding.scope.split("/")[0]
        similar_names = difflib.get_close_matches(binding.name, ("Experiment", "Method"), n=1, cutoff=0.8)
        is_key = binding.parameter in (*_METHOD_KEYS, *_EXPERIMENT_KEYS)
        if binding.name not in ("Experiment", "Method") and similar_names and is_key:
            raise ConfigError(
                f"nothing reads {binding.name}", where=binding.where, next_step=f"did you mean {similar_names[0]!r}?"
            )
        if outer_scope and outer_scope not in reach.scopes:
            advice = f"a method has a line such as `{outer_scope}/Method.optimizer = @adam()`"
            raise unread_scope_error(binding, "neither a method nor a case", reach.scopes, advice)


def _read_method(
    name: str,
    bindings: Sequence[Binding],
    folder: Path,
    fixed: Sequence[str],
    reach: ReferenceGraph,
    is_elsewhere: bool,
) -> Method:
    key_bindings = [binding for binding in bindings if binding.name == "Method" and binding.scope == name]
    scoped_bindings = [
        binding for binding in bindings if binding.scope.split("/")[0] == name and binding.name != "Method"
    ]
    own_bindings = effective_bindings(
        [method_binding for method_binding in scoped_bindings if not is_of_search(method_binding, bindings)]
    )
    values = _method_values(name, key_bindings)
    search = values.pop("search", None)
    if "optimizer" in values and not isinstance(values["optimizer"], str):
        values["optimizer"] = gin_text(replace(values["optimizer"], evaluate=True))
    where = key_bindings[0].where
    method = Method(name=name, **values)
    if method.checkpoint and "://" not in method.checkpoint:
        checkpoint = Path(os.path.normpath(folder / Path(method.checkpoint).expanduser()))
        if not (is_elsewhere or checkpoint.exists()):
            raise ConfigError(f"method {name!r}: no such checkpoint", where=where, got=str(checkpoint))
        method = replace(method, checkpoint=str(checkpoint))
    if method.command:
        _check_command(method, [_path_in_scope(name, binding) for binding in own_bindings], folder, where)
    if method.kind == "curves" and not is_elsewhere:
        method = replace(method, curves=_files_of_curves(method, folder, where))
    if method.python and not is_elsewhere:
        where_python = next(
            method_binding.where for method_binding in key_bindings if method_binding.parameter == "python"
        )
        own_bindings += _environment_bindings(method, own_bindings, folder, where_python)
    method = replace(method, space=space_of(name, own_bindings, bindings))
    knobs = _bindings_by_knob(method, key_bindings, is_searched=search is not None)
    method_bindings = [*own_bindings, *(binding for knob in knobs for binding in knob)]
    bindings_read = [] if method.curves else reach.bindings_read_by(method, method_bindings)
    for binding in method_bindings:
        if field := reach.fixed_field(binding, fixed):
            raise ConfigError(
                f"method {name!r} binds {field}, which must be equal for all methods",
                where=binding.where,
                next_step="allow it with Experiment.fixed = []",
            )
        path = _path_in_scope(name, binding)
        if binding not in bindings_read and not {"gin", path} & {*_PLACEHOLDER.findall(method.command)}:
            problem = f"nothing reads {path} of method {name!r}"
            if is_space(binding.value):
                problem = f"method {name!r}: {gin_text(binding.value)} is bound to {path}, which nothing reads"
            next_step = _unread_advice(method, binding) or suggestion(
                binding.name, reach.reachable_names(method, own_bindings)
            )
            raise ConfigError(problem, where=binding.where, next_step=next_step)
    return replace(
        method,
        search=search_of(method, search, key_bindings, own_bindings, bindings),
        knobs=tuple("; ".join(_line_without_scope(name, binding) for binding in knob) for knob in knobs),
        bindings=tuple(_line_without_scope(name, binding) for binding in bindings_read if binding in own_bindings),
        trainer_bindings=tuple(_line_without_scope(name, binding) for binding in own_bindings),
    )


def _bindings_by_knob(method: Method, key_bindings: Sequence[Binding], *, is_searched: bool) -> list[list[Binding]]:
    """Returns the bindings of each knob, in the method's scope."""
    where = {key_binding.parameter: key_binding.where for key_binding in key_bindings}.get("knobs", "")
    if method.knobs and (method.kind not in ("optimizer", "checkpoint") or is_searched):
        got = "Method.search" if is_searched else f"Method.{method.kind}"
        raise ConfigError(
            f"nothing reads {method.name}/Method.knobs",
            where=where,
            got=got,
            expected="an optimizer or a checkpoint with all its settings",
        )
    knobs = list[list[Binding]]()
    knob_by_path = dict[str, str]()
    for text in method.knobs:
        knob_location = f"{where}: knob {text!r}"
        knob = parse_text(text.replace(";", "\n"), knob_location)
        if not knob or any(isinstance(statement, Import) for statement in knob):
            raise ConfigError(
                "a knob binds values, and nothing else", where=knob_location, expected="'adam.b1 = 0.8', say"
            )
        scoped_bindings = [
            replace(binding, scope=f"{method.name}/{binding.scope}".rstrip("/")) for binding in only_bindings(knob)
        ]
        check_spaces(scoped_bindings, ())
        for binding in scoped_bindings:
            path = _path_in_scope(method.name, binding)
            if path in knob_by_path:
                raise ConfigError(
                    f"{path} is bound twice",
                    where=knob_location,
                    got=f"{knob_by_path[path]!r} too",
                    next_step="a setting is in one knob",
                )
            knob_by_path[path] = text
        knobs.append(scoped_bindings)
    return knobs


def _unread_advice(method: Method, binding: Binding) -> str:
    if method.command:
        return "put {gin} into its command, which hands it the method's bindings, or {NAME} of one of them"
    name = last_name(method.optimizer.strip("@()"))
    is_misspelt = name != binding.name and suggestion(binding.name, [name])
    return f"its optimizer is {method.optimizer}{f', not @{binding.name}()' if is_misspelt else ''}" if name else ""


def _line_without_scope(name: str, binding: Binding) -> str:
    return binding_text(binding, binding.scope.removeprefix(name).removeprefix("/"))


def _path_in_scope(name: str, binding: Binding) -> str:
    return _line_without_scope(name, binding).split(" = ")[0]


def _method_values(name: str, keys: Sequence[Binding]) -> dict[str, Any]:
    """Returns the values of `Method.*` in one scope. Later bindings, by other files or parameters, take precedence."""
    values: dict[str, Any] = {}
    files: dict[str, str] = {}
    for binding in keys:
        key = binding.parameter
        if key not in _METHOD_KEYS:
            next_step = suggestion(key, _METHOD_KEYS)
            if key in RENAMED_KEYS:
                next_step = f"it is Method.{RENAMED_KEYS[key]} now"
            expected = ", ".join(f"Method.{known_key}" for known_key in _METHOD_KEYS)
            problem = f"nothing reads {name}/Method.{key}"
            raise ConfigError(problem, where=binding.where, expected=expected, next_step=next_step)
        file = binding.where.rsplit(":", 1)[0]
        if key in METHOD_KINDS and files.get(key) == file and not file.startswith("--gin-param"):
            raise ConfigError(f"two methods are called {name!r}", where=binding.where, next_step="rename one")
        files[key] = file
        _check_value(f"{name}/Method", key, binding)
        values[key] = binding.value
    subject_keys = [key for key in METHOD_KINDS if key in values]
    kind = "script" if subject_keys == ["command", "curves"] else next(iter(subject_keys), "")
    if len(subject_keys) != 1 and kind != "script":
        problem = f"method {name!r} has {' and '.join(subject_keys)}: one is its subject"
        next_step = ""
        if not subject_keys:
            problem = f"method {name!r} has settings and nothing to evaluate"
            next_step = f"bind {name}/Method.optimizer = @adam(), for example"
        expected = "one of " + ", ".join(f"Method.{kind}" for kind in METHOD_KINDS)
        raise ConfigError(problem, where=keys[0].where, expected=expected, next_step=next_step)
    kind_by_key = dict.fromkeys(_COMMAND_FIELDS, "command") | dict.fromkeys(_CURVE_FIELDS, "curves")
    kind_by_key |= dict.fromkeys(_OPTIMIZER_FIELDS, "optimizer")
    for key in values:
        is_searched = key in SEARCH_KEYS and kind == "curves"
        is_read = (
            key in _SCRIPT_FIELDS if kind == "script" and key in kind_by_key else kind == kind_by_key.get(key, kind)
        )
        if is_searched or not is_read:
            case_hint = f"; cases have Case.{key}" if "num" in key else ""
            next_step = f"only methods with Method.{kind_by_key.get(key)} have it{case_hint}"
            if is_searched:
                next_step = "curves are not searched"
            where = next(key_binding.where for key_binding in keys if key_binding.parameter == key)
            raise ConfigError(f"nothing reads {name}/Method.{key}", where=where, next_step=next_step)
    return values


def _environment_bindings(method: Method, own_bindings: Sequence[Binding], folder: Path, where: str) -> list[Binding]:
    """Returns the bindings of another environment for a method's optimizer: its Python, and the installed package."""
    scope, _, selector = method.optimizer.strip("@()").rpartition("/")
    optimizer_names = [
        binding.value
        for binding in own_bindings
        if binding.name == selector.rpartition(".")[2] and binding.parameter == "optimizer"
    ]
    package = str(optimizer_names[-1] if optimizer_names else selector).split(".")[0].split(":")[0]
    if "." not in selector and not optimizer_names:
        raise ConfigError(
            f"method {method.name!r}: {method.optimizer} is not an optimizer of another environment",
            where=where,
            expected="@torch.optim.NAME(), @package.NAME(), or @torch_optimizer() with torch_optimizer.optimizer",
        )
    python = python_at(method.python, folder, where)
    values = {"python": portable_python(method.python, folder)[0], "library": library_at(python, package, where)}
    scope = "/".join(filter(None, (method.name, scope)))
    return [
        Binding(scope=scope, selector=selector, parameter=key, value=value, where=where)
        for key, value in values.items()
    ]


def _files_of_curves(method: Method, folder: Path, where: str) -> str:
    """Returns the absolute pattern of a method's files of curves. At least one file must match it."""
    pattern, separator, name = method.curves.partition("#")
    absolute_pattern = os.path.normpath(folder / Path(pattern).expanduser())
    if not glob.glob(absolute_pattern, recursive=True):
        raise ConfigError(f"method {method.name!r}: no such file of curves", where=where, got=absolute_pattern)
    return absolute_pattern + separator + name


def _check_command(method: Method, paths: Sequence[str], folder: Path, where: str) -> None:
    try:
        words = shlex.split(method.command)
    except ValueError as error:
        raise ConfigError(f"method {method.name!r}: no command line", where=where, got=str(error)) from error
    placeholders = (*_PLACEHOLDERS, *paths)
    for name in _PLACEHOLDER.findall(f"{method.command} {method.curves}"):
        if name not in placeholders:
            raise ConfigError(
                f"method {method.name!r}: unknown placeholder {{{name}}} in its command",
                where=where,
                expected=", ".join(f"{{{placeholder}}}" for placeholder in placeholders),
                next_step=suggestion(name, placeholders) or f"bind {method.name}/{name} = 0.1, for example",
            )
    output, writes = ("{out}", "curves") if method.curves else ("{folder}", "checkpoints")
    file = "a file below the folder that a session has for itself, such as '{out}/curves.jsonl'"
    for text, clause, expected in (
        (method.command, "command does", f"the folder where it writes {writes} among its arguments"),
        (method.curves, "curves do", file),
    ):
        if text and not {"out", "folder"} & {*_PLACEHOLDER.findall(text)}:
            problem = f"method {method.name!r}: its {clause} not say {output}"
            raise ConfigError(problem, where=where, expected=expected)
    method_label = f"method {method.name!r}"
    check_no_shell_syntax(method.command, method_label, where)
    if not words or command_path(words[0], folder) is None:
        raise ConfigError(f"{method_label}: the command is not found", where=where, got=repr(words[:1][0]))


def command_path(word: str, folder: Path) -> str | None:
    """Returns the path of the program that a command's first word names. `python` is the Python that runs lobench."""
    if word == "python":
        return sys.executable
    return shutil.which(str(folder / word)) if "/" in word else shutil.which(word)


def _check_race(experiment: Experiment, path: Path) -> None:
    """Raises ConfigError if the methods cannot race: a race pairs seeds of single subjects on equal cases."""
    where = f"{path}: Experiment.race"
    if len(experiment.methods) < 2:
        raise ConfigError("a race takes two methods or more", where=where, got=experiment.methods[0].name)
    if tuple(experiment.fixed) != Experiment().fixed:
        raise ConfigError("a race needs cases that are equal for all methods", where=where, got="Experiment.fixed")
    for method in experiment.methods:
        if method.kind not in ("optimizer", "checkpoint") or method.search is not None:
            got = "Method.command" if method.command else "Method.curves"
            if method.search is not None:
                got = "Method.search"
            expected = "optimizers and checkpoints with all their settings"
            raise ConfigError(f"method {method.name!r} does not race", where=where, got=got, expected=expected)


def _check_pythons(methods: Sequence[Method], path: Path) -> None:
    """Raises ConfigError if two environments differ only in the parts of their paths that identities leave out."""
    folders: dict[str, str] = {}
    for method in (method for method in methods if method.python):
        text, folder = portable_python(method.python, path.parent)
        if folders.setdefault(text, folder) != folder:
            raise ConfigError(
                f"two environments are called {text!r}",
                where=str(path),
                got=f"in {folders[text]} and {folder}",
                next_step="rename one of their folders",
            )


def _check_labels(methods: Sequence[Method], path: Path) -> None:
    names_by_label: dict[str, str] = {}
    for method in methods:
        if (first_name := names_by_label.setdefault(method.title, method.name)) != method.name:
            raise ConfigError(
                f"methods {first_name!r} and {method.name!r} have the same label",
                where=str(path),
                got=repr(method.title),
                next_step="give one another Method.label",
            )

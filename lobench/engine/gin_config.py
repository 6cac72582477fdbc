"""Binds a case: layers of gin text become a `Case` and the hashes that identify it, gin's own state left as it was."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gin
import gin.config as gin_state

from lobench.core.case import Case, CaseInfo, CaseSpec, Expectations
from lobench.core.checkpoint import OWN_BINDINGS
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.headline import headline
from lobench.engine.gin_isolation import isolated_gin
from lobench.engine.gin_reach import bindings_in, task_lines, walk
from lobench.engine.gin_syntax import Binding, Import, Macro, Reference, Statement, parse_file, parse_text
from lobench.engine.layers import Layers

__all__ = ["BoundCase", "bind_case"]

_CASE = gin.external_configurable(Case, name="Case", module="lobench")
_EXPECT = gin.external_configurable(Expectations, name="expect", module="lobench")
_OPTIMIZER_FIELDS = ("learned_optimizer", "optimizer")
# Which seeds is part of an evaluation's identity, not of the case's; how it is scored is part of neither.
_NO_IDENTITY = ("first_seed", "scale", "minimum")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCase:
    """A case with its values.

    Attributes:
      case: Its tasks and optimizers are None unless it was built.
      expectations: Of a bare `.gin` case.
      identity, optimizer_hash, problem: sha256 (hex), as in `CaseInfo`.
      bindings: Every binding reached from the case, one a line.
      optimizer_bindings: Those of them that are reached from its optimizer.
    """

    spec: CaseSpec
    case: Case
    expectations: Expectations
    identity: str
    optimizer_hash: str
    problem: str
    bindings: str
    optimizer_bindings: str
    has_optimizer: bool

    def require_optimizer(self) -> None:
        """Raises ConfigError where no layer binds an optimizer."""
        if not self.has_optimizer:
            raise ConfigError(
                "no optimizer",
                where=self.spec.path,
                next_step="put `Case.learned_optimizer = @...()` into the config.gin beside the checkpoints, or give "
                "it with --gin-param (watch), --lobench-gin-param or --lobench-optimizer (pytest)",
            )

    def info(self, *, node_id: str, name: str | None = None) -> CaseInfo:
        case = self.case
        return CaseInfo(
            identity=self.identity,
            optimizer_hash=self.optimizer_hash,
            suite=self.spec.suite,
            name=name or self.spec.scope,
            node_id=node_id,
            num_inner_steps=case.num_inner_steps,
            num_seeds=case.num_seeds,
            seed_block=case.seed_block,
            primary_metric=case.primary_metric,
            num_cpus=case.num_cpus,
            num_gpus=case.num_gpus,
            timeout_seconds=case.timeout_seconds,
            first_seed=case.first_seed,
            problem=self.problem,
            scale=case.scale,
            minimum=case.minimum,
        )


def bind_case(spec: CaseSpec, layers: Layers, *, test: str = "", build: bool = True) -> BoundCase:
    """Binds one case.

    Args:
      spec: Where the case is written.
      layers: What is bound before and after the case's own file.
      test: Name of the test function, part of the identity.
      build: Whether to construct task and optimizer; without, only plain values are set.
    Raises:
      ConfigError: an unknown name (with a suggestion), an unknown parameter, a value out of range, a failing
        constructor.
    """
    with isolated_gin(str(Path(spec.path).parent), spec.root):
        for module in layers.gin_modules:
            _import(Import(module=module, where="gin modules of the plugins"))
        if layers.trainer_config:
            _bind_trainer_config(Path(layers.trainer_config))
        if layers.own_bindings:
            _bind_values(parse_text(layers.own_bindings, f"the checkpoint's {OWN_BINDINGS}"))
        _bind_strictly(parse_file(Path(spec.path)))
        if layers.optimizer:
            _bind_overrides(_optimizer_statements(layers.optimizer))
        for path in layers.gin_files:
            _bind_overrides(parse_file(Path(path)))
        for text in layers.gin_params:
            _bind_overrides(parse_text(text, f"--gin-param {text!r}"))
        where = f"{spec.path}: case {spec.scope!r}"
        reached_case, reached_optimizer = _reached(spec.scope, where)
        identity = _sha256(spec.relative_path, spec.scope, test, *reached_case)
        optimizer_hash = _sha256(*reached_optimizer)
        case = _build(spec.scope, where) if build else _plain_case(spec.scope, where)
        with gin.config_scope(spec.scope):
            expectations = _EXPECT()
    _check(case, where)
    return BoundCase(
        spec=spec,
        case=case,
        expectations=expectations,
        identity=identity,
        optimizer_hash=optimizer_hash,
        problem=_sha256(
            f"{case.num_inner_steps} {case.num_tasks} {case.eval_batches}", *task_lines(spec.scope, reached_case)
        ),
        bindings="\n".join((*reached_case, *reached_optimizer)),
        optimizer_bindings="\n".join(reached_optimizer),
        has_optimizer=bool(reached_optimizer),
    )


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _optimizer_statements(text: str) -> list[Statement]:
    """Parses `--optimizer`: a gin file, bindings, or a bare `@adam()` or `adam()`; `;` separates."""
    if text.endswith(".gin"):
        return parse_file(Path(text))
    lines = [part.strip() for part in text.replace(";", "\n").splitlines() if part.strip()]
    lines = [f"Case.optimizer = @{line.lstrip('@')}" if "=" not in line else line for line in lines]
    return parse_text("\n".join(lines), f"--optimizer {text!r}")


def _import(statement: Import) -> None:
    try:
        importlib.import_module(statement.module)
    except LobenchError:
        raise
    except Exception as error:
        line = headline(error)
        raise ConfigError(
            f"cannot import {statement.module!r}",
            where=statement.where,
            got=line,
            next_step="the suite's folder, its parent and the installed packages are searched",
        ) from error


def _known_names() -> list[str]:
    return sorted({selector.rsplit(".", 1)[-1] for selector, _ in gin_state._REGISTRY.items()})


def _complete_selector(selector: str, where: str) -> str:
    try:
        configurable = gin_state._REGISTRY.get_match(selector)
    except KeyError as error:
        raise ConfigError(f"{selector!r} is ambiguous", where=where, got=str(error.args[0])) from error
    if configurable is None:
        name = selector.rsplit(".", 1)[-1]
        close = difflib.get_close_matches(name, _known_names(), n=1)
        raise ConfigError(
            f"unknown name {selector!r}",
            where=where,
            next_step=(f"did you mean {close[0]!r}? " if close else "is an `import` missing in the gin file? ")
            + "`lobench list tasks` and `lobench list optimizers` show all",
        )
    return str(configurable.selector)


def _has_parameter(selector: str, parameter: str) -> bool:
    return bool(gin_state._might_have_parameter(gin_state._REGISTRY.get_match(selector).wrapper, parameter))


def _to_gin(value: Any, where: str) -> Any:
    """Replaces syntactic references by gin's own."""
    if isinstance(value, Reference):
        _complete_selector(value.selector, where)
        return gin_state.ConfigurableReference(value.scoped_selector, value.evaluate)
    if isinstance(value, Macro):
        return gin_state.ParserDelegate().macro(value.name)
    if isinstance(value, dict):
        return {_to_gin(key, where): _to_gin(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_to_gin(item, where) for item in value)
    return value


def _bind(binding: Binding) -> None:
    if not binding.parameter:
        name = f"{binding.scope}/{binding.selector}" if binding.scope else binding.selector
        gin.bind_parameter((name, "gin.macro", "value"), _to_gin(binding.value, binding.where))
        return
    selector = _complete_selector(binding.selector, binding.where)
    if not _has_parameter(selector, binding.parameter):
        names = list(inspect.signature(gin_state._REGISTRY.get_match(selector).wrapped).parameters)
        close = difflib.get_close_matches(binding.parameter, names, n=1)
        raise ConfigError(
            f"{binding.selector!r} has no parameter {binding.parameter!r}",
            where=binding.where,
            expected=", ".join(names),
            next_step=f"did you mean {close[0]!r}?" if close else "",
        )
    gin.bind_parameter((binding.scope, selector, binding.parameter), _to_gin(binding.value, binding.where))


def _bind_strictly(statements: Sequence[Statement]) -> None:
    for statement in statements:
        if isinstance(statement, Import):
            _import(statement)
    for statement in statements:
        if isinstance(statement, Binding):
            _bind(statement)


def _bind_overrides(statements: Sequence[Statement]) -> None:
    """Binds a layer whose unscoped bindings also beat scoped ones of the same parameter."""
    _bind_strictly([statement for statement in statements if isinstance(statement, Import)])
    for statement in statements:
        if not isinstance(statement, Binding):
            continue
        _bind(statement)
        if statement.parameter and not statement.scope:
            selector = _complete_selector(statement.selector, statement.where)
            for (scope, other), parameters in gin_state._CONFIG.items():
                if scope and other == selector:
                    parameters.pop(statement.parameter, None)


def _bind_values(statements: Sequence[Statement]) -> None:
    """Binds what we know of a checkpoint's own bindings, which are data: they import nothing and build nothing."""
    for statement in statements:
        is_plain = isinstance(statement, Binding) and bool(statement.parameter) and not statement.scope
        if not is_plain or not isinstance(getattr(statement, "value", None), bool | int | float | str):
            raise ConfigError(
                "a checkpoint's own binding", where=statement.where, expected="`Name.parameter = number, text or bool`"
            )
        assert isinstance(statement, Binding)
        with contextlib.suppress(ConfigError):
            _bind(statement)


def _bind_trainer_config(path: Path) -> None:
    """Binds what we know of a trainer's configuration; its optimizer for evaluations, if it names one, strictly."""
    statements = parse_file(path)
    optimizer: Binding | None = None
    for statement in statements:
        if isinstance(statement, Import):
            with contextlib.suppress(ConfigError):
                _import(statement)
            continue
        selector = statement.selector.rsplit(".", 1)[-1]
        if (selector, statement.parameter) == ("eval_chief_config", "learned_opt"):
            optimizer = optimizer or statement
        elif (selector, statement.parameter) == ("Case", "learned_optimizer"):
            optimizer = statement
        else:
            with contextlib.suppress(ConfigError):
                _bind(statement)
    if optimizer is not None:
        _bind(
            Binding(
                scope="",
                selector="lobench.Case",
                parameter="learned_optimizer",
                value=optimizer.value,
                where=optimizer.where,
            )
        )


def _reached(scope: str, where: str) -> tuple[list[str], list[str]]:
    """Returns the bindings reached from the case, and from its optimizer, as canonical lines."""
    bindings = bindings_in(scope, "lobench.Case")
    if "task" not in bindings:
        raise ConfigError("the scope binds no Case.task", where=where, expected="a line such as `x/Case.task = @T()`")
    groups: list[list[str]] = []
    for keep in (False, True):
        lines: dict[str, None] = {}
        names = [name for name in bindings if (name in _OPTIMIZER_FIELDS) == keep and name not in _NO_IDENTITY]
        chosen = {name: bindings[name] for name in names}
        walk(scope, "lobench.Case", chosen, lines, set())
        groups.append(list(lines))
    case_lines, optimizer_lines = groups
    expected = bindings_in(scope, "lobench.expect")
    case_lines += [f"expect.{name} = {value!r}" for name, value in sorted(expected.items())]
    # The scope of the case must not part optimizers that are the same: cases compare across optimizers and back.
    prefix = f"{scope}/"
    return case_lines, sorted(line.removeprefix(prefix) for line in optimizer_lines)


def _plain(value: Any) -> Any:
    """Resolves macros; leaves any other reference out (None)."""
    if isinstance(value, gin_state.ConfigurableReference):
        if value.configurable.selector == "gin.macro":
            return _plain(gin_state._CONFIG.get(("/".join(value.scopes), "gin.macro"), {}).get("value"))
        return None
    return value


def _plain_case(scope: str, where: str) -> Case:
    bindings = {name: _plain(value) for name, value in bindings_in(scope, "lobench.Case").items()}
    try:
        return Case(**{name: value for name, value in bindings.items() if name not in ("task", *_OPTIMIZER_FIELDS)})
    except TypeError as error:
        raise ConfigError(str(error), where=where) from error


def _build(scope: str, where: str) -> Case:
    try:
        with gin.config_scope(scope):
            case = _CASE()
    except LobenchError as error:
        # gin raises a subclass of its own making, whose text has a second line on where gin was.
        raise ConfigError(str(error).strip().splitlines()[0], where=where) from error
    except Exception as error:
        line = headline(error)
        raise ConfigError("cannot build the case", where=where, got=line) from error
    assert isinstance(case, Case)
    return case


def _check(case: Case, where: str) -> None:
    """Refuses numbers that no program can be made from."""
    rules: tuple[tuple[str, int, bool], ...] = (
        ("num_inner_steps", 1, False),
        ("num_seeds", 1, False),
        ("first_seed", 0, False),
        ("seed_block", 1, True),
        ("num_tasks", 1, False),
        ("eval_every", 1, False),
        ("log_every", 0, False),
        ("eval_batches", 1, False),
        ("num_cpus", 1, False),
    )
    for name, lowest, optional in rules:
        value = getattr(case, name)
        if optional and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
            raise ConfigError(f"Case.{name}", where=where, got=repr(value), expected=f"an integer >= {lowest}")
    if case.scale not in (None, "log", "linear"):
        raise ConfigError("Case.scale", where=where, got=repr(case.scale), expected="'log' or 'linear'")
    low = case.minimum
    if low is not None and (isinstance(low, bool) or not isinstance(low, int | float) or not math.isfinite(low)):
        raise ConfigError("Case.minimum", where=where, got=repr(low), expected="a finite number")
    gpus = case.num_gpus
    is_number = isinstance(gpus, int | float) and not isinstance(gpus, bool)
    if not is_number or not (0 <= gpus <= 1 or (gpus > 1 and float(gpus).is_integer())):
        expected = "a share of one device, or a whole number"
        raise ConfigError("Case.num_gpus", where=where, got=repr(gpus), expected=expected)
    if not isinstance(case.timeout_seconds, int | float) or not case.timeout_seconds > 0:
        raise ConfigError("Case.timeout_seconds", where=where, got=repr(case.timeout_seconds), expected="seconds > 0")

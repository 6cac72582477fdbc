"""Validity checks of a case: impossible numbers and contradictions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from lobench.core.case import HEADLINES, REPLICATES, ROLES, SESSIONS, Case, Expectations, Suite
from lobench.core.errors import ConfigError, suggestion, with_parts
from lobench.core.metric import EVALUATED_SPLITS
from lobench.core.number_checks import DEVICE_SHARE, is_device_share, is_integer, is_number, require_integer

__all__ = ["check_case", "role_of"]


def check_case(case: Case, expectations: Expectations, where: str) -> None:
    """Raises ConfigError, with the name of the case, if its values are invalid."""
    if inspect.isclass(case.task) or inspect.isroutine(case.task):
        kind = "class" if inspect.isclass(case.task) else "function"
        name = case.task.__name__
        raise ConfigError(f"Case.task is the {kind} {name}, not called", where=where, next_step=f"write @{name}()")
    _check_numbers(case, where)
    _check_expectations(expectations, where)
    _check_sessions(case, where)
    _check_is_evaluated(case, expectations, where)
    if callable(check := getattr(case.task, "check_case", None)):
        try:
            check(case)
        except ConfigError as error:
            raise with_parts(error, ConfigError, where=where) from None


def role_of(suite: Suite, bindings: Mapping[str, Any], where: str) -> str:
    """Returns the role of a case for its optimizer, which is named by `Case.learned_optimizer`.

    Raises:
      ConfigError: The suite has an unknown role or headline.
    """
    if suite.headline not in HEADLINES:
        expected = ", ".join(map(repr, HEADLINES))
        raise ConfigError("Suite.headline", where=where, got=repr(suite.headline), expected=expected)
    if not isinstance(suite.roles, dict):
        expected = 'roles by the names of learned optimizers: {"Celo": "meta_train"}'
        raise ConfigError("Suite.roles", where=where, got=repr(suite.roles), expected=expected)
    if unknown_roles := [role for role in (suite.role or ROLES[0], *suite.roles.values()) if role not in ROLES]:
        got = repr(unknown_roles[0])
        expected = ", ".join(map(repr, ROLES))
        raise ConfigError(
            "Suite.role", where=where, got=got, expected=expected, next_step=suggestion(str(unknown_roles[0]), ROLES)
        )
    optimizer = bindings.get("learned_optimizer") or bindings.get("optimizer")
    return suite.role_for(getattr(optimizer, "selector", "").rpartition(".")[2])


def _check_is_evaluated(case: Case, expectations: Expectations, where: str) -> None:
    """Raises ConfigError if metrics of an evaluated split are used although `Case.eval_batches = 0`."""
    if case.eval_batches:
        return
    is_used_by_name = {
        "expect.max_final_test_loss": expectations.max_final_test_loss is not None,
        "expect.min_final_accuracy": expectations.min_final_accuracy is not None,
        f"Case.primary_metric = {case.primary_metric!r}": case.primary_metric.partition("/")[0] in EVALUATED_SPLITS,
    }
    if used_names := [name for name, is_used in is_used_by_name.items() if is_used]:
        raise ConfigError(
            f"{', '.join(used_names)}: Case.eval_batches = 0 evaluates nothing",
            where=where,
            expected="a value of a training batch, `train/NAME`",
            next_step="bind Case.eval_batches >= 1, or ask for another metric",
        )


def _check_expectations(expectations: Expectations, where: str) -> None:
    if type(expectations.no_divergence) is not bool:
        got = repr(expectations.no_divergence)
        raise ConfigError("expect.no_divergence", where=where, got=got, expected="True or False")
    for name in ("max_final_loss", "max_final_test_loss", "min_final_accuracy", "max_final", "min_final", "margin"):
        value = getattr(expectations, name)
        if value is not None and not (_is_finite(value) and (name != "margin" or value >= 0)):
            expected = "a number >= 0" if name == "margin" else "a finite number"
            raise ConfigError(f"expect.{name}", where=where, got=repr(value), expected=expected)


def _is_finite(value: object) -> bool:
    return is_number(value) and math.isfinite(value)


def _check_sessions(case: Case, where: str) -> None:
    """Checks the settings of replicas: unknown modes, and a missing or superfluous number of replicas."""
    if case.sessions not in SESSIONS:
        raise ConfigError(
            "Case.sessions",
            where=where,
            got=repr(case.sessions),
            expected=", ".join(map(repr, SESSIONS)),
            next_step=suggestion(str(case.sessions), SESSIONS),
        )
    if case.sessions == "apart" and case.num_lanes is not None:
        raise ConfigError(
            "Case.num_lanes: replicas that are apart share no parameters",
            where=where,
            got=repr(case.num_lanes),
            next_step="bind Case.sessions = 'shared', 'synced' or 'mean', or leave it out",
        )
    if case.sessions != "apart" and case.num_lanes is None:
        raise ConfigError(
            f"Case.sessions = {case.sessions!r} does not say how many replicas share the parameters",
            where=where,
            next_step="bind Case.num_lanes = 4, say; num_seeds counts such groups",
        )


def _check_numbers(case: Case, where: str) -> None:
    """Raises ConfigError for numbers that are out of range."""
    rules: tuple[tuple[str, int, bool], ...] = (
        ("save_every", 0, True),
        ("num_inner_steps", 1, False),
        ("num_seeds", 1, False),
        ("first_seed", 0, False),
        ("seed_block", 1, True),
        ("num_tasks", 1, False),
        ("num_lanes", 1, True),
        ("eval_every", 1, False),
        ("log_every", 0, False),
        ("eval_batches", 0, False),
        ("num_cpus", 1, False),
    )
    for name, lowest, is_optional in rules:
        value = getattr(case, name)
        if not (is_optional and value is None):
            require_integer(f"Case.{name}", value, at_least=lowest, where=where)
    if not isinstance(case.primary_metric, str):
        expected = "a name such as 'train/loss'"
        raise ConfigError("Case.primary_metric", where=where, got=repr(case.primary_metric), expected=expected)
    sizes = case.block_sizes
    if not isinstance(sizes, list | tuple) or not all(map(is_integer, sizes)):
        raise ConfigError("Case.block_sizes", where=where, got=repr(sizes), expected="integers >= 1")
    for name in ("keep_state", "time_gradient"):
        if not isinstance(value := getattr(case, name), bool):
            raise ConfigError(f"Case.{name}", where=where, got=repr(value), expected="True or False")
    if case.scale not in (None, "log", "linear"):
        raise ConfigError("Case.scale", where=where, got=repr(case.scale), expected="'log' or 'linear'")
    if case.replicates not in REPLICATES:
        expected = ", ".join(map(repr, REPLICATES))
        raise ConfigError("Case.replicates", where=where, got=repr(case.replicates), expected=expected)
    share = case.stop_after
    if share is not None and not (isinstance(share, float) and 0 < share < 1):
        raise ConfigError("Case.stop_after", where=where, got=repr(share), expected="a share between 0 and 1")
    minimum = case.minimum
    if minimum is not None and not _is_finite(minimum):
        raise ConfigError("Case.minimum", where=where, got=repr(minimum), expected="a finite number")
    num_gpus = case.num_gpus
    if not is_device_share(num_gpus):
        raise ConfigError("Case.num_gpus", where=where, got=repr(num_gpus), expected=DEVICE_SHARE)
    if not isinstance(case.timeout_seconds, int | float) or not case.timeout_seconds > 0:
        raise ConfigError("Case.timeout_seconds", where=where, got=repr(case.timeout_seconds), expected="seconds > 0")

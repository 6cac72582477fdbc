"""Names, settings and errors of torch optimizers.

This module does not import torch, so that a process whose optimizers are all in other environments works without it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = [
    "NEXT_STEP",
    "WRAPPED_ARGUMENTS",
    "ClassReference",
    "OptimizerClass",
    "OptimizerSpec",
    "RefusedOptimizer",
    "Settings",
    "StepResult",
    "class_of",
    "error_line",
    "explanation",
    "signature",
]

Settings: TypeAlias = Mapping[str, Any]
NEXT_STEP = "train with it in torch and import its curves: `lobench import`"
WRAPPED_ARGUMENTS = (
    "base",
    "base_optimizer",
    "inner",
    "inner_optimizer",
    "opt",
    "optimizer",
)  # first arguments of wrappers


class RefusedOptimizer(Exception):
    """An optimizer cannot be used.

    The exception has the parts of a `ConfigError`, because this module has to work without lobench.

    Args:
      what: The problem, in a few words.
      **parts: where, got, expected, next_step.
    """

    def __init__(self, what: str, **parts: str) -> None:
        super().__init__(what, parts)
        self.what, self.error_fields = what, parts


def class_of(import_path: str) -> Any:
    """Imports a class: "torch.optim.AdamW", "my_package.muon:Muon".

    Raises:
      RefusedOptimizer: torch is not installed, or the class does not exist.
    """
    module, _, name = import_path.partition(":") if ":" in import_path else import_path.rpartition(".")
    try:
        attribute_value: Any = importlib.import_module(module)
        for attribute in name.split("."):
            attribute_value = getattr(attribute_value, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise RefusedOptimizer(
            f"no such torch optimizer: {import_path!r}",
            got=str(error),
            expected="'torch.optim.NAME' or 'package:Class'",
        ) from error
    return attribute_value


@dataclass(frozen=True)
class OptimizerClass:
    """Facts about a class of optimizers that are needed before one is made.

    Attributes:
      first_argument: Name of its first argument; "" if unknown.
      takes_closure: Whether its `step` requires a function that computes the loss and the gradients.
      has_modes: Whether it has `train()` and `eval()`.
    """

    first_argument: str
    takes_closure: bool
    has_modes: bool

    @classmethod
    def of(cls, optimizer_class: Any) -> OptimizerClass:
        closure_parameter = signature(getattr(optimizer_class, "step", None)).get("closure")
        return cls(
            first_argument=next(iter(signature(optimizer_class)), ""),
            takes_closure=closure_parameter is not None and closure_parameter.default is inspect.Parameter.empty,
            has_modes=all(callable(getattr(optimizer_class, name, None)) for name in ("train", "eval")),
        )


def signature(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(inspect.unwrap(function)).parameters if function is not None else {}
    except (TypeError, ValueError):
        return {}


@dataclass(frozen=True)
class ClassReference:
    """Class of optimizers as the value of a setting, for optimizers that wrap others.

    Attributes:
      name: Location of the class.
      settings: Settings that are bound to it.
    """

    name: str
    settings: tuple[tuple[str, Any], ...] = ()

    def resolve(self) -> Any:
        """Returns the class, or if there are settings, a function that makes an instance with them."""
        cls = class_of(self.name)
        settings = dict(self.settings)
        return (lambda params, **overrides: cls(params, **{**settings, **overrides})) if settings else cls


@dataclass(frozen=True)
class OptimizerSpec:
    """Optimizer of torch to be made: its class, parameter groups and settings.

    Attributes:
      name: Location of its class, which is called with groups of parameters and the settings.
      groups: (pattern, settings): settings of the parameters whose path matches; the first match counts.
      takes_closure: Whether a step is given a function that computes the loss and the gradients.
      no_decay: Pattern of parameters whose weight_decay is 0, even if their group sets it; "": none.
    """

    name: str
    groups: Sequence[tuple[str, Settings]] = ()
    takes_closure: bool = False
    no_decay: str = ""

    def make(self, parameters: Mapping[str, torch.Tensor], settings: Settings) -> Any:
        """Makes an optimizer, in training mode if it has modes.

        Raises:
          RefusedOptimizer: A pattern matches no parameter, or the class refuses its settings.
        """
        for pattern in [*(pattern for pattern, _ in self.groups), *filter(None, [self.no_decay])]:
            if not any(re.search(pattern, name) for name in parameters):
                raise RefusedOptimizer(
                    f"{self.name}: no parameter's path matches the pattern {pattern!r}",
                    got="the paths " + ", ".join(parameters),
                    expected="a pattern that matches one of them",
                    next_step="change `no_decay` or `groups`",
                )
        groups = self._parameter_groups(parameters)
        cls = class_of(self.name)
        params_argument = groups if len(groups) > 1 or groups[0].keys() != {"params"} else groups[0]["params"]
        arguments = dict(settings)
        first_parameter = next(iter(signature(cls)), "")
        try:
            if first_parameter in WRAPPED_ARGUMENTS and isinstance(arguments.get(first_parameter), ClassReference):
                params_argument = arguments.pop(first_parameter).resolve()(params_argument)
            arguments = {
                name: argument.resolve() if isinstance(argument, ClassReference) else argument
                for name, argument in arguments.items()
            }
            optimizer = cls(params_argument, **arguments)
            if OptimizerClass.of(cls).has_modes:
                optimizer.train()
            return optimizer
        except RefusedOptimizer:
            raise
        except Exception as error:
            raise RefusedOptimizer(
                f"{self.name} cannot be made",
                got=error_line(error) + explanation(error, parameters),
                expected=f"settings: {_settings_of(cls)}",
                next_step=_wrapping_advice(self.name, first_parameter)
                if first_parameter in WRAPPED_ARGUMENTS and first_parameter not in settings
                else "",
            ) from error

    def _parameter_groups(self, parameters: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
        """Returns torch's parameter groups.

        Each of `groups`, and the parameters outside of them, are split into parameters with and without weight decay.
        Empty groups are left out.
        """
        settings_of_groups: list[Settings] = [{}, *(own_settings for _, own_settings in self.groups)]
        tensors_by_group: dict[tuple[bool, int], list[torch.Tensor]] = {}
        for name, tensor in parameters.items():
            index = next(
                (group_index for group_index, (pattern, _) in enumerate(self.groups, 1) if re.search(pattern, name)), 0
            )
            tensors_by_group.setdefault((bool(self.no_decay and re.search(self.no_decay, name)), index), []).append(
                tensor
            )
        return [
            {"params": tensors, **settings_of_groups[index], **({"weight_decay": 0.0} if is_without_decay else {})}
            for (is_without_decay, index), tensors in sorted(tensors_by_group.items(), key=lambda member: member[0])
        ]


def explanation(error: Exception, parameters: Mapping[str, torch.Tensor]) -> str:
    """Returns a list of the parameters and their shapes, for errors that do not explain themselves."""
    if str(error):
        return ""
    shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in parameters.items())
    return f" without a message; its parameters are {shapes}; `groups` gives some of them other settings"


def _wrapping_advice(name: str, parameter: str) -> str:
    return f"name the optimizer that it wraps, such as {name.replace(':', '.')}.{parameter} = @torch.optim.SGD"


def _settings_of(cls: Any) -> str:
    first_setting, *other_settings = signature(cls) or [""]
    return (
        ", ".join([first_setting, *other_settings] if first_setting in WRAPPED_ARGUMENTS else other_settings)
        or "those that it has"
    )


def error_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


@dataclass
class StepResult:
    """Result of a step, or of a part of it.

    Attributes:
      is_done: Whether the step is complete. Otherwise the optimizer needs the loss and the gradients at `params`.
      params: float32[all], concatenated parameters.
      state: uint8[capacity], state after the step.
      token: Number with which an incomplete step is continued.
    """

    is_done: bool
    params: np.ndarray
    state: np.ndarray
    token: int = 0

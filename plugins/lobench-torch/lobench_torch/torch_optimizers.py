"""gin names of torch optimizers: `@torch.optim.NAME()`, and `@torch_optimizer()` for any class."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import gin

import lobench
from lobench_torch.specs import WRAPPED_ARGUMENTS
from lobench_torch.transformation import SELECTOR, transformation

__all__ = ["torch_optimizer"]

_TORCH_MODULE = "torch.optim"


@lobench.configurable
def torch_optimizer(
    optimizer: str = "torch.optim.AdamW",
    *,
    no_decay: str = "",
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    closure: bool | None = None,
    transposed: bool = False,
    python: str = "",
    library: str = "",
    **settings: Any,
) -> Any:
    """Optimizer of torch's, or of any package for torch.

    Args:
      optimizer: Location of the class: "torch.optim.AdamW", "my_package.muon:Muon".
      no_decay: Pattern of `re`. Parameters whose path matches (`mlp/b0`) have a weight_decay of 0,
        even if `groups` sets it.
      groups: Settings by pattern, for parameters whose path matches; the first match counts.
      closure: Whether `step` is passed a function that recomputes the loss and the gradients. None: if its signature
        requires one.
      transposed: Whether matrices are passed in the layout of torch's layers, [outputs, inputs], and convolution
        kernels as [outputs, inputs, height, width].
      python: Path of the Python of another environment, in which the optimizer runs. "": this one.
      library: Packages of that environment, as recorded by `Method.python`. Part of the optimizer's identity, without
        other effect.
      **settings: Settings of the class. Numbers may be searched; `lr` may be a schedule. A setting may be another class
        of optimizers (`SAM.base_optimizer = @torch.optim.SGD`), with the settings that are bound to that class.
    Raises:
      ConfigError: torch is not installed, the class does not exist, or it needs a module.
    """
    return transformation(
        optimizer, settings, no_decay=no_decay, groups=groups, closure=closure, transposed=transposed, python=python
    )


class _TorchNames:
    """Resolver of gin names for classes of torch and of packages that a gin file imports."""

    summary = "`@torch.optim.NAME()`: every optimizer of torch's; `@package.NAME()` of a package that is imported"

    def names(self) -> list[str]:
        """Returns the names of torch's own optimizers; [] if torch is not installed."""
        return [f"{_TORCH_MODULE}.{name}" for name in self._optimizers_of_torch()]

    def optimizers(self) -> dict[str, Callable[..., Any]]:
        """Returns torch's own optimizers by full name."""
        return {f"{_TORCH_MODULE}.{name}": cls for name, cls in self._optimizers_of_torch().items()}

    def find(self, selector: str) -> str | None:
        """Registers the class with this Python name. Returns its name; None if the class does not exist."""
        module, _, name = selector.rpartition(".")
        if module == _TORCH_MODULE:
            cls = self._optimizers_of_torch().get(name)
        else:
            cls = getattr(sys.modules.get(module), name, None) if module and "torch" in sys.modules else None
        if not _is_optimizer(cls):
            return None
        _register(selector)
        return selector

    def _optimizers_of_torch(self) -> dict[str, Any]:
        try:
            module = importlib.import_module(_TORCH_MODULE)
        except ImportError:
            return {}
        return {name: cls for name, cls in vars(module).items() if name[0] != "_" and _is_optimizer(cls)}


lobench_on_use = _TorchNames()


def _is_optimizer(candidate: Any) -> bool:
    if not inspect.isclass(candidate):
        return False
    base = sys.modules[_TORCH_MODULE].Optimizer
    return issubclass(candidate, base) and candidate is not base


@functools.cache
def _register(selector: str) -> None:
    module, _, name = selector.rpartition(".")
    cls = getattr(sys.modules[module], name)

    first_parameter, *parameters = inspect.signature(cls).parameters.values()
    if first_parameter.name in WRAPPED_ARGUMENTS:  # an instance of another optimizer, not parameters
        parameters = [first_parameter, *parameters]
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    keywords = [
        parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters if parameter.kind not in variadic
    ]
    names = {keyword.name for keyword in keywords}
    option_parameters = [
        parameter
        for parameter in inspect.signature(torch_optimizer).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    keyword_parameters = [parameter for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD]

    def make_optimizer(**values: Any) -> Any:
        if values.pop(SELECTOR, False):
            return values
        options = {
            parameter.name: values.pop(parameter.name)
            for parameter in option_parameters
            if parameter.name in values and parameter.name not in names
        }
        return transformation(selector, values, **options)

    setattr(make_optimizer, SELECTOR, selector)
    make_optimizer.__doc__ = cls.__doc__
    added_parameters = (parameter for parameter in option_parameters if parameter.name not in names)
    signature = inspect.Signature([*keywords, *added_parameters, *keyword_parameters])
    make_optimizer.__signature__ = signature  # type: ignore[attr-defined]
    gin.external_configurable(make_optimizer, name=name, module=module)

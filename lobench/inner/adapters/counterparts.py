"""Counterparts of google/learned_optimization's learned optimizers, so that their objects run as lobench's classes.

Both follow the same trajectories (tests/inner/optimizers states how closely), and lobench's are several times as fast.
An object is replaced only if there can be no difference. It must be an instance of exactly the foreign class, and have
no attribute that was set after its construction. Its modules must have the source that was compared, and none of their
functions may have been replaced. lobench's class must have every setting that is not at its default. All other objects
run by their own code.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import jax
import numpy as np

from lobench.inner.optimizer import LearnedOptimizer, Theta
from lobench.inner.theta import leaf_paths

__all__ = ["CONVERSION_RULES", "ConversionRule", "Counterpart", "counterpart_of"]

_PACKAGE = "learned_optimization"
_MODULES = f"{_PACKAGE}.learned_optimizers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionRule:
    """How to convert an object of one class of google/learned_optimization into lobench's class of the same name.

    Attributes:
      source_hashes: sha256 of the source of each module that the foreign class uses, starting with its own module.
      attribute_names: Attribute that stores a constructor argument, by argument. Only needed if their names differ by
        more than a leading underscore.
      ignored: Constructor arguments that do not affect results.
      sizes: (leaf of theta, axis) whose size is the value of a constructor argument, for arguments that the object does
        not store.
    """

    source_hashes: Mapping[str, str]
    attribute_names: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    sizes: Mapping[str, tuple[str, int]] = field(default_factory=dict)


_COMMON_HASH = {f"{_MODULES}.common": "f2103f7f1f2ca6e520c71014382c3f5c5635fb04bd64d1b1c3c7f90e2075f14a"}
_OPTAX_HASH = {f"{_PACKAGE}.optimizers.optax_opts": "e9c4c103781fd84f0463ba16deb5d4c0d7c673273e807d322216f5463ab4b606"}


def _named_rule(
    name: str, source_hash: str, further_hashes: Mapping[str, str], **options: Any
) -> tuple[str, ConversionRule]:
    return name, ConversionRule(source_hashes={name.rpartition(".")[0]: source_hash, **further_hashes}, **options)


# Hashes of modules in revision 32186aa of google/learned_optimization.
_BASE_HASH = "33b53c205e5082c5e7cf786f0f47e6a8e87730f3895531cadba4745c815c74d3"  # sha256 of the module `base`
CONVERSION_RULES: Mapping[str, ConversionRule] = dict(
    [
        _named_rule(
            f"{_MODULES}.mlp_lopt.MLPLOpt",
            "5279caa78210316a867afe9293a079eeea29c9fc82de7a1ad1410d3ed4b3ba2d",
            _COMMON_HASH,
            ignored=frozenset({"compute_summary"}),
            sizes={"hidden_size": ("mlp/~/linear_0/b", 0)},
        ),
        _named_rule(
            f"{_MODULES}.adafac_mlp_lopt.AdafacMLPLOpt",
            "755f08de67e2a8ece7d725bea59404c41246840ef8b914450aa40d528a865c20",
            _COMMON_HASH,
        ),
        _named_rule(
            f"{_MODULES}.adafac_nominal.MLPNomLOpt",
            "2bee572da9af8392b98a6f29d0331a9fadd1abfe60fb1ab3beb512c9f6e474bc",
            _COMMON_HASH,
            attribute_names={
                "nominal_stepsize": "_stepsize",
                "nominal_controller": "_nom_controller",
                "regularization_controller": "_reg_controller",
            },
        ),
        _named_rule(
            f"{_MODULES}.nn_adam.NNAdam", "4e4de8ab7f146a3cc8c9e70b72860a81659161f152ce9130243b48a390e34606", {}
        ),
        _named_rule(
            f"{_MODULES}.rnn_mlp_lopt.RNNMLPLOpt",
            "4ea90c276aef5bafaecc6460dd747dec311ec20f7d29854f1ad6a0e7f53f92c1",
            _COMMON_HASH,
        ),
        _named_rule(
            f"{_PACKAGE}.research.general_lopt.hyper_v2.HyperV2",
            "179ec5d18649074acff41d57c7b9bd4a7cb55cc12c0c40b289339bfed048b797",
            _COMMON_HASH,
            ignored=frozenset({"summarize_each_layer", "summarize_all_control", "reparam_decay"}),
        ),
        _named_rule(f"{_MODULES}.base.LearnableSGD", _BASE_HASH, _OPTAX_HASH),
        _named_rule(f"{_MODULES}.base.LearnableSGDM", _BASE_HASH, _OPTAX_HASH),
        _named_rule(
            f"{_MODULES}.base.LearnableAdam",
            _BASE_HASH,
            _OPTAX_HASH,
            ignored=frozenset({"use_summary"}),
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Decision on how an object of google/learned_optimization runs.

    Attributes:
      lobench_optimizer: lobench's optimizer with the object's settings; None if the object runs by its own code.
      description: Text for people; "" for classes without a counterpart in lobench.
    """

    lobench_optimizer: LearnedOptimizer | None = None
    description: str = ""

    def opt_fn(self, theta: Theta, num_steps: int | None) -> Any:
        """Returns lobench's optimizer for a theta in the foreign structure."""
        assert self.lobench_optimizer is not None
        leaves = leaf_paths(theta)
        template = jax.eval_shape(self.lobench_optimizer.init, jax.random.key(0))
        reordered_leaves = [leaves[path] for path in leaf_paths(template)]
        return self.lobench_optimizer.opt_fn(
            jax.tree.unflatten(jax.tree.structure(template), reordered_leaves), num_steps
        )


class _Difference(Exception):
    """Reason why an object is not replaced by lobench's class."""


def counterpart_of(candidate: Any) -> Counterpart:
    """Decides whether an object of google/learned_optimization runs its own code or is replaced by lobench's class."""
    cls = type(candidate)
    name = f"{cls.__module__}.{cls.__qualname__}"
    rule = CONVERSION_RULES.get(name)
    if rule is None:
        return Counterpart()
    try:
        for module, source_hash in rule.source_hashes.items():
            _check_module(module, source_hash)
            module_in_use = vars(sys.modules[cls.__module__]).get(module.rpartition(".")[2])
            if module != cls.__module__ and module_in_use is not sys.modules[module]:
                raise _Difference(f"{cls.__module__}: {module} has been replaced")
        if getattr(sys.modules[cls.__module__], cls.__name__, None) is not cls:
            raise _Difference("its class is not the module's")
        lobench_optimizer = _lobench_optimizer(candidate, rule)
    except Exception as difference:  # noqa: BLE001  (their constructor's own, say: whatever it is, the object can run)
        return Counterpart(description=f"{name} itself: {difference}")
    return Counterpart(lobench_optimizer, f"lobench's {cls.__name__} in place of {name}")


def _check_module(name: str, expected_hash: str) -> None:
    """Raises _Difference if the classes and functions of a module are not those that were compared."""
    module = sys.modules.get(name)
    try:
        source = inspect.getsource(module) if module is not None else ""
    except (OSError, TypeError):
        source = ""
    if module is None or hashlib.sha256(source.encode()).hexdigest() != expected_hash:
        raise _Difference(f"lobench does not know this text of {name}")
    _check_names(compile(source, module.__file__ or name, "exec", dont_inherit=True), vars(module), name)


def _check_names(code: CodeType, definitions: Mapping[str, Any], where: str) -> None:
    """Checks that names refer to the functions and classes defined by the text of a module or class."""
    for code_object in code.co_consts:
        if not isinstance(code_object, CodeType) or code_object.co_name.startswith("<"):
            continue
        value = definitions.get(code_object.co_name)
        location = f"{where}.{code_object.co_name}"
        if isinstance(value, type) and value.__module__ == where.partition(":")[0]:
            _check_names(code_object, vars(value), f"{where}:{value.__qualname__}")
        elif _code_of(value) != code_object:
            raise _Difference(f"{location} has been replaced")


def _code_of(value: Any) -> CodeType | None:
    """Returns the code of a function or method, without wrappers."""
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None


def _lobench_optimizer(candidate: Any, rule: ConversionRule) -> LearnedOptimizer:
    """Creates lobench's optimizer with the settings of the foreign one."""
    from lobench.inner import optimizers  # here, because the import is slow and seldom needed

    cls = type(candidate)
    optimizer_class = getattr(optimizers, type(candidate).__name__)
    parameters = inspect.signature(optimizer_class).parameters
    template = leaf_paths(jax.eval_shape(candidate.init, jax.random.key(0, impl="threefry2x32")))
    arguments, settings = {}, {}
    for name, parameter in inspect.signature(inspect.unwrap(cls.__init__)).parameters.items():
        if name == "self":
            continue
        if name in rule.sizes:
            leaf, axis = rule.sizes[name]
            value = template[leaf].shape[axis] if leaf in template else parameter.default
        else:
            value = _attribute_of(candidate, rule.attribute_names.get(name, name), parameter.default)
        arguments[name] = value
        if name in parameters:
            settings[name] = value
        elif name not in rule.ignored and not _is_alike(value, parameter.default):
            raise _Difference(f"lobench has no {name} = {value!r}")
    _check_object(candidate, cls(**arguments))
    optimizer: LearnedOptimizer = optimizer_class(**settings)
    expected = leaf_paths(jax.eval_shape(optimizer.init, jax.random.key(0, impl="threefry2x32")))
    if {path: leaf.shape for path, leaf in expected.items()} != {path: leaf.shape for path, leaf in template.items()}:
        raise _Difference("theta has another structure")
    return optimizer


def _attribute_of(candidate: Any, name: str, default: Any) -> Any:
    attributes = vars(candidate)
    return attributes.get(name, attributes.get(f"_{name}", default))


def _check_object(original: Any, new_object: Any) -> None:
    """Raises _Difference if an attribute of an object was set after its construction.

    Args:
      original: The object.
      new_object: Object that the same constructor call has made.
    """
    if vars(original).keys() != vars(new_object).keys():
        differing_names = sorted(vars(original).keys() ^ vars(new_object).keys())
        raise _Difference(f"{', '.join(differing_names)} has been set")
    for name, value in vars(new_object).items():
        if not _is_alike(vars(original)[name], value):
            raise _Difference(f"{name} has been set")


def _is_alike(candidate: Any, reference: Any) -> bool:
    if candidate is reference:
        return True
    if isinstance(candidate, jax.core.Tracer) and isinstance(reference, jax.core.Tracer):
        return bool(candidate.aval == reference.aval)  # made by its constructor inside of this very program
    if isinstance(candidate, jax.core.Tracer) or isinstance(reference, jax.core.Tracer):
        return False
    if isinstance(candidate, list | tuple) and isinstance(reference, list | tuple):
        return len(candidate) == len(reference) and all(map(_is_alike, candidate, reference))
    if type(candidate) is not type(reference):
        return False
    if isinstance(candidate, jax.Array | np.ndarray):
        return bool(np.array_equal(candidate, reference))
    if callable(candidate):
        return _code_of(candidate) == _code_of(reference)
    if isinstance(candidate, bool | int | float | str | None):
        return bool(candidate == reference)
    return (
        vars(candidate).keys() == vars(reference).keys()
        if hasattr(candidate, "__dict__")
        else bool(candidate == reference)
    )

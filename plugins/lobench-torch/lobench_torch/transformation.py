"""A torch optimizer as an optax transformation, called from the compiled training.

Task, data, initial parameters and gradients are lobench's, so that a seed of a torch optimizer is paired with the same
seed of any other. The training remains one compiled program: it calls torch for each step, as a function of
parameters, gradients and state.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import lobench
from lobench import ConfigError
from lobench.extend import host_call
from lobench_torch.other_python import OtherPython
from lobench_torch.specs import ClassReference, OptimizerSpec, RefusedOptimizer, StepResult

if TYPE_CHECKING:
    from lobench_torch.host import Library

__all__ = ["SELECTOR", "transformation"]

SELECTOR = "lobench_torch_selector"  # attribute of a configurable that stands for a class of optimizers

_PLACEHOLDER = 0.1  # placeholder for a setting whose value is not known yet; valid for nearly every setting
_MAX_HOSTS = 32

_HOSTS: dict[Any, Any] = {}  # shared by all traces of a program


def transformation(
    name: str,
    settings: Mapping[str, Any],
    *,
    no_decay: str = "",
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    closure: bool | None = None,
    transposed: bool = False,
    python: str = "",
    library: str = "",
) -> Any:
    """Returns the optax transformation that steps a torch optimizer.

    Args:
      name: Name of its class, with the module.
      settings: Settings of the class, which may have the name of an argument here.
      no_decay, groups, closure, transposed, python, library: As in `torch_optimizer`.
    """
    settings_by_pattern = tuple((_checked_pattern(pattern), dict(group)) for pattern, group in (groups or {}).items())
    no_decay = _checked_pattern(no_decay)
    torch_library = _torch_library(python)
    with _convert_errors():
        optimizer = torch_library.describe_class(name)
    if optimizer.first_argument in ("model", "module", "net", "network"):
        raise ConfigError(
            f"{name} wants a module of torch's, for hooks in it; lobench's tasks are functions of jax",
            got=f"its first argument is {optimizer.first_argument!r}",
            expected="a class that is made of parameters alone",
            next_step="train with it in torch and import its curves: `lobench import`",
        )
    takes_closure = optimizer.takes_closure if closure is None else closure
    spec = OptimizerSpec(name, settings_by_pattern, takes_closure, no_decay)
    values = {setting: _as_class(value) for setting, value in settings.items()}
    return _Transformation(torch_library, spec, values, transposed).as_optax(optimizer.has_modes)


def _as_class(value: Any) -> Any:
    """Returns a reference to a class if a value is a configurable for one (`@torch.optim.SGD`); otherwise the value."""
    selector = getattr(value, SELECTOR, None)
    if selector is None:
        return value
    return ClassReference(selector, tuple(value(**{SELECTOR: True}).items()))


def _checked_pattern(text: str) -> str:
    try:
        return re.compile(text).pattern
    except re.error as error:
        raise ConfigError(
            "this is not a pattern of parameter paths", got=f"{text!r}: {error}", expected="a pattern of re"
        ) from None


def _python_path(python: str) -> str:
    """Returns the path of a Python. A relative path is searched in the folders of `sys.path` and the working folder."""
    if os.path.isabs(python):
        return python
    candidates = (os.path.join(folder, python) for folder in (*sys.path, os.getcwd()))
    return next((os.path.normpath(path) for path in candidates if os.path.isfile(path)), python)


def _torch_library(python: str) -> Library | OtherPython:
    if python:
        return OtherPython.at(_python_path(python))
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise ConfigError("torch is not installed", got=str(error), next_step="pip install torch") from error
    from lobench_torch.host import Library

    return Library()


@contextlib.contextmanager
def _convert_errors() -> Iterator[None]:
    """Converts `RefusedOptimizer` to `ConfigError`."""
    try:
        yield
    except RefusedOptimizer as error:
        raise ConfigError(error.what, **error.error_fields) from error.__cause__


class _Transformation:
    """Functions `init` and `update` of an optax transformation that steps an optimizer of torch.

    Settings are constants, or numbers that are passed to torch at every step: traced ones and schedules.
    """

    def __init__(
        self, library: Library | OtherPython, spec: OptimizerSpec, settings: Mapping[str, Any], transposed: bool
    ) -> None:
        self._torch_library = library
        self._spec = spec
        self._transposed = transposed
        self._number_settings = {name: value for name, value in settings.items() if _is_number(value)}
        self._constant_settings = {name: value for name, value in settings.items() if name not in self._number_settings}
        self._scheduled_names = [
            name for name, value in self._number_settings.items() if isinstance(value, lobench.Schedule)
        ]

    def as_optax(self, has_modes: bool) -> Any:
        eval_params = self._eval_params if has_modes else None
        return lobench.with_extra_inputs(self._init, self._update, name=self._spec.name, eval_params=eval_params)

    def _init(self, params: Any) -> Any:
        return jnp.asarray(self._host_for(params).empty_state)

    def _update(
        self,
        grads: Any,
        state: Any,
        params: Any,
        value: Any = 0.0,
        key: Any = None,
        obj_fn: Callable[[Any], Any] | None = None,
    ) -> tuple[Any, Any]:
        host = self._host_for(params)
        flat_params = self._flatten(params)
        key_bits = (
            jnp.zeros(2, jnp.uint32) if key is None else jax.random.key_data(key).reshape(-1)[:2].astype(jnp.uint32)
        )
        numbers_and_loss = jnp.stack(
            [jnp.asarray(number, jnp.float32) for number in (value, *self._number_settings.values())]
        )
        result_shapes = [_shape_of(np.zeros(2, np.int32)), _shape_of(flat_params), _shape_of(state)]

        def begin_step(key_bits: Any, numbers_and_loss: Any, flat_params: Any, state: Any) -> Any:
            high, low = np.asarray(key_bits).tolist()
            loss, *settings = np.asarray(numbers_and_loss)
            params, grads = np.asarray(flat_params)
            settings_of_training, step_settings = self._split_settings(settings)
            with _convert_errors():
                seed = high << 31 | low >> 1
                return _result_arrays(
                    host.step(settings_of_training, step_settings, params, grads, loss, np.asarray(state), seed)
                )

        def continue_step(host_result: Any, loss: Any, grads: Any) -> Any:
            is_done, token = np.asarray(host_result[0]).tolist()
            with _convert_errors():
                return (
                    host_result
                    if is_done
                    else _result_arrays(host.continue_step(token, np.asarray(loss), np.asarray(grads)))
                )

        result = host_call(
            begin_step, result_shapes, key_bits, numbers_and_loss, jnp.stack([flat_params, self._flatten(grads)]), state
        )
        if self._spec.takes_closure:
            if obj_fn is None:
                raise ConfigError(f"{self._spec.name} takes a closure, which lobench does not provide")

            def take_another_step(result: Any) -> Any:
                loss, grads = jax.value_and_grad(obj_fn)(self._unflatten(result[1], params))
                return host_call(
                    continue_step, result_shapes, result, jnp.asarray(loss, jnp.float32), self._flatten(grads)
                )

            result = jax.lax.while_loop(lambda result: result[0][0] == 0, take_another_step, result)
        return jax.tree.map(_difference, self._unflatten(result[1], params), params), result[2]

    def _eval_params(self, state: Any, params: Any) -> Any:
        host = self._host_for(params)
        flat_params = self._flatten(params)

        def eval_params(numbers: Any, params: Any, state: Any) -> Any:
            settings_of_training, _ = self._split_settings(list(np.asarray(numbers)))
            with _convert_errors():
                return host.eval_params(settings_of_training, np.asarray(params), np.asarray(state))

        numbers = jnp.array(
            [jnp.asarray(number, jnp.float32) for number in self._number_settings.values()], jnp.float32
        )
        flat_result = host_call(eval_params, _shape_of(flat_params), numbers, flat_params, state)
        return self._unflatten(flat_result, params)

    def _flatten(self, params: Any) -> jax.Array:
        """Returns the leaves as one vector, in the layout that torch gets."""
        return jnp.concatenate([self._transpose(leaf).reshape(-1) for leaf in jax.tree.leaves(params)])

    def _unflatten(self, flat: jax.Array, template: Any) -> Any:
        leaves, tree = jax.tree.flatten(template)
        vectors = jnp.split(flat, list(itertools.accumulate(leaf.size for leaf in leaves))[:-1])
        shaped_vectors = (
            leaf_vector.reshape(self._transpose(leaf).shape) for leaf_vector, leaf in zip(vectors, leaves, strict=True)
        )
        return jax.tree.unflatten(tree, [self._transpose(leaf_vector, (2, 3, 1, 0)) for leaf_vector in shaped_vectors])

    def _host_for(self, params: Any) -> Any:
        shapes = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            transposed_leaf = self._transpose(np.empty(leaf.shape, np.bool_))
            shapes[jax.tree_util.keystr(path, simple=True, separator="/")] = transposed_leaf.shape
        request = repr(
            (self._spec, shapes, self._constant_settings, list(self._number_settings), self._scheduled_names)
        )
        key = self._torch_library.identity(self._spec.name), request
        if key not in _HOSTS:
            example_numbers = {
                name: value if type(value) is float else _PLACEHOLDER for name, value in self._number_settings.items()
            }
            with _convert_errors():
                settings = {**self._constant_settings, **example_numbers}
                _HOSTS[key] = self._torch_library.host(self._spec, shapes, settings, self._scheduled_names)
            if len(_HOSTS) > _MAX_HOSTS:
                del _HOSTS[next(iter(_HOSTS))]
        return _HOSTS[key]

    def _split_settings(self, numbers: Sequence[Any]) -> tuple[dict[str, Any], dict[str, float]]:
        """Returns the settings of the whole training, and those of this step."""
        # 0.001 in float32 is .0010000000475. torch gets the shortest decimal number instead.
        settings = {
            name: float(str(np.float32(value))) for name, value in zip(self._number_settings, numbers, strict=True)
        }
        scheduled_settings = {name: settings[name] for name in self._scheduled_names}
        return {
            **self._constant_settings,
            **settings,
            **dict.fromkeys(scheduled_settings, _PLACEHOLDER),
        }, scheduled_settings

    def _transpose(self, leaf: Any, convolution_axes: tuple[int, ...] = (3, 2, 0, 1)) -> Any:
        if not self._transposed or leaf.ndim not in (2, 4):
            return leaf
        return leaf.T if leaf.ndim == 2 else leaf.transpose(convolution_axes)


def _result_arrays(result: StepResult) -> list[np.ndarray]:
    return [np.array([result.is_done, result.token], np.int32), result.params, result.state]


def _is_number(value: Any) -> bool:
    return isinstance(value, float | jax.Array | lobench.Schedule)


def _shape_of(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # type: ignore[no-untyped-call]


def _difference(new: jax.Array, old: jax.Array) -> jax.Array:
    """Returns the update that, added to the old value, gives the new one; almost always to the last bit."""
    update = new - old
    return update + (new - (old + update))

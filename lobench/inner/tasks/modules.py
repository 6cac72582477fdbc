"""Tasks whose networks are modules of flax.nnx, flax.linen, equinox or haiku."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import ArrayDataset, Batch, Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.labelled import LABELLED
from lobench.inner.tasks.measured import Aux, LossStateAux, MeasuredTask
from lobench.inner.tasks.objectives import classification, relative_loss
from lobench.inner.tasks.splits import make_datasets

__all__ = ["module_task"]

Factory: TypeAlias = Callable[..., Any]
Loss: TypeAlias = Callable[[Any, Batch], Any]
Outputs: TypeAlias = tuple[Any, PyTree]  # output of the module, and its state after the batch
_MODES = ("is_training", "training", "train")  # arguments of modules of haiku and linen; the opposites:
_EVAL_MODES = ("deterministic", "use_running_average")


@configurable
def module_task(
    module: Factory,
    *,
    data: str | Callable[[], Datasets] = "digits",
    loss: str | Loss = "cross_entropy",
    inputs: str = "",
    input_shape: tuple[int, ...] = (),
    batch_size: int = 64,
    framework: str = "",
) -> Any:
    """Task that trains a module of flax.nnx, flax.linen, equinox or haiku.

    Args:
      module: Factory of the module, `@my_nets.Net` in gin. For nnx it takes `rngs`, for equinox `key`, otherwise
        nothing.
      data: Name of labelled data, as in `MLPClassifier`, or a function that returns `Datasets` with mappings as
        batches.
      loss: Loss of the module's outputs and a batch. "cross_entropy": of logits and `label`, with `accuracy`; "mse": of
        outputs and `target`; or a function of both that returns the loss, float32[], or a pair of loss and metrics.
      inputs: Field of a batch that is passed to the module. "": the labelled examples, or `inputs`.
      input_shape: Shape of one example, if the module needs another one than the data's: (8, 8, 1) for a convolution.
      batch_size: Batch size, for labelled data.
      framework: nnx, linen, equinox or haiku. "": detected from the module.
    Raises:
      ConfigError: The framework is not installed, or the factory does not return a module.
    """
    if isinstance(data, str):
        arguments.choice("module_task", "data", data, LABELLED)
        dataset = LABELLED[data]
        splits = make_datasets(dataset.splits, arguments.integer("module_task", "batch_size", batch_size))
        inputs = inputs or dataset.kind
        reference_loss = math.log(dataset.num_classes)
    else:
        splits = data()
        inputs = inputs or "inputs"
        reference_loss = 0.0
    arguments.choice("module_task", "framework", framework, ("", *_FRAMEWORKS))
    if not callable(loss):
        arguments.choice("module_task", "loss", loss, _LOSSES)
    network = _FRAMEWORKS[framework or _framework_of(module)](module)
    loss_function = loss if callable(loss) else _LOSSES[loss]
    if loss != "cross_entropy":
        reference_loss = 0.0
    return _ModuleTask(network, splits, loss_function, inputs, tuple(input_shape), reference_loss)


class _ModuleTask(MeasuredTask):
    def __init__(
        self,
        network: _Network,
        datasets: Datasets,
        loss: Loss,
        input_field: str,
        input_shape: tuple[int, ...],
        reference_loss: float,
    ) -> None:
        self.datasets: Datasets = datasets
        self._network = network
        self._loss = loss
        self._input_field = input_field
        self._input_shape = input_shape
        self._reference_loss = reference_loss

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        params, state = self._network.init(key, self._examples(self._example_batch()))
        if not jax.tree.leaves(params):
            raise ConfigError("module_task.module has no parameters", got=repr(self._network.factory))
        return params, state if jax.tree.leaves(state) else None

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        outputs, new_state = self._network.apply(params, state, key, self._examples(data), training=True)
        loss, aux = self._loss_and_aux(outputs, data)
        return loss, None if state is None else new_state, aux

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        outputs, _ = self._network.apply(params, state, key, self._examples(data), training=False)
        return self._loss_and_aux(outputs, data)

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss relative to a uniform guess, if it is a cross entropy with known classes."""
        return relative_loss(loss, self._reference_loss) if self._reference_loss else loss

    def _loss_and_aux(self, outputs: Any, data: Batch) -> tuple[jax.Array, Aux]:
        result = self._loss(outputs, data)
        loss, aux = result if isinstance(result, tuple) else (result, {})
        if jnp.shape(loss) != ():
            raise ConfigError(
                "module_task.loss", got=f"an array {list(jnp.shape(loss))}", expected="one number: the mean of a batch"
            )
        return jnp.asarray(loss, jnp.float32), dict(aux)

    def _examples(self, data: Batch) -> jax.Array:
        if not isinstance(data, Mapping) or self._input_field not in data:
            names = ", ".join(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
            raise ConfigError("module_task.inputs", got=repr(self._input_field), expected=f"of a batch: {names}")
        examples = jnp.asarray(data[self._input_field])
        if not self._input_shape:
            return examples
        if math.prod(examples.shape[1:]) != math.prod(self._input_shape):
            raise ConfigError(
                "module_task.input_shape", got=f"{self._input_shape}", expected=f"as many as {list(examples.shape[1:])}"
            )
        return examples.reshape(len(examples), *self._input_shape)

    def _example_batch(self) -> Batch:
        """Returns a batch from which shapes are read."""
        train = self.datasets.train
        if isinstance(train, ArrayDataset):
            return train.sample(jax.random.key(0))
        sample = getattr(train, "sample", None)
        return sample(jax.random.key(0)) if sample is not None else next(train.batches(0))  # type: ignore[union-attr]


def _cross_entropy(outputs: Any, data: Batch) -> Any:
    return classification(outputs, data["label"])


def _mse(outputs: Any, data: Batch) -> Any:
    return jnp.mean((outputs.reshape(data["target"].shape) - data["target"]) ** 2)


_LOSSES: Mapping[str, Loss] = {"cross_entropy": _cross_entropy, "mse": _mse}


class _Network:
    """Parameters and state of a module as trees of arrays, and its outputs as a function of them.

    While the program is traced, the module is created once more to get everything but its arrays. Its own arrays are
    not used, so they are not computed.
    """

    package = ""
    name = ""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self.library: Any = _import_module(self.package, self.name)

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[PyTree, PyTree]:
        raise NotImplementedError

    def apply(self, params: PyTree, state: PyTree, key: jax.Array, inputs: jax.Array, *, training: bool) -> Outputs:
        """Returns the outputs of a batch, and the state after it."""
        raise NotImplementedError

    def make(self, module_type: type, **arguments: Any) -> Any:
        """Creates the module.

        Raises:
          ConfigError: The factory returned another type.
        """
        module = self.factory(**arguments)
        if not isinstance(module, module_type):
            raise ConfigError(
                "module_task.module", got=f"a {type(module).__name__}", expected=f"what makes a module of {self.name}"
            )
        return module


class _Nnx(_Network):
    package, name = "flax", "flax.nnx"

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[PyTree, PyTree]:
        _, params, _, other_state = self._split(self.make(self.library.Module, rngs=self.library.Rngs(key)))
        return self.library.to_pure_dict(params), self.library.to_pure_dict(other_state)

    def apply(self, params: PyTree, state: PyTree, key: jax.Array, inputs: jax.Array, *, training: bool) -> Outputs:
        nnx = self.library
        definition, module_params, streams, other_state = self._split(self.make(nnx.Module, rngs=nnx.Rngs(key)))
        nnx.replace_by_pure_dict(module_params, params)
        if state is not None:
            nnx.replace_by_pure_dict(other_state, state)
        module = nnx.merge(definition, module_params, streams, other_state)
        module.train() if training else module.eval()
        outputs = module(inputs)
        return outputs, nnx.to_pure_dict(self._split(module)[3])

    def _split(self, module: Any) -> Any:
        """Returns definition, parameters, random streams and state. Random streams are created from each step's key."""
        return self.library.split(module, self.library.Param, self.library.RngState, ...)


class _Linen(_Network):
    package, name = "flax", "flax.linen"

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[PyTree, PyTree]:
        module = self.make(self.library.Module)
        params_key, dropout = jax.random.split(key)
        return self._split(
            module.init({"params": params_key, "dropout": dropout}, inputs, **_mode_arguments(type(module), True))
        )

    def apply(self, params: PyTree, state: PyTree, key: jax.Array, inputs: jax.Array, *, training: bool) -> Outputs:
        module = self.make(self.library.Module)
        state = state or {}
        mode = _mode_arguments(type(module), training)
        outputs, new_variables = module.apply(
            {"params": params, **state}, inputs, rngs={"dropout": key}, mutable=list(state), **mode
        )
        return outputs, self._split(new_variables)[1]

    def _split(self, variables: Any) -> tuple[PyTree, PyTree]:
        return variables.get("params", {}), {name: variable for name, variable in variables.items() if name != "params"}


class _Haiku(_Network):
    package, name = "dm-haiku", "haiku"

    def __init__(self, factory: Factory) -> None:
        super().__init__(factory)

        def forward(inputs: jax.Array, training: bool) -> Any:
            module = self.make(self.library.Module)
            return module(inputs, **_mode_arguments(type(module), training))

        self._transformed = self.library.transform_with_state(forward)

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[PyTree, PyTree]:
        params, state = self._transformed.init(key, inputs, True)
        return params, state

    def apply(self, params: PyTree, state: PyTree, key: jax.Array, inputs: jax.Array, *, training: bool) -> Outputs:
        outputs, new_state = self._transformed.apply(params, {} if state is None else state, key, inputs, training)
        return outputs, new_state


class _Equinox(_Network):
    """A module for single examples, mapped over the batch under the axis name "batch"."""

    package, name = "equinox", "equinox"

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[PyTree, PyTree]:
        module, state = self._make_module(key)
        return self.library.filter(module, self.library.is_inexact_array), state

    def apply(self, params: PyTree, state: PyTree, key: jax.Array, inputs: jax.Array, *, training: bool) -> Outputs:
        eqx = self.library
        module, _ = self._make_module(jax.random.key(0))
        module = eqx.combine(params, eqx.partition(module, eqx.is_inexact_array)[1])
        if not training:
            module = eqx.nn.inference_mode(module)
        accepted_names = _parameters_of(type(module).__call__)

        def apply_to_example(example: jax.Array, state: PyTree, key: jax.Array) -> Any:
            keywords = {"key": key} if "key" in accepted_names else {}
            return module(example, state, **keywords) if state is not None else (module(example, **keywords), None)

        keys = jax.random.split(key, len(inputs))
        over_batch = jax.vmap(apply_to_example, in_axes=(0, None, 0), out_axes=(0, None), axis_name="batch")
        outputs, new_state = over_batch(inputs, state, keys)
        return outputs, new_state

    def _make_module(self, key: jax.Array) -> tuple[Any, PyTree]:
        key_argument = {"key": key} if "key" in _parameters_of(self.factory) else {}
        module, state = self.library.nn.make_with_state(lambda: self.make(self.library.Module, **key_argument))()
        return module, state if jax.tree.leaves(state) else None


_FRAMEWORKS: Mapping[str, type[_Network]] = {"nnx": _Nnx, "linen": _Linen, "equinox": _Equinox, "haiku": _Haiku}


def _framework_of(factory: Factory) -> str:
    """Returns the framework of a factory, from its arguments or from the type of its module."""
    accepted_names = _parameters_of(factory)
    if "rngs" in accepted_names:
        return "nnx"
    if "key" in accepted_names:
        return "equinox"
    haiku, linen, equinox = (sys.modules.get(name) for name in ("haiku", "flax.linen", "equinox"))
    try:
        module = factory()
    except ValueError:  # a module of haiku's, outside of a transformation
        if haiku is None:
            raise
        return "haiku"
    if linen is not None and isinstance(module, linen.Module):
        return "linen"
    if equinox is not None and isinstance(module, equinox.Module):
        return "equinox"
    raise ConfigError(
        "module_task.module",
        got=f"what makes a {type(module).__name__}",
        expected="a module of flax.nnx (it takes rngs), equinox (key), flax.linen or haiku",
        next_step="say module_task.framework",
    )


def _mode_arguments(module: type, training: bool) -> dict[str, bool]:
    """Returns the keyword arguments that set a module's training mode, under the names that its call accepts."""
    accepted_names = _parameters_of(module.__call__)
    modes = {name: training for name in _MODES if name in accepted_names}
    return modes | {name: not training for name in _EVAL_MODES if name in accepted_names}


def _parameters_of(function: Any) -> Mapping[str, Any]:
    try:
        # A metaclass of nnx hides the arguments of a class.
        return inspect.signature(function.__init__ if inspect.isclass(function) else function).parameters
    except (TypeError, ValueError):
        return {}


def _import_module(package: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"{name} is not installed", got=str(error), next_step=f"pip install {package}") from error

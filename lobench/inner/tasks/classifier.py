"""Base of classifiers: labelled data, loss, accuracy."""

from __future__ import annotations

import math

import jax

from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.labelled import LABELLED, Labelled
from lobench.inner.tasks.measured import Aux, LossStateAux, MeasuredTask, ReferencedTask
from lobench.inner.tasks.networks import ACTIVATIONS, Params, init_gain
from lobench.inner.tasks.normalization import Norm
from lobench.inner.tasks.objectives import classification
from lobench.inner.tasks.splits import make_datasets

__all__ = ["Classifier"]


class Classifier(ReferencedTask, MeasuredTask):
    """Base of classifiers: mean softmax cross entropy and `accuracy` of the `logits` that a subclass computes.

    Batches contain `label` int32[b] and the inputs, float32[b, num_inputs], under the name of their kind.

    Attributes:
      kinds: Kinds of data that the subclass can classify.
      data: Labelled data that it is trained on.
      norm: Normalization of its layers.
    """

    kinds: tuple[str, ...] = ("image", "signal", "features")
    data: Labelled
    datasets: Datasets
    norm: Norm = Norm()

    def __init__(self, *, data: str, activation: str, batch_size: int) -> None:
        arguments.choice(
            self, "data", data, [name for name, labelled in LABELLED.items() if labelled.kind in self.kinds]
        )
        arguments.choice(self, "activation", activation, ACTIVATIONS)
        self.data = LABELLED[data]
        self.reference_loss = math.log(self.data.num_classes)
        self._activation = ACTIVATIONS[activation]
        self._gain = init_gain(activation)
        self.datasets = make_datasets(self.data.splits, arguments.integer(self, "batch_size", batch_size))

    def logits(self, params: Params, state: PyTree, inputs: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        """Returns logits float32[batch, num_classes] for float32[batch, num_inputs], and the state after them."""
        raise NotImplementedError(f"{type(self).__name__} defines no logits")

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        logits, state = self.logits(params, state, data[self.data.kind], training=True)
        loss, aux = classification(logits, data["label"])
        return loss, state, aux

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        logits, _ = self.logits(params, state, data[self.data.kind], training=False)
        return classification(logits, data["label"])

    def scale_invariant(self, params: PyTree) -> PyTree:
        """Returns, per parameter, the axis of its scale-invariant vectors; None if it is not scale-invariant.

        Weights `w0` or `kernel0` are invariant along axis 1 if a batch norm (with the parameter `scale0`) follows them.
        With `norm_epsilon = 0`, and without biases before the norm, multiplying the weights by eight changes no bit of
        the loss.
        """
        if self.norm.kind != "batch" or self.norm.groups:
            return super().scale_invariant(params)
        layers = {name.removeprefix("scale") for name in params if name.startswith("scale")}
        weights = {f"{kind}{layer}" for kind in ("w", "kernel") for layer in layers}
        return {name: 1 if name in weights else None for name in params}

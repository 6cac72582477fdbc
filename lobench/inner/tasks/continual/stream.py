"""A sequence of tasks as one task: each phase trains on one of them, and evaluations cover all of them."""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case
from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree
from lobench.inner.task import SPLITS, ArrayDataset, Batch, Datasets, Index, Task
from lobench.inner.tasks import arguments
from lobench.inner.tasks.classifier import Classifier
from lobench.inner.tasks.continual.memory import Examples, Memory
from lobench.inner.tasks.measured import Aux, LossStateAux
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.tasks.networks import Params
from lobench.inner.tasks.normalization import RUNNING_DECAY
from lobench.inner.tasks.objectives import accuracy, relative_loss, softmax_cross_entropy
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper

__all__ = ["Stream", "continual_metrics"]


_DIRECTIONS = {"forgetting": "min", "backward_transfer": "max"}


def _accuracy_of_task(index: int) -> str:
    """Returns the name of the accuracy on a task."""
    return f"accuracy_task_{index}"


def continual_metrics(
    metrics: Mapping[str, np.ndarray], steps: Sequence[int], ends: Sequence[int]
) -> dict[str, np.ndarray]:
    """Returns forgetting and backward transfer of each split, and the index of the current task (`train/task`).

    R[l, j] is the accuracy on task j at the end of task l. At an evaluation during task i, forgetting is the mean over
    tasks j < i of the highest R[l, j] with j <= l < i, minus the present accuracy on j. Backward transfer is the mean
    of the present accuracy on j minus R[j, j]. Both are 0 in the first task. Accuracy on a task before training on it
    does not count.

    Args:
      metrics: float32[num_seeds, num_evals] by name.
      steps: Inner steps of the evaluations.
      ends: Inner steps at which the tasks end. They are among `steps`.
    Source: Chaudhry et al. 2018 (forgetting); Lopez-Paz and Ranzato 2017 (backward transfer).
    """
    tasks = np.searchsorted(ends, steps)  # task that is trained before each evaluation
    columns = [steps.index(end) for end in ends if end in steps]
    values: dict[str, np.ndarray] = {}
    for split in SPLITS:
        if f"{split}/{_accuracy_of_task(0)}" not in metrics:
            continue
        # Axes: task, seed, evaluation.
        accuracies = np.stack([metrics[f"{split}/{_accuracy_of_task(task)}"] for task in range(len(ends))])
        accuracies_at_ends = accuracies[:, :, columns]  # R[i, j] is accuracies_at_ends[j, :, i]
        forgetting = np.zeros_like(accuracies[0])
        transfer = np.zeros_like(accuracies[0])
        for column, task in enumerate(tasks):
            if task:
                best_accuracies = np.stack([accuracies_at_ends[j, :, j:task].max(axis=1) for j in range(task)])
                forgetting[:, column] = (best_accuracies - accuracies[:task, :, column]).mean(axis=0)
                accuracies_after_training = np.stack([accuracies_at_ends[j, :, j] for j in range(task)])
                transfer[:, column] = (accuracies[:task, :, column] - accuracies_after_training).mean(axis=0)
        values |= {f"{split}/forgetting": forgetting, f"{split}/backward_transfer": transfer}
    if values:
        values["train/task"] = np.broadcast_to(tasks.astype(np.float32), accuracies[0].shape)
    return values


_PROTOCOLS = ("none", "global", "separate", "new", "frozen", "continual")
_OWN_NORM = ("separate", "new", "frozen")  # protocols that evaluate each task with its own batch norm

_PARAM_LEAVES = ("scale", "shift")
_STATE_LEAVES = ("mean", "variance")


def _norm_leaves(params: Params, network: Params) -> Params:
    """Returns the leaves of batch norm: scales and shifts from the parameters, and all of the model state."""
    layers = [name.removeprefix("mean") for name in network if name.startswith("mean")]
    param_leaves = {
        f"{leaf_name}{layer}": params[f"{leaf_name}{layer}"] for layer in layers for leaf_name in _PARAM_LEAVES
    }
    return param_leaves | {
        f"{leaf_name}{layer}": network[f"{leaf_name}{layer}"] for layer in layers for leaf_name in _STATE_LEAVES
    }


def _with_norm_leaves(params: Params, network: Params, leaves: Params) -> tuple[Params, Params]:
    """Returns parameters and model state with the given leaves of batch norm."""
    return (
        {name: leaves.get(name, leaf) for name, leaf in params.items()},
        {name: leaves.get(name, leaf) for name, leaf in network.items()},
    )


def _initial_norm(leaves: Params) -> Params:
    """Returns initial batch norm: scale and variance 1, shift and mean 0."""

    def identity_of(name: str, leaf: jax.Array) -> jax.Array:
        return jnp.ones_like(leaf) if name.startswith(("scale", "variance")) else jnp.zeros_like(leaf)

    return {name: identity_of(name, leaf) for name, leaf in leaves.items()}


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Stream(TaskWrapper):
    """Tasks of one classifier, trained one after another: a phase of the training is a task.

    `loss` and `accuracy` of an evaluation are means over the tasks started so far; `accuracy_task_0`, ... are those of
    single tasks. `forgetting` and `backward_transfer` are computed from these. After the last step `accuracy` is the
    mean over all tasks.

    The model state is a dict: `task` (index of the current task, int32[]), `network` (state of the classifier), and
    depending on the settings `memory` and its `step`, `stored` (batch norm by task) and `frozen` (weights of the first
    task).

    Args:
      task: Classifier. None: a perceptron on the digits.
      num_tasks: Number of tasks. Task i does not depend on it.
      protocol: Treatment of batch norm: "none", "global", "separate", "new", "frozen" or "continual".
      groups: Number of groups of features, normalized before batch norm, for the protocol "continual".
      memory_size: Number of examples kept of each task, filled evenly over its first pass. 0: none. An interleaved
        stream keeps none, because it has no earlier tasks.
      replay: Whether as many examples from the memory are added to each training batch.
      interleaved: Whether all tasks are trained at once, in one phase, as a reference for continual learning.
    """

    task: Task | None = None  # type: ignore[assignment]  # the classifier, once it is there
    num_tasks: int
    protocol: str = "none"
    groups: int = 4
    memory_size: int = 0
    replay: bool = False
    interleaved: bool = False

    def __post_init__(self) -> None:
        self.name = name = type(self).__name__
        classifier = MLPClassifier(data="digits", hidden_sizes=(32, 32)) if self.task is None else self.task
        if not isinstance(classifier, Classifier):
            raise ConfigError(f"{name}.task", got=repr(classifier), expected="a classifier, such as @MLPClassifier()")
        num_tasks = self.num_tasks
        protocol = self.protocol
        interleaved = self.interleaved
        self.classifier = _classifier_for_protocol(name, classifier, protocol, self.groups)
        self.labelled_data = classifier.data
        super().__init__(self.classifier)
        arguments.integer(self, "num_tasks", num_tasks)
        memory_size = arguments.integer(self, "memory_size", self.memory_size, at_least=0)
        self._has_memory = memory_size > 0 and not interleaved
        self.num_phases = 1 if interleaved else num_tasks
        self.metric_directions = _DIRECTIONS | {_accuracy_of_task(task): "max" for task in range(num_tasks)}
        self._has_norm_per_task = protocol in _OWN_NORM and num_tasks > 1
        advice = f"bind {name}.memory_size = 50, say: the examples kept of each task"
        if memory_size:
            self.memory_loss = self._memory_loss
        else:
            self.gives_if = {"memory": advice}
        if self.replay and not self._has_memory:
            cause = "interleaved = True: no task is earlier than another" if interleaved else "memory_size = 0"
            next_step = "" if interleaved else advice
            raise ConfigError(
                f"{name}.replay = True: the memory to replay from is missing",
                got=cause,
                next_step=next_step,
            )
        if interleaved and protocol in _OWN_NORM:
            expected = "'none', 'global' or 'continual': nothing is switched, and no task has its own batch norm"
            raise ConfigError(f"{name}.interleaved = True", got=f"protocol = {protocol!r}", expected=expected)

    datasets: Datasets = dataclasses.field(init=False)

    @abstractmethod
    def examples(self, data: Batch, task: Index) -> tuple[jax.Array, jax.Array]:
        """Returns the inputs, float32[b, num_inputs], and the labels of a task in a batch."""

    @abstractmethod
    def training_inputs(self) -> tuple[jax.Array, np.ndarray]:
        """Returns the training inputs of all tasks, float32[rows, num_inputs], and their tasks, int32[rows]."""

    def mask_logits(self, logits: jax.Array, tasks: jax.Array, *, training: bool) -> jax.Array:
        """Returns the logits, float32[b, num_classes], without the classes that are impossible in an example's task."""
        return logits

    @property
    def num_candidate_classes(self) -> int:
        """Number of classes among which an evaluation chooses."""
        return self.labelled_data.num_classes

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        params, network = self.classifier.init_with_state(key)
        state: dict[str, PyTree] = {
            "task": jnp.int32(self.num_tasks - 1 if self.interleaved else 0),
            "network": network,
        }
        if self._has_memory:
            state["memory"] = Memory.empty(self.num_tasks, self.memory_size, self.labelled_data.num_inputs)
            state["step"] = jnp.int32(0)
        if self._has_norm_per_task:
            leaves = _norm_leaves(params, network)
            state["stored"] = {name: jnp.stack([leaf] * self.num_tasks) for name, leaf in leaves.items()}
            if self.protocol == "frozen":
                state["frozen"] = {name: leaf for name, leaf in params.items() if name not in leaves}
        return params, state

    def enter_phase(self, params: PyTree, state: PyTree, index: Index) -> tuple[PyTree, PyTree]:
        network = state["network"]
        if self._has_norm_per_task:
            leaves = _norm_leaves(params, network)
            stored_rows = {name: rows.at[index - 1].set(leaves[name]) for name, rows in state["stored"].items()}
            state = {**state, "stored": stored_rows}
            if self.protocol == "new":
                params, network = _with_norm_leaves(params, network, _initial_norm(leaves))
            elif self.protocol == "frozen":
                frozen = {name: jnp.where(index == 1, params[name], leaf) for name, leaf in state["frozen"].items()}
                state = {**state, "frozen": frozen}
        if self._has_memory:
            state = {**state, "step": jnp.zeros_like(state["step"])}
        return params, {**state, "task": jnp.asarray(index, jnp.int32), "network": network}

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        batch = trained_batch = self._current_batch(state, key, data)
        if self.replay:
            remembered_examples, has_memory = state["memory"].draw(key, state["task"], len(batch.labels))
            # If the memory is empty, the batch is repeated, so that loss and batch norm are those of the batch alone.
            remembered_examples = jax.tree.map(
                lambda memory, batch_leaf: jnp.where(has_memory, memory, batch_leaf), remembered_examples, batch
            )
            trained_batch = jax.tree.map(
                lambda batch_leaf, remembered_leaf: jnp.concatenate([batch_leaf, remembered_leaf]),
                batch,
                remembered_examples,
            )
        logits, network = self._training_logits(params, state, trained_batch)
        loss = softmax_cross_entropy(logits, trained_batch.labels)
        size = len(batch.labels)
        new_state = {**state, "network": network}
        if self._has_memory:
            new_state["memory"] = state["memory"].after_step(batch, state["task"], state["step"], self._steps_per_pass)
            new_state["step"] = state["step"] + 1
        return loss, new_state, {"accuracy": accuracy(logits[:size], batch.labels)}

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        weights = self._params_in_use(params, state)
        common_network = self._global_statistics(weights, state) if self.protocol == "global" else state["network"]

        def loss_and_accuracy(task: jax.Array) -> tuple[jax.Array, jax.Array]:
            task_weights, network = weights, common_network
            if self._has_norm_per_task:
                task_weights, network = _with_norm_leaves(weights, network, self._norm_of_task(task, weights, state))
            inputs, labels = self.examples(data, task)
            logits, _ = self.classifier.logits(task_weights, network, inputs, training=False)
            logits = self.mask_logits(logits, jnp.broadcast_to(task, labels.shape), training=False)
            return softmax_cross_entropy(logits, labels), accuracy(logits, labels)

        tasks = jnp.arange(self.num_tasks)
        losses, accuracies = jax.vmap(loss_and_accuracy)(tasks)
        is_begun = tasks <= state["task"]

        def mean_of_begun_tasks(values: jax.Array) -> jax.Array:
            return jnp.sum(jnp.where(is_begun, values, 0.0)) / jnp.sum(is_begun)

        task_accuracies = {_accuracy_of_task(task): accuracies[task] for task in range(self.num_tasks)}
        return mean_of_begun_tasks(losses), {"accuracy": mean_of_begun_tasks(accuracies), **task_accuracies}

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss relative to a uniform guess: 1 is untrained, 0 perfect, 2 the maximum."""
        return relative_loss(loss, math.log(self.num_candidate_classes))

    def metrics_over_phases(
        self, metrics: Mapping[str, np.ndarray], steps: Sequence[int], ends: Sequence[int]
    ) -> Mapping[str, np.ndarray]:
        return continual_metrics(metrics, steps, ends) if len(ends) == self.num_tasks > 1 else {}

    def check_case(self, case: Case) -> None:
        count = max(len(case.phases), 1)
        metric = case.primary_metric.rpartition("/")[2]
        if count != self.num_phases:
            sequence = f"bind Case.phases = @task_sequence() and task_sequence.num_tasks = {self.num_tasks}"
            expected = "one: all tasks at once" if self.interleaved else f"{self.num_tasks}, one a task"
            next_step = "leave Case.phases out" if self.num_phases == 1 else sequence
            raise ConfigError(
                f"the phases are not those of {self.name}",
                got=str(count),
                expected=expected,
                next_step=next_step,
            )
        if metric in _DIRECTIONS and self.num_phases == 1:
            reason = "all tasks are trained at once" if self.interleaved else "there is one task"
            raise ConfigError(
                f"Case.primary_metric = {case.primary_metric!r}: {reason}, and nothing comes after it to forget it for",
                expected="a stream of two tasks or more",
                next_step="ask for test/accuracy, or bind more tasks",
            )
        if self._has_memory and case.sessions == "mean":
            raise ConfigError(
                f"{self.name}.memory_size: replicas whose mean makes one update have no memory in common",
                got="Case.sessions = 'mean'",
                expected="'apart', 'shared' or 'synced'",
            )

    @property
    def _steps_per_pass(self) -> int:
        train = self.datasets.train
        assert isinstance(train, ArrayDataset)
        return -(-train.num_examples // train.batch_size)

    def _current_batch(self, state: PyTree, key: jax.Array, data: Batch) -> Examples:
        """Returns a batch of the current task; in an interleaved stream, each example is of a random task."""
        if not self.interleaved:
            inputs, labels = self.examples(data, state["task"])
            return Examples(inputs, labels, jnp.broadcast_to(state["task"], labels.shape))
        inputs, labels = jax.vmap(lambda task: self.examples(data, task))(jnp.arange(self.num_tasks))
        rows = jnp.arange(labels.shape[1])
        tasks = jax.random.randint(key, rows.shape, 0, self.num_tasks)
        return Examples(inputs[tasks, rows], labels[tasks, rows], tasks)

    def _memory_loss(self, params: PyTree, state: PyTree, key: jax.Array) -> jax.Array:
        """Returns the loss on as many examples of earlier tasks as a batch has; 0 for an empty memory."""
        if not self._has_memory:
            return jnp.float32(0.0)
        train = self.datasets.train
        assert isinstance(train, ArrayDataset)
        remembered_examples, has_memory = state["memory"].draw(key, state["task"], train.batch_size)
        loss = softmax_cross_entropy(
            self._training_logits(params, state, remembered_examples)[0], remembered_examples.labels
        )
        return jnp.where(has_memory, loss, 0.0)

    def _training_logits(self, params: PyTree, state: PyTree, batch: Examples) -> tuple[jax.Array, PyTree]:
        """Returns the logits in training, and the new state of the network."""
        logits, network = self.classifier.logits(
            self._params_in_use(params, state), state["network"], batch.inputs, training=True
        )
        return self.mask_logits(logits, batch.tasks, training=True), network

    def _params_in_use(self, params: PyTree, state: PyTree) -> PyTree:
        """Returns the parameters in use: those of the first task once they are frozen, regardless of updates."""
        if "frozen" not in state:
            return params
        is_frozen = state["task"] > 0
        return params | {
            name: jnp.where(is_frozen, jax.lax.stop_gradient(leaf), params[name])
            for name, leaf in state["frozen"].items()
        }

    def _norm_of_task(self, task: jax.Array, weights: PyTree, state: PyTree) -> PyTree:
        """Returns a task's batch norm: for earlier tasks as stored at their end, otherwise the current one."""
        current_leaves = _norm_leaves(weights, state["network"])
        return {
            name: jnp.where(task < state["task"], rows[task], current_leaves[name])
            for name, rows in state["stored"].items()
        }

    def _global_statistics(self, weights: PyTree, state: PyTree) -> PyTree:
        """Returns running statistics of one pass over the training data of all tasks started so far.

        Source: Pham et al. 2022, "Continual normalization", BN*.
        """
        inputs, tasks = self.training_inputs()
        zero_statistics = jax.tree.map(jnp.zeros_like, state["network"])
        weighted_state = {**zero_statistics, "row_weights": (tasks <= state["task"]).astype(jnp.float32)}
        new_statistics = self.classifier.logits(weights, weighted_state, inputs, training=True)[1]
        return {name: new_statistics[name] / (1 - RUNNING_DECAY) for name in zero_statistics}


def _classifier_for_protocol(name: str, task: Classifier, protocol: str, groups: int) -> Classifier:
    """Returns the classifier with the norm that a protocol needs.

    Raises:
      ConfigError: The protocol is unknown, or needs batch norm and the classifier has none.
    """
    arguments.choice(name, "protocol", protocol, _PROTOCOLS)
    if protocol == "none":
        return task
    if task.norm.kind != "batch":
        raise ConfigError(
            f"{name}.protocol = {protocol!r} is about batch norm",
            got=f"{type(task).__name__} with norm = {task.norm.kind!r}",
            next_step=f"bind {type(task).__name__}.norm = 'batch'",
        )
    if protocol != "continual":
        return task
    grouped_classifier = copy.copy(task)
    grouped_classifier.norm = dataclasses.replace(task.norm, groups=arguments.integer(name, "groups", groups))
    return grouped_classifier

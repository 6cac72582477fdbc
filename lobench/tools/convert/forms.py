"""Formats of published weights, with the leaf of a theta for each name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lobench.core.errors import UsageError

__all__ = ["FORMS", "ConvertedWeights", "WeightsForm", "convert_leaves", "export_leaves", "unchanged_leaves"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsForm:
    """Format of the weights that a package publishes.

    Attributes:
      name: Classes whose state dicts have this format.
      optimizers: Optimizers of lobench that can use the weights. The first one is the default.
      leaves: Path of lobench's leaf by published name. If there are several paths, the weight is split along its
        inputs.
      is_transposed: Whether weights are [..., outputs, inputs], as in torch's layers.
      unused_names: Published names whose values are not used.
      constants: Leaves that are not in the file, because they are in the package's code, by optimizer.
      size_settings: Settings of optimizers that are sizes of weights, as name -> (published name, axis).
      fixed_settings: Other settings for which the package and lobench have different defaults, by optimizer.
      package_classes: The package's optimizer, by optimizer of lobench. Weights of other optimizers are not exported.
      config: Arguments of the package's network besides `size_settings`, as in its config.json.
    """

    name: str
    optimizers: tuple[str, ...]
    leaves: Mapping[str, str | tuple[str, ...]]
    is_transposed: bool = False
    unused_names: tuple[str, ...] = ()
    constants: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    size_settings: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    fixed_settings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    package_classes: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedWeights:
    """Weights as a checkpoint.

    Attributes:
      form: Name of the format of the file.
      optimizer: Optimizer of lobench that uses the weights.
      theta: float32 leaves by path.
      matched_leaves: Published name, path and shape of each leaf. The name is "" for a leaf that is not in the file.
      bindings: Settings of the optimizer as gin lines, such as "ELO.hidden_size = 32". Of an export, arguments of the
        package's optimizer: "AdafacLO_naive.rms_decays = [0.1]".
      config: Arguments of the package's network, for an export.
    """

    form: str
    optimizer: str
    theta: Mapping[str, np.ndarray]
    matched_leaves: tuple[tuple[str, str, tuple[int, ...]], ...]
    bindings: tuple[str, ...]
    config: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_params(self) -> int:
        return sum(leaf.size for leaf in self.theta.values())


_LAYER_INDICES = {"network.input": 0, "network.linear_0": 1, "network.output": 2}
_CELO2_NAMES = [*(f"w0.{index}" for index in range(14)), "b0", "dense_w.0", "dense_w.1", "dense_b.0", "dense_b.1"]
# Meta-trained shifts of the decays. In PyLO they are defaults of AdafacLO and MuLO, and not in a file.
_DECAY_SHIFTS = {
    "momentum_decays": (0.15216392, 0.14245212, 0.06812963),
    "rms_decays": (0.01079706,),
    "adafactor_decays": (0.18621896, -0.10864615, -0.06185547),
}
_RECURRENT_NAMES = {
    "mix_layer1": "linear",
    "mix_layer2": "linear_1",
    "final_mix_layer": "linear_2",
    "lstm.linear": "rnn/linear",
    "rnn_to_controls": "rnn_to_controls",
    "step_size": "step_size",
}
_MLP_STACK = "ff_mod_stack/~"
FORMS = (
    WeightsForm(
        name="MetaMLP",
        optimizers=("ELO", "AdafacMLPLOpt", "MuLO"),
        leaves={
            **{f"{layer}.weight": f"nn/~/w{index}" for layer, index in _LAYER_INDICES.items()},
            **{f"{layer}.bias": f"nn/~/b{index}" for layer, index in _LAYER_INDICES.items()},
        },
        is_transposed=True,
        constants={"AdafacMLPLOpt": _DECAY_SHIFTS, "MuLO": _DECAY_SHIFTS},
        size_settings={"hidden_size": ("network.input.weight", 0)},
        fixed_settings={"AdafacMLPLOpt": {"step_mult": 0.01}},
        package_classes={"ELO": "ELO_naive", "AdafacMLPLOpt": "AdafacLO_naive", "MuLO": "MuLO_naive"},
        config={"input_size": 39, "hidden_layers": 1},
    ),
    WeightsForm(
        name="CELO2MLP",
        optimizers=("Celo2", "EloCelo2"),
        leaves={name: name for name in _CELO2_NAMES},
        package_classes={"Celo2": "CELO2_naive", "EloCelo2": "ELO_CELO2_naive"},
    ),
    WeightsForm(
        name="VeLORNN and VeLOMLP",
        optimizers=("VeLO",),
        leaves={
            **{f"{theirs}.weight": f"rnn_params/{ours}/w" for theirs, ours in _RECURRENT_NAMES.items()},
            **{f"{theirs}.bias": f"rnn_params/{ours}/b" for theirs, ours in _RECURRENT_NAMES.items()},
            **{f"lstm_init_state.{index}": f"lstm_init_state/{part}" for index, part in enumerate(("hidden", "cell"))},
            "input_weights_": tuple(f"{_MLP_STACK}/w0__{index}" for index in range(14)),
            "input_bias_": f"{_MLP_STACK}/b0",
            "hidden_weights_.0": f"{_MLP_STACK}/w1",
            "hidden_bias_.0": f"{_MLP_STACK}/b1",
            "output_weights_": f"{_MLP_STACK}/w2",
            "output_bias_": f"{_MLP_STACK}/b2",
        },
        is_transposed=True,
        # The network that was mixed last, for an arbitrary tensor.
        unused_names=(
            "input_weights",
            "input_bias",
            "hidden_weights.0",
            "hidden_bias.0",
            "output_weights",
            "output_bias",
        ),
        size_settings={
            "lstm_hidden_size": ("rnn_to_controls.weight", 1),
            "param_inits": ("input_weights_", 0),
            "ff_hidden_size": ("input_weights_", 1),
        },
    ),
)


def convert_leaves(leaves: Mapping[str, np.ndarray], optimizer: str | None, where: str) -> ConvertedWeights:
    """Returns weights under lobench's names.

    Args:
      leaves: Weights by published name.
      optimizer: Optimizer of lobench. None: the first one of the format.
      where: Name of the files, for messages.
    Raises:
      UsageError: No format has exactly these names, or the format is for other optimizers.
    """
    form = max(FORMS, key=lambda published_form: len(published_form.leaves.keys() & leaves.keys()))
    missing_names = sorted(form.leaves.keys() - leaves.keys())
    unknown_names = sorted(leaves.keys() - form.leaves.keys() - set(form.unused_names))
    if missing_names or unknown_names:
        known_forms = ", ".join(published_form.name for published_form in FORMS)
        differences = "; ".join(
            f"{preposition} {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"
            for preposition, names in (("without", missing_names), ("with", unknown_names))
            if names
        )
        raise UsageError("unknown published weights", where=where, got=differences, expected=known_forms)
    if optimizer is not None and optimizer not in form.optimizers:
        expected = " or ".join(form.optimizers)
        raise UsageError(f"{form.name} is not what {optimizer} trains with", where=where, expected=expected)
    optimizer_name = optimizer or form.optimizers[0]
    theta: dict[str, np.ndarray] = {}
    matched_leaves = []
    for foreign_name, lobench_name in form.leaves.items():
        leaf = np.asarray(leaves[foreign_name], np.float32)
        if form.is_transposed and "weight" in foreign_name:
            leaf = np.swapaxes(leaf, -1, -2)
        leaves_by_path = (
            {lobench_name: leaf} if isinstance(lobench_name, str) else _split_first_layer(leaf, lobench_name, where)
        )
        theta |= {path: np.ascontiguousarray(leaf_part) for path, leaf_part in leaves_by_path.items()}
        matched_leaves += [(foreign_name, path, leaf_part.shape) for path, leaf_part in leaves_by_path.items()]
    for path, values in form.constants.get(optimizer_name, {}).items():
        theta[path] = np.asarray(values, np.float32)
        matched_leaves.append(("", path, theta[path].shape))
    settings: dict[str, float] = {
        name: leaves[foreign_name].shape[axis] for name, (foreign_name, axis) in form.size_settings.items()
    }
    settings |= form.fixed_settings.get(optimizer_name, {})
    bindings = tuple(f"{optimizer_name}.{name} = {value}" for name, value in settings.items())
    return ConvertedWeights(
        form=form.name, optimizer=optimizer_name, theta=theta, matched_leaves=tuple(matched_leaves), bindings=bindings
    )


def export_leaves(theta: Mapping[str, np.ndarray], optimizer: str, where: str) -> ConvertedWeights:
    """Returns a theta under a package's names: the inverse of `convert_leaves`.

    Args:
      theta: Leaves by path, in the structure of the optimizer.
      optimizer: Class of the optimizer.
      where: Name of the checkpoint, for messages.
    Raises:
      UsageError: The package has no such optimizer, or keeps its weights in several files.
    """
    form = next((published_form for published_form in FORMS if optimizer in published_form.package_classes), None)
    if form is None:
        known_classes = ", ".join(name for published_form in FORMS for name in published_form.package_classes)
        raise UsageError(
            "PyLO's format has no such optimizer", where=where, got=optimizer, expected=f"one of {known_classes}"
        )
    leaves, matched_leaves = {}, []
    for foreign_name, lobench_name in form.leaves.items():
        leaf = np.asarray(theta[str(lobench_name)], np.float32)
        leaves[foreign_name] = np.ascontiguousarray(leaf.T if form.is_transposed and "weight" in foreign_name else leaf)
        matched_leaves.append((foreign_name, str(lobench_name), leaf.shape))
    shifts = form.constants.get(optimizer, {})
    bindings = [
        f"{form.package_classes[optimizer]}.{path} = {[float(value) for value in theta[path]]}" for path in shifts
    ]
    sizes = {name: leaves[foreign_name].shape[axis] for name, (foreign_name, axis) in form.size_settings.items()}
    return ConvertedWeights(
        form=form.name,
        optimizer=optimizer,
        theta=leaves,
        matched_leaves=tuple(matched_leaves),
        bindings=tuple(bindings),
        config={**form.config, **sizes},
    )


def unchanged_leaves(leaves: Mapping[str, np.ndarray], optimizer: str) -> ConvertedWeights:
    """Returns a checkpoint under its own names, for an export in lobench's format."""
    matched_leaves = tuple((path, path, leaf.shape) for path, leaf in leaves.items())
    return ConvertedWeights(
        form="AlgoPerf", optimizer=optimizer, theta=leaves, matched_leaves=matched_leaves, bindings=()
    )


def _split_first_layer(leaf: np.ndarray, names: Sequence[str], where: str) -> dict[str, np.ndarray]:
    """Splits the weights of a first layer by block of features."""
    from lobench.inner.optimizers.celo import BLOCK_CHANNELS

    if leaf.ndim != 3 or leaf.shape[1] != sum(BLOCK_CHANNELS):
        raise UsageError("no first layers of VeLO", where=where, got=str(leaf.shape), expected="[networks, 30, width]")
    blocks = np.split(leaf, np.cumsum(BLOCK_CHANNELS)[:-1], axis=1)
    return dict(zip(names, blocks, strict=True))

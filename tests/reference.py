"""Where the reference data lie, and the reference task as they define it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]


def reference_data() -> Path:
    """Returns the folder of reference data, which every checkout holds; its NOTICE.md says whose they are."""
    return ROOT / "tests" / "data" / "reference"


def reference_curves() -> dict[str, list[dict[str, Any]]]:
    return json.loads((reference_data() / "reference_curves.json").read_text())


def curves_of_learned_optimization() -> dict[str, dict[str, Any]]:
    return json.loads((reference_data() / "reference_curves_2.json").read_text())


def reference_theta(name: str) -> dict[str, np.ndarray]:
    """Returns the leaves of a checkpoint by path: of a file's stem, of one with `_p` behind it, or of `drawn(7)`."""
    if name.startswith("drawn("):
        return drawn(int(name[len("drawn(") : -1]))
    if name.endswith("_p"):
        leaves, generator = reference_theta(name.removesuffix("_p")), np.random.default_rng(1)
        noise = {path: 0.01 * generator.standard_normal(leaves[path].shape) for path in sorted(leaves)}
        return {path: (leaf + noise[path]).astype(np.float32) for path, leaf in leaves.items()}
    folder = reference_data() / "checkpoints"
    if (packed := folder / f"{name}_bytes.npz").exists():
        return {path: np.moveaxis(planes, 0, -1).copy().view("<f4")[..., 0] for path, planes in np.load(packed).items()}
    if (file := folder / f"{name}.npz").exists():
        return dict(np.load(file))
    from flax.serialization import msgpack_restore
    from flax.traverse_util import flatten_dict

    return flatten_dict(msgpack_restore((folder / f"{name}.msgpack").read_bytes()), sep="/")


def drawn(seed: int, hidden: int = 512, num_networks: int = 256) -> dict[str, np.ndarray]:
    """Returns a theta of HyperV2 from one generator, of VeLO's size if none is said."""
    channels = (1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3)
    network = {f"w0__{index}": (num_networks, count, 4) for index, count in enumerate(channels)}
    network |= {"w1": (num_networks, 4, 4), "w2": (num_networks, 4, 3)}
    network |= {"b0": (num_networks, 4), "b1": (num_networks, 4), "b2": (num_networks, 3)}
    layers = {"linear": (30, hidden), "linear_1": (30, hidden), "linear_2": (30, hidden), "step_size": (hidden, 1)}
    layers |= {"rnn/linear": (2 * hidden, 4 * hidden), "rnn_to_controls": (hidden, num_networks)}
    shapes = {f"ff_mod_stack/~/{name}": shape for name, shape in network.items()}
    shapes |= {f"lstm_init_state/{name}": (1, hidden) for name in ("hidden", "cell")}
    for name, shape in layers.items():
        shapes |= {f"rnn_params/{name}/w": shape, f"rnn_params/{name}/b": shape[1:]}
    generator, leaves = np.random.default_rng(seed), {}
    for path in sorted(shapes):
        normal = generator.standard_normal(shapes[path])
        is_weight = path.rsplit("/", 1)[1].startswith("w")
        leaves[path] = (normal / np.sqrt(shapes[path][-2]) if is_weight else 0.01 * normal).astype(np.float32)
    return leaves


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns (images, labels) of train and test."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    order = np.random.default_rng(12345).permutation(1797)
    train, test = order[:1437], order[1437:]
    return (images[train], labels[train]), (images[test], labels[test])


def initial_params(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    w0 = generator.standard_normal((64, 32)) * np.sqrt(2 / 64)
    w1 = generator.standard_normal((32, 10)) * np.sqrt(1 / 32)
    zeros = {"b0": np.zeros(32, np.float32), "b1": np.zeros(10, np.float32)}
    return {"w0": w0.astype(np.float32), "w1": w1.astype(np.float32), **zeros}


def batch_indices(seed: int, num_steps: int = 500) -> np.ndarray:
    generator = np.random.default_rng(1000 + seed)
    return np.stack([generator.integers(0, 1437, 64) for _ in range(num_steps)])


def relative_error(losses: Any, recorded: Any) -> np.ndarray:
    """Returns the relative error of each loss, beyond what the record's own rounding can have done.

    The curves are recorded to seven decimals: a loss of .0015 is known to 3e-5 of itself and no better. (L2O-DM, which
    goes that low, agrees in every recorded digit; another order of summation in its products is 100% off by step 60.)
    """
    expected = np.asarray(recorded)
    return np.maximum(np.abs(np.asarray(losses, np.float64) - expected) - 0.5e-7, 0) / expected

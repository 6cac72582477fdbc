"""The reference checkpoints through `lobench watch` and pytest, on the reference task fed by an iterator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from reference import reference_curves, reference_data
from reference_training import assert_follows
from tiny import results, watch

TASK = '''
import sys
sys.path.insert(0, {tests!r})
import jax, jax.numpy as jnp, numpy as np
from lobench import Datasets, IteratorDataset, Task, configurable
from reference import batch_indices, digits, initial_params

@configurable
class DigitsRef(Task):
    """Initial parameters and batches are numpy's, by seed."""
    def __init__(self):
        (images, labels), _ = digits()
        def batches(seed):
            return ((images[rows], labels[rows]) for rows in batch_indices(seed))
        self.datasets = Datasets(train=IteratorDataset(batches))
    def init(self, key):
        keys = [jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), 0) for seed in (0, 1)]
        is_one = jnp.all(jax.random.key_data(key) == jax.random.key_data(keys[1]))
        return jax.tree.map(lambda a, b: jnp.where(is_one, b, a), initial_params(0), initial_params(1))
    def loss(self, params, key, data):
        hidden = jax.nn.relu(data[0] @ params["w0"] + params["b0"])
        logits = jax.nn.log_softmax(hidden @ params["w1"] + params["b1"])
        return -jnp.mean(jnp.take_along_axis(logits, data[1][:, None], axis=1))
'''

GIN = """
import reference_task
Case.num_inner_steps = 500
Case.num_seeds = 2
Case.seed_block = 1
Case.eval_every = 500
Case.log_every = 1
ref/Case.task = @DigitsRef()
"""


@pytest.fixture(autouse=True)
def as_users_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags of tests round otherwise, and long trainings part from the recorded ones by that."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place") / "reference_suite"
    folder.mkdir()
    (folder / "reference_task.py").write_text(TASK.format(tests=str(Path(__file__).parent)))
    (folder / "ref.gin").write_text(GIN)
    return folder


def check(store: Path, name: str) -> None:
    reference = reference_curves()[name]
    found = results(store, "--curves")
    assert sorted(record["seeds"] for record in found) == [[0], [1]]
    for record in found:
        (seed,) = record["seeds"]
        losses, recorded = record["curves"]["batch/loss"][0], reference[seed]["batch_loss"]
        assert_follows(losses, recorded, name, seed)


def test_through_watch(suite: Path, tmp_path: Path) -> None:
    checkpoint = reference_data() / "checkpoints" / "celo.msgpack"
    options = ("--once", "--workers", "1", "--gin-param", "Case.learned_optimizer = @Celo()")
    done = watch(checkpoint, suite / "ref.gin", *options, "--store", str(tmp_path / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    check(tmp_path / "store", "celo")


def test_through_pytest(suite: Path, tmp_path: Path) -> None:
    checkpoint = reference_data() / "checkpoints" / "mlp_lopt.npz"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(suite / "ref.gin"),
        "--rootdir",
        str(suite),
        "-p",
        "no:cacheprovider",
    ]
    command += ["--lobench-checkpoint", str(checkpoint), "--lobench-store", str(tmp_path / "store")]
    command += ["--lobench-gin-param", "Case.learned_optimizer = @MLPLOpt()", "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    check(tmp_path / "store", "mlp_lopt")

"""`lobench convert`, and `.pt` files that are read without torch."""

from __future__ import annotations

import io
import json
import pickle
import runpy
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from commands import lobench
from etils import epath
from reference import ROOT, reference_theta
from safetensors.numpy import load_file, save_file
from shown import texts_of
from tiny import make_run, make_suite, watch_here

from lobench import CheckpointError, evaluate, load_optimizer
from lobench.analysis.comparisons.summary import summary_of
from lobench.core.errors import PickleRefused
from lobench.engine.checkpoints.torch_file import TorchReader
from lobench.inner.optimizers import VeLO
from lobench.inner.theta import match_theta
from lobench.report.tables.text import interval_cell, markdown_line

SHOWN = texts_of("convert")

PYLO = ROOT / "tests/data/reference/pylo"
META, CELO2 = dict(np.load(PYLO / "metamlp_theta0.npz")), dict(np.load(PYLO / "celo2_theta0.npz"))


def read(path: Path) -> dict[str, np.ndarray]:
    return dict(TorchReader().read(epath.Path(path)).leaves)


def archive(path: Path, pickled: bytes, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickled)
        for name, content in members.items():
            file.writestr(f"archive/data/{name}", content)
    return path


def test_what_torch_has_saved_is_read_without_it() -> None:
    found = read(PYLO / "metamlp_theta0.pt")
    assert set(found) == set(META)
    for name, leaf in META.items():
        np.testing.assert_array_equal(found[name], leaf)


def test_every_form_of_weights_gives_the_same_checkpoint(tmp_path: Path) -> None:
    save_file(META, tmp_path / "meta.safetensors")
    thetas = []
    for number, file in enumerate(
        (PYLO / "metamlp_theta0.pt", PYLO / "metamlp_theta0.npz", tmp_path / "meta.safetensors")
    ):
        done = lobench("convert", file, "--output", f"{number}.npz", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert SHOWN["network-linear-0-weight-nn"] in done.stdout
        assert SHOWN["metamlp-2-402-parameters-all"] in done.stdout
        thetas.append(dict(np.load(tmp_path / f"{number}.npz")))
    for theta in thetas:
        assert set(theta) == {f"nn/~/{kind}{layer}" for kind in "wb" for layer in range(3)}
        np.testing.assert_array_equal(theta["nn/~/w0"], META["network.input.weight"].T)
        np.testing.assert_array_equal(theta["nn/~/b2"], META["network.output.bias"])


def test_what_it_writes_trains_and_says_so_to_programs(tmp_path: Path) -> None:
    np.savez(tmp_path / "celo2.npz", **CELO2)
    done = lobench(
        "convert", "celo2.npz", "--optimizer", "EloCelo2", "--output", "t.npz", "--format", "json", cwd=tmp_path
    )
    output = json.loads(done.stdout)
    assert (output["form"], output["optimizer"], len(output["leaves"])) == ("CELO2MLP", "EloCelo2", 19)
    lines = (
        "import lobench.inner.tasks.quadratic",
        "Case.num_inner_steps = 5",
        "Case.num_seeds = 1",
        "Case.eval_every = 5",
        "q/Case.task = @Quadratic()",
    )
    (tmp_path / "s.gin").write_text("\n".join(lines))
    params = ["Case.learned_optimizer = @EloCelo2()"]
    result = evaluate(tmp_path / "s.gin", checkpoint=tmp_path / "t.npz", gin_params=params)
    assert not result.diverged.any()


def velo_leaves(networks: int = 3, hidden: int = 5) -> dict[str, np.ndarray]:
    """Returns what VeLORNN.state_dict() and VeLOMLP.state_dict() hold, of other sizes."""
    shapes = dict.fromkeys(("mix_layer1", "mix_layer2", "final_mix_layer"), (hidden, 30))
    shapes |= {"lstm.linear": (4 * hidden, 2 * hidden), "rnn_to_controls": (networks, hidden), "step_size": (1, hidden)}
    leaves: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        leaves |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    leaves |= {f"lstm_init_state.{index}": (1, hidden) for index in range(2)}
    for name, shape in {"input{}": (4, 30), "hidden{}.0": (4, 4), "output{}": (3, 4)}.items():
        leaves |= {name.format("_weights"): shape, name.format("_weights_"): (networks, *shape)}
        leaves |= {name.format("_bias"): shape[:1], name.format("_bias_"): (networks, *shape[:1])}
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in leaves.items()}


def test_velo_is_put_together_of_its_two_parts(tmp_path: Path) -> None:
    leaves = velo_leaves()
    is_mlp = {name: name.startswith(("input_", "hidden_", "output_")) for name in leaves}
    for part in (False, True):
        np.savez(tmp_path / f"{'rnn' if part else 'mlp'}.npz", **{k: v for k, v in leaves.items() if is_mlp[k] != part})
    done = lobench("convert", "rnn.npz", "mlp.npz", "--output", "velo.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    who = "'velo.npz; Case.learned_optimizer = @VeLO(); VeLO.lstm_hidden_size = 5; VeLO.param_inits = 3; VeLO.ff_hidden"
    assert who in done.stdout
    theta = dict(np.load(tmp_path / "velo.npz"))
    first = np.concatenate([theta[f"ff_mod_stack/~/w0__{index}"] for index in range(14)], axis=1)
    np.testing.assert_array_equal(first, leaves["input_weights_"].swapaxes(1, 2))
    np.testing.assert_array_equal(theta["rnn_params/linear_1/w"], leaves["mix_layer2.weight"].T)
    match_theta(theta, VeLO(5, 3), where="velo.npz")
    twice = lobench("convert", "rnn.npz", "rnn.npz", "--output", "no.npz", cwd=tmp_path)
    assert twice.returncode == 2 and SHOWN["two-files-have-a-weight"] in twice.stderr


def test_what_pylo_keeps_in_a_class_is_in_the_checkpoint(tmp_path: Path) -> None:
    np.savez(tmp_path / "meta.npz", **META)
    done = lobench("convert", "meta.npz", "--optimizer", "AdafacMLPLOpt", "--output", "a.npz", cwd=tmp_path)
    assert "AdafacMLPLOpt.hidden_size = 32; AdafacMLPLOpt.step_mult = 0.01" in done.stdout
    np.testing.assert_allclose(np.load(tmp_path / "a.npz")["rms_decays"], [0.01079706])


@pytest.mark.parametrize(
    ("leaves", "options", "output"),
    [
        ({"a": META["network.input.bias"]}, (), SHOWN["unknown-published-weights-got-without"]),
        ({**META, "extra": np.zeros(3)}, (), SHOWN["got-with-extra-expected-metamlp"]),
        (
            META,
            ("--optimizer", "Celo2"),
            SHOWN["metamlp-is-not-what-celo2"],
        ),
        (META, ("--output", "out.pt"), SHOWN["output-got-out-pt-expected"]),
    ],
    ids=["foreign", "one too many", "another optimizer", "another suffix"],
)
def test_what_does_not_fit_is_said_in_a_line(
    tmp_path: Path, leaves: Any, options: tuple[str, ...], output: str
) -> None:
    np.savez(tmp_path / "in.npz", **leaves)
    usual = () if "--output" in options else ("--output", "out.npz")
    done = lobench("convert", "in.npz", *usual, *options, cwd=tmp_path)
    assert done.returncode == 2 and output in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out.npz").exists()


class Evil:
    """Touches a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def test_nothing_that_a_pickle_names_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "was-here"
    with pytest.raises(PickleRefused, match=SHOWN["it-holds-more-than-tensors"]):
        read(archive(tmp_path / "evil.pt", pickle.dumps({"a": Evil(marker)}, protocol=2)))
    assert not marker.exists()


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, (5,), (1,)),
        (3, (2,), (1,)),
        (-1, (1,), (1,)),
        (0, (2,), (-1,)),
        (0, (1 << 40,), (0,)),
        (0, (1 << 20,) * 4, (0,) * 4),
    ],
)
def test_a_tensor_beyond_its_numbers_is_refused(
    tmp_path: Path, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    # The opcodes that torch.save writes, by hand: its functions are not here to be named.
    storage = pickle.PROTO + b"\x02" + pickle.GLOBAL + b"torch._utils\n_rebuild_tensor_v2\n" + pickle.MARK
    storage += pickle.MARK + _text("storage") + pickle.GLOBAL + b"torch\nFloatStorage\n" + _text("0") + _text("cpu")
    storage += _number(4) + pickle.TUPLE + pickle.BINPERSID + _number(offset)
    for numbers in (size, stride):
        storage += pickle.MARK + b"".join(map(_number, numbers)) + pickle.TUPLE
    storage += pickle.TUPLE + pickle.REDUCE + pickle.STOP
    path = archive(tmp_path / "t.pt", storage, **{"0": np.arange(4, dtype=np.float32).tobytes()})
    with pytest.raises(CheckpointError, match=SHOWN["cannot-read-it-as-torch"]):
        read(path)


def _text(text: str) -> bytes:
    return pickle.BINUNICODE + len(text).to_bytes(4, "little") + text.encode()


def _number(value: int) -> bytes:
    return pickle.INT + str(value).encode() + b"\n"


@pytest.mark.parametrize("kept", [0, 1, 100, 5000])
def test_half_a_file_is_one_clear_error(tmp_path: Path, kept: int) -> None:
    whole = (PYLO / "metamlp_theta0.pt").read_bytes()
    (tmp_path / "half.pt").write_bytes(whole[:kept])
    with pytest.raises(CheckpointError):
        read(tmp_path / "half.pt")
    assert not TorchReader().is_complete(epath.Path(tmp_path / "half.pt"))
    buffer = io.BytesIO(pickle.dumps({"a": 1}))
    (tmp_path / "old.pt").write_bytes(buffer.getvalue())
    with pytest.raises(PickleRefused, match="weights_only=True"):
        read(tmp_path / "old.pt")


@pytest.mark.parametrize(
    ("weights", "optimizer"),
    [
        (META, "ELO(hidden_size=32)"),
        (META, "AdafacMLPLOpt(hidden_size=32)"),
        (META, "MuLO(hidden_size=32, hidden='w1', base_width=4)"),
        (CELO2, "Celo2"),
        (CELO2, "EloCelo2"),
    ],
    ids=["ELO", "AdafacMLPLOpt", "MuLO", "Celo2", "EloCelo2"],
)
def test_export_to_pylo_is_the_inverse_of_the_import(
    tmp_path: Path, weights: dict[str, np.ndarray], optimizer: str
) -> None:
    np.savez(tmp_path / "in.npz", **weights)
    name = optimizer.partition("(")[0]
    assert lobench("convert", "in.npz", "--optimizer", name, "--output", "t.npz", cwd=tmp_path).returncode == 0
    words = ("--to", "pylo", "--optimizer", optimizer, "--output", "out/model.safetensors", "--format", "json")
    done = lobench("convert", "t.npz", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    exported = load_file(tmp_path / "out/model.safetensors")
    assert set(exported) == set(weights)
    for path, leaf in weights.items():
        np.testing.assert_array_equal(exported[path], leaf)
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config == ({} if weights is CELO2 else {"input_size": 39, "hidden_layers": 1, "hidden_size": 32})
    bindings = json.loads(done.stdout)["bindings"]
    kinds = ("momentum", "rms", "adafactor") if name in ("AdafacMLPLOpt", "MuLO") else ()
    assert [line.partition(" = ")[0].partition(".")[2] for line in bindings] == [f"{kind}_decays" for kind in kinds]


def test_export_next_to_another_config_is_an_error_and_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    np.savez(tmp_path / "in.npz", **CELO2)
    words = ("--optimizer", "Celo2", "--output", "model.safetensors")
    done = lobench("convert", "in.npz", "--to", "pylo", *words, cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["folder-has-another-config-json"] in done.stderr
    assert (tmp_path / "config.json").read_text() == '{"model_type": "bert"}'
    assert not (tmp_path / "model.safetensors").exists()


def test_export_of_what_pylo_lacks_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "dm.npz", **reference_theta("dm"))
    words = ("--to", "pylo", "--optimizer", "L2ODM", "--output")
    done = lobench("convert", "dm.npz", *words, "model.safetensors", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["pylo-s-format-has-no"] in done.stderr.replace("dm.npz: ", "")
    np.savez(tmp_path / "celo2.npz", **CELO2)
    done = lobench("convert", "celo2.npz", "--to", "pylo", "--optimizer", "Celo2", "--output", "a.npz", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["expected-a-file-that-ends"] in done.stderr


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one checkpoint and its `config.gin`, evaluated on a suite of one case."""
    folder = tmp_path_factory.mktemp("watched")
    run = make_run(folder, -3.0)
    assert watch_here(run, make_suite(folder), "--once", "--checkpoints", "all").returncode == 0
    return run


def test_model_card_has_the_scores_bindings_and_hashes_of_the_ledger(watched: Path, tmp_path: Path) -> None:
    theta = next(watched.glob("theta_*.npz"))
    done = lobench("convert", theta, "--to", "algoperf", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    card = (tmp_path / "out" / "README.md").read_text()
    (store,) = watched.glob("lobench_results/*")
    summary = summary_of(store)
    (subject,) = summary.snapshot.subjects
    assert SHOWN["sha256-of-theta"].format(sha256=subject.subject.sha256) in card
    assert (watched / "config.gin").read_text().strip() in card
    assert SHOWN["mean-score-over"].format(interval=interval_cell(summary.mean_score(0, "primary").interval)) in card
    for place, case in enumerate(summary.snapshot.cases):
        found = summary.case_finding(0, place, None)
        assert found is not None
        (row,) = (line for line in card.splitlines() if case.identity[:12] in line)
        assert markdown_line(interval_cell(found.scores["primary"])) in row
        assert f"| {found.num_seeds} |" in row
    other = tmp_path / "alone.npz"
    other.write_bytes(theta.read_bytes())
    words = ("--to", "algoperf", "--optimizer", "LearnableSGD", "--output")
    assert lobench("convert", theta, *words, tmp_path / "a").returncode == 0
    assert (tmp_path / "a" / "README.md").read_text().count("Case.learned_optimizer = @LearnableSGD()") == 1
    assert lobench("convert", other, *words, tmp_path / "b", cwd=tmp_path).returncode == 0
    assert SHOWN["no-store-with-evaluations-of"] in (tmp_path / "b" / "README.md").read_text()
    assert lobench("convert", other, *words, tmp_path / "c", "--store", store, cwd=tmp_path).returncode == 0
    assert (
        SHOWN["mean-score-over"].format(interval=interval_cell(summary.mean_score(0, "primary").interval))
        in (tmp_path / "c" / "README.md").read_text()
    )


class Workload:
    """A workload with the part of AlgoPerf's interface that submissions call, since the package is in no index."""

    step_hint = 50
    metrics_logger = None

    def model_fn(
        self, params: Any, batch: Any, model_state: Any, mode: Any, rng: Any, update_batch_norm: bool
    ) -> tuple[Any, Any]:
        assert mode == "train" and update_batch_norm
        return batch["inputs"] @ params["w"] + params["b"], {"batches": model_state["batches"] + 1}

    def loss_fn(self, *, label_batch: Any, logits_batch: Any, mask_batch: Any) -> dict[str, Any]:
        losses = optax.softmax_cross_entropy_with_integer_labels(logits_batch, label_batch) * mask_batch
        return {"summed": losses.sum(), "n_valid_examples": mask_batch.sum(), "per_example": losses}


def test_algoperf_submission_trains_as_load_optimizer_does(
    watched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theta = next(watched.glob("theta_*.npz"))
    assert lobench("convert", theta, "--to", "algoperf", "--output", tmp_path / "submission").returncode == 0
    spec = types.SimpleNamespace(ForwardPassMode=types.SimpleNamespace(TRAIN="train"))
    monkeypatch.setitem(sys.modules, "algoperf", types.SimpleNamespace(spec=spec))
    submission = runpy.run_path(str(tmp_path / "submission" / "submission.py"))
    draws = np.random.default_rng(0)
    batch = {
        "inputs": jnp.asarray(draws.normal(size=(8, 4)), jnp.float32),
        "targets": jnp.asarray(draws.integers(0, 3, 8)),
        "weights": jnp.asarray([1.0] * 7 + [0.0]),
    }
    params = {"w": jnp.ones((4, 3)) * 0.1, "b": jnp.zeros(3)}
    workload, model_state, rng = Workload(), {"batches": jnp.zeros(())}, jax.random.key(0)
    assert submission["get_batch_size"]("imagenet_resnet_silu") == 1024
    with pytest.raises(ValueError, match=SHOWN["no-batch-size-for-mine"]):
        submission["get_batch_size"]("mine")

    optimizer = load_optimizer(theta, num_steps=Workload.step_hint)
    mine, state = jax.tree.map(jnp.copy, params), optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any) -> tuple[Any, Any]:
        def loss_of(params: Any) -> Any:
            logits, _ = workload.model_fn(params, batch, model_state, "train", rng, True)
            return (
                workload.loss_fn(label_batch=batch["targets"], logits_batch=logits, mask_batch=batch["weights"])[
                    "summed"
                ]
                / batch["weights"].sum()
            )

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params, value=loss)
        return optax.apply_updates(params, updates), state

    for _ in range(5):
        mine, state = step(mine, state)
    theirs = submission["init_optimizer_state"](workload, params, model_state, None, rng)
    for number in range(5):
        chosen = submission["data_selection"](workload, iter([batch]), theirs, params, model_state, None, number, rng)
        theirs, params, model_state = submission["update_params"](
            workload, params, None, model_state, None, chosen, None, theirs, [], number, rng
        )
        theirs, params, model_state = submission["prepare_for_eval"](
            workload, params, None, model_state, None, None, theirs, [], number, rng
        )
    assert model_state["batches"] == 5
    for name, leaf in params.items():
        np.testing.assert_allclose(leaf, mine[name], rtol=1e-6, atol=1e-7)
    assert float(jnp.abs(params["w"] - 0.1).max()) > 1e-3, "the parameters have moved"


def test_submission_into_a_folder_with_files_is_an_error(watched: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    done = lobench("convert", next(watched.glob("theta_*.npz")), "--to", "algoperf", "--output", tmp_path)
    assert done.returncode == 2 and SHOWN["expected-a-folder-that-is"] in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]

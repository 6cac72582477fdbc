"""`lobench convert`, and `.pt` files that are read without torch."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lobench
from etils import epath
from reference import ROOT
from safetensors.numpy import save_file

from lobench import CheckpointError, evaluate
from lobench.core.errors import PickleRefused
from lobench.engine.checkpoints.torch_file import TorchReader

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
        assert "network.linear_0.weight  nn/~/w1  [32, 32]" in done.stdout
        assert "MetaMLP, 2,402 parameters, all of them matched: " in done.stdout
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


@pytest.mark.parametrize(
    ("leaves", "options", "output"),
    [
        ({"a": META["network.input.bias"]}, (), "these are no published weights that lobench knows; got without"),
        ({**META, "extra": np.zeros(3)}, (), "got with extra; expected MetaMLP, CELO2MLP"),
        (META, ("--optimizer", "Celo2"), "MetaMLP is not what Celo2 trains with; expected ELO or AdafacMLPLOpt"),
        (META, ("--output", "out.pt"), "--output; got out.pt; expected a file that ends in .npz"),
    ],
    ids=["foreign", "one too many", "another optimizer", "another suffix"],
)
def test_what_does_not_fit_is_said_in_a_line(
    tmp_path: Path, leaves: Any, options: tuple[str, ...], output: str
) -> None:
    np.savez(tmp_path / "in.npz", **leaves)
    done = lobench("convert", "in.npz", "--output", "out.npz", *options, cwd=tmp_path)
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
    with pytest.raises(PickleRefused, match="it holds more than tensors"):
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
    with pytest.raises(CheckpointError, match="cannot read it as torch"):
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

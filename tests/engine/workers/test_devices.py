"""GPUs by worker, seen from real workers' environments; no GPU is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked import ANEW
from hypothesis import given
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.errors import UsageError
from lobench.engine.config.layers import Layers
from lobench.engine.workers import devices
from lobench.engine.workers.devices import DeviceLeases, devices_here, set_blas_variables
from lobench.engine.workers.pool import LocalPool, WorkerConfig

SHOWN = texts_of("workers")


def test_which_devices_there_are(tmp_path: Path) -> None:
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    assert devices_here({}, tmp_path) == ["0", "1"]
    assert devices_here({}, tmp_path / "none") == []
    assert devices_here({"CUDA_VISIBLE_DEVICES": "3, GPU-8f,-1,2"}, tmp_path) == ["3", "GPU-8f"]
    assert devices_here({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []


def environment_of(pid: int) -> dict[str, str]:
    environ = Path(f"/proc/{pid}/environ")
    while not (text := environ.read_bytes().decode()):  # a process that is just being made
        time.sleep(0.01)
    parts = text.split("\0")
    found = dict(part.split("=", 1) for part in parts if "=" in part)
    names = ("CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION", "JAX_PLATFORMS", "NPROC")
    return {name: found[name] for name in names if name in found}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_see_what_they_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ANEW.items():  # the system shows the environment that a process was started with
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    layers = Layers(trainer_config=None, gin_files=(), gin_params=(), gin_modules=())
    config = WorkerConfig(
        arguments=(), layers=layers, serve="no:where", log_folder=tmp_path / "logs", compilation_cache=tmp_path / "x"
    )
    pool = LocalPool(config)
    try:
        for worker, num_gpus in enumerate((0.5, 0.5, 1.0, 0.0)):
            pool.start(worker, 1, num_gpus)
        one = {"NPROC": "1"}
        half = {**one, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"}
        assert [environment_of(pool.pids[worker]) for worker in range(4)] == [
            {**half, "CUDA_VISIBLE_DEVICES": "2"},
            {**half, "CUDA_VISIBLE_DEVICES": "2"},
            {**one, "CUDA_VISIBLE_DEVICES": "5"},
            {**one, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"},
        ]
        pool.kill(2)
        pool.start(4, 1, 1.0)
        assert environment_of(pool.pids[4])["CUDA_VISIBLE_DEVICES"] == "5"
        with pytest.raises(UsageError, match=SHOWN["got-3-expected-a-share"]):
            pool.start(5, 1, 3.0)
    finally:
        pool.close()


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_blas_gets_kernels_that_all_processors_of_an_instruction_set_have(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "instruction_set", lambda: level)
    with monkeypatch.context() as patch:  # pytest writes into the environment between a test and its end
        patch.setattr(os, "environ", {"OPENBLAS_NUM_THREADS": "3"})  # what the user says stays
        set_blas_variables(1)
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
        assert os.environ.get("OPENBLAS_CORETYPE") == ("Haswell" if level in ("x86-64-v3", "x86-64-v4") else None)


def test_without_devices_the_environment_stays_and_a_case_that_wants_one_says_so() -> None:
    leases = DeviceLeases([])
    assert leases.lease(0, 0.0) == {}
    with pytest.raises(UsageError, match=SHOWN["up-to-the-0-of"]):
        leases.lease(1, 0.5)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 0.3, 0.4, 0.7, 1.0, 2.0])), max_size=40))
def test_no_device_is_given_out_more_than_once(moves: list[tuple[int, float]]) -> None:
    """As long as what is asked for together is there: the scheduler sees to that."""
    leases, held, given_out = DeviceLeases(["a", "b", "c"]), {}, {}
    for worker, num_gpus in moves:
        if worker in held:
            leases.release(worker)
            del held[worker], given_out[worker]
        elif sum(held.values()) + num_gpus <= 3:
            held[worker] = num_gpus
            environment = leases.lease(worker, num_gpus)
            devices = [device for device in environment["CUDA_VISIBLE_DEVICES"].split(",") if device]
            assert len(devices) == (max(1, int(num_gpus)) if num_gpus else 0)
            share = float(environment.get("XLA_PYTHON_CLIENT_MEM_FRACTION", 0.9))
            given_out[worker] = dict.fromkeys(devices, share)
    for device in "abc":
        assert sum(shares.get(device, 0.0) for shares in given_out.values()) <= 0.9 + 0.01


OURS = ["--lobench-optimizer=@SGD()"]
SESSION = """
import os
def test_environment():
    with open(os.environ["SEEN"], "a") as file:
        names = ("PYTEST_XDIST_WORKER", "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION")
        file.write(" ".join(os.environ.get(name, "-") for name in names) + "\\n")
"""


def test_processes_of_xdist_share_the_devices(tmp_path: Path) -> None:
    (tmp_path / "test_0.py").write_text(SESSION)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "4,6", "SEEN": str(tmp_path / "seen")}
    command = [sys.executable, "-m", "pytest", "-q", "-n3", "--dist=each", "test_0.py", "-p", "no:randomly"]
    for ours, expected in (
        (OURS, ["gw0 4 0.450", "gw1 6 -", "gw2 4 0.450"]),
        ([], ["gw0 4,6 -", "gw1 4,6 -", "gw2 4,6 -"]),
    ):
        (tmp_path / "seen").write_text("")
        done = subprocess.run([*command, *ours], cwd=tmp_path, env=environment, capture_output=True, timeout=900)
        assert done.returncode == 0, done.stdout
        assert sorted((tmp_path / "seen").read_text().splitlines()) == expected


CRASH = """
import os, time, pytest
@pytest.mark.parametrize("number", range(6))
def test_environment(number):
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
    if os.environ["PYTEST_XDIST_WORKER"] == "gw1":
        os._exit(1)
    while "gw2" not in open(os.environ["SEEN"]).read():  # or the first does all of them before there is a third
        time.sleep(0.05)
"""


def test_what_takes_a_crashed_processs_place_has_its_device(tmp_path: Path) -> None:
    (tmp_path / "test_0.py").write_text(CRASH)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-8f,MIG-3a,5", "SEEN": str(tmp_path / "seen")}
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "--maxschedchunk=1", "test_0.py", "-p", "no:randomly"]
    done = subprocess.run([*command, *OURS], cwd=tmp_path, env=environment, capture_output=True, timeout=900)
    assert done.returncode == 1, done.stdout
    assert b"1 failed, 5 passed" in done.stdout
    assert set((tmp_path / "seen").read_text().splitlines()) == {"gw0 GPU-8f", "gw1 MIG-3a", "gw2 MIG-3a"}

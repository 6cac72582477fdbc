"""How devices are found and shared out, as far as that needs none."""

from __future__ import annotations

from pathlib import Path

from lobench.engine.devices import DeviceLeases, device_environment, listed_devices
from lobench.engine.gin_config import Layers
from lobench.engine.pool import LocalPool, WorkerConfig


def test_the_environment_says_which_devices_there_are() -> None:
    assert listed_devices({"CUDA_VISIBLE_DEVICES": "3, GPU-5"}) == ("3", "GPU-5")
    assert listed_devices({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert listed_devices({"CUDA_VISIBLE_DEVICES": "2,-1,3"}) == ("2",)


def test_each_process_has_a_device_of_its_own_or_a_share_of_one() -> None:
    assert [device_environment(index, 2, ("3", "5")) for index in range(2)] == [
        {"CUDA_VISIBLE_DEVICES": "3"},
        {"CUDA_VISIBLE_DEVICES": "5"},
    ]
    shared = [device_environment(index, 4, ("3", "5")) for index in range(4)]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in shared] == ["3", "5", "3", "5"]
    assert {float(environment["XLA_PYTHON_CLIENT_MEM_FRACTION"]) for environment in shared} == {0.45}


def test_leases_fill_devices_up_and_come_back() -> None:
    leases = DeviceLeases(("0", "1"))
    assert leases.lease(0, 0.0) == {"JAX_PLATFORMS": "cpu"}
    first, second = leases.lease(1, 0.5), leases.lease(2, 0.5)
    assert first == second == {"CUDA_VISIBLE_DEVICES": "0", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"}
    assert leases.lease(3, 1.0) == {"CUDA_VISIBLE_DEVICES": "1"}
    for worker in range(4):
        leases.release(worker)
    assert leases.lease(4, 2.0) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert DeviceLeases(()).lease(0, 1.0) == {}


def test_a_worker_process_gets_its_device_and_its_successor_gets_it_again(tmp_path: Path) -> None:
    config = WorkerConfig(
        arguments=(), layers=Layers(), log_folder=tmp_path / "logs", compilation_cache=tmp_path / "cache"
    )
    pool = LocalPool(config, devices=("3", "5"))
    try:
        for worker in (0, 1):
            pool.start(worker, 1, 1.0)
        assert [environment_of(pool.pids[worker])["CUDA_VISIBLE_DEVICES"] for worker in (0, 1)] == ["3", "5"]
        pool.kill(0)
        pool.start(2, 1, 1.0)
        assert environment_of(pool.pids[2])["CUDA_VISIBLE_DEVICES"] == "3"
    finally:
        pool.close()


def environment_of(pid: int) -> dict[str, str]:
    """Reads it until the process has replaced its parent's image."""
    while b"lobench.engine.worker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pass
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)

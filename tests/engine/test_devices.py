"""How devices are found and shared out, as far as that needs none."""

from __future__ import annotations

from lobench.engine.devices import device_environment, listed_devices


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

"""What is said of cores and devices that stood idle, or were fought for."""

from __future__ import annotations

import pytest
from shown import texts_of

from lobench.core.utilisation import CoreUse, utilisation_line

SHOWN = texts_of("core")


def use(cores: float, num_cpus: int = 1, *, case: str = "s/c", gpus: float = 0.0, seconds: float = 10.0) -> CoreUse:
    return CoreUse(case=case, num_cpus=num_cpus, num_gpus=gpus, wall_seconds=seconds, cpu_seconds=cores * seconds)


@pytest.mark.parametrize(
    ("uses", "workers", "gpu", "output"),
    [
        ([use(1.0)], 2, None, ""),
        ([use(1.9, 2)], 2, None, ""),
        ([use(1.0, 4)], 4, None, SHOWN["c-used-1-0-of"]),
        ([use(1.0, 2, case="s/a", seconds=1), use(2.2, 4, case="s/b")], 4, None, "s/b (and 1 more) used 2.2 of 4"),
        ([use(0.3), use(0.4)], 12, None, SHOWN["cores-of-workers-on-4"]),
        ([use(0.99)], 12, None, ""),  # more workers than ran at once
        ([use(1.0, 4, seconds=0.1)], 4, None, ""),
        ([use(0.0, 4)], 4, None, ""),  # a payload of an older lobench does not say it
        ([use(0.2, 4, gpus=1.0)], 4, 0.2, SHOWN["devices-were-busy-20-of"]),
        ([use(0.2, 4, gpus=1.0)], 4, 0.4, ""),
        ([use(1.0)], 4, 0.0, ""),  # nobody asked for a device
        ([], 4, None, ""),
    ],
)
def test_one_line_says_what_to_change(uses: list[CoreUse], workers: int, gpu: float | None, output: str) -> None:
    line = utilisation_line(uses, num_workers=workers, num_cores=4, gpu_share=gpu)
    assert line.startswith(output) and bool(line) == bool(output) and "\n" not in line

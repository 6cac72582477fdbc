"""Time that leaves out when this process did not run."""

from __future__ import annotations

from lobench_ray.clock import AwakeClock


def test_a_pause_is_left_out_and_all_else_counts() -> None:
    looks = iter((100.0, 100.0, 101.0, 103.5, 900.0, 901.0))
    clock = AwakeClock(lambda: next(looks))
    assert [clock.now() for _ in range(5)] == [0.0, 1.0, 3.5, 8.5, 9.5]

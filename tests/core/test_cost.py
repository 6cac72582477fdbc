"""What a checkpoint costs, and what was used."""

from __future__ import annotations

import pytest
from case_infos import case_info

from lobench.core.case import CaseInfo
from lobench.core.cost import Usage, checkpoint_cost


def case(name: str, *, steps: int = 100, seeds: int = 4, block: int | None = None, cpus: int = 1) -> CaseInfo:
    return case_info(name, num_inner_steps=steps, num_seeds=seeds, seed_block=block, num_cpus=cpus)


def test_what_ran_costs_what_it_took_and_the_rest_in_proportion() -> None:
    ran, longer, wide = case("ran"), case("longer", steps=1000), case("wide", seeds=8, block=2, cpus=4)
    costs = checkpoint_cost([ran, longer, wide], {ran.key: 3.0}, widest=2)
    assert [cost.recorded for cost in costs] == [True, False, False]
    assert [cost.num_evaluations for cost in costs] == [1, 1, 4]
    assert [cost.core_seconds for cost in costs] == pytest.approx([3.0, 30.0, 4 * 1.5 * 2])


def test_without_any_record_there_is_an_estimate_all_the_same() -> None:
    (cost,) = checkpoint_cost([case("new", steps=2000)], {}, widest=1)
    assert not cost.recorded
    assert cost.core_seconds == pytest.approx(8.0)


def test_usage_counts_what_runs_and_what_ended() -> None:
    usage = Usage(limit=10.0)
    usage.begin(0, 2, now=0.0)
    usage.begin(1, 1, now=1.0)
    assert usage.core_seconds(2.0) == pytest.approx(5.0)
    usage.end(0, 3.0)
    usage.end(0, 4.0)  # its worker is killed after it: nothing is counted twice
    assert usage.core_seconds(4.0) == pytest.approx(9.0)
    assert not usage.is_over(4.0)
    assert usage.is_over(5.0)

"""Admission policies, one decision at a time."""

from __future__ import annotations

import pytest

from lobench.core.admission import PerRun, every_checkpoint, every_nth, latest
from lobench.core.errors import UsageError


def test_latest_waits_for_a_free_worker_and_skips_the_older() -> None:
    assert latest("").admit((3, 4, 5), idle=False, last=False) == ((), ())
    assert latest("").admit((3, 4, 5), idle=True, last=False) == ((5,), (3, 4))


def test_latest_of_several_runs_takes_the_newest_of_each_in_turn() -> None:
    policy = PerRun(latest(""), lambda position: "ab"[position % 2])
    assert policy.admit((1, 2, 3, 4), idle=False, last=False) == ([], [])
    assert policy.admit((1, 2, 3, 4), idle=True, last=False) == ([3], [1])
    assert policy.admit((2, 4), idle=True, last=False) == ([4], [2])
    assert policy.admit((1, 2, 3, 4), idle=True, last=True) == ([3, 4], [1, 2])


def test_every_nth_of_several_runs_runs_the_last_of_each() -> None:
    policy = PerRun(every_nth("10"), lambda position: "ab"[position % 2])
    assert policy.admit((1, 2, 3, 4), idle=True, last=True) == ([3, 4], [1, 2])


def test_all_admits_all() -> None:
    assert every_checkpoint("").admit((3, 4), idle=False, last=False) == ((3, 4), ())


def test_every_nth_keeps_the_newest_back_until_it_is_known_to_be_the_last() -> None:
    policy = every_nth("2")
    assert policy.admit((2, 3, 4, 5), idle=True, last=False) == ([2, 4], [3])
    assert policy.admit((5,), idle=True, last=False) == ([], [])
    assert policy.admit((5,), idle=True, last=True) == ((5,), [])
    assert policy.admit((5, 6), idle=True, last=True) == ([6], [5])


def test_policy_with_a_wrong_argument_is_refused() -> None:
    wrong = [(every_nth, argument) for argument in ("", "0", "-1", "x", "1.5")]
    for policy, argument in (*wrong, (latest, "3"), (every_checkpoint, "3")):
        with pytest.raises(UsageError):
            policy(argument)

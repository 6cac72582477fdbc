"""Contract of admission policies: a plugin's test module subclasses `PolicyContract`.

class TestNewestTwo(PolicyContract):
    factory = "mypackage.policies:newest"
    argument = "2"
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from lobench.core.errors import UsageError
from lobench.core.lazy import loaded
from lobench.hookspecs import AdmissionPolicy
from lobench.testing.watches import NAME, watch_with, write_run

__all__ = ["PolicyContract"]

_ROUNDS = 200


class PolicyContract:
    """Tests that every admission policy must pass.

    Attributes:
      factory: "module:attribute", as in the policy's declaration.
      argument: Text that a user would write after `NAME:`.
      wrong_arguments: Texts that a user might write there by mistake.
    """

    factory: ClassVar[str]
    argument: ClassVar[str] = ""
    wrong_arguments: ClassVar[tuple[str, ...]] = ()

    def make(self, argument: str) -> AdmissionPolicy:
        policy: AdmissionPolicy = loaded(self.factory)(argument)
        return policy

    def decide(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Asks a fresh instance of the policy for a decision, and asserts that the decision is valid."""
        decision = self.make(self.argument).admit(tuple(waiting), idle=idle, last=last)
        assert isinstance(decision, tuple) and len(decision) == 2, f"admit() returned {decision!r}, not (run, skip)"
        run, skip = decision
        assert list(run) == sorted(run) and list(skip) == sorted(skip), "positions are not in the order of sighting"
        assert set(run) | set(skip) <= set(waiting), "it decides on what does not wait"
        assert not set(run) & set(skip), "it runs and skips the same checkpoint"
        assert len(set(run)) == len(run) and len(set(skip)) == len(skip), "it names a checkpoint twice"
        return tuple(run), tuple(skip)

    def test_where_nothing_waits_nothing_is_decided(self) -> None:
        for idle in (False, True):
            for last in (False, True):
                assert self.decide((), idle=idle, last=last) == ((), ())

    def test_it_decides_on_what_waits_and_the_same_way_each_time(self) -> None:
        """Decisions depend only on values: after a restart, a new policy gets all waiting checkpoints at once."""
        generator = random.Random(0)
        policy = self.make(self.argument)
        for _ in range(_ROUNDS):
            waiting_positions = tuple(sorted(generator.sample(range(60), generator.randrange(12))))
            is_idle = generator.random() < 0.5
            is_last = generator.random() < 0.3
            first_decision = self.decide(waiting_positions, idle=is_idle, last=is_last)
            run, skip = policy.admit(waiting_positions, idle=is_idle, last=is_last)
            assert (tuple(run), tuple(skip)) == first_decision

    def test_in_the_end_every_checkpoint_is_decided_and_the_last_one_runs(self) -> None:
        generator = random.Random(1)
        for _ in range(_ROUNDS):
            waiting_positions: list[int] = []
            run_positions: list[int] = []
            num_checkpoints = generator.randrange(1, 20)
            for position in range(num_checkpoints):
                waiting_positions.append(position)
                run_positions += self._step(waiting_positions, idle=generator.random() < 0.4, last=False)
            for _ in range(num_checkpoints + 1):
                run_positions += self._step(waiting_positions, idle=True, last=True)
            assert not waiting_positions, "a checkpoint waits for ever"
            assert num_checkpoints - 1 in run_positions, "the last checkpoint of the run is not run"

    def _step(self, waiting: list[int], *, idle: bool, last: bool) -> tuple[int, ...]:
        run, skip = self.decide(waiting, idle=idle, last=last)
        if not last:
            # The newest may be the last of all, so a watch keeps it, whatever the policy decides.
            skip = tuple(position for position in skip if position != waiting[-1])
        waiting[:] = [position for position in waiting if position not in {*run, *skip}]
        return run

    def test_one_that_takes_only_the_newest_says_the_same_of_what_waits(self) -> None:
        """With `only_newest = True`, only the newest of the checkpoints found together is read."""
        if not getattr(self.make(self.argument), "only_newest", False):
            pytest.skip("the policy looks at all checkpoints")
        for waiting_positions in ((4,), (8, 9, 10, 11), tuple(range(30))):
            assert self.decide(waiting_positions, idle=True, last=False) == (
                waiting_positions[-1:],
                waiting_positions[:-1],
            )

    def test_a_watch_ends_with_its_last_checkpoint(self, tmp_path: Path) -> None:
        run = write_run(tmp_path, steps=tuple(range(1, 13)))
        checkpoints = f"{NAME}:{self.argument}" if self.argument else NAME
        watched_store = watch_with(tmp_path, "lobench_admission_policies", self.factory, run, checkpoints=checkpoints)
        assert watched_store.finished[-1].outer_step == 12, watched_store.lines

    def test_a_wrong_argument_is_one_clear_line(self) -> None:
        for argument in self.wrong_arguments:
            with pytest.raises(UsageError) as error:
                self.make(argument)
            assert "\n" not in str(error.value)

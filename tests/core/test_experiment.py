"""Sessions as blocks, members, fixed fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.experiment import is_fixed, session_blocks, session_members

ranges = st.tuples(st.integers(0, 12), st.integers(1, 9)).map(lambda pair: range(pair[0], pair[0] + pair[1]))


def case(**values: object) -> CaseInfo:
    known = {"identity": "i", "optimizer_hash": "o", "suite": "s", "name": "n", "node_id": "", "num_inner_steps": 1}
    return CaseInfo(**{**known, "num_seeds": 4, "seed_block": None, **values})  # type: ignore[arg-type]


def blocks(sessions: range, held: list[SeedBlock], seed_block: int | None = None) -> list[SeedBlock]:
    found = session_blocks(sessions, held)
    sizes, first = found.widths, found.first_seed
    return case(num_seeds=sum(sizes), first_seed=first, block_sizes=sizes, seed_block=seed_block).blocks()


@pytest.mark.parametrize(
    ("sessions", "held", "expected"),
    [
        (range(5), [], ["0+5"]),
        (range(10), ["0+5"], ["0+5", "5+5"]),
        (range(12), ["0+5", "5+2"], ["0+5", "5+2", "7+5"]),
        (range(3), ["0+5"], ["0+5"]),
        (range(3, 8), ["0+5"], ["0+5", "5+3"]),
        (range(4), ["0+2", "2+2", "20+4"], ["0+2", "2+2"]),
        (range(4), ["0+4", "0+2"], ["0+4"]),
        (range(2, 6), ["4+1"], ["2+2", "4+1", "5+1"]),
    ],
)
def test_blocks_that_an_experiment_holds_stay(sessions: range, held: list[str], expected: list[str]) -> None:
    kept = [SeedBlock(start=int(text.split("+")[0]), size=int(text.split("+")[1])) for text in held]
    assert [str(block) for block in blocks(sessions, kept)] == expected


@given(st.lists(ranges, min_size=1, max_size=5), st.sampled_from([None, 1, 2, 3]))
def test_whatever_sessions_are_asked_for_one_after_another_no_seed_is_computed_twice(
    asked: list[range], seed_block: int | None
) -> None:
    held: list[SeedBlock] = []
    for sessions in asked:
        planned = blocks(sessions, held, seed_block)
        assert set(sessions) <= {seed for block in planned for seed in block.seeds}
        held = list({*held, *planned})
    seeds = [seed for block in held for seed in block.seeds]
    assert len(seeds) == len(set(seeds))


def test_members_are_the_sessions_that_were_asked_for_of_whole_blocks() -> None:
    info = case(num_seeds=6, block_sizes=(4, 2))
    found = list(session_members("adam", "hash", [info], range(3, 5)))
    assert [(one.session, str(one.evaluation.block)) for one in found] == [(3, "0+4"), (4, "4+2")]
    assert len(list(session_members("adam", "hash", [info], None))) == 6


def test_a_case_keeps_its_key_whatever_its_blocks_and_comes_back_from_a_record() -> None:
    assert case(block_sizes=[4, 2]) == case(block_sizes=(4, 2))
    assert case(block_sizes=(4, 2)).key == case().key


def test_what_is_fixed() -> None:
    everything = ("Case.*",)
    assert is_fixed("Case", "num_inner_steps", (), everything)
    assert is_fixed("lobench.Case", "num_inner_steps", (), everything)
    assert not is_fixed("Case", "learned_optimizer", (), everything)
    assert is_fixed("Bowl", "dim", {"Bowl"}, everything)
    assert not is_fixed("adam", "learning_rate", {"Bowl"}, everything)
    assert not is_fixed("Case", "num_inner_steps", (), ())
    assert is_fixed("Case", "num_inner_steps", (), ("Case.num_*",))
    assert not is_fixed("Case", "eval_every", (), ("Case.num_*",))

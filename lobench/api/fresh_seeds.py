"""Cases that can be evaluated on fresh seeds, which were not used for any choice."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.core.case import CaseInfo
from lobench.core.wording import shortened_list

__all__ = ["FOLLOW_SEEDS", "names_on_fresh_seeds", "note_on_fixed_seeds"]

_SAME_ITEMS = "items are always the same"
FOLLOW_SEEDS = "a test has them if it records a value for each seed of `record.seeds`, and a command if it has {seed}"
_MOST_SHOWN = 3


def names_on_fresh_seeds(cases: Iterable[CaseInfo]) -> tuple[str, ...]:
    """Returns the names of the cases whose seeds are not fixed, as `WatchSettings.cases` takes them."""
    return tuple(case.names[-1] for case in cases if not case.fixed_seeds)


def note_on_fixed_seeds(cases: Iterable[CaseInfo]) -> str:
    """Returns a line on the cases that have no fresh seeds; "" if there are none."""
    names: dict[bool, set[str]] = {False: set(), True: set()}
    for case in cases:
        if case.fixed_seeds:
            names[case.has_items].add(f"{case.suite}/{case.name}")
    seed_cases, item_cases = (shortened_list(sorted(names[has_items]), _MOST_SHOWN) for has_items in (False, True))
    if seed_cases and item_cases:
        return f"no fresh seeds of {item_cases} ({_SAME_ITEMS}) nor of {seed_cases}; {FOLLOW_SEEDS}"
    return (
        f"no fresh seeds of {seed_cases or item_cases}; {FOLLOW_SEEDS if seed_cases else _SAME_ITEMS}"
        if seed_cases or item_cases
        else ""
    )

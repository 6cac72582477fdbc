"""Items of a data set, which take the place of seeds if a fixed model is evaluated: `Case.replicates = "items"`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = ["item_seed", "seeds_of_items"]

# Items have numbers above all seeds. With 52 bits of a hash they are below 2**53, up to which JSON's numbers are exact.
_FIRST_ITEM_NUMBER = 1 << 52


def item_seed(name: str) -> int:
    """Returns the number of an item, which takes the place of a seed.

    It depends only on the name, so that an item has the same number in every data set.

    >>> item_seed("q17")
    7109408615671920
    """
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).digest()
    return _FIRST_ITEM_NUMBER + int.from_bytes(digest[:8], "big") % _FIRST_ITEM_NUMBER


def seeds_of_items(names: Iterable[str]) -> dict[int, str]:
    """Returns the names of items by number, in ascending order of the numbers.

    Raises:
      ValueError: Two items have one name, or the same number.
    """
    names_by_seed: dict[int, str] = {}
    for name in names:
        seed = item_seed(name)
        if seed in names_by_seed:
            earlier_name = names_by_seed[seed]
            raise ValueError(
                f"item {name!r} occurs twice" if earlier_name == name else f"{name!r} and {earlier_name!r} collide"
            )
        names_by_seed[seed] = name
    return dict(sorted(names_by_seed.items()))

"""Thinning of long curves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lobench.drawing.curves import evenly_spaced_indices


@given(st.integers(0, 3000), st.integers(1, 300))
def test_places_are_different_ones_with_both_ends_and_as_many_as_there_may_be(count: int, most: int) -> None:
    found = evenly_spaced_indices(count, most)
    assert len(found) == min(count, most) and (np.diff(found) > 0).all()
    if count:
        assert found[0] == 0 and (found[-1] == count - 1 or most == 1)

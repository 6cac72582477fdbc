"""Where a row of checkpoints broke: the posterior, and where to look next."""

from __future__ import annotations

import math
import random
import sys

import pytest
from reference import ROOT
from shown import texts_of

from lobench.analysis.stats.change_point import (
    Probe,
    credible_window,
    fall_posterior,
    first_probes,
    is_located,
    next_probes,
    pair_around_break,
)

sys.path.insert(0, str(ROOT / "benchmarks"))

from planted_change_points import NUM_CHECKPOINTS, bisected

SHOWN = texts_of("analysis")


def probe(place: int, *scores: float, block: int = 0) -> Probe:
    return Probe(checkpoint_index=place, block=block, scores=scores)


def test_a_plain_fall_is_found_whatever_the_order_of_the_probes() -> None:
    probes = [probe(place, 1.0, 1.1) for place in (0, 2, 3)] + [probe(place, 0.2, 0.31) for place in (4, 5, 9)]
    belief = fall_posterior(probes, 10)
    assert belief.break_index == 4 and belief.probability_by_index[4] > 0.95 and belief.fall_probability > 0.95
    assert belief.fall_size == pytest.approx(0.8, abs=0.05) and belief.first_good_index == 0
    assert sum(belief.probability_by_index) == pytest.approx(1) and belief.probability_by_index[0] == 0
    assert credible_window(belief, 0.9) == (4, 4) and fall_posterior(probes[::-1], 10) == belief


def test_a_break_is_anywhere_between_two_probes() -> None:
    belief = fall_posterior([probe(0, 1.0, 1.1), probe(3, 1.0, 1.11), probe(7, 0.0, 0.1), probe(9, 0.01, 0.1)], 10)
    assert belief.probability_by_index[4:8] == pytest.approx([belief.probability_by_index[4]] * 4)
    assert belief.probability_by_index[4] > 0.23 and credible_window(belief, 0.9)[1] == 7
    assert set(next_probes(belief, [], 2)) == {4, 6}  # a third of the probability each


def test_seeds_are_paired_so_that_what_they_add_hides_nothing() -> None:
    draws, probes = random.Random(1), []
    for place in range(8):
        for block in (0, 1):
            added = (0.0, 40.0, 7.0) if block == 0 else (-30.0, 2.0, 11.0)
            if block == 0 or place in (3, 6):
                scores = (one - (place >= 5) + draws.gauss(0, 0.1) for one in added)
                probes.append(Probe(checkpoint_index=place, block=block, scores=tuple(scores)))
    belief = fall_posterior(probes, 8)
    assert (
        belief.break_index == 5 and belief.probability_within(0) > 0.9 and belief.fall_size == pytest.approx(1, abs=0.2)
    )


def test_a_level_row_has_no_fall_and_a_rise_is_none() -> None:
    draws = random.Random(2)
    level = [probe(place, *(draws.gauss(0, 1) for _ in range(4))) for place in range(30)]
    assert fall_posterior(level, 30).fall_probability < 0.5
    rise = [probe(place, *(draws.gauss(5.0 * (place > 9), 1) for _ in range(4))) for place in range(20)]
    belief = fall_posterior(rise, 20)
    assert belief.fall_probability < 0.5 and belief.first_good_index == 10  # before, it had not learned yet


def test_what_a_run_was_before_it_was_good_is_no_break() -> None:
    values = [-1.0, -0.9, 0.2, 0.9, 0.91, 0.9, 0.4, 0.41]
    belief = fall_posterior([probe(place, value, value + 0.02) for place, value in enumerate(values)], 8)
    assert belief.first_good_index == 3 and belief.break_index == 6 and belief.fall_probability > 0.9


def test_scores_without_noise_and_single_seeds_do_not_stop_it() -> None:
    assert fall_posterior([probe(0, 1.0), probe(1, 1.0), probe(2, -1.0), probe(3, -1.0)], 4).break_index == 2
    assert fall_posterior([probe(place, 0.5) for place in range(4)], 4).fall_probability < 0.9
    assert fall_posterior([probe(0, 1.0, 1.0), probe(1, 0.0, 0.0)], 2).break_index == 1
    with pytest.raises(ValueError, match=SHOWN["two-checkpoints"]):
        fall_posterior([probe(0, 1.0)], 4)


def test_blocks_that_contradict_each_other_do_not_stop_it() -> None:
    probes = [probe(0, 10.0), probe(0, 0.0, block=1), probe(1, 0.0), probe(1, 10.0, block=1)]
    assert fall_posterior(probes, 2).first_good_index == 0  # each place is far below the best of one block


@pytest.mark.parametrize("by", [0.4, 0.4 + 1e-13, 0.4 + 1e-9, 0.0])
def test_seeds_that_fall_by_the_same_as_accuracies_do(by: float) -> None:
    """What differs between them is rounding, or next to nothing."""
    drops = (0.0, 0.0, 0.4, by, 0.4)
    belief = fall_posterior(
        [probe(place, 0.5 - fall, 0.6 - fall, 0.7 - drops[place]) for place, fall in enumerate(drops)], 5
    )
    if by:
        assert (
            belief.break_index == 2
            and belief.fall_probability > 0.95
            and belief.fall_size == pytest.approx(0.4, abs=0.01)
        )
    assert sum(belief.probability_by_index) == pytest.approx(1)


def test_the_first_places_are_even_and_what_is_near_one_stands_for_it() -> None:
    assert (
        first_probes([], 200) == [0, 50, 100, 149, 199]
        and first_probes([], 3) == [0, 1, 2]
        and first_probes([], 2) == [0, 1]
    )
    assert first_probes([probe(45, 1.0), probe(198, 1.0)], 200) == [0, 100, 149, 199]
    assert first_probes([], 200, excluded=(199,)) == [0, 50, 100, 149]


def test_a_checkpoint_that_cannot_be_looked_at_is_passed_by() -> None:
    probes = [probe(0, 1.0, 1.1), probe(9, 0.0, 0.12)]
    (first,) = next_probes(fall_posterior(probes, 10), probes, 1)
    (other,) = next_probes(fall_posterior(probes, 10), probes, 1, excluded=(first,))
    assert other != first and not next_probes(fall_posterior(probes, 10), probes, 1, excluded=range(10))


def test_planted_change_points_are_found_with_a_fifth_of_the_evaluations_and_small_ones_are_said_to_be_uncertain() -> (
    None
):
    draws = random.Random(0)
    for fall in (2.0, 4.0):
        found = [bisected(fall, draws, most=NUM_CHECKPOINTS // 5) for _ in range(25)]
        assert sum(one.is_hit for one in found) >= 24
        assert sum(one.num_probes for one in found) <= 25 * NUM_CHECKPOINTS // 8
    small = [bisected(1.0, draws, most=NUM_CHECKPOINTS // 5) for _ in range(12)]
    output, was = sum(one.belief.probability_within(1) for one in small) / 12, sum(one.is_hit for one in small) / 12
    assert abs(output - was) < 0.3


LOST = -math.inf


def test_fall_posterior_rare_lost_seeds_hide_no_fall_of_the_others() -> None:
    draws, probes = random.Random(3), []
    for place in range(10):
        scores = [one - 2.0 * (place >= 6) + draws.gauss(0, 0.3) for one in (0.0, 3.0, -2.0, 1.0)]
        if place in (2, 4, 7):
            scores[place % 4] = LOST
        probes.append(probe(place, *scores))
    belief = fall_posterior(probes, 10)
    assert (
        belief.first_good_index == 0
        and belief.break_index == 6
        and belief.probability_by_index[6] > 0.9
        and belief.fall_probability > 0.95
    )
    assert belief.fall_size == pytest.approx(2, abs=0.5) and belief.lost_counts == (2, 24, 1, 16)


def test_fall_posterior_finds_a_break_that_is_in_the_number_of_lost_seeds_alone() -> None:
    draws = random.Random(4)
    good = {place: tuple(draws.gauss(0, 1) for _ in range(5)) for place in range(8)}
    belief = fall_posterior([probe(place, *(good[place] if place < 5 else (LOST,) * 5)) for place in range(8)], 8)
    assert (
        belief.break_index == 5
        and belief.probability_by_index[5] > 0.9
        and belief.fall_probability > 0.95
        and belief.lost_counts == (0, 25, 15, 15)
    )
    turned = [probe(place, *((math.inf,) * 5 if place < 5 else good[place])) for place in range(8)]
    assert fall_posterior(turned, 8).break_index == 5, "in a row whose signs are turned fewer lost seeds are the change"


def test_named_pair_is_of_probed_places_and_a_place_between_two_probes_is_not_located() -> None:
    belief = fall_posterior([probe(0, 1.0, 1.1), probe(3, 1.0, 1.11), probe(7, 0.0, 0.1), probe(9, 0.01, 0.1)], 10)
    probed = (0, 3, 7, 9)
    assert 3 < belief.break_index <= 7 and pair_around_break(belief, probed) == (3, 7)
    assert not is_located(belief, probed, 0.9)


def test_planted_breaks_under_lost_seeds_are_named_with_both_checkpoints_evaluated() -> None:
    draws = random.Random(5)
    found = [bisected(2.0, draws, most=NUM_CHECKPOINTS // 5, lost=0.05) for _ in range(12)]
    assert all(one.is_named_pair_probed for one in found)
    decided = [one for one in found if one.is_decided]
    assert len(decided) >= 8 and all(one.stated >= 0.9 for one in decided)
    assert sum(one.is_exact for one in decided) >= len(decided) - 2

"""What the demonstration says of a run, from numbers that are known."""

from __future__ import annotations

import pytest
from shown import texts_of

SHOWN = texts_of("examples")


@pytest.fixture(scope="module")
def demo(example):
    return example("demo")


def test_the_finding_is_the_case_that_lost_most_while_the_meta_loss_fell(demo):
    falling = [1.0 - step / 100 for step in range(90)]
    watched = {
        "better": {0: 2.0, 30: 1.0, 60: 0.5, 90: 0.4},
        "worse": {0: 2.0, 30: 0.5, 60: 0.6, 90: 0.7},
        "worst": {0: 2.0, 30: 0.5, 60: 0.2, 90: 0.4},
        "never": {0: 0.1, 30: 0.5, 60: 0.6, 90: 0.7},  # it was not trained at all where it was best
    }
    found = demo.finding(watched, falling)
    assert (found.case, found.best_step, found.last_step) == ("worst", 60, 90)
    assert found.meta_after < found.meta_before
    assert found.meta_before == pytest.approx(sum(falling[50:70]) / 20)  # around the checkpoint, and not before it
    assert SHOWN["worst-was-at-0-2000"] in str(found)


def test_there_is_no_finding_where_the_meta_loss_rose_or_nothing_got_worse(demo):
    rising = [step / 100 for step in range(90)]
    assert demo.finding({"a": {0: 2.0, 30: 0.5, 90: 0.7}}, rising) is None
    assert demo.finding({"a": {0: 2.0, 30: 0.5, 90: 0.4}}, rising[::-1]) is None


def test_the_table_sets_each_case_beside_the_shipped_baselines(demo, capsys):
    watched = {case: {0: 2.3, 30: 0.01, 60: 0.02} for case in demo.tuned("sgd")}
    demo.print_table(watched)
    text = capsys.readouterr().out
    assert SHOWN["last-checkpoint-s-mean-of"] in text
    assert text.count(SHOWN["last-is-below-sgd-and"]) == 6
    assert demo.tuned("sgd").keys() == demo.tuned("adam").keys()

"""Sixteen tasks of all kinds; a diverged seed is a result, and no failure: its speed-up is 0."""

from lobench import cases


@cases("velodrome_mini.gin")
def test_velodrome_mini(case, evaluate):
    evaluate(case)

"""The fitness tasks."""

from __future__ import annotations

from lobench import cases


@cases("fitness.gin")
def test_fitness(case, evaluate):
    evaluate(case)

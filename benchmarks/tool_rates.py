"""How often `alarm`, `race`, `ablate`, `best` and `budget` err about equal methods, in worlds that the tables of
alarm_rates.py, race_rates.py and ablate_rates.py do not have: cases that move together, few seeds, missing seeds,
explosions, heavy tails; through the functions that the commands call.

Usage:
  python benchmarks/tool_rates.py [--only race,best,budget,alarm,ablate] [--cells '*t3*'] [--worlds 1000]

`correlation` is the share of the variance that a seed adds to all cases, which are one group by design then. `crash`: a
tenth of the values of either side is missing, any or the worst ones.

`race`: races of 6 cases with a look after each seed; how often the first of equal methods is thrown out, and any of
them; level .05. `best`: 3 equal checkpoints on 2 cases: the seeds of the run choose two, fresh ones the best of them,
and as many others give the score to report; how often its 95% interval holds the expected score, and the mean of that
score less the expected one, in deviations of a seed, beside that of the score that chose it. The law is that of the
score; in rows of losses it is that of the losses, whose score on a log scale is normal. `budget`: two searches of one
law; how often a lead is shown, level .05, and how often the 95% interval of the best of 1, of a tenth and of a fifth of
the trials holds the expected one. Trials that fall behind the median at half of their training are stopped in rows that
say so; the interval is then to meet the range between the two bounds. `alarm`: first confirmations, on 4 cases (2 of
them out of distribution for `overfit`), of a harm that is just the margin; level .0304. `ablate`: searches over six
settings without an effect, or two of them, that call any setting needed, or harmful; levels .05. With `at the margin`
each setting is worth just the margin, and `dropped` is how often the first one is taken for not needed; level .05 a
test.

In 1,000 worlds a row of `race` takes 3 s of a processor, of `best` 10 s, of `budget` 15 s, of `alarm` 5 s, of `ablate`
60 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from race_rates import play
from verdict_rates import (
    Cell,
    Floats,
    Losses,
    Part,
    common_samples,
    is_wanted,
    lacking,
    samples_of,
    sides,
    tables_command,
    values,
)

from lobench.analysis.scores.mean_scores import rank_subjects
from lobench.analysis.stats.expected_best import are_ahead, expected_best
from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.core.search.search import Trial
from lobench.core.trials import stop_fitness_and_median, trials_below_median
from lobench.tools.ablate.change_search import AblateRules, KnobSubset, Need, search_changes
from lobench.tools.alarm.rule import (
    OverfitTest,
    level_of_test,
    regression_finding,
)

NOISE = 0.08  # of a seed and case on the score


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A world.

    Attributes:
      cell: Cases, seeds, correlation, law, and the seeds that diverge or explode.
      crash: Values that are missing: "any", "worst", or "" for none.
    """

    cell: Cell
    crash: str = ""

    def label(self) -> str:
        """Returns the first columns of its row."""
        return f"{self.cell.label()} {f'the {self.crash}' if self.crash == 'worst' else self.crash or '-'} |"


HEADER = "| cases x seeds | correlation | groups | law | crash |"


def rows_of(num_cases: int, few: int, many: int) -> tuple[Row, ...]:
    """Returns the worlds of a part, by its numbers of cases and seeds."""

    def row(num_seeds: int, correlation: float, law: str = "normal", crash: str = "", **lost: float) -> Row:
        cell = Cell(
            num_cases=num_cases,
            num_seeds=num_seeds,
            correlation=correlation,
            law=law,
            is_one_group=correlation > 0,
            **lost,
        )
        return Row(cell=cell, crash=crash)

    return (
        row(many, 0.0),
        row(many, 0.5),
        row(many, 0.8),
        row(few, 0.0),
        row(few, 0.5),
        row(many, 0.5, "t3"),
        row(many, 0.5, "lognormal"),
        row(many, 0.5, diverging=0.1),
        row(many, 0.5, crash="any"),
        row(many, 0.5, crash="worst"),
    )


def race(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
    """Yields the rows of `race`."""
    yield f"{HEADER} methods | the first is out | any is out |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in rows_of(6, 6, 24):
        if not is_wanted(row.label(), wanted):
            continue
        for methods in (2, 6):
            cell, shape = row.cell, (worlds, methods, row.cell.num_cases, row.cell.num_seeds)
            common = values(draw, cell.law, (worlds, methods, 1, cell.num_seeds))
            scores = (
                math.sqrt(1 - cell.correlation) * values(draw, cell.law, shape) + math.sqrt(cell.correlation) * common
            )
            scores[np.broadcast_to(draw.random(common.shape) < cell.diverging, shape)] = DIVERGED
            out = play(lacking(draw, row.crash, -scores if cell.law == "lognormal" else scores))[0]
            yield f"{row.label()} {methods} | {out[:, 0].mean():.3f} | {out.any(axis=1).mean():.3f} |"


def best(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
    """Yields the rows of `best`; what a seed that explodes scores is in the expected score."""
    yield f"{HEADER} coverage | bias of the reported score | of the score that chose it |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    base = [row for row in rows_of(2, 2, 4) if not row.crash and not row.cell.diverging]
    cells = [(row.cell, row.label(), 0.02) for row in base]
    more = [Cell(num_cases=2, num_seeds=4, correlation=0.5, law="rounded")]
    more += [Cell(num_cases=2, num_seeds=seeds, correlation=0.5, exploding=0.1) for seeds in (4, 20)]
    cells += [(cell, Row(cell=cell).label(), 0.02) for cell in more]
    for seeds, sigma in ((2, 1.0), (4, 0.5), (4, 1.0), (20, 1.0)):
        cell = Cell(num_cases=2, num_seeds=seeds, correlation=0.5)
        label = Row(cell=cell).label().replace("normal", f"log-normal losses, sigma {sigma:g}")
        cells.append((cell, label, sigma / math.log(100)))
    for cell, label, spread in cells:
        if not is_wanted(label, wanted):
            continue
        losses, count = Losses(cell, spread), np.zeros(3)
        many = values(draw, cell.law, (200_000,)) * math.sqrt(1 - cell.correlation)
        common = math.sqrt(cell.correlation) * values(draw, cell.law, (200_000,))
        expected = 1 + spread * (many.mean() + common.mean())
        if cell.exploding:  # a seed that ends at ten times its start has the lowest score
            expected = (1 - cell.exploding) * expected - cell.exploding
        for _ in range(worlds):
            names = [str(place) for place in range(3)]
            winners = []  # score of the best one on the run's seeds, on fresh and on further ones
            for kept in (2, 1, 1):
                drawn = [(name, sides(draw, cell)[0], losses.draw_exploded(draw)[0]) for name in names]
                ranked = rank_subjects(
                    [losses.subject(side, lost, name) for name, side, lost in drawn], None, losses.scales
                )
                names = [one.subject.subject.uri for one in ranked[:kept]]
                winners.append(ranked[0].score)
            chose, _, found = winners
            count += (found.lower <= expected <= found.upper, found.mean - expected, chose.mean - expected)
        shown = count / worlds / [1, spread, spread]
        yield f"{label} {shown[0]:.3f} | {shown[1]:+.2f} | {shown[2]:+.2f} |"


FITNESS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {
    "normal": lambda draw, shape: draw.standard_normal(shape),
    "t3": lambda draw, shape: draw.standard_t(3, shape),
    "a ceiling, beta(5, 1)": lambda draw, shape: draw.beta(5, 1, shape),
    "a long lower tail": lambda draw, shape: -np.exp(draw.standard_normal(shape)),
    "40% explode": lambda draw, shape: np.where(draw.random(shape) < 0.4, -1.0, draw.beta(2, 4, shape)),
    "a long upper tail": lambda draw, shape: np.exp(draw.standard_normal(shape)),
}


def budget(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
    """Yields the rows of `budget`."""
    yield "| fitness of a trial | trials | stopped | a lead is shown | holds, best of 1 | a tenth | a fifth |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for law, drawn in FITNESS.items():
        for counts, is_stopped in (((20, 20), False), ((60, 60), False), ((20, 60), False), ((20, 20), True)):
            label = f"| {law} | {counts[0]}, {counts[1]} | {'half' if is_stopped else '-'} |"
            if not is_wanted(label, wanted):
                continue
            many, found = drawn(draw, (20_000, max(counts))), np.zeros(4)
            ks = (1, counts[0] // 10, counts[0] // 5)
            truth = [many[:, :k].max(axis=1).mean() for k in ks]
            for _ in range(worlds):
                searches = [_bounds(drawn(draw, (count,)), draw, is_stopped=is_stopped) for count in counts]
                (low, high), others = searches
                found[0] += any(are_ahead(low, others[1])) or any(are_ahead(others[0], high))
                lower, upper = expected_best(low), expected_best(high)
                for place, (k, true) in enumerate(zip(ks, truth, strict=True), 1):
                    found[place] += lower[k - 1].lower <= true <= upper[k - 1].upper
            yield f"{label} {' | '.join(f'{share:.3f}' for share in found / worlds)} |"


def _bounds(final: Floats, draw: np.random.Generator, *, is_stopped: bool) -> tuple[list[float], list[float]]:
    """Returns a lower and an upper bound of the fitness of each trial, as `lobench budget` has them."""
    if not is_stopped:
        return final.tolist(), final.tolist()
    half = final - 0.5 * np.std(final)  # the order at half of the training is that of the end
    trials = [Trial(number=place, parameters={}, state="running", fitness=None, wave=0) for place in range(len(final))]
    notes = trials_below_median(trials, dict(enumerate(half.tolist())), after="50%")
    worst = min(final[[place for place in range(len(final)) if place not in notes]])
    low, high = final.tolist(), final.tolist()
    for place, note in notes.items():
        at_stop, median = stop_fitness_and_median(note) or (math.nan, math.nan)
        low[place], high[place] = at_stop, max(at_stop, median, worst)
    return low, high


def alarm(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
    """Yields the rows of `alarm`."""
    yield f"{HEADER} regress | overfit |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    margin, level = 0.05, level_of_test(1, 0.05)
    test, is_outside = OverfitTest(frozenset({"0", "1"}), frozenset({"2", "3"})), np.array([[1.0], [1.0], [0.0], [0.0]])
    for row in rows_of(4, 3, 8):
        if not is_wanted(row.label(), wanted):
            continue
        found = np.zeros(2)
        for _ in range(worlds):
            a, b = sides(draw, row.cell)
            a, b = (lacking(draw, row.crash, NOISE * side) for side in (a, b))
            both = [
                common_samples(a, b - harm, is_one_group=row.cell.is_one_group)
                for harm in (margin, margin * is_outside)
            ]
            found += (
                regression_finding(both[0], margin, level).is_significant,
                test(both[1], margin, level).is_significant,
            )
        yield f"{row.label()} {' | '.join(f'{share:.3f}' for share in found / worlds)} |"


class Planted:
    """Configurations whose settings are worth nothing, or the same; scores are drawn when they are asked for."""

    def __init__(self, cell: Cell, worth: float, draw: np.random.Generator) -> None:
        self._cell, self._worth, self._draw = cell, worth, draw
        self._scores: dict[KnobSubset, Floats] = {}

    def evaluate(self, wanted: Sequence[KnobSubset], seeds: int) -> None:
        for one in wanted:
            if one not in self._scores:
                self._scores[one] = self._worth * len(one) + NOISE / math.sqrt(2) * sides(self._draw, self._cell)[0]

    def samples(self, a: KnobSubset, b: KnobSubset, seeds: int) -> Mapping[str, Samples]:
        both = (self._scores[one][:, :seeds] for one in (a, b))
        return samples_of(*both, is_one_group=self._cell.is_one_group)


def ablate(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
    """Yields the rows of `ablate`."""
    yield f"{HEADER} settings | any is needed | any is harmful | dropped at the margin |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    cells = [row.cell for row in rows_of(2, 4, 8) if not row.crash]
    for cell in cells:
        for knobs in (2, 6):
            label = f"{Row(cell=cell).label()} {knobs} |"
            if not is_wanted(label, wanted):
                continue
            rules, found = AblateRules(seed_counts=(4, 8)[: cell.num_seeds // 4]), np.zeros(3)
            for _ in range(worlds):
                none = search_changes(knobs, Planted(cell, 0.0, draw), rules)
                found[:2] += any(effect.needed is Need.NEEDED for effect in none.effects), bool(none.harmful)
                if knobs == 2:
                    at_margin = search_changes(knobs, Planted(cell, rules.margin, draw), rules)
                    found[2] += at_margin.effects[0].needed is Need.NOT_NEEDED
            shown = found / worlds
            dropped = f"{shown[2]:.3f}" if knobs == 2 else "-"
            yield f"{label} {shown[0]:.3f} | {shown[1]:.3f} | {dropped} |"


PARTS: dict[str, Part] = {
    "race": race,
    "best": best,
    "budget": budget,
    "alarm": alarm,
    "ablate": ablate,
}


if __name__ == "__main__":
    tables_command(PARTS, __doc__)()

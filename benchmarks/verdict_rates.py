"""How often verdicts err and intervals hold the truth, in worlds where cases move together, sides are unequal, or few
seeds say little; through the functions that the commands call.

Usage:
  python benchmarks/verdict_rates.py [--only means,unequal,better,shares,race,alarm,bisect,history] [--worlds 50]

`means`: pairs of common seeds on several cases. What a seed adds to all cases is the share `correlation` of the
variance. Cases with a correlation are one group by design, others are groups of their own (or one, if it says so). The
columns: a difference of the mean and of any case (Holm) of equal methods, level .05; REGRESSED and PASS of the mean if
the harm is just the margin, levels .025 (.05 of one case) and .05; coverage of the mean's 95% interval; the power at a
shift of 2.8 standard errors over that of a t test of the seeds' means. `unequal`: two sides without common seeds, by
their sizes and the ratio of the first side's standard deviation to the other's; the power is over Welch's.
`better`: coverage of the interval of P(better). `shares`: coverage of a mean win rate. `race`: races that throw out an
equal method, level .05. `alarm`: runs of 50 checkpoints with a false alarm, rate .05. `bisect` and `history`: falls of
four deviations that are found within one place, over those that a binary search on medians finds.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import click
import numpy as np
from numpy.typing import NDArray

from lobench.analysis.comparisons.gates import GateRules, Verdict, gate_cases
from lobench.analysis.stats.aggregates import probability_of_improvement_interval
from lobench.analysis.stats.change_point import Probe, believe, next_probes, scan
from lobench.analysis.stats.comparison import Effect, compare_cases
from lobench.analysis.stats.intervals import metric_mean
from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.analysis.stats.racing import PairSums, log_threshold, losers
from lobench.analysis.stats.t_distribution import t_sf
from lobench.tools.alarm.rule import AlarmRules, Confirmation, Kind, TwoStages, detector_of

Floats = NDArray[np.float64]
RUN = frozenset({"run"})
SHIFT = 2.8  # standard errors
RULES = GateRules(margin=0.0, resolution=1e6)  # the number of seeds that would decide is not asked for
DISTRIBUTIONS = ("normal", "t3", "lognormal", "rounded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of the grid of `means`.

    Attributes:
      num_cases, num_seeds: Of the comparison.
      correlation: Share of the variance that a seed adds to all cases.
      law: Of the values.
      diverging: Share of seeds that diverge on all cases at once, on either side.
      is_one_group: Whether the cases are one group by design.
    """

    num_cases: int
    num_seeds: int
    correlation: float = 0.0
    law: str = "normal"
    diverging: float = 0.0
    is_one_group: bool = True


MEANS = (
    *(
        Cell(num_cases=cases, num_seeds=seeds, correlation=correlation, is_one_group=correlation > 0)
        for cases, seeds in ((6, 2), (6, 4), (12, 8), (16, 4))
        for correlation in (0.0, 0.2, 0.5, 0.8)
    ),
    *(Cell(num_cases=1, num_seeds=seeds) for seeds in (2, 4, 8)),
    *(Cell(num_cases=6, num_seeds=4, is_one_group=True, law=law, correlation=0.5) for law in DISTRIBUTIONS[1:]),
    *(Cell(num_cases=6, num_seeds=4, is_one_group=False, law=law) for law in DISTRIBUTIONS[1:]),
    *(Cell(num_cases=6, num_seeds=seeds, correlation=0.5, diverging=0.1) for seeds in (4, 8)),
)
UNEQUAL = tuple(
    (sizes, ratio, law)
    for sizes in ((3, 3), (3, 6), (3, 10), (4, 20), (2, 10), (5, 20), (8, 8), (2, 3), (3, 4), (3, 5), (4, 5))
    for ratio, law in ((0.25, "normal"), (1.0, "normal"), (4.0, "normal"), (4.0, "t3"))
)


def values(draw: np.random.Generator, law: str, shape: tuple[int, ...]) -> Floats:
    """Returns values with a standard deviation of about 1."""
    if law == "t3":
        return np.asarray(draw.standard_t(3, shape) / math.sqrt(3))
    if law == "lognormal":
        return np.asarray(np.exp(draw.normal(0, 1, shape)) / math.sqrt((math.e - 1) * math.e))
    return np.asarray(draw.normal(0, 1, shape))


def sides(draw: np.random.Generator, cell: Cell) -> tuple[Floats, Floats]:
    """Returns the values of two equal methods: float64[num_cases, num_seeds] each."""
    both = []
    for _ in range(2):
        own = values(draw, cell.law, (cell.num_cases, cell.num_seeds))
        common = values(draw, cell.law, (1, cell.num_seeds))
        side = math.sqrt(1 - cell.correlation) * own + math.sqrt(cell.correlation) * common
        if cell.law == "rounded":
            side = np.round(side)
        side[:, draw.random(cell.num_seeds) < cell.diverging] = DIVERGED
        both.append(side)
    return both[0], both[1]


def samples_of(a: Floats, b: Floats, *, is_one_group: bool, is_paired: bool = True) -> dict[str, Samples]:
    """Returns the samples of cases, as a comparison has them."""
    shared = RUN if is_one_group else frozenset[str]()
    return {
        str(case): dataclasses.replace(Samples.of(x, y, is_paired=is_paired), shared=shared)
        for case, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True))
    }


def p_of_seed_means(a: Floats, b: Floats) -> float:
    """Returns the two-sided p-value of a t test of the seeds' mean differences, of the seeds that converge."""
    kept = np.isfinite(a).all(axis=0) & np.isfinite(b).all(axis=0)
    rows = (b[:, kept] - a[:, kept]).mean(axis=0)
    if len(rows) < 2:
        return 1.0
    error = rows.std(ddof=1) / math.sqrt(len(rows))
    return 2 * t_sf(abs(rows.mean()) / error, len(rows) - 1) if error else 1.0


def p_of_welch(a: Floats, b: Floats) -> float:
    """Returns the two-sided p-value of Welch's t."""
    parts = [side.var(ddof=1) / len(side) for side in (a, b)]
    total = sum(parts)
    degrees = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (a, b), strict=True))
    return 2 * t_sf(abs(b.mean() - a.mean()) / math.sqrt(total), degrees)


def means(worlds: int, draw: np.random.Generator) -> Iterator[str]:
    """Yields the rows of `means`."""
    yield "| cases x seeds | correlation | groups | law | mean | any case | REGRESSED | PASS | coverage | power ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for cell in MEANS:
        counts = np.zeros(7)
        spread = math.sqrt(2 * ((1 - cell.correlation) / cell.num_cases + cell.correlation) / cell.num_seeds)
        for _ in range(worlds):
            a, b = sides(draw, cell)
            cases = samples_of(a, b, is_one_group=cell.is_one_group)
            found = compare_cases(cases)
            gate = gate_cases(cases, RULES)
            shifted = b + SHIFT * spread
            power = compare_cases(samples_of(a, shifted, is_one_group=cell.is_one_group))
            counts += (
                found.verdict is not Effect.UNDECIDED,
                any(case.verdict is not Effect.UNDECIDED for case in found.cases),
                gate.overall.verdict is Verdict.REGRESSED,
                gate.overall.p_pass <= 0.05,
                not (found.overall.lower > 0 or found.overall.upper < 0),
                power.verdict is Effect.BETTER,
                p_of_seed_means(a, shifted) <= 0.05,
            )
        rates = counts / worlds
        law = cell.law + (f", {cell.diverging:.0%} diverge on all cases" if cell.diverging else "")
        groups = "one" if cell.is_one_group else "each case"
        shown = " | ".join(f"{rate:.3f}" for rate in rates[:5])
        yield (
            f"| {cell.num_cases} x {cell.num_seeds} | {cell.correlation:g} | {groups} | {law} | {shown} "
            f"| {rates[5] / max(rates[6], 1e-9):.2f} |"
        )


def unequal(worlds: int, draw: np.random.Generator) -> Iterator[str]:
    """Yields the rows of `unequal`."""
    yield "| seeds | ratio | law | difference | REGRESSED | PASS | coverage | power ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for (size_a, size_b), ratio, law in UNEQUAL:
        counts, spread = np.zeros(6), math.sqrt(ratio**2 / size_a + 1 / size_b)
        for _ in range(worlds):
            a, b = ratio * values(draw, law, (1, size_a)), values(draw, law, (1, size_b))
            cases = samples_of(a, b, is_one_group=False, is_paired=False)
            found = compare_cases(cases)
            gate = gate_cases(cases, RULES).overall
            shifted = b + SHIFT * spread
            power = compare_cases(samples_of(a, shifted, is_one_group=False, is_paired=False))
            counts += (
                found.verdict is not Effect.UNDECIDED,
                gate.p_regressed <= 0.05,
                gate.p_pass <= 0.05,
                not (found.overall.lower > 0 or found.overall.upper < 0),
                power.verdict is Effect.BETTER,
                p_of_welch(a[0], shifted[0]) <= 0.05,
            )
        rates = counts / worlds
        shown = " | ".join(f"{rate:.3f}" for rate in rates[:4])
        yield f"| {size_a}, {size_b} | {ratio:g} | {law} | {shown} | {rates[4] / max(rates[5], 1e-9):.2f} |"


def better(worlds: int, draw: np.random.Generator) -> Iterator[str]:
    """Yields the rows of `better`."""
    chances = (0.5, 0.76, 0.9)
    yield f"| cases, seeds | groups | {' | '.join(f'P = {chance:g}' for chance in chances)} |"
    yield "| --- | --- | --- | --- | --- |"
    for num_cases, size_a, size_b, is_one_group in (
        *((1, size, size, False) for size in (2, 3, 4, 8)),
        (1, 3, 10, False),
        *((6, size, size, False) for size in (2, 3, 4, 8)),
        *((6, size, size, True) for size in (2, 3, 4, 8)),
    ):
        held = []
        for chance in chances:
            count, gap = 0, NormalDist().inv_cdf(chance) * math.sqrt(2)
            common = math.sqrt(0.5) if is_one_group else 0.0
            for _ in range(worlds):
                ours, theirs = (
                    math.sqrt(1 - common**2) * draw.normal(0, 1, (num_cases, size)) + common * draw.normal(0, 1, size)
                    for size in (size_b, size_a)
                )
                groups = [range(num_cases)] if is_one_group else None
                found = probability_of_improvement_interval((ours + gap).tolist(), theirs.tolist(), groups=groups)
                count += found.lower - 1e-9 <= chance <= found.upper + 1e-9
            held.append(f"{count / worlds:.3f}")
        groups_text = "one, correlation .5" if is_one_group else "each case"
        yield f"| {num_cases}, {size_a} against {size_b} | {groups_text} | {' | '.join(held)} |"


def shares(worlds: int, draw: np.random.Generator) -> Iterator[str]:
    """Yields the rows of `shares`."""
    chances = (0.5, 0.9, 0.99)
    yield f"| games, seeds | {' | '.join(f'share {chance:g}' for chance in chances)} |"
    yield "| --- | --- | --- | --- |"
    for games in (5, 10, 20, 100, 1000):
        for seeds in (2, 3, 4):
            held = []
            for chance in chances:
                rows = np.float32(draw.binomial(games, chance, (worlds, seeds)) / games).tolist()
                found = [metric_mean("test/win_rate", row) for row in rows]
                held.append(f"{sum(one.lower <= chance <= one.upper for one in found) / worlds:.3f}")
            yield f"| {games}, {seeds} | {' | '.join(held)} |"


def race(worlds: int, draw: np.random.Generator) -> Iterator[str]:
    """Yields the rows of `race`: looks after every second of 24 seeds; two or six equal methods."""
    yield "| methods | correlation | diverge on all cases | the first of equals is out |"
    yield "| --- | --- | --- | --- |"
    for methods in (2, 6):
        for correlation, diverging in ((0.0, 0.0), (0.5, 0.0), (0.8, 0.0), (0.0, 0.1), (0.5, 0.1), (0.5, 0.3)):
            out, level = 0, log_threshold(methods, 0.05)
            for _ in range(worlds):
                common = draw.normal(0, 1, (methods, 1, 24))
                scores = math.sqrt(1 - correlation) * draw.normal(0, 1, (methods, 6, 24))
                scores += math.sqrt(correlation) * common
                scores[np.broadcast_to(draw.random((methods, 1, 24)) < diverging, scores.shape)] = DIVERGED
                thrown = False
                for end in range(4, 25, 2):
                    part = scores[..., :end]
                    thrown |= bool(losers(PairSums.of(part[:, None], part[None]), level)[0][0])
                out += thrown
            yield f"| {methods} | {correlation:g} | {diverging:g} | {out / worlds:.3f} |"


class Run:
    """Evidence of a run of 50 checkpoints whose six cases move together; nothing is worse by more than the margin."""

    def __init__(self, draw: np.random.Generator, correlation: float, diverging: float, harm: float) -> None:
        self._draw, self._correlation, self._diverging, self._harm = draw, correlation, diverging, harm
        self._scores = [self._of(place, 4) for place in range(50)]

    def _of(self, place: int, seeds: int) -> Floats:
        noise = math.sqrt(1 - self._correlation) * self._draw.normal(0, 1, (6, seeds))
        noise += math.sqrt(self._correlation) * self._draw.normal(0, 1, seeds)
        scores = 0.08 * noise - self._harm * (place >= 25)
        scores[:, self._draw.random(seeds) < self._diverging] = DIVERGED
        return scores

    def __len__(self) -> int:
        return 50

    def step(self, place: int) -> int:
        return 1000 * place

    def worth(self, place: int, at: int, kind: Kind = "stall", number: int = 0, cases: object = None) -> float:
        return float(np.where(np.isfinite(self._scores[place]), self._scores[place], -1.0).mean())

    def usual(self, reference: int, place: int) -> dict[str, Samples]:
        return samples_of(self._scores[reference], self._scores[place], is_one_group=True)

    def fresh(self, asked: Confirmation) -> dict[str, Samples]:
        return samples_of(self._of(asked.reference, 8), self._of(asked.place, 8), is_one_group=True)


def alarm(worlds: int, draw: np.random.Generator) -> Iterator[str]:
    """Yields the rows of `alarm`."""
    yield "| correlation | diverge on all cases | harm from 25 on | runs with an alarm |"
    yield "| --- | --- | --- | --- |"
    for correlation, diverging, harm in ((0.0, 0.0, 0.0), (0.5, 0.0, 0.05), (0.8, 0.0, 0.05), (0.5, 0.1, 0.0)):
        alarms = 0
        for _ in range(worlds):
            detector = detector_of("regress", AlarmRules())
            assert isinstance(detector, TwoStages)
            detector.go_on(Run(draw, correlation, diverging, harm))
            alarms += bool(detector.alarms)
        yield f"| {correlation:g} | {diverging:g} | {harm:g} | {alarms / worlds:.3f} |"


FALL, PLACES = 4.0, 200


@dataclass(slots=True, kw_only=True)
class _Checkpoints:
    """A row of checkpoints that breaks."""

    draw: np.random.Generator
    broke_at: int
    diverging: float
    added: dict[int, float] = dataclasses.field(default_factory=dict)

    def scores(self, place: int, block: int) -> list[float]:
        """Returns the scores of a probe's four seeds."""
        found = []
        for seed in range(4 * block, 4 * block + 4):
            common = self.added.setdefault(seed, float(self.draw.normal(0, 2)))
            score = common - FALL * (place >= self.broke_at) + float(self.draw.normal())
            found.append(DIVERGED if self.draw.random() < self.diverging else score)
        return found


def bisect(worlds: int, draw: np.random.Generator) -> Iterator[str]:
    """Yields the rows of `bisect`: four seeds a probe, 40 probes at most, a fall of four deviations."""
    yield "| diverge | found | binary search on medians | ratio |"
    yield "| --- | --- | --- | --- |"
    for diverging in (0.0, 0.05, 0.1):
        found, simple = 0, 0
        for _ in range(worlds):
            row = _Checkpoints(draw=draw, broke_at=int(draw.integers(1, PLACES)), diverging=diverging)
            found += abs(_bisected(row.scores) - row.broke_at) <= 1
            simple += abs(_by_medians(row.scores) - row.broke_at) <= 1
        yield f"| {diverging:g} | {found / worlds:.3f} | {simple / worlds:.3f} | {found / max(simple, 1):.2f} |"


def _bisected(look: Callable[[int, int], list[float]]) -> int:
    probes: list[Probe] = []
    for place in scan(probes, PLACES):
        probes.append(Probe(place=place, block=0, scores=tuple(look(place, 0))))
    while True:
        belief = believe(probes, PLACES)
        if (belief.fall >= 0.95 and belief.within(1) >= 0.95) or belief.fall <= 0.05 or len(probes) >= 40:
            return belief.place if belief.fall > 0.5 else -9
        (place,) = next_probes(belief, probes, 1)
        block = sum(one.place == place for one in probes)
        probes.append(Probe(place=place, block=block, scores=tuple(look(place, block))))


def _by_medians(look: Callable[[int, int], list[float]]) -> int:
    """Returns the end of a binary search: is a median nearer to that of the last place, or to that of the first?"""

    def median(place: int) -> float:
        return statistics.median(look(place, 0))

    low, high = 0, PLACES - 1
    first, last = median(low), median(high)
    while high - low > 1:
        middle = (low + high) // 2
        value = median(middle)
        low, high = (low, middle) if abs(value - last) < abs(value - first) else (middle, high)
    return high


def history(worlds: int, draw: np.random.Generator) -> Iterator[str]:
    """Yields the rows of `history`: 20 runs of eight seeds, a fall of four deviations; false ones without a fall."""
    yield "| diverge | found within one run | a difference of medians | false |"
    yield "| --- | --- | --- | --- |"
    for diverging in (0.0, 0.05, 0.1):
        counts = np.zeros(3)
        for _ in range(worlds):
            broke_at = int(draw.integers(1, 20))
            added = draw.normal(0, 2, 8)
            for fall in (FALL, 0.0):
                rows = added - fall * (np.arange(20) >= broke_at)[:, None] + draw.normal(0, 1, (20, 8))
                rows[draw.random(rows.shape) < diverging] = DIVERGED
                probes = [Probe(place=place, block=0, scores=tuple(row)) for place, row in enumerate(rows.tolist())]
                belief = believe(probes, 20)
                is_sure = belief.fall >= 0.95
                if fall:
                    medians = np.median(rows, axis=1)
                    gaps = [np.median(medians[:at]) - np.median(medians[at:]) for at in range(1, 20)]
                    counts[0] += is_sure and abs(belief.place - broke_at) <= 1
                    counts[1] += abs(1 + int(np.argmax(gaps)) - broke_at) <= 1
                else:
                    counts[2] += is_sure
        rates = counts / worlds
        yield f"| {diverging:g} | {rates[0]:.3f} | {rates[1]:.3f} | {rates[2]:.3f} |"


PARTS: dict[str, Callable[[int, np.random.Generator], Iterator[str]]] = {
    "means": means,
    "unequal": unequal,
    "better": better,
    "shares": shares,
    "race": race,
    "alarm": alarm,
    "bisect": bisect,
    "history": history,
}


def parts_of(text: str) -> Sequence[str]:
    """Returns the parts that an option names; all for an empty text."""
    return [name for name in PARTS if not text or name in text.split(",")]


@click.command()
@click.option("--only", default="", help=f"Parts, with commas between: {', '.join(PARTS)} (default: all).")
@click.option("--worlds", default=50, type=click.IntRange(min=1), help="Simulated worlds of each cell.")
def main(only: str, worlds: int) -> None:
    """Print the tables of the module's text."""
    for name in parts_of(only):
        print(f"\n{name}, {worlds:,} worlds a row\n")
        for row in PARTS[name](worlds, np.random.default_rng(0)):
            print(row, flush=True)


if __name__ == "__main__":
    main()

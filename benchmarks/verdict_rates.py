"""How often verdicts err and intervals hold the truth, in worlds where cases move together, sides are unequal, or few
seeds say little; through the functions that the commands call.

Usage:
  python benchmarks/verdict_rates.py [--only means,explosions,unequal,better,shares,bisect,history]
      [--cells '*8 | *'] [--worlds 50]

`means`: pairs of common seeds on several cases. What a seed adds to all cases is the share `correlation` of the
variance. Cases with a correlation are one group by design, others are groups of their own (or one, if it says so). The
columns: a difference of the mean and of any case (Holm) of equal methods, level .05; REGRESSED and PASS of the mean if
the harm is just the margin, levels .025 (.05 of one case) and .05; coverage of the mean's 95% interval; the power at a
shift of 2.8 standard errors over that of a t test of the seeds' means. `explosions`: the same of losses, where some
seeds of either side end at ten times their start. `unequal`: two sides without common seeds, by their sizes and the
ratio of the first side's standard deviation to the other's; the power is over Welch's. `better`: coverage of the
interval of P(better). `shares`: coverage of a mean win rate. `bisect` and `history`: falls of four deviations that are
found within one place, over those that a binary search on medians finds.

In 2,000 worlds a cell of one case takes 2 to 4 s of a processor, one of 6 cases 10 to 40 s, one of 16 cases 30 to 60 s.
`--cells` chooses rows of `means`, `explosions` and `unequal` by their first columns.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

from lobench.analysis.comparisons.gates import GateRules, Verdict, gate_cases
from lobench.analysis.comparisons.paired_values import paired_values
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.aggregates import probability_of_improvement_interval
from lobench.analysis.stats.change_point import Probe, fall_posterior, first_probes, next_probes
from lobench.analysis.stats.comparison import Effect, compare_cases
from lobench.analysis.stats.intervals import metric_mean
from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.analysis.stats.t_distribution import t_sf
from lobench.analysis.store.subjects import Cell as StoredCell
from lobench.analysis.store.subjects import StoredSubject
from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Curves, Provenance
from lobench.core.subject import Subject

Floats = NDArray[np.float64]
RUN = frozenset({"run"})
SHIFT = 2.8  # standard errors
MISSING = 0.1  # share of values that are missing where seeds crash
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
      exploding: Share of seeds that explode, on all cases at once if they are one group, otherwise on each by itself.
      is_one_group: Whether the cases are one group by design.
    """

    num_cases: int
    num_seeds: int
    correlation: float = 0.0
    law: str = "normal"
    diverging: float = 0.0
    exploding: float = 0.0
    is_one_group: bool = True

    def label(self) -> str:
        """Returns the first columns of its row."""
        lost = ((self.diverging, "diverge on all cases"), (self.exploding, "explode"))
        law = ", ".join([self.law, *(f"{share:.0%} {what}" for share, what in lost if share)])
        groups = "one" if self.is_one_group else "each case"
        return f"| {self.num_cases} x {self.num_seeds} | {self.correlation:g} | {groups} | {law} |"


MEANS = (
    *(
        Cell(num_cases=cases, num_seeds=seeds, correlation=correlation, is_one_group=correlation > 0)
        for cases, seeds in ((6, 2), (6, 4), (6, 8), (6, 20), (12, 8), (16, 4), (16, 20))
        for correlation in (0.0, 0.2, 0.5, 0.8)
    ),
    *(Cell(num_cases=1, num_seeds=seeds) for seeds in (2, 4, 8, 20)),
    *(Cell(num_cases=6, num_seeds=4, is_one_group=True, law=law, correlation=0.5) for law in DISTRIBUTIONS[1:]),
    *(Cell(num_cases=6, num_seeds=4, is_one_group=False, law=law) for law in DISTRIBUTIONS[1:]),
    *(Cell(num_cases=6, num_seeds=20, law=law, correlation=0.5) for law in DISTRIBUTIONS[1:]),
    *(Cell(num_cases=6, num_seeds=seeds, correlation=0.5, diverging=0.1) for seeds in (4, 8, 20)),
    *(Cell(num_cases=1, num_seeds=seeds, diverging=0.1) for seeds in (4, 8, 20)),
)
EXPLOSIONS = (
    *(Cell(num_cases=1, num_seeds=seeds, exploding=share) for share in (0.02, 0.1) for seeds in (4, 8, 20)),
    *(
        Cell(num_cases=6, num_seeds=seeds, correlation=correlation, exploding=0.1, is_one_group=correlation > 0)
        for correlation in (0.0, 0.5)
        for seeds in (2, 4, 8, 20)
    ),
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
        str(case): dataclasses.replace(Samples.of(x, y, is_paired=is_paired), shared_trainings=shared)
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


def means(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
    """Yields the rows of `means`."""
    yield from _rates_of(MEANS, worlds, draw, wanted)


def explosions(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
    """Yields the rows of `explosions`, whose samples are those that `paired_values` makes of stored losses."""
    yield from _rates_of(EXPLOSIONS, worlds, draw, wanted)


def _rates_of(cells: Sequence[Cell], worlds: int, draw: np.random.Generator, wanted: str) -> Iterator[str]:
    yield "| cases x seeds | correlation | groups | law | mean | any case | REGRESSED | PASS | coverage | power ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for cell in (one for one in cells if is_wanted(one.label(), wanted)):
        counts = np.zeros(7)
        spread = math.sqrt(2 * ((1 - cell.correlation) / cell.num_cases + cell.correlation) / cell.num_seeds)
        losses = Losses(cell) if cell.exploding else None
        for _ in range(worlds):
            a, b = sides(draw, cell)
            shifted = b + SHIFT * spread
            if losses is not None:
                exploded = losses.draw_exploded(draw)
                cases, others = (losses.samples(a, side, exploded) for side in (b, shifted))
                a, shifted = (np.where(lost, DIVERGED, side) for side, lost in zip((a, shifted), exploded, strict=True))
            else:
                cases, others = (samples_of(a, side, is_one_group=cell.is_one_group) for side in (b, shifted))
            found = compare_cases(cases)
            gate = gate_cases(cases, RULES)
            counts += (
                found.verdict is not Effect.UNDECIDED,
                any(case.verdict is not Effect.UNDECIDED for case in found.cases),
                gate.overall.verdict is Verdict.REGRESSED,
                gate.overall.p_pass <= 0.05,
                not (found.overall.lower > 0 or found.overall.upper < 0),
                compare_cases(others).verdict is Effect.BETTER,
                p_of_seed_means(a, shifted) <= 0.05,
            )
        rates = counts / worlds
        shown = " | ".join(f"{rate:.3f}" for rate in rates[:5])
        yield f"{cell.label()} {shown} | {rates[5] / rates[6] if rates[6] else math.nan:.2f} |"


class Losses:
    """Stored losses of two methods, whose scores are about 1 and some of whose seeds explode.

    Every seed starts at 2, and a deviation of the values is `spread` of the score.
    """

    def __init__(self, cell: Cell, spread: float = 0.02) -> None:
        self._cell, self._spread = cell, spread
        self._cases = [_case(place, cell.num_seeds) for place in range(cell.num_cases)]
        good = np.full((cell.num_cases, cell.num_seeds), 0.02)
        self._scales = Scales.of([_subject_of(self._stored(good))])

    def draw_exploded(self, draw: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Returns the seeds of either side that explode: bool[num_cases, num_seeds]."""
        cell = self._cell
        num_draws = 1 if cell.is_one_group else cell.num_cases
        shape = (cell.num_cases, cell.num_seeds)
        first, second = (
            np.broadcast_to(draw.random((num_draws, cell.num_seeds)) < cell.exploding, shape) for _ in range(2)
        )
        return first, second

    def samples(
        self, a: Floats, b: Floats, exploded: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    ) -> dict[str, Samples]:
        """Returns the samples that a comparison of the stored losses has."""
        ours, theirs = (
            self._stored(np.where(lost, 20.0, 2.0 * np.exp(-math.log(100.0) * (1 + self._spread * side))))
            for side, lost in zip((a, b), exploded, strict=True)
        )
        pairs = (paired_values(one, other, None, self._scales) for one, other in zip(ours, theirs, strict=True))
        return {case.identity: pair.samples for case, pair in zip(self._cases, pairs, strict=True)}

    def subject(self, values: Floats, exploded: NDArray[np.bool_], name: str) -> StoredSubject:
        """Returns a stored checkpoint with these values; its score is 1 plus `spread` of them."""
        losses = np.where(exploded, 20.0, 2.0 * np.exp(-math.log(100.0) * (1 + self._spread * values)))
        checkpoint = Checkpoint(uri=name, sha256=name, outer_step=0)
        return _subject_of(self._stored(losses), Subject.of_checkpoint(checkpoint))

    @property
    def scales(self) -> Scales:
        """Scales on which 0 is the start and 1 a final loss of .02."""
        return self._scales

    def _stored(self, finals: Floats) -> list[StoredCell]:
        cells = []
        for case, own in zip(self._cases, np.asarray(finals, np.float32), strict=True):
            seeds = range(len(own))
            task = "@Task()" if self._cell.is_one_group else f"@{case.name}()"  # cases of one task are one group
            rows = np.stack([np.full(len(own), 2.0, np.float32), own], axis=1).tolist()
            curves = Curves(
                seeds=tuple(seeds),
                metrics={"train/loss": memoryview(np.asarray(rows, np.float32).data)},
                eval_steps=(0, 1),
                diverged_at=(-1,) * len(own),
                provenance=Provenance(bindings=f"lobench.Case.task = {task}"),
            )
            cells.append(
                StoredCell(
                    case=case,
                    final_values={"train/loss": dict(zip(seeds, own.tolist(), strict=True))},
                    untrained_values={"train/loss": dict.fromkeys(seeds, 2.0)},
                    curves_by_seed={seed: (curves, seed) for seed in seeds},
                )
            )
        return cells


def _subject_of(cells: Sequence[StoredCell], who: Subject | None = None) -> StoredSubject:
    by_case = {cell.case.identity: cell for cell in cells}
    return StoredSubject(subject=who or Subject.of_optimizer("adam()"), optimizer_hashes=frozenset(), cells=by_case)


def _case(place: int, num_seeds: int) -> CaseInfo:
    return CaseInfo(
        identity=f"case {place}",
        optimizer_hash="",
        suite="simulated",
        name=f"case{place}",
        node_id=f"test_simulated.py::test[case{place}]",
        num_inner_steps=1,
        num_seeds=num_seeds,
        seed_block=None,
        primary_metric="train/loss",
    )


def is_wanted(label: str, wanted: str) -> bool:
    """Returns whether the first columns of a row fit a pattern.

    >>> is_wanted("| 6 x 20 | 0.5 | one | normal |", "6 x 20 | *"), is_wanted("| 6 x 2 | 0 |", "6 x 20*")
    (True, False)
    """
    return fnmatch.fnmatch(label.strip("| "), wanted)


def unequal(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
    """Yields the rows of `unequal`."""
    yield "| seeds | ratio | law | difference | REGRESSED | PASS | coverage | power ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for (size_a, size_b), ratio, law in UNEQUAL:
        if not is_wanted(f"{size_a}, {size_b} | {ratio:g} | {law}", wanted):
            continue
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


def better(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
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


def shares(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
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


def lacking(draw: np.random.Generator, crash: str, scores: Floats) -> Floats:
    """Returns values of which a tenth is NaN: any, or the worst of every case."""
    if not crash:
        return scores
    if crash == "any":
        return np.where(draw.random(scores.shape) < MISSING, math.nan, scores)
    return np.where(scores < np.quantile(scores[np.isfinite(scores)], MISSING), math.nan, scores)


def common_samples(a: Floats, b: Floats, *, is_one_group: bool) -> dict[str, Samples]:
    """Returns the samples of the seeds that both sides have, by case; of two seeds or more."""
    found = {}
    for case in range(len(a)):
        kept = ~np.isnan(a[case]) & ~np.isnan(b[case])
        rows = slice(case, case + 1)
        (samples,) = samples_of(a[rows, kept], b[rows, kept], is_one_group=is_one_group).values()
        seeds = tuple(np.flatnonzero(kept).tolist())
        if len(seeds) > 1:
            missing_a, missing_b = (frozenset(np.flatnonzero(np.isnan(side[case])).tolist()) for side in (a, b))
            found[str(case)] = dataclasses.replace(samples, seeds=(seeds, seeds), missing_seeds=(missing_a, missing_b))
    return found


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


def bisect(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
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
    for place in first_probes(probes, PLACES):
        probes.append(Probe(checkpoint_index=place, block=0, scores=tuple(look(place, 0))))
    while True:
        belief = fall_posterior(probes, PLACES)
        if (
            (belief.fall_probability >= 0.95 and belief.probability_within(1) >= 0.95)
            or belief.fall_probability <= 0.05
            or len(probes) >= 40
        ):
            return belief.break_index if belief.fall_probability > 0.5 else -9
        (place,) = next_probes(belief, probes, 1)
        block = sum(one.checkpoint_index == place for one in probes)
        probes.append(Probe(checkpoint_index=place, block=block, scores=tuple(look(place, block))))


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


def history(worlds: int, draw: np.random.Generator, wanted: str = "*") -> Iterator[str]:
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
                probes = [
                    Probe(checkpoint_index=place, block=0, scores=tuple(row)) for place, row in enumerate(rows.tolist())
                ]
                belief = fall_posterior(probes, 20)
                is_sure = belief.fall_probability >= 0.95
                if fall:
                    medians = np.median(rows, axis=1)
                    gaps = [np.median(medians[:at]) - np.median(medians[at:]) for at in range(1, 20)]
                    counts[0] += is_sure and abs(belief.break_index - broke_at) <= 1
                    counts[1] += abs(1 + int(np.argmax(gaps)) - broke_at) <= 1
                else:
                    counts[2] += is_sure
        rates = counts / worlds
        yield f"| {diverging:g} | {rates[0]:.3f} | {rates[1]:.3f} | {rates[2]:.3f} |"


Part: TypeAlias = Callable[[int, np.random.Generator, str], Iterator[str]]
PARTS: dict[str, Part] = {
    "means": means,
    "explosions": explosions,
    "unequal": unequal,
    "better": better,
    "shares": shares,
    "bisect": bisect,
    "history": history,
}


def tables_command(parts: Mapping[str, Part], help: str | None) -> click.Command:
    """Returns the command that prints the tables of the parts that an option names, or of all."""

    @click.command(help=help)
    @click.option("--only", default="", help=f"Parts, with commas between: {', '.join(parts)} (default: all).")
    @click.option("--cells", default="*", help="Pattern of the first columns of the rows to simulate, as '6 x 20 | *'.")
    @click.option("--worlds", default=50, type=click.IntRange(min=1), help="Simulated worlds of each row.")
    def main(only: str, cells: str, worlds: int) -> None:
        for name in [name for name in parts if not only or name in only.split(",")]:
            print(f"\n{name}, {worlds:,} worlds a row\n")
            for row in parts[name](worlds, np.random.default_rng(0), cells):
                print(row, flush=True)

    return main


if __name__ == "__main__":
    tables_command(PARTS, __doc__)()

"""Output of `lobench compare --race`: text and a JSON record."""

from __future__ import annotations

from typing import Annotated, TypedDict

from lobench.analysis.comparisons.race import EndReason, RaceResult
from lobench.analysis.stats.intervals import Interval, IntervalRecord
from lobench.core.json_numbers import finite_or_none, record_from
from lobench.core.wording import counted, counted_with_verb, one_line
from lobench.report.tables.text import interval_cell, text_table

__all__ = ["RaceRecord", "race_record", "race_text"]


class RacedRecord(TypedDict):
    method: str
    out_at: Annotated[int | None, "Look at which the method was eliminated. null: never."]
    against: Annotated[str | None, "Method that eliminated it. For a method that is still in the race: the leader."]
    gap: Annotated[
        IntervalRecord | None,
        "Difference of the scores, this method's minus the other's, with bounds that hold at all looks simultaneously.",
    ]
    diverged: Annotated[int, "Number of seeds that diverged for this method on any case, and for the other on none."]
    other_diverged: int
    inner_steps: Annotated[int, "Inner steps of its trainings, until it was eliminated."]


class RaceRecord(TypedDict):
    """`lobench compare --race`: methods shown to be worse than another, the look that showed it, and saved steps."""

    leader: str
    left: Annotated[list[str], "Methods that were not shown to be worse."]
    ending: EndReason
    looks: int
    alpha: float
    methods: list[RacedRecord]
    inner_steps: int
    inner_steps_without_a_race: int
    scale: str
    edges: Annotated[list[str], "Settings of the leader that are the lowest or the highest in the race."]


def race_record(result: RaceResult, alpha: float) -> RaceRecord:
    """Returns the record for `--format json`."""
    assert result.leader is not None and result.ending is not None
    methods = []
    for index, (label, out_at, standing) in enumerate(zip(result.labels, result.out_at, result.standings, strict=True)):
        gap = standing.score_gap if standing is not None else None
        diverged = standing.diverged_counts if standing is not None else (0, 0)
        opponent = result.labels[standing.rival] if standing is not None else None
        methods.append(
            RacedRecord(
                method=label,
                out_at=out_at,
                against=opponent,
                gap=record_from(IntervalRecord, gap) if gap is not None else None,
                diverged=diverged[0],
                other_diverged=diverged[1],
                inner_steps=result.steps[index],
            )
        )
    record = record_from(
        RaceRecord,
        result,
        leader=result.labels[result.leader],
        left=[result.labels[index] for index in result.racing_indices],
        alpha=alpha,
        methods=methods,
        edges=list(result.edge_notes),
        inner_steps=sum(result.steps),
        inner_steps_without_a_race=result.all_steps * len(result.labels),
    )
    return finite_or_none(record)


def race_text(result: RaceResult, alpha: float, margin: float) -> str:
    """Returns the answer, a table and notes. The table has a row per method; methods that stayed longest come first."""
    rows = [["method", "out at", "against", "score against it", "diverged", "inner steps"]]
    for index in _longest_first(result):
        standing = result.standings[index]
        out_at = result.out_at[index]
        rows.append(
            [
                result.labels[index],
                f"look {out_at}" if out_at is not None else "in",
                result.labels[standing.rival] if standing is not None else "leads",
                interval_cell(_finite_bounds(standing.score_gap)) if standing is not None else "",
                "{} : {}".format(*standing.diverged_counts)
                if standing is not None and any(standing.diverged_counts)
                else "",
                f"{result.steps[index]:,}",
            ]
        )
    answer, *notes = map(one_line, _answer_and_notes(result, alpha, margin))
    return "\n".join([answer, "", text_table(rows, left={0, 1, 2}), "", *notes])


def _longest_first(result: RaceResult) -> list[int]:
    def key(index: int) -> tuple[float, float]:
        out_at = result.out_at[index]
        standing = result.standings[index]
        return -(out_at or result.looks + 1), -(standing.score_gap.mean if standing is not None else float("inf"))

    return sorted(range(len(result.labels)), key=key)


def _finite_bounds(gap: Interval) -> Interval:
    return gap if gap.upper < float("inf") else Interval(mean=gap.mean)


def _answer_and_notes(result: RaceResult, alpha: float, margin: float) -> list[str]:
    assert result.leader is not None
    num_racing = len(result.racing_indices)
    leader = result.labels[result.leader]
    num_steps = sum(result.steps)
    num_all_steps = result.all_steps * len(result.labels)
    looks_text = f"after {counted(result.looks, 'look')}"
    if result.ending == "one left":
        line = f"{leader} is best, {looks_text}"
    elif result.ending == "within the margin":
        line = (
            f"{result.leader_text} {looks_text}, and none of the {num_racing} that are in can be better by {margin:g}"
        )
    else:
        line = f"{counted_with_verb(num_racing, 'method')} in {looks_text}, and nothing shows which is best; "
        line += result.leader_text
        line += ": more --seeds separate them, or --margin ends the race if they are close"
    lines = [
        line,
        f"{num_steps:,} inner steps of {num_all_steps:,} for all methods on all seeds: "
        f"{num_all_steps / num_steps:.1f}x fewer",
        f"scores against the method that eliminated it, or against the leader, with bounds that hold at all looks at "
        f"once; the chance that any method is eliminated although it is at least as good is at most {alpha:g}",
    ]
    if any(standing is not None and any(standing.diverged_counts) for standing in result.standings):
        lines.append(
            "scores are of the seeds on which both converged; diverged: seeds of a method alone : of the other alone"
        )
    lines += [f"{leader}: {edge}" for edge in result.edge_notes]
    return [*lines, *result.scale.splitlines()]

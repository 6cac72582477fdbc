"""Table and record of `lobench ablate`."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Annotated, TypedDict

from lobench.analysis.stats.intervals import Interval
from lobench.core.json_numbers import record_from
from lobench.core.wording import counted, one_line
from lobench.report.tables.text import interval_cell, text_table
from lobench.tools.ablate.ablate import Ablation
from lobench.tools.ablate.change_search import KnobSubset, Need, Worth

__all__ = ["AblateRecord", "ablate_record", "ablate_text"]

_NEED_TEXTS = {Need.NEEDED: "yes", Need.NOT_NEEDED: "no", Need.OPEN: "open"}
_LEVEL = 0.05  # level at which an interaction is reported


class KnobRecord(TypedDict):
    path: str
    a: str
    b: str
    alone: Worth
    without: Worth
    steps: float
    in_smallest: bool
    needed: Annotated[Need, "Whether it is needed. Open: the seeds show neither."]
    harmful: Annotated[bool, "Whether it makes B worse by more than the margin."]
    in_forward: bool


class InteractionRecord(TypedDict):
    knobs: list[str]
    worth: Worth
    p_holm: float


class AblateRecord(TypedDict):
    """`lobench ablate`: effects of the settings that differ between A and B, and the smallest set that suffices.

    Its fields are the keys of the JSON document.
    """

    a: str
    b: str
    margin: float
    alpha: float
    whole: Worth
    knobs: list[KnobRecord]
    smallest: list[str]
    forward: list[str]
    forward_is_equivalent: bool
    undecided: list[list[str]]
    interactions: list[InteractionRecord]
    num_configurations: int
    num_tests: int
    seeds: int
    seeds_of_the_full_factorial: int
    scale: str
    command: str


def ablate_text(ablation: Ablation) -> str:
    """Returns the needed and the undecided settings, the table of all settings, and the cost."""
    search_result, knobs = ablation.search, ablation.knobs.knobs
    rows = [("setting", "A", "B", "alone on A", "B without it", "steps", "needed")]
    order = sorted(
        range(len(knobs)),
        key=lambda knob: (knob not in search_result.smallest, -_worth_size(search_result.effects[knob].alone)),
    )
    for knob in order:
        knob_values = knobs[knob]
        steps = f"{ablation.step_fractions[knob]:.0%}" if math.isfinite(ablation.step_fractions[knob]) else "more"
        effect = search_result.effects[knob]
        need_text = _NEED_TEXTS[effect.needed]
        worth_texts = (_worth_text(effect.alone), _worth_text(effect.without))
        rows.append((knob_values.path, knob_values.a_text, knob_values.b_text, *worth_texts, steps, need_text))
    lines = [*_answer_lines(ablation), *_harm_lines(ablation), *_forward_lines(ablation)]
    for interaction in search_result.interactions:
        if interaction.p_holm <= _LEVEL:
            pair_names = _names(ablation, KnobSubset(interaction.pair))
            lines.append(
                f"together: {pair_names}: {_worth_text(interaction.worth)} beyond the sum of both, "
                f"p = {interaction.p_holm:.2g}"
            )
    open_subsets = [subset for subset in search_result.undecided if subset]
    if open_subsets:
        lines.append(
            f"undecided after {ablation.rules.seed_counts[-1]} seeds: {counted(len(open_subsets), 'configuration')}; "
            "--seeds allows more"
        )
    bound_defaults = ", ".join(ablation.knobs.bound_defaults)
    notes = [
        *([f"{bound_defaults}: bound to the default by one side, and left as A has it"] if bound_defaults else []),
        "alone on A, B without it: difference of scores with its 95% interval; steps: median share of a case's steps "
        "until the setting alone on A reaches the final value of A",
        f"cost: {search_result.seeds} seeds of each case in "
        f"{counted(search_result.num_configurations, 'configuration')}; "
        f"the full factorial of {2 ** len(knobs)} configurations takes {_num_factorial_seeds(ablation)}",
        *ablation.scale.splitlines()[:1],
        f"again: {ablation.command}",
    ]
    return "\n".join([*map(one_line, lines), "", text_table(rows, left=range(3)), "", *map(one_line, notes)])


def _answer_lines(ablation: Ablation) -> list[str]:
    """Returns lines on the settings of B that A needs to be equivalent to B, and on the difference between the two."""
    search_result, margin = ablation.search, f"{ablation.rules.margin:g}"
    seeds_text = f"{counted(search_result.whole.seeds, 'seed')} of each case"
    gain_text = f"B is {_worth_text(search_result.whole)} (95%) against A, {seeds_text}"
    if not search_result.smallest:
        return [f"none of these settings is needed: A is equivalent to B within {margin}; {gain_text}"]
    knobs_by_need: dict[Need, set[int]] = {need: set() for need in Need}
    for knob in search_result.smallest:
        knobs_by_need[search_result.effects[knob].needed].add(knob)
    names_by_need = {need: _names(ablation, knobs) for need, knobs in knobs_by_need.items()}
    equivalence_text = f"A with these is equivalent to B within {margin}"
    if not names_by_need[Need.OPEN]:
        return [f"needed: {names_by_need[Need.NEEDED]}; {equivalence_text}; {gain_text}"]
    addition = " and the needed ones" if names_by_need[Need.NEEDED] else ""
    lines = [f"needed: {names_by_need[Need.NEEDED]}; {gain_text}"] if names_by_need[Need.NEEDED] else []
    equivalence_text = equivalence_text.replace("these", f"these{addition}")
    lines.append(f"open: {names_by_need[Need.OPEN]}; {equivalence_text}{'' if lines else f'; {gain_text}'}")
    return [*lines, "without one of the open ones it is shown neither to differ from B nor to be equivalent"]


def _harm_lines(ablation: Ablation) -> list[str]:
    """Returns the settings that make B worse, if B is worse than A or a setting costs something, beyond the margin."""
    search_result = ablation.search
    is_worse = search_result.whole.upper < 0 and search_result.whole.mean < -ablation.rules.margin
    if not search_result.harmful and not is_worse:
        return []
    harm_texts = [
        f"{knob.path} (alone on A {_worth_text(effect.alone)}, B without it {_worth_text(effect.without)})"
        for knob, effect in zip(ablation.knobs.knobs, search_result.effects, strict=True)
        if effect.harmful
    ]
    start = "B is worse than A; " if is_worse else ""
    return [
        start
        + (f"harm is done by {', '.join(harm_texts)}" if harm_texts else "no single setting is shown to do the harm")
    ]


def _forward_lines(ablation: Ablation) -> list[str]:
    """Describes the forward search, if it ended in another set."""
    search_result = ablation.search
    if search_result.forward == search_result.smallest:
        return []
    forward_names = _names(ablation, search_result.forward) or "nothing"
    if not search_result.forward_is_equivalent:
        route = f"from A, one setting at a time, it gets stuck with {forward_names}: the others gain nothing alone"
    else:
        route = f"from A, one setting at a time, it takes {forward_names}, which is equivalent to B too"
    return [f"the way matters: {route}"]


def _names(ablation: Ablation, subset: Set[int]) -> str:
    return ", ".join(ablation.knobs.knobs[knob].path for knob in sorted(subset))


def _worth_text(worth: Worth) -> str:
    return interval_cell(Interval(mean=worth.mean, lower=worth.lower, upper=worth.upper), "+z.3f")


def _worth_size(worth: Worth) -> float:
    return 0.0 if math.isnan(worth.mean) else abs(worth.mean)


def _num_factorial_seeds(ablation: Ablation) -> int:
    return int(2 ** len(ablation.knobs) * ablation.rules.num_table_seeds)


def ablate_record(ablation: Ablation) -> AblateRecord:
    """Returns the record for `--format json`."""
    search_result = ablation.search
    paths = [knob.path for knob in ablation.knobs.knobs]
    knobs = [
        record_from(
            KnobRecord,
            knob,
            search_result.effects[index],
            steps=ablation.step_fractions[index],
            in_smallest=index in search_result.smallest,
            in_forward=index in search_result.forward,
        )
        for index, knob in enumerate(ablation.knobs.knobs)
    ]
    interactions = [
        record_from(InteractionRecord, interaction, knobs=[paths[knob] for knob in interaction.pair])
        for interaction in search_result.interactions
    ]
    return record_from(
        AblateRecord,
        ablation,
        search_result,
        ablation.rules,
        knobs=knobs,
        smallest=[paths[knob] for knob in sorted(search_result.smallest)],
        forward=[paths[knob] for knob in sorted(search_result.forward)],
        undecided=sorted([paths[knob] for knob in sorted(subset)] for subset in search_result.undecided),
        interactions=interactions,
        seeds_of_the_full_factorial=_num_factorial_seeds(ablation),
    )

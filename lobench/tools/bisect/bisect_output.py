"""Text output of `lobench bisect`."""

from __future__ import annotations

from lobench.core.wording import counted, one_line, short_path
from lobench.tools.bisect.probes import Bisection

__all__ = ["bisection_text"]


def bisection_text(bisection: Bisection) -> str:
    """Returns the step, its probability, the interval, the cost, and the command that repeats the call."""
    belief, noun, (first, last) = bisection.belief, bisection.replicate, bisection.interval
    number = len(bisection.checkpoints)
    spare = bisection.num_evaluations - bisection.num_new
    place = f"{bisection.name} ({bisection.metric})"
    if bisection.status == "no_fall":
        never = _share(1 - belief.fall)
        lines = [f"no fall found, {never} sure: {place} is as good at the last checkpoint as before"]
    else:
        good, broken = bisection.named
        if bisection.status == "found":
            this = _share(belief.by_place[belief.place])
            near = _share(belief.within(1))
            step = bisection.broken.outer_step
            lines = [
                f"{place} broke at outer step {step}: {this} sure, {near} within one checkpoint of it",
                f"these two and the interval hold if it got worse at all, which is {_share(belief.fall)} sure",
            ]
        else:
            if first is last:
                steps = f"at outer step {first.outer_step}"
            else:
                steps = f"between outer steps {first.outer_step} and {last.outer_step}"
            precision = (
                f"{_share(bisection.level)} within one checkpoint, and {_share(bisection.confidence)} of one outer step"
            )
            further = "--most N allows more evaluations"
            if bisection.is_exhausted:
                further = (
                    f"more {noun}s do not decide it: checkpoints differ by more than {noun}s, so save more of them"
                )
            lines = [
                f"undecided: {_share(belief.fall)} sure that {place} got worse; if it did, {steps}",
                f"asked for: {precision}; {further}",
            ]
        before, num_before, after, num_after = belief.lost
        size = f"{belief.size:.3g} +- {belief.size_error:.2g} in score"
        if belief.size < belief.size_error and after * num_before > before * num_after:
            size = f"more {noun}s diverge, and none is shown in the score of the others"
        condition = "" if bisection.status == "found" else "if it did, "
        lines += [
            f"{condition}{_share(bisection.level)} interval: outer steps {first.outer_step} to {last.outer_step}",
            f"size of the fall: {size}",
            f"last good: {_checkpoint_text(bisection, good)}",
            f"first broken: {_checkpoint_text(bisection, broken)}",
        ]
        if before or after:
            then = f"{after} of {num_after} from there on"
            lines.append(f"diverged or exploded: {before} of {counted(num_before, noun)} before, {then}")
    if belief.begin:
        step = bisection.checkpoints[belief.begin].outer_step
        lines.append(f"not looked at: what lies before outer step {step}, where the case was not good yet")
    blocks = f"{counted(bisection.num_evaluations, 'evaluation')} of {counted(bisection.num_seeds, noun)}"
    lines += [
        f"cost: {blocks} on {counted(number, 'checkpoint')}, {bisection.num_new} of them new ({spare} were stored)",
        bisection.scale,
        f"again: {bisection.command}",
    ]
    return "\n".join(map(one_line, lines))


def _checkpoint_text(bisection: Bisection, place: int) -> str:
    one = bisection.checkpoints[place]
    guessed = "" if place in bisection.looked_at else "; it was not evaluated: by those around it"
    return f"{short_path(one.uri)} (outer step {one.outer_step}{guessed})"


def _share(probability: float) -> str:
    """Formats a probability: 97%, or 99.90% near 0 and 1, where whole percents would read as certainty."""
    if 0.01 <= probability <= 0.985:
        return f"{probability:.0%}"
    return f"{min(probability, 0.9999):.2%}"

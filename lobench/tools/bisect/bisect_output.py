"""Text output of `lobench bisect`."""

from __future__ import annotations

from lobench.core.wording import counted, one_line, short_path
from lobench.tools.bisect.probes import Bisection

__all__ = ["bisection_text"]


def bisection_text(bisection: Bisection) -> str:
    """Returns the step, its probability, the interval, the cost, and the command that repeats the call."""
    posterior, noun = bisection.belief, bisection.case.replicate
    interval_start, interval_end = bisection.interval
    number = len(bisection.checkpoints)
    spare = bisection.probed.num_evaluations - bisection.num_new
    case_text = f"{bisection.name} ({bisection.metric})"
    if bisection.status == "no_fall":
        no_fall_certainty = _share(1 - posterior.fall)
        lines = [
            f"no fall found: with {no_fall_certainty} probability, {case_text} is as good at the last "
            "checkpoint as before"
        ]
    else:
        last_good, first_broken = bisection.named
        if bisection.status == "found":
            exact = _share(posterior.by_place[posterior.place])
            certainty_of_neighbours = _share(posterior.within(1))
            lines = [
                f"{case_text} broke at outer step {bisection.broken.outer_step}",
                f"probability that it got worse: {_share(posterior.fall)}; and if it did, "
                f"that it broke at this checkpoint: {exact}, at this one or a neighbour: {certainty_of_neighbours}",
            ]
        else:
            if interval_start is interval_end:
                steps = f"at outer step {interval_start.outer_step}"
            else:
                steps = f"between outer steps {interval_start.outer_step} and {interval_end.outer_step}"
            needed = (
                f"{_share(bisection.level)} that it got worse, and if it did, {_share(bisection.confidence)} for one "
                f"checkpoint and {_share(bisection.level)} for it or a neighbour"
            )
            further = "--most N allows more evaluations"
            if bisection.is_exhausted:
                further = (
                    f"more {noun}s do not decide it: checkpoints differ by more than {noun}s, so save more of them"
                )
            lines = [
                f"undecided: {case_text} got worse with {_share(posterior.fall)} probability; if it did, {steps}",
                f"needed to decide: {needed}; {further}",
            ]
        num_lost_before, num_all_before, num_lost_after, num_all_after = posterior.lost
        size = f"{posterior.size:.3g} +- {posterior.size_error:.2g} in score"
        if posterior.size < posterior.size_error and num_lost_after * num_all_before > num_lost_before * num_all_after:
            size = f"more {noun}s diverge, and none is shown in the score of the others"
        condition = "" if bisection.status == "found" else "if it did, "
        lines += [
            f"{condition}{_share(bisection.level)} interval: "
            f"outer steps {interval_start.outer_step} to {interval_end.outer_step}",
            f"size of the fall: {size}",
            f"last good: {_checkpoint_text(bisection, last_good)}",
            f"first broken: {_checkpoint_text(bisection, first_broken)}",
        ]
        if num_lost_before or num_lost_after:
            lost_after = f"{num_lost_after} of {num_all_after} from there on"
            lines.append(
                f"diverged or exploded: {num_lost_before} of {counted(num_all_before, noun)} before, {lost_after}"
            )
    if posterior.begin:
        step = bisection.checkpoints[posterior.begin].outer_step
        lines.append(f"not looked at: what lies before outer step {step}, where the case was not good yet")
    blocks = f"{counted(bisection.probed.num_evaluations, 'evaluation')} of {counted(bisection.num_seeds, noun)}"
    lines += [
        f"cost: {blocks} on {counted(number, 'checkpoint')}, {bisection.num_new} of them new ({spare} were stored)",
        bisection.probed.scale,
        f"again: {bisection.command}",
    ]
    return "\n".join(map(one_line, lines))


def _checkpoint_text(bisection: Bisection, index: int) -> str:
    checkpoint = bisection.checkpoints[index]
    guessed = "" if index in bisection.looked_at else "; it was not evaluated: by those around it"
    return f"{short_path(checkpoint.uri)} (outer step {checkpoint.outer_step}{guessed})"


def _share(probability: float) -> str:
    """Formats a probability as 97%, or as 99.90% close to 0 and 1, because 100% would read as certainty."""
    if 0.01 <= probability <= 0.985:
        return f"{probability:.0%}"
    return f"{min(probability, 0.9999):.2%}"

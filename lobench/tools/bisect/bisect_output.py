"""Text output of `lobench bisect`."""

from __future__ import annotations

from lobench.core.wording import counted, one_line, short_path
from lobench.tools.bisect.probes import Bisection

__all__ = ["bisection_text"]


def bisection_text(bisection: Bisection) -> str:
    """Returns the step, its probability, the interval, the cost, and the command that repeats the call."""
    posterior, noun = bisection.posterior, bisection.case.replicate_noun
    interval_start, interval_end = bisection.interval
    num_checkpoints = len(bisection.checkpoints)
    num_stored = bisection.probed_case.num_evaluations - bisection.num_new
    case_text = f"{bisection.name} ({bisection.metric})"
    if bisection.status == "no_fall":
        no_fall_certainty = _percent(1 - posterior.fall_probability)
        lines = [
            f"no fall found: with {no_fall_certainty} probability, {case_text} is as good at the last "
            "checkpoint as before"
        ]
    else:
        last_good, first_broken = bisection.named_positions
        if bisection.status == "found":
            certainty = _percent(posterior.probability_by_index[posterior.break_index])
            neighbour_certainty = _percent(posterior.probability_within(1))
            lines = [
                f"{case_text} broke at outer step {bisection.broken.outer_step}",
                f"probability that it got worse: {_percent(posterior.fall_probability)}; and if it did, "
                f"that it broke at this checkpoint: {certainty}, at this one or a neighbour: {neighbour_certainty}",
            ]
        else:
            if interval_start is interval_end:
                steps = f"at outer step {interval_start.outer_step}"
            else:
                steps = f"between outer steps {interval_start.outer_step} and {interval_end.outer_step}"
            needed_text = (
                f"{_percent(bisection.level)} that it got worse, and if it did, {_percent(bisection.confidence)} for "
                f"one checkpoint and {_percent(bisection.level)} for it or a neighbour"
            )
            advice = "--most N allows more evaluations"
            if bisection.is_exhausted:
                advice = f"more {noun}s do not decide it: checkpoints differ by more than {noun}s, so save more of them"
            lines = [
                f"undecided: {case_text} got worse with {_percent(posterior.fall_probability)} probability; "
                f"if it did, {steps}",
                f"needed to decide: {needed_text}; {advice}",
            ]
        num_lost_before, num_all_before, num_lost_after, num_all_after = posterior.lost_counts
        size_text = f"{posterior.fall_size:.3g} +- {posterior.fall_size_error:.2g} in score"
        if (
            posterior.fall_size < posterior.fall_size_error
            and num_lost_after * num_all_before > num_lost_before * num_all_after
        ):
            size_text = f"more {noun}s diverge, and none is shown in the score of the others"
        condition = "" if bisection.status == "found" else "if it did, "
        lines += [
            f"{condition}{_percent(bisection.level)} interval: "
            f"outer steps {interval_start.outer_step} to {interval_end.outer_step}",
            f"size of the fall: {size_text}",
            f"last good: {_checkpoint_text(bisection, last_good)}",
            f"first broken: {_checkpoint_text(bisection, first_broken)}",
        ]
        if num_lost_before or num_lost_after:
            lost_after = f"{num_lost_after} of {num_all_after} from there on"
            lines.append(
                f"diverged or exploded: {num_lost_before} of {counted(num_all_before, noun)} before, {lost_after}"
            )
    if posterior.first_good_index:
        step = bisection.checkpoints[posterior.first_good_index].outer_step
        lines.append(f"not looked at: what lies before outer step {step}, where the case was not good yet")
    cost_text = (
        f"{counted(bisection.probed_case.num_evaluations, 'evaluation')} of {counted(bisection.num_seeds, noun)}"
    )
    lines += [
        f"cost: {cost_text} on {counted(num_checkpoints, 'checkpoint')}, {bisection.num_new} of them new "
        f"({num_stored} were stored)",
        bisection.probed_case.scale,
        f"again: {bisection.command}",
    ]
    return "\n".join(map(one_line, lines))


def _checkpoint_text(bisection: Bisection, index: int) -> str:
    checkpoint = bisection.checkpoints[index]
    note = "" if index in bisection.evaluated_positions else "; it was not evaluated: by those around it"
    return f"{short_path(checkpoint.uri)} (outer step {checkpoint.outer_step}{note})"


def _percent(probability: float) -> str:
    """Formats a probability as 97%, or as 99.90% close to 0 and 1, because 100% would read as certainty."""
    if 0.01 <= probability <= 0.985:
        return f"{probability:.0%}"
    return f"{min(probability, 0.9999):.2%}"

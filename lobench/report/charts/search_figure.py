"""Search charts: best score over trials, each parameter, slices, parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lobench.analysis.store.search_history import Axis, SearchHistory
from lobench.core.wording import counted, level_text
from lobench.drawing.svg import Chart, Note, Series, format_number
from lobench.report.charts.sections import Figure, Section

__all__ = ["search_section"]

_TRIAL_LABEL = "a trial"
_BEST_SO_FAR_LABEL = "the best up to then"
_BEST_LABEL = "the best trial"
_GOOD_LABEL, _OTHER_LABEL = "the best quarter", "another trial"


def search_section(history: SearchHistory, lines: Sequence[str] = ()) -> Section | None:
    """Returns the charts of a search; None if no trial has a fitness yet.

    Args:
      history: The search.
      lines: Notes on the search, shown as a list.
    """
    best_index = history.best_so_far[-1] if history.best_so_far else None
    if best_index is None:
        return None
    figures = [_trials_figure(history, history.fitness), _parallel_figure(history, best_index)]
    figures += [_trials_figure(history, axis) for axis in history.parameters]
    figures += [_parameter_figure(history, axis, best_index) for axis in history.parameters]
    values = (
        f"{axis.path} = {_value_text(axis, best_index)}"
        for axis in history.parameters
        if not math.isnan(axis.values[best_index])
    )
    num_trials = counted(len(history.numbers), "trial")
    others = [index for index in range(len(history.numbers)) if index != best_index]
    fitness = history.fitness.values
    level = level_text(fitness[best_index], ((f"trial {history.numbers[index]}", fitness[index]) for index in others))
    note = f"{num_trials}; the best is trial {history.numbers[best_index]} ({', '.join(values)}){level}, "
    best_fitness = format_number(fitness[best_index])
    note += f"with a fitness (mean score in the search) of {best_fitness}. Higher is better."
    note += f" {history.num_failed} failed." if history.num_failed else ""
    note += f" {history.num_stopped} stopped early, without a final fitness." if history.num_stopped else ""
    note += f" {history.num_unfinished} have not ended." if history.num_unfinished else ""
    note += " A parameter that is not active in a trial has no point there."
    return Section(
        id=f"search-{history.method}",
        title=f"Search: {history.label}",
        note=note,
        kind="small",
        figures=tuple(figures),
        view="searches",
        lines=tuple(line[:1].upper() + line[1:] + "." for line in lines),
    )


def _value_text(axis: Axis, trial: int) -> str:
    return _value_name(axis, axis.values[trial])


def _trials_figure(history: SearchHistory, axis: Axis) -> Figure:
    """Draws the value in each trial, and in the best trial so far."""
    x = [float(trial_number) for trial_number in history.numbers]
    best_so_far = [axis.values[index] if index is not None else math.nan for index in history.best_so_far]
    return Figure(
        title=axis.path,
        chart=Chart(
            title=f"{axis.path} over the trials of {history.label}",
            description=f"The best trial has {_value_text(axis, history.best_so_far[-1] or 0)}."
            if history.best_so_far
            else "",
            x_label="trial",
            y_label=axis.path,
            series=(
                Series(label=_TRIAL_LABEL, x=x, y=axis.values, style="s1", dots=True, line=False),
                Series(label=_BEST_SO_FAR_LABEL, x=x, y=best_so_far, style="s2", steps=True),
            ),
            log_y=axis.is_log,
            y_names=axis.names,
            width=360,
            height=230,
        ),
        note="log scale" * axis.is_log,
    )


def _parameter_figure(history: SearchHistory, axis: Axis, best_index: int) -> Figure:
    """Draws the fitness against a parameter."""
    y = history.fitness.values
    return Figure(
        title=f"fitness by {axis.path}",
        chart=Chart(
            title=f"Fitness by {axis.path} over the trials of {history.label}",
            description=f"The best trial has {_value_text(axis, best_index)} "
            f"and a fitness of {format_number(y[best_index])}.",
            x_label=axis.path,
            y_label="fitness",
            series=(
                Series(label=_TRIAL_LABEL, x=axis.values, y=y, style="s1", dots=True, line=False),
                Series(
                    label=_BEST_LABEL, x=[axis.values[best_index]], y=[y[best_index]], style="s2", dots=True, line=False
                ),
            ),
            log_x=axis.is_log,
            x_names=axis.names,
            width=360,
            height=230,
        ),
        note="log scale" * axis.is_log,
    )


def _parallel_figure(history: SearchHistory, best_index: int) -> Figure:
    """Draws each trial as a line through its parameters and its fitness, each with its own scale."""
    axes = (*history.parameters, history.fitness)
    x = [float(index) for index in range(len(axes))]
    heights = [_heights(axis) for axis in axes]
    feasible_trials = sorted(
        (index for index, value in enumerate(history.fitness.values) if not math.isnan(value)),
        key=lambda trial: (history.fitness.values[trial], -trial),
    )
    best_trials = feasible_trials[-max(len(feasible_trials) // 4, 1) :]
    series = list[Series]()
    used_labels = set[str]()
    for trial in feasible_trials:
        label, style = (_GOOD_LABEL, "s3") if trial in best_trials else (_OTHER_LABEL, "s1 faint")
        if trial == best_index:
            label, style = _BEST_LABEL, "s2"
        y = [column[trial] for column in heights]
        series.append(Series(label=label if label not in used_labels else "", x=x, y=y, style=style))
        used_labels.add(label)
    notes = [note for index, axis in enumerate(axes) for note in _end_notes(float(index), axis)]
    return Figure(
        title="Parallel coordinates",
        chart=Chart(
            title=f"Parallel coordinates of the trials of {history.label}",
            description=f"{len(feasible_trials)} trials, a line each through {', '.join(axis.path for axis in axes)}.",
            x_label="",
            y_label="",
            series=tuple(series),
            x_names=_short_names([axis.path for axis in axes]),
            y_names=("",),
            y_range=(-0.08, 1.08),
            rules=tuple(x),
            notes=tuple(notes),
            width=max(360, 90 * len(axes)),
            height=260,
        ),
        note="Each axis from its least value (below) to its largest; the largest fitness is the best.",
    )


def _short_names(paths: Sequence[str]) -> tuple[str, ...]:
    """Returns the last part of each path, or the whole path if the last part is ambiguous."""
    leaves = [path.rsplit(".", 1)[-1] for path in paths]
    return tuple(leaf if leaves.count(leaf) == 1 else path for path, leaf in zip(paths, leaves, strict=True))


def _heights(axis: Axis) -> list[float]:
    """Scales values to [0, 1] by their position between the smallest and the largest. Equal values are at 0.5."""
    values = [math.log(value) if axis.is_log else value for value in axis.values]
    low, high = _bounds(values)
    return [(value - low) / (high - low) if high > low else value - low + 0.5 for value in values]


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 0.0)


def _end_notes(x: float, axis: Axis) -> list[Note]:
    low, high = _bounds(axis.values)
    if low == high:
        return [Note(x=x, y=0.5, text=_value_name(axis, low))]
    return [Note(x=x, y=-0.06, text=_value_name(axis, low)), Note(x=x, y=1.03, text=_value_name(axis, high))]


def _value_name(axis: Axis, value: float) -> str:
    return axis.names[int(value)] if axis.names else format_number(value)

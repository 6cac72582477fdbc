"""Page of `lobench pbt status --format html`: a study as one self-contained file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from lobench.extend import Chart, Figure, Series, charts_html, plain_page, table_html
from lobench_pbt.fronts import Front
from lobench_pbt.study import Study
from lobench_pbt.trial import StudyTrial

__all__ = ["status_page"]


def status_page(
    headline: str,
    study: Study,
    trials: Sequence[StudyTrial],
    front: Front,
    tables: Mapping[str, Sequence[Sequence[str]]],
    lineage: Sequence[str],
) -> str:
    """Returns the page: the front for several objectives, then all trials and their descent."""
    page_parts = [Markup("<p>{}</p>").format(headline)]
    if front.has_several_objectives and len(study.objectives) == 2:
        page_parts.append(_chart(study, trials, front))
    for title, rows in sorted(tables.items(), key=lambda entry: entry[0] == "Trials"):
        page_parts += [Markup("<h2>{}</h2>").format(title), table_html(title, rows)]
    if lineage:
        page_parts.append(Markup("<h2>Lineage</h2><pre>{}</pre>").format("\n".join(lineage)))
    return plain_page(f"Population {study.name}", Markup("\n").join(page_parts))


def _chart(study: Study, trials: Sequence[StudyTrial], front: Front) -> Markup:
    x_metric, y_metric = (objective.metric for objective in study.objectives)

    def series(label: str, drawn_trials: Sequence[StudyTrial], style: str) -> Series:
        points = sorted((trial.metrics[x_metric], trial.metrics[y_metric]) for trial in drawn_trials if trial.metrics)
        x_values, y_values = ([point[axis] for point in points] for axis in (0, 1))
        return Series(label=label, x=x_values, y=y_values, style=style, dots=True, line=False)

    chart = Chart(
        title=f"{y_metric} against {x_metric}",
        description=f"{len(front.ids)} trials are of the front, {len(front.dominated)} are dominated.",
        x_label=x_metric,
        y_label=y_metric,
        series=(
            series("dominated", [trial for trial in trials if trial.id in front.dominated], "s7"),
            series("front", [trial for trial in trials if trial.id in front.ids], "s2"),
        ),
    )
    return charts_html([Figure(chart=chart, title=chart.title)])

"""Tests of the curves in a paper's figures: the mean of the seeds, in a band that is the interval of every table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from report_store import SEEDS, make_store
from shown import texts_of
from stores import add

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.stats.intervals import metric_mean
from lobench.report.charts.charts import sections
from lobench.report.charts.figures import write_figures

SHOWN = texts_of("report")

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def test_the_band_of_a_curve_is_the_interval_of_the_tables(tmp_path: Path) -> None:
    summary = summary_of(make_store(tmp_path, num_checkpoints=1))
    (section,) = sections(summary, "curves")
    snapshot = summary.snapshot
    for place, figure in enumerate(section.figures):
        series = figure.chart.series[0]
        cell = snapshot.cell(0, place)
        assert cell is not None
        metric = snapshot.cases[place].primary_metric
        rows = cell.curves_of_seeds(metric)
        assert rows.shape[0] == SEEDS and series.lower is not None and series.upper is not None
        for point, values in enumerate(rows.T.tolist()):
            expected = metric_mean(metric, values)
            found = series.y[point], series.lower[point], series.upper[point]
            np.testing.assert_allclose(found, (expected.mean, expected.lower, expected.upper), rtol=1e-12)
    assert SHOWN["intervals-over-seeds"] in section.note


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """What is drawn during a test, instead of files."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    figures: list[Figure] = []
    monkeypatch.setattr(figure, "savefig", lambda one, *_, **__: figures.append(one))
    return figures


def test_a_papers_figure_has_one_font_size_and_the_bands(tmp_path: Path, drawn: list[Figure]) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.text import Text

    summary = summary_of(make_store(tmp_path, num_checkpoints=2))
    write_figures(summary, tmp_path / "figures", "pdf")
    (curves,) = write_figures(summary, tmp_path / "figures", "pdf", "curves")
    assert curves.stem == "curves"
    texts = [text for figure in drawn for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
    assert {text.get_fontsize() for text in texts} == {8}
    for axes in drawn[-1].axes:
        found = [one for one in axes.collections if isinstance(one, PolyCollection)]
        assert found and all(one.get_paths() for one in found)


@pytest.mark.parametrize("count", [2, 30])
def test_names_are_beside_their_charts_whatever_they_are_and_how_many(
    tmp_path: Path, drawn: list[Figure], count: int
) -> None:
    """No text is cut by the figure's edge, none lies on its neighbour, and no dollar is a formula's."""
    names = ["$y^2$ and $\\bad$", "of many words " * 20, *(f"method{place}()" for place in range(2, count))]
    for place, name in enumerate(names):
        add(tmp_path, 0, {"a": {"train/loss": (1.0 + place, 0.5)}}, optimizer=name, sha256=f"{place:064d}")
    summary = summary_of(tmp_path, [])
    write_figures(summary, tmp_path / "figures", "png", "scores")
    write_figures(summary, tmp_path / "figures", "png", "curves")
    for figure in drawn:
        figure.draw_without_rendering()
        page = figure.bbox
        texts = [text for legend in figure.legends for text in legend.get_texts()] or figure.axes[0].get_yticklabels()
        boxes = [text.get_window_extent() for text in texts]
        assert boxes and all(box.x0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1 for box in boxes)
        assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
        assert figure.axes[0].get_window_extent().height > 70
    assert r"\$y^2\$ and \$\bad\$" in {text.get_text() for text in drawn[0].axes[0].get_yticklabels()}

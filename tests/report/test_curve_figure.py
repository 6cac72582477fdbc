"""Tests of the curves in a paper's figures: the mean of the seeds, in a band that is the interval of every table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from report_store import SEEDS, make_store

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.stats.intervals import metric_mean
from lobench.report.charts.charts import sections
from lobench.report.charts.figures import write_figures


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
    assert "95% intervals over seeds" in section.note


def test_a_papers_figure_has_one_font_size_and_the_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    summary = summary_of(make_store(tmp_path, num_checkpoints=2))
    write_figures(summary, tmp_path / "figures", "pdf")
    (curves,) = write_figures(summary, tmp_path / "figures", "pdf", "curves")
    assert curves.stem == "curves"
    texts = [text for figure in drawn for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
    assert {text.get_fontsize() for text in texts} == {8}
    for axes in drawn[-1].axes:
        found = [one for one in axes.collections if isinstance(one, PolyCollection)]
        assert found and all(one.get_paths() for one in found)

"""Contract of report sections: a plugin's test module subclasses `ReportSectionContract`.

class TestSizes(ReportSectionContract):
    factory = "mypackage.figures:sizes"
"""

from __future__ import annotations

import csv
import functools
import math
import re
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import ClassVar, get_args
from unittest import mock

import numpy as np
import pytest
from markupsafe import escape

from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.core.lazy import loaded
from lobench.drawing.heat_map import HeatMap
from lobench.drawing.svg import Chart
from lobench.report.charts import charts
from lobench.report.charts.sections import Figure, Section, View
from lobench.report.page.page import render_page
from lobench.testing.watches import plugins_with
from lobench.tools.curve_import.imports import import_curves

__all__ = ["ReportSectionContract", "sample_summary"]

_SAMPLES = ("two", "other", "alone", "diverged")


@functools.cache
def sample_summary(name: str) -> Summary:
    """Returns a generated summary from which sections of a page can be drawn.

    Args:
      name: Name of the sample. `two`: two methods on two cases with twelve seeds, one of which diverges. `other`: like
        `two`, with other values and three methods. `alone`: one method, one case, one seed. `diverged`: all seeds
        diverged.
    """
    shapes = {"two": (2, 2, 12), "other": (3, 2, 11), "alone": (1, 1, 1), "diverged": (1, 1, 2)}
    num_methods, num_cases, num_seeds = shapes[name]
    generator = np.random.default_rng(num_seeds)
    folder = Path(tempfile.mkdtemp(prefix="lobench-contract-"))
    with (folder / "curves.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["method", "case", "seed", "step", "train/loss"])
        for method in range(num_methods):
            for case in range(num_cases):
                for seed in range(num_seeds):
                    diverges = name == "diverged" or (name == "two" and (method, case, seed) == (1, 0, 3))
                    for step in (0, 10, 200):
                        loss = math.nan if diverges and step else float(generator.lognormal(0.0, 1.0))
                        rows.writerow([f"method <{method}>", f"case_{case}", seed, step, loss])
    import_curves(folder / "curves.csv", store=folder / "store")
    summary = summary_of(folder / "store")
    weakref.finalize(summary, shutil.rmtree, folder)  # at the end of the process: it may still read its store
    return summary


class ReportSectionContract:
    """Tests that every report section must pass.

    Attributes:
      factory: "module:attribute", as in the section's declaration.
      is_of_any_store: False if it draws nothing for the samples, because it shows alarms or searches, for example.
    """

    factory: ClassVar[str]
    is_of_any_store: ClassVar[bool] = True

    def draw_sections(self, name: str) -> list[Section]:
        """Returns the sections that the factory makes of a sample."""
        sections: list[Section] = loaded(self.factory)(sample_summary(name))
        return sections

    @pytest.mark.parametrize("name", _SAMPLES)
    def test_it_returns_sections_of_any_store(self, name: str) -> None:
        sections = self.draw_sections(name)
        assert isinstance(sections, list | tuple), f"it returned a {type(sections).__name__}, not a list of sections"
        for section in sections:
            assert isinstance(section, Section), section
            assert re.fullmatch(r"[A-Za-z][\w-]*", section.id), f"{section.id!r} is not a valid id of an element"
            assert isinstance(section.title, str) and section.title
            assert isinstance(section.note, str)
            assert section.view in get_args(View), f"unknown view {section.view!r}"
            assert isinstance(section.figures, tuple)
            assert all(isinstance(figure, Figure) for figure in section.figures)
        ids = [section.id for section in sections]
        assert len(set(ids)) == len(ids), f"two sections have one id: {ids}"

    @pytest.mark.parametrize("name", _SAMPLES)
    def test_its_charts_can_be_drawn(self, name: str) -> None:
        for figure in (figure for section in self.draw_sections(name) for figure in section.figures):
            assert isinstance(figure.chart, Chart | HeatMap), type(figure.chart)
            for series in figure.chart.series if isinstance(figure.chart, Chart) else ():
                values_by_line = [values for values in (series.y, series.lower, series.upper) if values is not None]
                assert {len(values) for values in values_by_line} == {len(series.x)}, (
                    f"x and y of {series.label!r} differ in length"
                )
                assert all(isinstance(value, float | int) for values in (series.x, *values_by_line) for value in values)
            assert "<svg" in figure.svg

    def test_it_draws_something_and_not_the_same_of_other_data(self) -> None:
        if not self.is_of_any_store:
            return
        assert self.draw_sections("two"), "it draws nothing"
        assert repr(self.draw_sections("two")) != repr(self.draw_sections("other")), "it does not look at the data"

    def test_the_same_data_give_the_same_sections(self) -> None:
        assert repr(self.draw_sections("two")) == repr(self.draw_sections("two"))

    def test_it_changes_nothing_of_the_page(self) -> None:
        summary = sample_summary("two")
        old_page = render_page(summary)
        loaded(self.factory)(summary)
        assert render_page(summary) == old_page

    @pytest.mark.parametrize("name", _SAMPLES)
    def test_a_page_shows_it(self, name: str) -> None:
        manager = functools.partial(plugins_with, "lobench_report_sections", self.factory)
        with mock.patch.object(charts, "load_plugins", manager):
            page = render_page(sample_summary(name))
        assert "drew nothing" not in page
        for section in self.draw_sections(name):
            assert escape(section.title) in page, "the page has no such section"

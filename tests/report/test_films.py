"""Films of episodes: from a program's numbers to a picture that moves."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from report_store import NASTY, curves, film, make_store
from shown import texts_of

from lobench.analysis.comparisons.summary import summary_of
from lobench.core.result import Curves
from lobench.report.charts.films import film_svg, films

SHOWN = texts_of("report")


def test_a_film_goes_with_its_curves_through_a_payload() -> None:
    given = curves(0.5, np.random.default_rng(0), diverges=True)
    found = Curves.from_payload(given.to_payload())
    assert found.film is not None and given.film is not None
    assert (found.film.scene, found.film.seed) == (given.film.scene, 0)
    np.testing.assert_array_equal(np.asarray(found.film.frames), np.asarray(given.film.frames))
    assert found.metrics["train/loss"].tobytes() == given.metrics["train/loss"].tobytes()
    without = curves(0.5, np.random.default_rng(0)).to_payload()
    assert Curves.from_payload(without).film is None and b"film" not in without
    with pytest.raises(ValueError, match=SHOWN["damaged-payload"]):
        Curves.from_payload(given.to_payload()[:-8])


def test_only_what_moves_is_animated_and_the_last_frame_stands() -> None:
    svg = str(film_svg(film(), f"An episode of {NASTY}"))
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == SHOWN["episode-of"].format(nasty=NASTY)
    dot, line = root
    assert (dot.tag, dot.attrib["r"], line.tag, len(line)) == ("circle", "20.0", "line", 0)
    (animate,) = dot
    assert animate.attrib["attributeName"] == "cx" and animate.attrib["dur"] == "0.7s"
    assert animate.attrib["values"] == "50.0;100.0;150.0;150.0"
    times = [float(time) for time in animate.attrib["keyTimes"].split(";")]
    assert times == pytest.approx([0, 1 / 7, 2 / 7, 1], abs=1e-3)
    assert not re.search(r"https?:|<script", svg)


def test_a_page_has_a_film_of_each_case_and_subject_that_has_one(tmp_path: Path) -> None:
    found = films(summary_of(make_store(tmp_path), []))
    assert 1 <= len(found) <= 12 and all(one.note == SHOWN["walk-seed-0-after-the"] for one in found)
    assert len({one.title for one in found}) == len(found)

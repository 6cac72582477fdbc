"""The colours of charts are told apart by everybody, and stand in one place."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from lobench.drawing import axes
from lobench.drawing.palette import DARK_COLOURS, LIGHT_COLOURS
from lobench.report.page.templates import page_part

# Machado, Oliveira and Fernandes 2009, severity 1, of linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour: str) -> Any:
    values = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(colour: str, sight: str = "normal") -> tuple[float, float, float]:
    """Returns L*, a*, b* under D65 of what an eye sees of a colour."""
    seen = np.clip(SIGHTS[sight] @ linear(colour), 0, 1)
    ratio = TO_XYZ @ seen / np.array([0.95047, 1.0, 1.08883])
    x, y, z = (float(v) for v in np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ciede2000(one: tuple[float, float, float], two: tuple[float, float, float]) -> float:
    """Returns the difference of two colours in L*, a*, b*. Source: Sharma, Wu and Dalal 2005, equations 2 to 22."""
    mean_chroma = (math.hypot(*one[1:]) + math.hypot(*two[1:])) / 2
    stretch = 1 + 0.5 * (1 - math.sqrt(mean_chroma**7 / (mean_chroma**7 + 25**7)))
    (l1, c1, h1), (l2, c2, h2) = (
        (ll, math.hypot(stretch * a, b), math.degrees(math.atan2(b, stretch * a)) % 360) for ll, a, b in (one, two)
    )
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180 if abs(h2 - h1) != 180 else h2 - h1
    d_light, d_chroma, d_hue = l2 - l1, c2 - c1, 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    light, chroma, hue = (l1 + l2) / 2, (c1 + c2) / 2, h1 + h2
    if c1 * c2:
        hue = hue / 2 if abs(h1 - h2) <= 180 else (hue + 360) / 2 if hue < 360 else (hue - 360) / 2

    def cos(degrees: float) -> float:
        return math.cos(math.radians(degrees))

    t = 1 - 0.17 * cos(hue - 30) + 0.24 * cos(2 * hue) + 0.32 * cos(3 * hue + 6) - 0.20 * cos(4 * hue - 63)
    rotation = -math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    rotation *= 2 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    d_light /= 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    d_chroma /= 1 + 0.045 * chroma
    d_hue /= 1 + 0.015 * chroma * t
    return math.sqrt(d_light**2 + d_chroma**2 + d_hue**2 + rotation * d_chroma * d_hue)


@pytest.mark.parametrize(
    ("one", "two", "difference"),  # of the published test pairs
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0009), 7.1792),
        ((50.0, 2.5, 0.0), (50.0, 0.0, -2.5), 4.3065),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((50.0, 2.5, 0.0), (56.0, -27.0, -3.0), 31.9030),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.694), (23.0331, 14.973, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_formula_gives_the_published_differences(
    one: tuple[float, float, float], two: tuple[float, float, float], difference: float
) -> None:
    assert ciede2000(one, two) == pytest.approx(difference, abs=1e-4)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("colours", [LIGHT_COLOURS, DARK_COLOURS], ids=["light", "dark"])
def test_any_two_colours_are_told_apart(colours: tuple[str, ...], sight: str) -> None:
    pairs = itertools.combinations(colours, 2)
    least = min((ciede2000(lab(one, sight), lab(two, sight)), one, two) for one, two in pairs)
    assert len(colours) == 8 and least[0] > 20, least


@pytest.mark.parametrize(
    ("colours", "paper"), [(LIGHT_COLOURS, "#ffffff"), (DARK_COLOURS, "#14171b")], ids=["light", "dark"]
)
def test_each_colour_stands_out_from_its_paper(colours: tuple[str, ...], paper: str) -> None:
    for colour in colours:
        lights = sorted(float(TO_XYZ[1] @ linear(one)) + 0.05 for one in (colour, paper))
        assert lights[1] / lights[0] >= 3, colour


def test_the_page_and_the_figures_take_them_from_one_place() -> None:
    assert tuple(axes._COLOURS.values()) == LIGHT_COLOURS
    style = page_part("page.css")
    for colours in (LIGHT_COLOURS, DARK_COLOURS):
        assert all(style.count(f"--c{place}: {colour};") == 1 for place, colour in enumerate(colours, 1))
    assert style.count("--c1:") == 2

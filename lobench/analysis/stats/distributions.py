"""Distributions from `scipy.special`, because importing `scipy.stats` takes most of a second.

The import of `scipy.special` itself, half a second, is the first call's: most of who imports this asks for none.

Each takes numbers or arrays. `sf` is the chance of a larger value, `isf` its inverse: the value that is exceeded with a
chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its packages are imported when they are used

__all__ = ["chi2_ppf", "nct_sf", "norm_isf", "norm_pdf", "norm_sf"]


def nct_sf(value: Any, degrees: Any, shift: Any) -> Any:
    """Of the noncentral t law."""
    return 1.0 - scipy.special.nctdtr(degrees, shift, value)


def norm_sf(value: Any) -> Any:
    return scipy.special.ndtr(-value)


def norm_isf(chance: Any) -> Any:
    return -scipy.special.ndtri(chance)


def norm_pdf(value: Any) -> Any:
    """Returns the density of the standard normal law."""
    return np.exp(-np.square(value) / 2) / np.sqrt(2 * np.pi)


def chi2_ppf(chance: Any, degrees: Any) -> Any:
    """Returns the value below which a chi-squared variable is with a chance."""
    return 2 * scipy.special.gammaincinv(degrees / 2, chance)

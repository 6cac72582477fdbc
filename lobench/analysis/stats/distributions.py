"""Distributions based on `scipy.special`, because importing `scipy.stats` takes most of a second.

`scipy.special` itself takes half a second to import, so it is imported in the first call. All functions take numbers or
arrays. `sf` is the survival function, `isf` its inverse, `ppf` the quantile function and `pdf` the density.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its subpackages are imported on first use

__all__ = ["chi2_ppf", "nct_sf", "norm_isf", "norm_pdf", "norm_sf"]


def nct_sf(value: Any, degrees: Any, shift: Any) -> Any:
    """Returns the survival function of the noncentral t distribution."""
    return 1.0 - scipy.special.nctdtr(degrees, shift, value)


def norm_sf(value: Any) -> Any:
    return scipy.special.ndtr(-value)


def norm_isf(probability: Any) -> Any:
    return -scipy.special.ndtri(probability)


def norm_pdf(value: Any) -> Any:
    """Returns the density of the standard normal distribution."""
    return np.exp(-np.square(value) / 2) / np.sqrt(2 * np.pi)


def chi2_ppf(probability: Any, degrees: Any) -> Any:
    """Returns the quantile of the chi-squared distribution."""
    return 2 * scipy.special.gammaincinv(degrees / 2, probability)

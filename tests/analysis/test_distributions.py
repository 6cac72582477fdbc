"""The distributions agree with `scipy.stats`, which nothing that a comparison needs imports."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from lobench.analysis.stats import distributions, t_distribution
from lobench.analysis.stats.aggregates import trimmed_mean


@pytest.mark.parametrize("degrees", [0.5, 1, 2.5, 7, 300, 301.3, 2e5, np.inf])
@pytest.mark.parametrize("chance", [1e-20, 1e-6, 0.025, 0.5, 0.9, 1 - 1e-6])
def test_t_and_its_inverse(chance: float, degrees: float) -> None:
    value = stats.t.isf(chance, degrees)
    assert t_distribution.t_isf(chance, degrees) == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert t_distribution.t_sf(value, degrees) == pytest.approx(chance, rel=1e-9)


def test_the_others() -> None:
    values = np.linspace(-6, 12, 37)
    np.testing.assert_allclose(distributions.norm_sf(values), stats.norm.sf(values), rtol=1e-12)
    np.testing.assert_allclose(distributions.norm_pdf(values), stats.norm.pdf(values), rtol=1e-12)
    chances = np.array([1e-9, 0.1, 0.5, 0.99])
    np.testing.assert_allclose(distributions.norm_isf(chances), stats.norm.isf(chances), rtol=1e-12)
    np.testing.assert_allclose(distributions.chi2_ppf(chances, 4), stats.chi2.ppf(chances, 4), rtol=1e-9)
    np.testing.assert_allclose(
        distributions.nct_sf(2.1, 9, values), stats.nct.sf(2.1, 9, values), rtol=1e-8, atol=1e-12
    )
    draws = np.random.default_rng(0).standard_normal((5, 11))
    for size in (1, 2, 3, 4, 11):
        expected = stats.trim_mean(draws[:, :size], 0.25, axis=1)
        assert trimmed_mean(draws[:, :size], 0.25).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("modules", "left_out"),
    [
        ("lobench.api.compare, lobench.report.tables.comparison", {"scipy.stats", "scipy.special"}),
        (
            "lobench.experiments.run, lobench.analysis.tables.tabulate, lobench.report.tables.method_table",
            {"scipy", "pytest"},
        ),
    ],
)
def test_neither_a_comparison_nor_a_run_and_its_table_wait_for_imports(modules: str, left_out: set[str]) -> None:
    code = f"import sys, {modules}; from lobench.analysis.stats.intervals import stratified_t_mean as mean"
    code += f"; mean([[1, 2, 4], [3, 5]]); print({left_out!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

"""Track 3's acceptance rule on runs whose means are at, above and below what it asks for."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from commands import lobench
from imported import HEADER, write_csv
from scipy import stats
from shown import texts_of

from lobench.analysis.stats.known_sigma import SIGMA, Deviation, below_target, better_than
from lobench.tools.curve_import.imports import import_curves

SHOWN = texts_of("import")

LOSSES = {"one": [3.276], "four": [3.277, 3.279, 3.2775, 3.2785], "close": [3.27701], "wide": [3.26, 3.29, 3.27, 3.28]}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("track3")
    rows = [
        (name, "track3", f"{name}{run}", step, "val_loss", loss + rise)
        for name, losses in LOSSES.items()
        for run, loss in enumerate(losses)
        for step, rise in ((2900, 0.5), (2950, 0.0), (3000, -0.0001 if name == "close" else 0.0))
    ]
    write_csv(folder / "x.csv", rows, HEADER)
    import_curves(folder / "x.csv", store=folder / "s", metrics=["val_loss"])
    return folder / "s"


def test_the_rules_own_examples() -> None:
    assert below_target([3.276]).is_passed and not below_target([3.2761]).is_passed
    assert below_target([3.278] * 4).is_passed and not below_target([3.2781] * 4).is_passed
    assert (
        below_target([3.276]).p_value
        == pytest.approx(stats.norm.sf(0.004 / SIGMA))
        == pytest.approx(0.001046, rel=1e-3)
    )
    # Results 13, 13 and 12 against 11, 8 and 6, with the statistics that the rule's text works out.
    for old, new, runs, saved, statistic in (
        (3.2785, 3.2785, (16, 10), 15, 0.00167),
        (3.2788, 3.2790, (20, 20), 50, 0.00648),
    ):
        found = better_than([old] * runs[0], [new] * runs[1], saved)
        assert found.statistic == pytest.approx(statistic, abs=6e-6) and found.is_passed == (statistic >= 0.004)


def test_a_run_that_diverged_passes_nothing() -> None:
    assert not below_target([3.2, math.nan]).is_passed


def test_what_the_runs_say_of_their_noise_is_scipys() -> None:
    losses = LOSSES["wide"]
    found = Deviation.of(losses, 3.28)
    assert found.p_t_test == pytest.approx(stats.ttest_1samp(losses, 3.28, alternative="less").pvalue)
    assert found.p_larger == pytest.approx(stats.chi2.sf(3 * found.value**2 / SIGMA**2, 3))
    assert math.isnan(Deviation.of([3.2], 3.28).value)


def test_verdicts_exit_codes_and_the_document(store: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = lobench("compare", *arguments, "--store", store, "--rule", "track3")
        return done.returncode, done.stdout or done.stderr

    code, text = run("four", "one", "--format", "json")
    found = json.loads(text)
    assert code == 0 and [one["test"]["passed"] for one in found["results"]] == [True, True]
    four = found["results"][0]
    assert (four["step"], four["runs"], four["earliest_step"], four["runs_needed"]) == (3000, 4, 2950, 4)
    assert four["mean"] == pytest.approx(3.278) and found["assumes"]["sigma"] == SIGMA
    assert found["pairs"][0]["test"]["passed"] is False
    assert run("four", "one", "--strict")[0] == 1
    code, text = run("close")
    assert code == 1 and SHOWN["not-accepted"] in text
    assert run("close", "--target", "val/loss=3.2810")[0] == 0
    code, text = run("wide")
    assert SHOWN["its-runs-spread-more-than"] in text
    code, text = run("four", "--margin", ".1")
    assert code == 2 and SHOWN["margin-is-not-of-rule"] in text

"""The table for a paper."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from report_store import make_baseline, make_store
from scipy import stats
from stores import add

from lobench.analysis.bold import _independent_p, bold_columns
from lobench.analysis.comparison import mean_difference
from lobench.analysis.findings import findings_of
from lobench.analysis.intervals import stratified_t_mean
from lobench.analysis.samples import Apart
from lobench.core.metric import Direction
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.report.latex import escape, latex_table


def test_means_that_share_no_seed_are_compared_by_welchs_t_test() -> None:
    one, other = (1.0, 1.2, 0.9), (2.0, 2.6, 2.1, 2.2)
    expected = float(stats.ttest_ind(one, other, equal_var=False).pvalue)
    assert mean_difference(Apart(a=one, b=other)).p_value == pytest.approx(expected, rel=1e-9)
    sides = (stratified_t_mean([one]), stratified_t_mean([other]))
    assert _independent_p(*sides) == pytest.approx(expected, rel=1e-9)
    assert _independent_p(stratified_t_mean([one, one]), stratified_t_mean([[1.0, 1.0]])) > 0.05
    assert math.isnan(_independent_p(stratified_t_mean([[1.0]]), sides[0]))


def test_best_by_direction_and_within_noise_are_bold() -> None:
    clear = [{0: 1.0, 1: 1.1, 2: 0.9}, {0: 2.0, 1: 2.1, 2: 1.95}]
    assert bold_columns(clear, Direction.MIN) == {0}
    assert bold_columns(clear, Direction.MAX) == {1}
    noisy = [{0: 1.0, 1: 2.0, 2: 3.0}, {0: 1.5, 1: 1.8, 2: 3.3}]
    assert bold_columns(noisy, Direction.MIN) == {0, 1}
    assert bold_columns(clear, None) == set()


def test_what_no_test_can_tell_apart_is_bold_with_the_best() -> None:
    assert bold_columns([{0: 1.0}, {0: 2.0}], Direction.MIN) == {0, 1}
    assert bold_columns([{0: 1.0, 1: 1.1}, {5: 2.0, 6: 2.1}], Direction.MIN) == {0, 1}
    fresh = {FIRST_REPORT_SEED: 2.0, FIRST_REPORT_SEED + 1: 2.1}  # of a search's best: Welch's t test, p = 0.005
    assert bold_columns([{0: 1.0, 1: 1.1}, fresh], Direction.MIN) == {0}
    assert bold_columns([{0: 1.0, 1: 1.6}, {**fresh, FIRST_REPORT_SEED: 1.2}], Direction.MIN) == {0, 1}
    assert bold_columns([{0: 1.0}, fresh], Direction.MIN) == {0, 1}


def test_what_diverged_or_is_missing_is_never_bold() -> None:
    assert bold_columns([{0: math.nan, 1: 0.1}, {0: 2.0, 1: 2.1}, {}], Direction.MIN) == {1}
    assert bold_columns([{}, {0: math.nan}], Direction.MIN) == set()


def test_the_table_has_groups_rules_intervals_and_a_column_for_the_baseline(tmp_path: Path) -> None:
    table = latex_table(findings_of(make_store(tmp_path), [make_baseline(tmp_path)]), precision=2)
    note, comment, *lines = table.splitlines()
    assert comment.startswith("% lobench report") and note.startswith("% mean rank of 5 by the score")
    assert lines[0] == r"\begin{tabular}{lrrrrr}"
    assert lines[2] == r" & outer step 0 & outer step 1 & outer step 2 & outer step 3 & tuned adam \\"
    assert [line for line in lines if "multicolumn" in line] == [
        r"\multicolumn{6}{l}{\emph{digits, train/loss}} \\",
        r"\multicolumn{6}{l}{\emph{digits, test/loss}} \\",
    ]
    assert "diverged (1/4)" in table and r"\pm" not in table
    row = next(line for line in lines if "case0" in line)
    assert row.count("&") == 5 and row.endswith(r"$\mathbf{0.20}\,[0.20, 0.20]$ \\")
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert "mean score, train/loss" in table and "mean rank, train/loss" in table


def test_many_checkpoints_are_the_first_and_the_last(tmp_path: Path) -> None:
    table = latex_table(findings_of(make_store(tmp_path, num_checkpoints=9), []))
    assert r" & outer step 0 & outer step 8 \\" in table


def test_names_that_would_end_a_row_are_shown_in_one(tmp_path: Path) -> None:
    losses = {"train/loss": [1.0, 0.5]}
    for step, uri in ((1, "run/x\n\n\x1b[31m.npz"), (1, "run/y")):
        add(tmp_path, step, {"a\rb\n\nc\x07": losses}, uri=uri, sha256=uri)
    table = latex_table(findings_of(tmp_path, []))
    assert [line for line in table.splitlines() if not line] == [] and table[:-1].replace("\n", "").isprintable()
    assert r"a\textbackslash{}rb\textbackslash{}n\textbackslash{}nc\textbackslash{}x07 & $" in table


def test_names_are_escaped() -> None:
    assert escape("a_b & 50% #1 {x} \\ ~^$") == (
        r"a\_b \& 50\% \#1 \{x\} \textbackslash{} \textasciitilde{}\textasciicircum{}\$"
    )

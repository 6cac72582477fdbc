"""Which checkpoint is best, when some diverge and some are lost."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from shown import texts_of
from stores import add

from lobench import import_curves
from lobench.analysis.comparisons.best_group import bold_means
from lobench.analysis.comparisons.gates import Verdict
from lobench.analysis.comparisons.method_comparison import compare_subjects
from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.scores.mean_scores import rank_subjects
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.subjects import subjects_of
from lobench.analysis.tables.tabulate import tabulate
from lobench.core.result import Outcome
from lobench.engine.store.ledger import Ledger
from lobench.report.tables.ranking import ranking_text
from lobench.report.tables.verdict import verdict_text

SHOWN = texts_of("analysis")


def test_diverged_and_lost_seeds_count_against_a_checkpoint(tmp_path: Path) -> None:
    low, middle = 0.02, 2 / 10**1.5
    add(tmp_path, 1, {"a": {"train/loss": [0.2, 0.2]}, "b": {"train/loss": [middle, middle]}})
    add(tmp_path, 2, {"a": {"train/loss": [low, low]}, "b": {"train/loss": [low, math.nan]}})
    add(tmp_path, 3, {"a": {"train/loss": [middle, middle]}, "b": Outcome.OOM})
    add(tmp_path, 4, {"a": {"train/loss": [low, low]}})
    ledger = Ledger.open(tmp_path, read_only=True)
    subjects = subjects_of(ledger.evaluations())
    ledger.close()
    ranked = rank_subjects(subjects, None, Scales.of(subjects))
    # Both cases run from 2 to .02, two orders of magnitude; the fourth was not evaluated on both.
    assert [one.subject.checkpoint.outer_step for one in ranked] == [1, 2, 3]
    assert [one.ranking_value for one in ranked] == pytest.approx([(0.5 + 0.75) / 2, (1 + 0) / 2, (0.75 - 1) / 2])
    # The score itself is that of every other headline: of the seeds that there are.
    assert [one.score.mean for one in ranked] == pytest.approx([(0.5 + 0.75) / 2, (1 + 0) / 2, 0.75])
    assert [(one.num_diverged, one.num_lost) for one in ranked] == [(0, 0), (1, 0), (0, 4)]
    # Seeds on all cases: 0 of 2, 1 of 2 and 0 of 2 are lost; .224^2 = .05.
    assert [one.lost_seeds() for one in ranked] == [
        (0, 2, pytest.approx(0.776, abs=1e-3)),
        (1, 2, pytest.approx(0.975, abs=1e-3)),
        (0, 2, pytest.approx(0.776, abs=1e-3)),
    ]


def test_results_of_one_command_evaluation_show_its_value_although_there_is_no_score(tmp_path: Path) -> None:
    record_values(tmp_path, {0: [0.2584, 0.2513]})
    text = ranking_text(summary_of(tmp_path, []))
    assert "0.2549" in text and "valid/loss" in text


def test_score_0_of_single_values_is_not_called_untrained(tmp_path: Path) -> None:
    record_values(tmp_path, {0: [0.25, 0.26], 1: [0.09, 0.1], 2: [0.04, 0.05]})
    summary = summary_of(tmp_path, [])
    assert summary.mean_score(0, "primary").interval.mean == pytest.approx(0.0)
    for text in (ranking_text(summary), summary.scale_label, *tabulate(summary).notes):
        assert "untrained" not in text and SHOWN["lobench-baseline"] not in text


@pytest.mark.parametrize("seeds_of_last", [[0.4, 0.2, 0.3], [0.5, 0.6, 0.7]], ids=["all level", "two level"])
def test_equal_means_share_a_rank_and_every_line_on_the_best_names_them(
    tmp_path: Path, seeds_of_last: list[float]
) -> None:
    finals = {"zebra()": [0.2, 0.3, 0.4], "adam()": [0.3, 0.4, 0.2], "sgd()": seeds_of_last}
    for step, (name, values) in enumerate(finals.items()):
        losses = {"train/loss": [[9.0, value] for value in values]}
        add(tmp_path, step, {"a": losses, "b": losses}, optimizer=name, sha256=name)
    summary = summary_of(tmp_path, [])
    ranking, verdict = ranking_text(summary), verdict_text(summary)
    are_all_level = seeds_of_last[0] < 0.5
    others, setters, last_rank = (
        ("adam(), sgd()", "adam(), sgd(), zebra()", 1) if are_all_level else ("adam()", "adam(), zebra()", 3)
    )
    assert f"zebra() is the best of 3 methods, level with {others}: score 1.000" in ranking
    assert re.findall(r"^ +(\d) +\w+\(\)", ranking, re.MULTILINE) == ["1", "1", str(last_rank)]
    assert f"zebra() has the highest mean score of 3 methods, level with {others}." in verdict
    for text in (ranking, verdict.replace("The", "the")):
        assert f"the score 1 is the mean of each of {setters}, over seeds that converge" in text
    assert ("all others are worse" in ranking) is not are_all_level and "significantly" not in ranking


def test_single_values_are_compared_alike_in_either_order(tmp_path: Path) -> None:
    record_values(tmp_path, {1: [0.1, 0.12, 0.11, 0.09], 2: [0.131, 0.155, 0.144, 0.117], 3: [0.01, 0.02, 0.03, 0.01]})
    one, two, _ = summary_of(tmp_path, []).snapshot.subjects
    (worse,), (better,) = (compare_subjects(sides) for sides in ((one, two), (two, one)))
    assert (worse.primary.gate.verdict, better.primary.gate.verdict) == (Verdict.REGRESSED, Verdict.PASS)
    # ln(1.3) relative to the mean of both
    assert worse.primary.comparison.overall.mean == pytest.approx(-better.primary.comparison.overall.mean)
    assert worse.primary.comparison.overall.mean == pytest.approx(-2 * 0.3 / 2.3, abs=0.01)
    with_third = compare_subjects((one, two), scales=summary_of(tmp_path, []).scales)[0]
    assert with_third.primary.comparison.overall == worse.primary.comparison.overall


def test_two_seeds_of_equal_scores_have_no_interval(tmp_path: Path) -> None:
    record_values(tmp_path, {1: [1.1, 1.111], 2: [1.2, 1.212], 3: [2.3, 2.323]})
    summary = summary_of(tmp_path, [])
    interval = summary.mean_score(1, "primary").interval
    assert interval.mean < 0 and math.isnan(interval.lower) and math.isnan(interval.upper)
    assert SHOWN["no-interval-too-few-values"] in ranking_text(summary)


@pytest.mark.parametrize(
    ("factor", "last", "note"),
    [
        (1.0, 1.2, "equal-values-on-all-4-seeds"),
        (1.0, math.nan, "equal-values-on-the-3-seeds"),
        (1.0 + 2.0**-23, 1.2, "values-on-all-4-seeds-differ"),
        (2.0, 1.2, "equal-differences-on-all-4-seeds"),
    ],
)
def test_comparison_of_equal_differences_has_a_note(tmp_path: Path, factor: float, last: float, note: str) -> None:
    values = [1.0, 1.1, 1.3, last]
    record_values(tmp_path, {1: values, 2: [factor * value for value in values]})
    one, two = summary_of(tmp_path, []).snapshot.subjects
    (comparison,) = compare_subjects((one, two))
    assert SHOWN[note] in comparison.primary.notes["s/c"]


def test_comparison_of_clipped_scores_has_a_note_on_scores(tmp_path: Path) -> None:
    for step, finals in enumerate(([3.0, 3.1, 3.2, 3.3], [3.5, 3.6, 3.7, 3.8], [1.9] * 4)):
        add(tmp_path, step, {"c": {"train/loss": finals}})
    summary = summary_of(tmp_path, [])
    worse, worst, _ = summary.snapshot.subjects
    (comparison,) = compare_subjects((worse, worst), scales=summary.scales)
    assert SHOWN["equal-scores-on-all-4-seeds"] in comparison.primary.notes["s/c"]


@pytest.mark.parametrize(("metric", "factor"), [("valid/loss", 1.0), ("valid/accuracy", -1.0)])
def test_checkpoints_that_only_get_worse_are_ranked_by_their_single_values(
    tmp_path: Path, metric: str, factor: float
) -> None:
    record_values(tmp_path, {1: [0.5 - 0.4 * factor] * 2, 2: [0.5 - 0.3 * factor] * 2, 3: [0.5] * 2}, metric)
    summary = summary_of(tmp_path, [])
    means = [summary.mean_score(place, "primary").interval.mean for place in range(3)]
    assert means[0] == pytest.approx(0) and means[0] > means[1] > means[2] >= -1
    assert SHOWN["largest-change-of-a-stored"] in summary.scale_label


def record_values(store: Path, values: Mapping[int, Sequence[float]], metric: str = "valid/loss") -> None:
    """Records single values of a command for checkpoints, by outer step."""
    for step, finals in values.items():
        curves = [[value] for value in finals]
        add(store, step, {"c": {metric: curves}}, primary_metric=metric, evaluator="command")


def test_ranking_of_an_import_that_lacks_a_paired_seed_does_not_call_it_worse(tmp_path: Path) -> None:
    rows = [
        f"{method},x,{seed},{step},val/loss,{value * (1 + 0.01 * seed) if step else 5.0}"
        for method, value, seeds in (("a", 1.0, range(6)), ("b", 0.501, (0, 1, 3, 4, 5)), ("c", 0.5, range(6)))
        for seed in seeds
        for step in (0, 100)
    ]
    (tmp_path / "c.csv").write_text("\n".join(["method,case,seed,step,metric,value", *rows]) + "\n")
    import_curves(tmp_path / "c.csv", store=tmp_path / "store", paired_seeds=True)
    text = ranking_text(summary_of(tmp_path / "store", []))
    assert SHOWN["all-others-that-have-a"] in " ".join(text.split())
    assert re.search(r"^ +- +b \(imported\)", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("num_complete", "answer"), [(2, "best-of-2-and-1-unranked"), (1, "only-one-of-2-that-can-be-ranked")]
)
def test_ranking_with_a_checkpoint_that_lacks_a_case_counts_the_ranked_checkpoints(
    tmp_path: Path, num_complete: int, answer: str
) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.1, 0.1]}, "b": Outcome.ERROR})
    for step in range(2, 2 + num_complete):
        add(tmp_path, step, {"a": {"train/loss": [0.2, 0.2 * step]}, "b": {"train/loss": [0.2, 0.2 * step]}})
    assert SHOWN[answer] in " ".join(ranking_text(summary_of(tmp_path, [])).split())


def test_mean_score_of_a_method_that_loses_all_seeds_of_a_case_is_not_bold(tmp_path: Path) -> None:
    ends = {"best": {"x": 0.1, "y": 0.1}, "bursts": {"x": 0.1, "y": math.inf}}
    rows = [
        f"{method},{case},{seed},{step},val/loss,{end * (1 + 0.3 * seed) if step else 5.0}"
        for method, own in ends.items()
        for case, end in own.items()
        for seed in range(3)
        for step in (0, 100)
    ]
    (tmp_path / "c.csv").write_text("\n".join(["method,case,seed,step,metric,value", *rows]) + "\n")
    import_curves(tmp_path / "c.csv", store=tmp_path / "store", paired_seeds=True)
    summary = summary_of(tmp_path / "store", [])
    places = [next(i for i, one in enumerate(summary.snapshot.labels) if one.startswith(name)) for name in ends]
    assert bold_means(summary, places, "primary").indices == {0}
    assert SHOWN["or-lost-all-seeds-of"] in " ".join(ranking_text(summary).split())

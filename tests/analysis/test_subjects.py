"""From stores to scores: what pairs, what is lost, what has no scale."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from shown import texts_of
from stores import add, case_info, curves

from lobench.analysis.comparisons.gates import GateRules, Verdict
from lobench.analysis.comparisons.method_comparison import compare_subjects
from lobench.analysis.comparisons.summary import improvement_probability, paired_differences
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.aggregates import probability_of_improvement_interval
from lobench.analysis.stats.comparison import Effect
from lobench.analysis.stats.paired_samples import DIVERGED
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import Cell, StoredSubject, last_subject, subjects_of
from lobench.core.errors import UsageError
from lobench.core.result import Outcome
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("analysis")

NAN = math.nan
SAME = {"a": "a", "b": "b"}


def subjects(store: Path) -> list[StoredSubject]:
    ledger = Ledger.open(store, read_only=True)
    found = subjects_of(ledger.evaluations())
    ledger.close()
    return found


def test_scores_run_from_untrained_to_the_best_of_the_compared(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.2, 2.0, NAN, 5.0]}})
    add(tmp_path, 2, {"a": {"train/loss": [0.02, 0.02, 0.02, 0.02]}})
    one, two = subjects(tmp_path)
    scales = Scales.of([one, two])
    cell = one.cells["s/a"]
    assert scales.scale(cell.case, "train/loss").unit == pytest.approx(math.log(100))
    assert scales.scores(cell, "train/loss") == pytest.approx({0: 0.5, 1: 0, 2: -1, 3: -1})
    samples = paired_differences(one, two, None, scales)["s/a"].samples
    assert samples.a == pytest.approx((0.5, 0, DIVERGED, DIVERGED)) and samples.b == pytest.approx((1, 1, 1, 1))
    assert (one.num_diverged, one.num_exploded) == (1, 1) and one.label == "theta_1.npz"


def test_one_of_which_most_seeds_diverged_sets_no_scale(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.0, NAN, NAN]}})
    add(tmp_path, 2, {"a": {"train/loss": [1.0, 1.0, 1.0]}})
    one, two = subjects(tmp_path)
    case = one.cells["s/a"].case
    assert Scales.of([one, two]).scale(case, "train/loss").unit == pytest.approx(math.log(2))
    assert not Scales.of([one]).scale(case, "train/loss").is_usable


def test_where_nobody_trained_there_is_no_score(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [3.0, 3.0]}, "b": {"train/loss": [1.0, 1.1]}})
    add(tmp_path, 2, {"a": {"train/loss": [2.5, 2.5]}, "b": {"train/loss": [0.5, 0.56]}})
    (found,) = compare_subjects(subjects(tmp_path))
    verdicts = {row.case: (row.verdict, row.paired.note) for row in found.primary.comparison.cases}
    assert verdicts["s/a"] == (Effect.UNDECIDED, SHOWN["no-score-the-case-has"])
    assert verdicts["s/b"][0] is Effect.BETTER and found.primary.comparison.num_undecidable == 1


def test_note_on_lost_seeds_names_common_seeds_only_if_there_are_any(tmp_path: Path) -> None:
    ends = {"train/loss": [0.5, 0.6, 0.5, 0.7]}
    add(tmp_path, 1, {"a": ends, "b": ends})
    add(tmp_path, 2, {"a": Outcome.ERROR, "b": {"train/loss": [0.5, 0.6]}})
    (found,) = compare_subjects(subjects(tmp_path))
    assert found.primary.notes["s/a"] == SHOWN["theta-2-npz-has-0"]
    lost = Cell(
        case=case_info("b"),
        final_values={"train/loss": {0: 0.5, 1: 0.6}},
        untrained_values={"train/loss": {0: 2.0, 1: 2.0}},
        missing_seeds={2: "error", 3: "error"},
        curves_by_seed={0: (curves(ends), 0), 1: (curves(ends), 1)},
    )
    one, two = subjects(tmp_path)
    two = dataclasses.replace(two, cells={"s/b": lost})
    note = compare_subjects([one, two])[0].primary.notes["s/b"]
    assert note == SHOWN["theta-2-npz-has-2"]


def test_an_accuracy_is_better_above(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 1.0], "test/accuracy": [2.5, 2.4]}})
    add(tmp_path, 2, {"a": {"train/loss": [1.0, 1.0], "test/accuracy": [3.0, 3.0]}})
    (found,) = compare_subjects(subjects(tmp_path), metrics=["test/accuracy"])
    assert found.primary.comparison.overall.mean == pytest.approx(0.55)


def test_only_common_seeds_pair_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 1.0, 1.0]}, "b": {"train/loss": [1.0, 1.2]}, "c": Outcome.TIMEOUT})
    add(tmp_path, 2, {"a": {"train/loss": [0.5, 0.6]}, "b": Outcome.OOM, "c": {"train/loss": [1.0, 1.0]}}, start=1)
    (found,) = compare_subjects(subjects(tmp_path))
    pairs = {row.case: row.paired.num_seeds for row in found.primary.comparison.cases}
    assert pairs == {"s/a": 2, "s/b": 0, "s/c": 0} and found.primary.num_pairs == 2
    assert (found.a.num_lost, found.b.num_lost) == (4, 4)
    assert found.primary.gate.verdict is Verdict.INCONCLUSIVE


def test_of_a_seed_that_was_evaluated_twice_the_later_one_counts(tmp_path: Path) -> None:
    """Another width of the seed blocks, another inner program: what the first one lost, the second one found."""
    add(tmp_path, 1, {"a": Outcome.TIMEOUT, "b": {"train/loss": [1.0, math.nan, 1.0, 1.0]}}, identities=SAME)
    for start in (0, 2):
        add(tmp_path, 1, {"a": {"train/loss": [1.0, 0.5]}}, start=start, identities=SAME)
    add(tmp_path, 1, {"b": {"train/loss": [0.5]}}, start=1, identities=SAME)
    (found,) = subjects(tmp_path)
    assert found.cells["a"].num_lost_by_outcome == {} and sorted(found.cells["a"].final_values["train/loss"]) == [
        0,
        1,
        2,
        3,
    ]
    assert found.cells["b"].final_values["train/loss"] == {0: 1.0, 1: 0.5, 2: 1.0, 3: 1.0}
    assert found.num_lost == 0 and found.num_diverged == 0


def test_an_evaluation_that_gave_nothing_replaces_no_value(tmp_path: Path) -> None:
    """A timeout says something of the machine and nothing of the checkpoint; the report goes by the same rule."""
    add(tmp_path, 1, {"a": {"train/loss": [1.0, math.nan, 0.5]}}, identities=SAME)
    add(tmp_path, 1, {"a": Outcome.TIMEOUT}, start=1, identities=SAME)
    (found,) = subjects(tmp_path)
    cell = found.cells["a"]
    assert sorted(cell.final_values["train/loss"]) == [0, 1, 2] and cell.diverged_seeds == {1}
    assert cell.num_lost_by_outcome == {"timeout": 2}, "seeds 3 and 4 have no value"
    assert cell.seeds == (0, 1, 2) and cell.failures == ((Outcome.TIMEOUT, SHOWN["it-hung"]),)


def test_a_changed_case_is_named_and_not_compared(tmp_path: Path) -> None:
    losses = {"train/loss": [1.0, 0.5]}
    add(tmp_path / "x", 1, {"a": losses, "b": losses})
    add(tmp_path / "y", 1, {"a": losses, "b": losses}, identities={"b": "another"})
    (x,), (y,) = subjects(tmp_path / "x"), subjects(tmp_path / "y")
    (found,) = compare_subjects([x, y])
    assert found.changed_cases == ("s/b",) and [row.case for row in found.primary.comparison.cases] == ["s/a"]
    add(tmp_path / "z", 1, {"c": losses})
    with pytest.raises(UsageError, match=SHOWN["no-case-in-common-got"]):
        compare_subjects([x, *subjects(tmp_path / "z")])
    with pytest.raises(UsageError, match=SHOWN["no-subject-has-this-metric"]):
        compare_subjects([x, y], metrics=["test/bleu"])


def test_later_evaluations_of_a_changed_case_count(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0]}}, identities={"a": "before"})
    add(tmp_path, 1, {"a": {"train/loss": [0.5]}}, identities={"a": "after"})
    assert list(subjects(tmp_path)[0].cells) == ["after"]


def test_the_last_subject_is_the_last_complete_one(tmp_path: Path) -> None:
    losses = {"train/loss": [1.0, 0.5]}
    for step, cases in ((1, "ab"), (2, "ab"), (3, "a")):
        add(tmp_path, step, dict.fromkeys(cases, losses))
    assert last_subject(subjects(tmp_path)).checkpoint.outer_step == 2


def test_with_itself_never_regressed_whatever_diverged_or_has_no_scale(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, NAN]}, "b": {"train/loss": [5.0, 6.0]}, "c": Outcome.ERROR})
    (one,) = subjects(tmp_path)
    for margin in (0.0, 0.02):
        (found,) = compare_subjects([one, one], rules=GateRules(margin=margin))
        assert found.primary.gate.verdict is not Verdict.REGRESSED
        assert {row.verdict for row in found.primary.gate.cases} <= {Verdict.PASS, Verdict.INCONCLUSIVE}
        assert found.primary.comparison.verdict is Effect.UNDECIDED


def test_p_better_takes_the_cases_in_their_own_order(tmp_path: Path) -> None:
    """A set's order changes from process to process, and with it the bounds would."""
    draw, names = np.random.default_rng(0), [f"case {number}" for number in range(12)]
    for step in (1, 2):
        add(tmp_path, step, {name: {"train/loss": draw.uniform(0.3, 1.5, 4).tolist()} for name in names})
    one, two = subjects(tmp_path)
    scales = Scales.of([one, two])
    ours, theirs = ([scales.ordering_values(side.cells[f"s/{name}"], None) for name in names] for side in (two, one))
    assert repr(improvement_probability(one, two, None, scales)) == repr(
        probability_of_improvement_interval(ours, theirs)
    )


def test_checkpoints_that_share_a_former_form_alone_are_compared_on_it(tmp_path: Path) -> None:
    for step, form in ((1, "old"), (2, "old"), (3, "new")):
        add(tmp_path, step, {"a": {"train/loss": [1.0 / step, 1.1 / step]}}, identities={"a": form})
    one, two, three = subjects(tmp_path)
    (found,) = compare_subjects([one, two], scales=Scales.of([one, two, three]))
    assert found.primary.values.keys() == found.primary.margins.keys() == {"s/a"}  # names, for people
    assert found.cases["s/a"].identity == "old" and found.primary.num_pairs == 2
    with pytest.raises(UsageError, match=SHOWN["no-case-in-common-got-changed"]):
        compare_subjects([one, three])


def test_checkpoints_of_one_name_are_told_apart_by_their_folders_or_their_content(tmp_path: Path) -> None:
    case = {"a": {"train/loss": [1.0, 2.0]}}
    for step, uri in ((1, "x/A/theta.npz"), (2, "y/A/theta.npz"), (2, "x/A/theta.npz")):
        add(tmp_path / "folders", step, case, uri=uri, sha256=f"{uri[0]}{uri[2]}{step}" + "0" * 61)
    steps = (SHOWN["outer-step-1"], SHOWN["outer-step-2"])
    assert read_store(tmp_path / "folders").labels == (
        f"x/A/theta.npz, {steps[0]}",
        f"y/A/theta.npz, {steps[1]}",
        f"x/A/theta.npz, {steps[1]}",
    )
    add(tmp_path / "runs", 1, case, uri="x/theta_1.npz")
    add(tmp_path / "runs", 2, case, uri="x/theta_2.npz")
    assert read_store(tmp_path / "runs").labels == steps
    assert read_store(tmp_path / "runs").capitalized_labels[0] == SHOWN["outer-step-1-2"]
    for step, uri in ((0, "old.npz"), (0, "new.npz"), (1, "old.npz")):  # old.npz was overwritten
        add(tmp_path / "files", step, case, uri=uri, sha256=f"{uri[0]}{step}" + "0" * 62)
    assert read_store(tmp_path / "files").labels == ("old.npz", "new.npz", f"old.npz, {steps[0]}")
    for sha256 in ("12345678" + "0" * 56, "9abcdef0" + "0" * 56):  # one was written over the other
        add(tmp_path / "content", 0, case, uri="x/theta.npz", sha256=sha256)
    assert read_store(tmp_path / "content").labels == ("theta.npz (12345678)", "theta.npz (9abcdef0)")
    add(tmp_path / "content", 5, case, uri="x/theta_5.npz")
    assert read_store(tmp_path / "content").labels[-1] == SHOWN["outer-step-5"]

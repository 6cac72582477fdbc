"""AlgoPerf's rules on small logs that are made to meet each of them, and the published scores."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import Done, lobench
from reference import reference_data
from shown import texts_of

from lobench.analysis.scores.algoperf import RULES, Removal, Targets, WorkloadTarget, score_log
from lobench.analysis.scores.algoperf_files import read_log, read_targets
from lobench.core.errors import UsageError

SHOWN = texts_of("score")

PUBLISHED = {
    "shampoo_submission": 0.7784,
    "schedule_free_adamw": 0.7077,
    "generalized_adam": 0.6383,
    "cyclic_lr": 0.6301,
    "nadamp": 0.5909,
    "baseline": 0.5707,
    "amos": 0.4918,
    "caspr_adaptive": 0.4722,
    "lawa_queue": 0.3699,
    "lawa_ema": 0.3384,
    "schedule_free_prodigy": 0.0,
}
PUBLISHED_06 = {"shampoo": 0.6244, "baseline": 0.4590}
PUBLISHED_SELF_05 = {
    "schedule_free_adamw": 0.8542,
    "baseline": 0.8194,
    "nadamw_sequential": 0.3308,
    "sinv6_75": 0.1420,
    "sinv6": 0.0903,
    "adamg": 0.0,
}
LOSS = WorkloadTarget(metric="loss", value=1.0, higher_is_better=False)
TARGETS = Targets(
    base_workloads=("a", "b"),
    base_by_variant={"a_wide": "a"},
    targets={"a": LOSS, "b": WorkloadTarget(metric="accuracy", value=0.9, higher_is_better=True), "a_wide": LOSS},
)
HEADER = "submission,study,workload,trial,global_step,time,val_metric\n"


def log(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Rows (submission, study, workload, trial, step, time, value)."""
    return pd.DataFrame(rows, columns=HEADER.strip().split(","))


def reaches(submission: str, workload: str, time: float, study: str = "s0") -> tuple[Any, ...]:
    return (submission, study, workload, "t1", 10, time, 0.95 if workload == "b" else 0.5)


def everywhere(submission: str, time: float) -> list[tuple[Any, ...]]:
    return [reaches(submission, workload, time) for workload in ("a", "b", "a_wide")]


def test_the_trial_with_the_fewest_evaluations_gives_the_time_and_the_median_study_counts() -> None:
    found = score_log(
        log(
            ("x", "s0", "a", "t1", 1, 1.0, 2.0),
            ("x", "s0", "a", "t1", 2, 2.0, 0.5),  # earlier, but its second evaluation
            ("x", "s0", "a", "t2", 9, 9.0, 0.9),
            ("x", "s1", "a", "t1", 1, 30.0, 0.9),
            ("x", "s2", "a", "t1", 1, 20.0, 1.1),  # this study misses the target
        ),
        TARGETS,
    ).submissions["x"]
    assert found.workloads["a"].seconds == 30.0  # median of 9, 30 and infinity
    assert (found.workloads["a"].studies, found.workloads["a"].studies_that_reached) == (3, 2)
    assert found.workloads["b"].removed_by is Removal.NO_EVALUATION


def test_each_rule_removes_what_it_says() -> None:
    found = score_log(
        log(
            *everywhere("fast", 10.0),
            *[reaches("slow", "a", 20.0), reaches("slow", "b", 41.0), reaches("slow", "a_wide", 40.0)],
            *[reaches("narrow", "a", 10.0), reaches("narrow", "b", 10.0), reaches("narrow", "a_wide", 41.0)],
            *[("lost", "s0", "a", "t1", 1, 1.0, 7.0), reaches("lost", "b", 10.0), reaches("lost", "a_wide", 10.0)],
        ),
        TARGETS,
    ).submissions
    removed = {name: {w: entry.removed_by for w, entry in sub.workloads.items()} for name, sub in found.items()}
    assert removed["fast"] == {"a": None, "b": None, "a_wide": None}
    assert removed["slow"] == {"a": None, "b": Removal.TOO_SLOW, "a_wide": None}
    assert removed["narrow"] == {"a": Removal.HELD_OUT_MISSED, "b": None, "a_wide": Removal.TOO_SLOW}
    assert removed["lost"] == {"a": Removal.NOT_REACHED, "b": None, "a_wide": Removal.BASE_MISSED}
    assert found["narrow"].workloads["a"].cause == SHOWN["wide-more-than-4-times"]
    assert found["fast"].score == pytest.approx(1.0) and found["narrow"].score == pytest.approx(0.5)
    assert next(iter(found)) == "fast"


def test_a_nan_is_no_evaluation() -> None:
    found = score_log(
        log(
            ("x", "s0", "b", "t1", 1, 1.0, math.nan),
            ("x", "s0", "b", "t1", 2, 2.0, math.inf),
            ("x", "s0", "b", "t1", 3, 3.0, 0.95),
            ("x", "s0", "b", "t2", 1, 9.0, 0.1),
            ("x", "s0", "b", "t2", 2, 9.5, 0.95),
            ("x", "s0", "b", "t3", math.nan, 0.1, 0.1),  # no step: neither an evaluation, nor one like the next
            ("x", "s0", "b", "t3", math.nan, 0.2, 0.95),
        ),
        TARGETS,
    )
    assert (found.num_not_finite, found.num_repeated) == (4, 0)
    assert found.submissions["x"].workloads["b"].seconds == 3.0


def test_the_published_scores_to_the_fourth_digit() -> None:
    data = reference_data() / "algoperf"
    targets = read_targets(data / "workload_targets_v05.json")
    found = score_log(read_log(data / "evaluations_to_target.csv.gz", targets), targets)
    assert {name: math.floor(sub.score * 1e4 + 0.5) / 1e4 for name, sub in found.submissions.items()} == PUBLISHED
    for name, submission in found.submissions.items():
        for workload, entry in submission.workloads.items():
            assert math.isinf(entry.ratio) == (entry.removed_by is not None), (name, workload)


@pytest.mark.parametrize(
    ("log_file", "version", "is_self_tuning", "published"),
    [
        ("evaluations_to_target", "05", False, PUBLISHED),
        ("v05_self_to_target", "05", True, PUBLISHED_SELF_05),
        ("v06_external_to_target", "06", False, PUBLISHED_06),
    ],
)
def test_the_published_scores_of_both_versions_and_tracks_by_the_command(
    log_file: str, version: str, is_self_tuning: bool, published: dict[str, float]
) -> None:
    data = reference_data() / "algoperf"
    targets = data / f"workload_targets_v{version}.json"
    more = ["--self-tuning"] if is_self_tuning else []
    found = json.loads(run(data / f"{log_file}.csv.gz", "--targets", targets, "--format", "json", *more).stdout)
    assert {name: math.floor(score * 1e4 + 0.5) / 1e4 for name, score in found["scores"].items()} == published
    assert found["rules"]["version"] == f"0.{version[1]}" and found["rules"]["trials"] == (1 if is_self_tuning else 5)
    workloads = next(iter(found["submissions"].values()))["workloads"]
    assert sum(not entry["held_out"] for entry in workloads.values()) == 8  # the leaderboard's, not the file's nine
    assert any(entry["held_out"] for entry in workloads.values()) == (version == "05")


def test_self_tuning_of_06_has_three_studies_of_one_trial_and_half_as_long_again() -> None:
    data = reference_data() / "algoperf"
    done = run(data / "v06_self_to_target.csv.gz", "--targets", data / "workload_targets_v06.json", "--self-tuning")
    assert done.stdout.startswith(SHOWN["schedule-free-adamw-v2-has"])
    assert done.stdout.endswith(SHOWN["studies-x-trials-3-x"])
    budget = RULES["0.6"].for_self_tuning().budgets["wmt"]
    assert budget == 1.5 * 43_336 and RULES["0.5"].for_self_tuning().budgets["wmt"] == 3 * 48_151
    targets = Targets(base_workloads=("wmt",), base_by_variant={}, targets={"wmt": LOSS})
    late = log(("x", "s0", "wmt", "t1", 1, budget + 1, 0.5), ("y", "s0", "wmt", "t1", 1, budget, 0.5))
    found = score_log(late, targets, RULES["0.6"].for_self_tuning())
    assert found.num_past_budget == 1 and {name: one.score for name, one in found.submissions.items()} == {
        "y": 1,
        "x": 0,
    }
    assert score_log(late, targets).num_past_budget == 0  # of no version there is no budget


def test_what_is_not_as_the_rules_say_is_named(tmp_path: Path) -> None:
    logs, targets = tmp_path / "log.csv", targets_file(tmp_path)
    logs.write_text(HEADER + "mine,s0,wmt,t1,1,5.0,31\nmine,s1,wmt,t1,1,5.0,31\n")
    output = run(logs, "--targets", targets, "--rules", "0.6").stdout
    assert output.endswith(SHOWN["algoperf-0-6-studies-x"])
    assert "AlgoPerf" not in run(logs, "--targets", targets).stdout
    done = run(logs, "--targets", targets, "--self-tuning")
    assert done.returncode == 2 and "--rules 0.5 or 0.6" in done.stderr
    done = run(logs, "--normaliser", targets, "--rules", "0.6")
    assert done.returncode == 2 and "--targets" in done.stderr


def test_evaluations_past_the_budget_are_counted_in_the_text_and_in_json(tmp_path: Path) -> None:
    logs, targets = tmp_path / "log.csv", targets_file(tmp_path)
    logs.write_text(HEADER + "mine,s0,wmt,t1,1,5.0,31\nmine,s0,wmt,t1,2,9e9,32\nmine,s1,wmt,t1,1,9e8,31\n")
    words = (logs, "--targets", targets, "--rules", "0.6")
    assert json.loads(run(*words, "--format", "json").stdout)["log"]["past_budget"] == 2
    assert SHOWN["past-the-budget-a-trial"] in run(*words).stdout


def test_a_log_of_which_nothing_counts_scores_zero(tmp_path: Path) -> None:
    logs, targets = tmp_path / "log.csv", targets_file(tmp_path)
    rows = {"other": "mine,s0,other,t1,1,5.0,31", "late": "mine,s0,wmt,t1,1,9e9,31", "past": "mine,s0,wmt,t1,1,-5,31"}
    for row in rows.values():
        logs.write_text(f"{HEADER}{row}\n")
        done = run(logs, "--targets", targets, "--rules", "0.6", "--format", "json")
        assert done.returncode == 0 and json.loads(done.stdout)["scores"] == {"mine": 0.0}, done.stderr


def test_by_the_rules_of_06_no_variant_gates() -> None:
    rows = [reaches("x", "a", 1.0), reaches("x", "b", 1.0), reaches("y", "a_wide", 1.0)]
    by_05, by_06 = (score_log(log(*rows), TARGETS, RULES[version]).submissions["x"] for version in ("0.5", "0.6"))
    assert by_05.workloads["a"].removed_by is Removal.HELD_OUT_MISSED and by_05.score == pytest.approx(0.5)
    assert by_06.score == pytest.approx(1.0) and "a_wide" not in by_06.workloads


def test_a_dirtier_log_gives_the_same_scores(tmp_path: Path) -> None:
    """Two spellings, a gzipped file without the ending, lost trials, repeated rows, NaN evaluations between."""
    data = reference_data() / "algoperf"
    targets = read_targets(data / "workload_targets_v05.json")
    clean = pd.read_csv(data / "evaluations_to_target.csv.gz")
    draw = np.random.default_rng(0)
    names = ["submission", "study", "workload", "trial"]
    # A trial whose every value is lower than its workload's median never decides anything; a third of them is lost.
    up = ~clean["workload"].str.contains("criteo|librispeech")
    sign = up.map({True: 1, False: -1})
    best = (sign * clean["val_metric"]).groupby([clean[name] for name in names]).transform("max")
    usual = (sign * clean["val_metric"]).groupby(clean["workload"]).transform("median")
    dirty = clean[~((best < usual) & (clean["trial"] > "trial_2"))].copy()
    assert len(dirty) < len(clean)
    swap = draw.random(len(dirty)) < 0.5
    for column in names:
        other = dirty[column].str.replace("_", "-").str.upper()
        dirty[column] = dirty[column].where(swap, other)
    blank = dirty.sample(2000, random_state=1).assign(val_metric="NaN")
    blank["global_step"] += 0.5
    dirty = pd.concat([dirty, blank, dirty.sample(500, random_state=2)]).sample(frac=1, random_state=3)
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(dirty.to_csv(index=False).encode()))
    found = score_log(read_log(path, targets), targets)
    assert {name: math.floor(sub.score * 1e4 + 0.5) / 1e4 for name, sub in found.submissions.items()} == PUBLISHED
    assert found.num_repeated == pytest.approx(500, abs=50)


def run(*arguments: str | Path) -> Done:
    return lobench("score", *arguments)


def targets_file(folder: Path) -> Path:
    path = folder / "targets.json"
    workloads = {"wmt": {"target_metric_name": "bleu", "validation_target_value": 30.0}}
    path.write_text(json.dumps({"base_workloads": ["wmt"], "held_out_workloads": [], "workloads": workloads}))
    return path


def test_the_command_prints_json_and_a_table(tmp_path: Path) -> None:
    targets, logs = targets_file(tmp_path), tmp_path / "log.csv"
    logs.write_text(HEADER + "Mine,s0,wmt_jax,t1,1,5.0,31\nTheirs,s0,WMT,t1,1,5.0,29\n")
    found = json.loads(run(logs, "--targets", targets, "--format", "json").stdout)
    assert found["scores"] == {"Mine": 1.0, "Theirs": 0.0}
    wmt = found["submissions"]["Theirs"]["workloads"]["wmt"]
    assert wmt["removed_by"] == SHOWN["target-not-reached-in-the"] and wmt["seconds"] is None
    table = run(logs, "--targets", targets).stdout
    assert "1.0000" in table and SHOWN["of-1-studies-reached-it"] in table


def test_brackets_of_a_name_are_shown(tmp_path: Path) -> None:
    targets, logs = targets_file(tmp_path), tmp_path / "log.csv"
    logs.write_text(HEADER + "mine [v2],s0,wmt,t1,1,5.0,31\ntheirs[/],s0,wmt,t1,1,5.0,29\n")
    done = run(logs, "--targets", targets)
    assert "mine [v2]" in done.stdout and "theirs[/]" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", SHOWN["not-a-csv"]),
        (b"Time," + HEADER.encode() + b"1,a,s,wmt,t,1,2,31\n", SHOWN["has-the-column-time-twice"]),
        (b"submission,study\na,b\n", SHOWN["lacks-the-columns-workload-trial"]),
        (HEADER.encode(), SHOWN["holds-no-evaluation"]),
        ((HEADER + "a,s,wmt,t,1,soon,31\n").encode(), SHOWN["line-2-time-is-no"]),
        ((HEADER + "a,s,,t,1,2,31\n").encode(), SHOWN["line-2-no-workload"]),
        (("\n" + HEADER + "\n \t\n\na,s,wmt,t,1,soon,31\n").encode(), SHOWN["line-6-time-is-no"]),
        ((HEADER + '"a\n\nb",s,wmt,t,1,2,31\r\n\r\na,s,,t,1,2,31\n').encode(), SHOWN["line-6-no-workload"]),
        ((HEADER + "a,s,wmt,t,1,2,31,9,9,9\na,s\n").encode(), SHOWN["not-a-csv"]),
        (b"\x1f\x8b\x08truncated", SHOWN["cannot-read-this-file"]),
        (b"\xff\xfe\x00", SHOWN["not-a-text-file"]),
    ],
)
def test_a_bad_log_is_one_clear_line(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        read_log(path, read_targets(targets_file(tmp_path)))
    assert expected in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("{", SHOWN["not-json"]),
        ("[]", SHOWN["not-a-file-of-targets"]),
        ({"base_workloads": ["a"], "workloads": {}}, SHOWN["has-no-target"]),
        (
            {"base_workloads": ["a"], "held_out_workloads": ["b"], "workloads": {}},
            SHOWN["b-starts-with-no-base"],
        ),
        (
            {
                "base_workloads": ["a"],
                "workloads": {"a": {"target_metric_name": "charm", "validation_target_value": 1}},
            },
            SHOWN["is-charm-better-up-or"],
        ),
    ],
)
def test_bad_targets_are_one_clear_line(tmp_path: Path, record: object, expected: str) -> None:
    path = tmp_path / "targets.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    with pytest.raises(UsageError, match=r"targets\.json") as error:
        read_targets(path)
    assert expected in str(error.value)

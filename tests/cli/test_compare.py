"""`lobench compare` on stores whose answer is known, and its exit codes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from commands import Done, lobench, lobench_here
from shown import texts_of
from stores import add
from tiny import ONE_CASE, make_run, make_suite, results

from lobench import compare
from lobench.analysis.comparisons.gates import Verdict
from lobench.analysis.stats.comparison import Effect
from lobench.api.compare import _names_by_case
from lobench.core.result import Outcome
from lobench.engine.config.suite import specs_called
from lobench.report.tables.comparison import comparison_sentence
from lobench.report.tables.comparison_text import comparison_text

SHOWN = texts_of("compare")

DRAW = np.random.default_rng(0)
GOOD = {name: (0.5 + 0.02 * DRAW.standard_normal(6)).tolist() for name in "abc"}
BAD = {name: [value + 0.3 for value in values] for name, values in GOOD.items()}


def both(train: list[float], test: list[float]) -> dict[str, list[float]]:
    return {"train/loss": train, "test/loss": test}


THREE = ("--gin-param", "Case.num_seeds = 3")  # a bowl has no spread over seeds, of which two say nothing


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1: good on train, bad on test; 2: the other way round; 3: like 1 in everything."""
    folder = tmp_path_factory.mktemp("runs") / "lobench" / "one"
    add(folder, 1, {name: both(GOOD[name], BAD[name]) for name in "abc"})
    add(folder, 2, {name: both(BAD[name], GOOD[name]) for name in "abc"}, revision="r2")
    add(folder, 3, {name: both(GOOD[name], BAD[name]) for name in "abc"})
    return folder


def run(*arguments: str | Path) -> Done:
    return lobench_here("compare", *arguments)


def test_train_and_test_tell_different_stories_in_the_headline(store: Path) -> None:
    done = run("1", "2", "--store", store)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(SHOWN["regressed-theta-2-npz-b"])
    test = next(line for line in lines if line.startswith("test/loss: better"))
    assert SHOWN["gate-pass-the-metrics-tell"] in " ".join(lines[lines.index(test) :][:2])
    assert sum(line.startswith("s/") for line in lines) == 3


def test_the_other_way_round_it_passes(store: Path) -> None:
    done = run("2", "1", "--store", store, "--format", "json")
    assert done.returncode == 0
    (found,) = json.loads(done.stdout)
    effect = found["metrics"]["train/loss"]
    assert found["verdict"] == "PASS" and effect["effect"] == "better" and effect["num_pairs"] == 18
    # From 2 to .5 is a score of 1, which is ln 4; .8 is 1.6 times the loss.
    assert effect["difference"]["lower"] < math.log(1.6) / math.log(4) < effect["difference"]["upper"]
    assert effect["cases"]["s/a"]["ratio"]["mean"] == pytest.approx(1 / 1.6, rel=0.05)
    assert set(effect["cases"]) == {"s/a", "s/b", "s/c"} and effect["probability_of_improvement"]["mean"] == 1.0


_KEEPING = """
import optax

@configurable
def keeping(rate=0.01, keep=0.9999999):
    return optax.sgd(rate / (1 - keep) * 1e-7)
"""


def test_a_default_that_only_one_side_binds_is_named_if_that_changes_bits(tmp_path: Path) -> None:
    """`1 - keep` is 1.0e-7 of the default, and 1.2e-7 of a float32. The program only multiplies by the rate."""
    suite = make_suite(tmp_path, ONE_CASE)
    with (suite / "tiny_tasks.py").open("a") as file:
        file.write(_KEEPING)
    others = ("keeping(); keeping.keep = 0.9999999", "keeping(); keeping.rate = 0.01", "keeping(); keeping.keep = 0.5")
    done = run("keeping()", *others, "--suite", suite, "--store", tmp_path / "store", *THREE)
    assert done.stdout.count(SHOWN["bound-to-the-default-by"]) == done.stdout.count("bound to") == 1, done.stdout
    turned = run(others[0], "keeping()", "--store", tmp_path / "store")
    assert SHOWN["bound-to-the-default-by-a"] in turned.stdout


def test_with_itself_and_with_its_like_nothing_regressed(store: Path) -> None:
    for other in ("1", "3", "theta_1.npz", "0" * 63):
        assert run("1", other, "--store", store).returncode == (2 if other == "0" * 63 else 0)


def test_stores_and_runs_with_a_store_below(store: Path, tmp_path: Path) -> None:
    add(tmp_path / "two", 9, {name: both(GOOD[name], GOOD[name]) for name in "abc"})
    done = run(f"{store}@1", tmp_path / "two")
    assert done.returncode == 0 and done.stdout.startswith(SHOWN["pass-no-difference-of-theta"])
    assert run(store.parent.parent, tmp_path / "two").returncode == 0
    same = run(f"{store}@1", f"{store}@1", "--format", "json")
    (pair,) = json.loads(same.stdout)
    assert pair["a"]["label"] == pair["b"]["label"] == f"{store}@1"


def test_noise_is_inconclusive_and_names_the_seeds_that_would_decide(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    for step in (1, 2):
        add(tmp_path, step, {"a": {"train/loss": (0.5 + 0.1 * draw.standard_normal(4)).tolist()}})
    done = run("1", "2", "--store", tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(SHOWN["inconclusive-no-difference"])
    assert re.search(SHOWN["about-seeds-per-case-would"], done.stdout)
    assert run("1", "2", "--store", tmp_path, "--strict").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("1",), SHOWN["nothing-to-compare-with"]),
        (("1", "2"), SHOWN["give-suite-to-evaluate-it"]),
        (
            ("1", "77", "--store", "{store}"),
            SHOWN["called-77-expected-one-of"],
        ),
        (("{store}/nothing", "{store}"), SHOWN["neither-a-store-nor-a"]),
        (("a.npz", "adam()", "--suite", "{store}"), SHOWN["neither-a-checkpoint-nor-an"]),
        (("adam(); adam.b1 = nan", "sgd()", "--suite", "{store}"), SHOWN["adam-b1-nan-gin-syntax"]),
        (
            ("adam(); adam.b1 = nan", "sgd()", "--suite", "quick", "--store", "{store}"),
            SHOWN["adam-b1-nan-gin-syntax-2"],
        ),
        (("a", "b", "--suite", "nowhere"), SHOWN["nowhere-no-such-suite"]),
        (("1", "2", "--store", "{store}", "--case", "nothing"), SHOWN["no-case-nothing-expected-one"]),
        (("optax.adam", "sgd()", "--suite", "{store}"), SHOWN["if-it-is-an-optimizer"]),
    ],
)
def test_usage_is_one_clear_line(store: Path, arguments: tuple[str, ...], expected: str) -> None:
    done = run(*(argument.format(store=store) for argument in arguments))
    assert done.returncode == 2 and expected in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_checkpoints_and_optimizers_are_evaluated_now_and_kept(tmp_path: Path) -> None:
    suite, run_folder = make_suite(tmp_path), make_run(tmp_path, -4.0, -1.5)
    subjects = [run_folder / "theta_1.npz", run_folder / "theta_2.npz", "adam(); adam.learning_rate = 0.1"]
    options = ["--suite", suite, "--store", tmp_path / "kept", "--workers", "1", "--format", "json", *THREE]
    done = run(*subjects, *options)
    assert done.returncode == 0, done.stderr
    better, _ = json.loads(done.stdout)
    assert better["metrics"]["train/loss"]["effect"] == "better" and better["b"]["label"] == "theta_2.npz"
    assert set(better["metrics"]["train/loss"]["cases"]) == {"tiny/a", "tiny/b"}
    kept = {found["label"] for found in results(tmp_path / "kept")}
    assert kept == {"theta_1.npz", "theta_2.npz", "adam(); adam.learning_rate = 0.1"}
    bound = f"{subjects[1]}; Case.learned_optimizer = @LearnableSGD()"  # parentheses, and no optimizer
    done = run(subjects[0], bound, *options)
    assert done.returncode == 0 and json.loads(done.stdout)[0]["b"]["label"].endswith("@LearnableSGD()")
    harmed = run(*subjects[:2][::-1], *options)
    assert harmed.returncode == 1 and json.loads(harmed.stdout)[0]["verdict"] == "REGRESSED"
    # All of the store sets the scale, also if subjects are evaluated now: one of the two pairs has not the best.
    for pair, now in (((1, 0), harmed), ((0, 2), run(subjects[0], subjects[2], *options))):
        names = [subjects[place].name if place < 2 else subjects[place] for place in pair]
        stored = run(*names, "--store", tmp_path / "kept", "--format", "json")
        ours, theirs = (json.loads(done.stdout)[0]["metrics"]["train/loss"]["difference"] for done in (now, stored))
        assert ours == theirs


def test_where_every_evaluation_is_lost_it_says_so(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": Outcome.ERROR})
    add(tmp_path, 2, {"a": Outcome.TIMEOUT})
    done = run("1", "2", "--store", tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stderr.strip() == SHOWN["nothing-was-compared-no-seed"]
    assert done.stdout.startswith("INCONCLUSIVE: ") and SHOWN["seeds-of-a-4-of"] in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("s/a"))
    assert "error" in row and "timeout" in row and "undecided" in row
    assert run("1", "2", "--store", tmp_path, "--strict").returncode == 1


def test_a_metric_that_only_a_third_one_has_is_one_clear_line(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 1.1]}})
    add(tmp_path, 2, {"a": {"train/loss": [1.0, 1.2]}})
    add(tmp_path, 3, {"a": {"train/loss": [1.0, 1.2], "valid/loss": [1.0, 1.2]}})
    done = run("1", "2", "3", "--store", tmp_path, "--metric", "valid/loss")
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert SHOWN["neither-theta-1-npz-nor"] in done.stderr


def test_a_metric_that_no_case_has_ends_the_evaluations_after_the_first(tmp_path: Path) -> None:
    suite, store = make_suite(tmp_path, ONE_CASE), tmp_path / "kept"
    words = ("adam()", "sgd()", "momentum()", "--suite", suite, "--store", store)
    counts = []
    for option in ("--metric=test/los", "--target=test/los=1"):  # the second time, the stored result says it
        done = run(*words, option)
        assert done.returncode == 2 and SHOWN["no-subject-has-test-los"] in done.stderr, done.stderr
        counts.append(len(results(store)))
    assert counts[0] == counts[1] < 3  # quick evaluations are stored together
    done = run(*words, "--metric", "train_loss")
    assert done.returncode in (0, 1) and len(results(store)) == 3, done.stderr


def test_cases_that_all_changed_are_named(tmp_path: Path) -> None:
    for name in ("old", "new"):
        add(tmp_path / name, 1, {"a": {"train/loss": [1.0, 1.1]}}, identities={"a": name})
    done = run(tmp_path / "old", tmp_path / "new")
    assert done.returncode == 2 and SHOWN["changed-between-the-two-s"] in done.stderr


def compared_cases(tmp_path: Path, suite: Path) -> list[str]:
    options = ["--suite", suite, "--store", tmp_path / "kept", "--workers", "1", "--format", "json"]
    done = run("adam(); adam.learning_rate = 0.01", "adam(); adam.learning_rate = 0.1", *options)
    assert done.returncode == 0, done.stderr
    (pair,) = json.loads(done.stdout)
    return sorted(pair["metrics"]["train/loss"]["cases"])


def test_cases_of_one_name_are_both_compared(tmp_path: Path) -> None:
    suite = make_suite(tmp_path)
    test = suite / "test_tiny.py"
    test.write_text(test.read_text() + "\n@cases('again.gin')\ndef test_again(case, evaluate):\n    evaluate(case)\n")
    longer = (suite / "tiny.gin").read_text() + "\nCase.num_inner_steps = 7\n"
    (suite / "again.gin").write_text(longer)
    tests = [f"tiny/test_tiny.{test}[{name}]" for name in "ab" for test in ("test_tiny", "test_again")]
    assert compared_cases(tmp_path, suite) == sorted(tests)


def test_one_training_in_two_tests_is_compared_once(tmp_path: Path) -> None:
    suite = make_suite(tmp_path)
    test = suite / "test_tiny.py"
    test.write_text(test.read_text() + "\n@cases('tiny.gin')\ndef test_again(case, evaluate):\n    evaluate(case)\n")
    names = compared_cases(tmp_path, suite)
    assert len(names) == 2
    assert {name[-3:] for name in names} == {"[a]", "[b]"}


def test_what_lies_at_the_path_now_is_compared(tmp_path: Path) -> None:
    """The kept results are of what lay there before, too: the last of them need not be what lies there now."""
    suite, run_folder = make_suite(tmp_path), make_run(tmp_path, -4.0, -1.5)
    one, two, current = (run_folder / name for name in ("theta_1.npz", "theta_2.npz", "current.npz"))
    options = ["--suite", suite, "--store", tmp_path / "kept", "--workers", "1", "--format", "json", *THREE]
    effects = []
    for content in (one, two, one):
        current.write_bytes(content.read_bytes())
        done = run(one, current, *options)
        effects.append(json.loads(done.stdout)[0]["metrics"]["train/loss"]["effect"])
    assert effects == ["undecided", "better", "undecided"]
    current.write_bytes(b"no checkpoint")
    done = run(one, current, *options)
    assert done.returncode == 2 and json.loads(done.stdout)["where"] == str(current)
    assert "current.npz" in done.stderr.splitlines()[-1]


def test_a_checkpoint_that_is_a_folder_here_is_looked_up_in_the_store(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("1", "2"):
        (tmp_path / step).mkdir()
    monkeypatch.chdir(tmp_path)
    assert SHOWN["theta-2-npz-b-is"] in run("1", "2", "--store", store).stdout
    assert SHOWN["no-result-store-found"] in run("1", "2").stderr


def logs_in(store: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (store / "logs").iterdir()}


def test_optimizers_are_trained_once_and_kept_for_the_next_time(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    gin = "import tiny_tasks\nCase.num_inner_steps = 10\nCase.num_seeds = 2\na/Case.task = @Killer()\n"
    suite = make_suite(tmp_path, gin + f"a/Killer.counter = '{counter}'\na/Killer.times = 0\n")
    subjects = ("sgd(); sgd.learning_rate = 0.1", "sgd(); sgd.learning_rate = 0.2")
    options = ("--suite", suite, "--store", tmp_path / "kept", "--workers", "1")
    first = lobench("compare", *subjects, *options)
    trained, logs = counter.stat().st_size, logs_in(tmp_path / "kept")
    assert trained > 0 and logs, first.stderr
    again = run(*subjects, *options)
    assert counter.stat().st_size == trained and again.stdout == first.stdout
    assert logs_in(tmp_path / "kept") == logs, "a finished comparison starts no worker"
    longer = run(*subjects, *options, "--gin-param", "Case.num_inner_steps = 20")
    retrained = counter.stat().st_size
    assert retrained > trained and longer.stdout != first.stdout
    assert run(*subjects, *options).stdout == first.stdout, "what the store has of other cases changes no number"
    assert counter.stat().st_size == retrained


def test_a_binding_in_a_scope_that_no_case_has_is_refused(tmp_path: Path) -> None:
    suite, kept = make_suite(tmp_path), tmp_path / "kept"
    options = ("--suite", suite, "--case", "a", "--store", kept, "--executor", "inline")
    done = run("sgd()", "sgd(); sgd.learning_rate = 0.1", *options, "--gin-param", "bb/Case.num_seeds = 1")
    assert done.returncode == 2 and SHOWN["bb-is-not-a-case"] in done.stderr, done.stderr
    assert not kept.exists()


def test_methods_that_are_new_count_among_those_that_are_not_yet_evaluated(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, ONE_CASE)
    options = ("--suite", suite, "--store", tmp_path / "kept", "--executor", "inline")
    run("sgd()", "sgd(); sgd.learning_rate = 0.1", *options)
    done = run("sgd()", "sgd(); sgd.learning_rate = 0.2", 'sgd(); sgd.learning_rate = "hi"', *options)
    assert SHOWN["methods-already-evaluated-1-of"] in done.stderr, done.stderr
    # An error of jax about a value of a wrong type does not name the binding.
    assert SHOWN["sgd-learning-rate-got-hi"] in done.stderr


def test_of_two_cases_with_equal_tasks_one_counts_and_the_other_is_named(tmp_path: Path) -> None:
    suite, kept = make_suite(tmp_path, f"{ONE_CASE}pan/Case.task = @Bowl()\n"), tmp_path / "kept"
    subjects = ("sgd()", "sgd(); sgd.learning_rate = 0.1")
    done = run(*subjects, "--suite", suite, "--store", kept, "--executor", "inline")
    assert SHOWN["counted-once-tiny-pan"] in done.stdout, done.stdout + done.stderr
    named = run(*subjects, "--store", kept, "--case", "pan")
    assert named.returncode == done.returncode and "tiny/a " in named.stdout, named.stderr
    for options in ((), ("--cases",)):
        assert SHOWN["counted-once-tiny-pan"] in lobench_here("results", "--store", kept, *options).stdout


def test_a_runs_folder_is_its_last_checkpoint(tmp_path: Path) -> None:
    suite, folder = make_suite(tmp_path), make_run(tmp_path, -4.0, -1.5)
    done = run(folder / "theta_1.npz", folder, "--suite", suite, "--store", tmp_path / "kept", "--workers", "1")
    assert done.returncode == 0 and SHOWN["b-compares-with-theta-1"].format(folder=folder) in done.stdout, done.stderr
    assert {found["checkpoint"]["outer_step"] for found in results(tmp_path / "kept")} == {1, 2}


def test_a_pass_says_how_many_seeds_may_diverge_and_max_diverged_asks_for_it(tmp_path: Path) -> None:
    for step in (1, 2):
        losses = [0.5, 0.52, 0.49, 0.51] if step == 1 else [0.501, 0.519, 0.491, 0.509]
        add(tmp_path, step, {"a": {"train/loss": losses}})
    done = run("1", "2", "--store", tmp_path, "--details")
    assert SHOWN["pass-0-of-4-diverged"] in done.stdout
    asked = run("1", "2", "--store", tmp_path, "--max-diverged", "0.1", "--strict")
    assert asked.returncode == 1 and "INCONCLUSIVE" in asked.stdout


def test_seeds_that_diverge_are_said_beside_those_that_converge(tmp_path: Path) -> None:
    a = [0.5, 0.52, 0.49, 0.51, 0.5, 0.53, 0.48, math.nan]
    b = [0.3, 0.33, 0.31, 0.29, 0.3, 0.32, 0.31, 0.3]
    add(tmp_path, 1, {"a": {"train/loss": a}})
    add(tmp_path, 2, {"a": {"train/loss": b}})
    done = run("1", "2", "--store", tmp_path)
    assert SHOWN["better-on-the-7-seeds"] in done.stdout
    (pair,) = json.loads(run("1", "2", "--store", tmp_path, "--format", "json").stdout)
    (case,) = pair["metrics"]["train/loss"]["cases"].values()
    assert (case["num_converged"], case["diverged_a"], case["num_a"], case["p_diverged"] > 0.05) == (7, 1, 8, True)
    assert case["p_value"] == pytest.approx(2 * case["p_converged"]) and case["p_holm"] > 0


def test_headline_says_how_many_cases_are_in_the_score_if_others_lost_all_seeds(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.5, 0.52, 0.49]}, "b": {"train/loss": [0.5, 0.52, 0.49]}})
    add(tmp_path, 2, {"a": {"train/loss": [0.51, 0.5, 0.5]}, "b": {"train/loss": [math.nan] * 3}})
    found = compare("1", "2", store=tmp_path)
    assert SHOWN["cases-1-in-the-score"] in comparison_text(found.pairs, scale=found.scale)
    assert SHOWN["score-1-is-the-mean"] in found.scale


def test_the_time_of_a_gradient_is_measured_where_it_is_asked_for_and_trains_nothing_anew(tmp_path: Path) -> None:
    gin = "import tiny_tasks\nCase.num_inner_steps = 200\nCase.num_seeds = 2\nCase.eval_every = 20\n"
    suite = make_suite(tmp_path, gin + "a/Case.task = @Bowl()\n")
    subjects = ("sgd(); sgd.learning_rate = 0.1", "adam()")
    options = ("--suite", suite, "--store", tmp_path / "kept", "--workers", "1", "--format", "json")
    (first,) = json.loads(run(*subjects, *options, "--gin-param", "Case.time_gradient = True").stdout)
    (costs,) = first["costs"].values()
    sides = [costs["shared"][side] for side in "ab"]
    assert all(side["gradient_seconds"] > 0 and side["overhead"] > 0 for side in sides), costs
    (again,) = json.loads(run(*subjects, *options).stdout)
    assert again == first, "how long a gradient takes is no part of what is evaluated"


def test_compare_ratio_is_the_quotient_of_the_printed_means(tmp_path: Path) -> None:
    """Losses with an outlier: B's arithmetic mean is above A's, and its geometric one is below."""
    add(tmp_path, 1, {"a": {"train/loss": [0.02, 0.021, 0.019, 0.02]}})
    add(tmp_path, 2, {"a": {"train/loss": [0.002, 0.0021, 0.0019, 0.1]}})
    done = run("1", "2", "--store", tmp_path)
    header = next(line for line in done.stdout.splitlines() if line.startswith("case "))
    row = next(line for line in done.stdout.splitlines() if line.startswith("s/a"))
    assert "ratio [95%]" in header and "verdict (5%)" in header, "one level"
    mean_a, mean_b, ratio = map(float, row.split()[1:4])
    assert ratio == pytest.approx(mean_b / mean_a, rel=0.01) and ratio < 1


def test_compare_of_two_methods_on_six_cases_fits_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict first, a row per case, at most 20 lines of 100 columns; the rest with --details."""
    monkeypatch.setenv("COLUMNS", "100")
    names = ["adam(); adam.learning_rate = 0.001", "adam(); adam.learning_rate = 0.01"]
    for place, name in enumerate(names):
        finals = {case: both([0.5 + place * 0.2 + 0.01 * seed for seed in range(4)], [0.6] * 4) for case in "abcdef"}
        add(tmp_path, 0, finals, optimizer=name, sha256=f"{place:064d}")
    lines = run(*names, "--store", tmp_path).stdout.splitlines()
    assert lines[0].startswith(SHOWN["regressed-b-is-worse-than"].format(label=names[1])) and len(lines) <= 20
    assert max(map(len, lines)) <= 100 and [line[:3] for line in lines if line.startswith("s/")] == [
        f"s/{case}" for case in "abcdef"
    ]
    details = run(*names, "--store", tmp_path, "--details").stdout
    assert details.startswith("\n".join(lines[:4])) and "P(better)" in details
    assert run(*names, "--store", tmp_path, "--details", "--format", "json").returncode == 2


# Finals of A, of B, and the words of both outputs, where the two-sided test and the gate's one-sided one differ.
_AGREEING = {
    "beyond the margin in one tail": ([0.5, 0.55, 0.6, 0.55], [0.51, 0.575, 0.66, 0.62], "by more than the margin 0"),
    "worse within the margin": ([0.5, 0.51, 0.5, 0.51], [0.511, 0.521, 0.512, 0.522], "by less than the margin"),
}


@pytest.mark.parametrize("name", _AGREEING)
def test_compare_where_its_two_tests_differ_gives_one_answer(tmp_path: Path, name: str) -> None:
    a, b, words = _AGREEING[name]
    for step, finals in enumerate((a, b), 1):
        add(tmp_path, step, {"a": {"train/loss": finals}})
    margin = 0.0 if "beyond" in name else 0.2
    found = compare("1", "2", store=tmp_path, margin=margin)
    effect = found.pairs[0].primary
    text, sentence = comparison_text(found.pairs, scale=""), comparison_sentence(found.pairs[0])
    assert words in text.splitlines()[0] and words in sentence, text
    row = next(line for line in text.splitlines() if line.startswith("s/a"))
    if margin:
        assert (effect.comparison.verdict, effect.gate.verdict) == (Effect.WORSE, Verdict.PASS)
        assert row.endswith(SHOWN["worse-within-the-margin"]) and text.startswith("PASS")
    else:
        assert (effect.comparison.verdict, effect.gate.verdict) == (Effect.UNDECIDED, Verdict.REGRESSED)
        assert row.endswith(SHOWN["regressed-one-sided"]) and text.startswith("REGRESSED")
        assert SHOWN["theta-2-npz-b-is-worse"] in text


def test_compare_on_a_scope_with_axes_is_of_its_cells(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "digits.gin").write_text(
        'grid/Case.axes = {"horizon": [10, 20]}\ngrid/Case.task = @Quadratic()\ngrid/Case.num_inner_steps = %horizon\n'
    )
    cells = {"own/digits.grid-horizon10", "own/digits.grid-horizon20"}
    assert _names_by_case(["grid"], specs_called(["grid"], tmp_path / "own")) == {"grid": {"grid", *cells}}
    assert _names_by_case(["grid"], []) == {"grid": {"grid"}}

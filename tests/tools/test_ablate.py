"""`lobench ablate`: its search on planted knobs, and real optimizers of which one setting matters."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import Done
from commands import lobench_here as lobench
from shown import texts_of
from tiny import ONE_CASE, killed_chief, make_suite

from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.analysis.store.snapshot import read_store
from lobench.core.errors import LobenchError, UsageError
from lobench.core.subject import GivenCheckpoint, Subject, Variant
from lobench.tools.ablate.change_search import AblateRules, KnobSearch, KnobSubset, Need, search_changes
from lobench.tools.ablate.knobs import differing_knobs

SHOWN = texts_of("ablate")


class Planted:
    """A lab whose true scores are given; each configuration may be asked for more seeds, and for as many once."""

    def __init__(self, score: Callable[[KnobSubset], float], noise: float = 0.03, seed: int = 1) -> None:
        self.score, self.noise, self.rng = score, noise, np.random.default_rng(seed)
        self.asked: list[tuple[KnobSubset, int]] = []
        self.scores: dict[KnobSubset, np.ndarray] = {}

    def evaluate(self, wanted: Sequence[KnobSubset], seeds: int) -> None:
        self.asked += [(one, seeds) for one in wanted]
        for one in wanted:
            self.scores.setdefault(one, self.score(one) + self.rng.normal(0, self.noise, (3, 64)))

    def samples(self, a: KnobSubset, b: KnobSubset, seeds: int) -> Mapping[str, Samples]:
        pairs = zip(self.scores[a][:, :seeds].tolist(), self.scores[b][:, :seeds].tolist(), strict=True)
        return {str(case): Samples(a=tuple(x), b=tuple(y)) for case, (x, y) in enumerate(pairs)}


def search(score: Callable[[KnobSubset], float], knobs: int = 10) -> KnobSearch:
    lab = Planted(score)
    found = search_changes(knobs, lab, AblateRules())
    assert len(lab.asked) == len(set(lab.asked))
    assert found.seeds == sum(max(n for one, n in lab.asked if one == each) for each in lab.scores)
    return found


def test_three_of_ten_knobs_are_found_for_a_part_of_the_factorials_cost() -> None:
    found = search(lambda s: 0.3 * (1 in s) + 0.2 * (4 in s) + 0.15 * (9 in s))
    assert found.smallest == found.forward == {1, 4, 9} and found.forward_is_equivalent
    assert found.effects[4].alone.mean == pytest.approx(0.2, abs=0.04) and found.effects[
        9
    ].without.mean == pytest.approx(-0.15, abs=0.04)
    assert found.effects[0].alone.lower < 0 < found.effects[0].alone.upper and found.seeds < 0.1 * 2**10 * 8
    assert not [one for one in found.interactions if one.p_holm < 0.01]


def test_knobs_that_act_together_are_found_from_b_alone_and_said() -> None:
    found = search(lambda s: 0.3 * ({0, 1} <= s) + 0.2 * (2 in s), knobs=5)
    assert found.smallest == {0, 1, 2}
    (one,) = [one for one in found.interactions if one.p_holm < 0.01]
    assert one.pair == (0, 1) and one.worth.mean == pytest.approx(0.3, abs=0.05)


def test_what_is_not_needed_is_not_kept_and_what_hurts_is() -> None:
    assert search(lambda s: 0.001 * len(s)).smallest == frozenset()
    # Without knob 1 it is better than B, and so not equivalent to it.
    assert search(lambda s: 0.3 * (0 in s) - 0.2 * (1 in s), knobs=4).smallest == {0, 1}


class OneCase(Planted):
    def samples(self, a: KnobSubset, b: KnobSubset, seeds: int) -> Mapping[str, Samples]:
        return {"0": super().samples(a, b, seeds)["0"]}


def test_knobs_without_effect_are_not_called_needed_and_few_seeds_leave_them_open() -> None:
    answers = []
    for seed in range(20):
        lab = OneCase(lambda s: 0.0, noise=0.06, seed=seed)  # 32 seeds rarely show equivalence
        answers += [effect.needed for effect in search_changes(6, lab, AblateRules()).effects]
    assert Need.NEEDED not in answers and {Need.OPEN, Need.NOT_NEEDED} == set(answers)


def test_knobs_with_an_effect_are_needed_and_the_others_are_not() -> None:
    found = search_changes(6, Planted(lambda s: 0.3 * (1 in s) + 0.2 * (4 in s), seed=3), AblateRules())
    assert {knob for knob, effect in enumerate(found.effects) if effect.needed is Need.NEEDED} == {1, 4}
    assert found.harmful == frozenset()


def test_knob_that_differs_beyond_the_margin_at_few_seeds_is_tested_for_its_need_on_more() -> None:
    answers = []
    for seed in range(20):
        lab = OneCase(lambda s: 0.3 * (0 in s), noise=0.08, seed=seed)
        answers.append(search_changes(6, lab, AblateRules()).effects[0].needed)
    assert {*answers} == {Need.NEEDED}


def test_a_knob_that_makes_b_worse_is_named() -> None:
    found = search_changes(4, Planted(lambda s: 0.1 * (0 in s) - 0.4 * (2 in s), seed=3), AblateRules())
    assert found.harmful == {2} and found.whole.upper < 0


def test_harm_within_the_margin_is_not_named() -> None:
    lab = Planted(lambda s: 0.3 * (0 in s) - 0.02 * (2 in s), noise=0.002)
    found = search_changes(3, lab, AblateRules())
    assert found.effects[2].alone.upper < 0 and found.harmful == frozenset()


def test_a_configuration_that_diverges_more_often_is_not_equivalent() -> None:
    class Diverging(Planted):
        def evaluate(self, wanted: Sequence[KnobSubset], seeds: int) -> None:
            super().evaluate(wanted, seeds)
            for one in wanted:
                if 2 not in one:
                    self.scores[one][:, ::8] = DIVERGED

    assert search_changes(4, Diverging(lambda s: 0.0), AblateRules()).smallest == {2}


def test_where_b_diverges_everywhere_there_is_nothing_to_find() -> None:
    with pytest.raises(LobenchError, match=SHOWN["no-seed-converges-with-both"]):
        search(lambda s: DIVERGED if 0 in s else 0.0, knobs=3)


def test_what_two_subjects_differ_in() -> None:
    a = Subject.of_optimizer("adam(); adam.learning_rate = 0.01; adam.eps = 1e-08; adam.b2 = 0.9")
    b = Subject.of_optimizer("adam(); adam.eps = 1e-8; adam.learning_rate = 0.1; adam.b1 = 0.5")
    knobs = differing_knobs(a, b)
    assert [(one.path, one.a_text, one.b_text) for one in knobs.knobs] == [
        ("adam.learning_rate", "0.01", "0.1"),
        ("adam.b2", "0.9", SHOWN["its-default"]),
        ("adam.b1", SHOWN["its-default"], "0.5"),
    ]
    assert knobs.configuration(KnobSubset()).variant == Variant(
        bindings=("Case.optimizer = @adam()", "adam.learning_rate = 0.01", "adam.eps = 1e-08", "adam.b2 = 0.9"),
        trainer_config="",
    )
    every = knobs.configuration(KnobSubset({0, 1, 2}))
    assert isinstance(every, Subject) and every.is_optimizer and every.sha256 != a.sha256
    assert set(every.variant.bindings) == {
        *b.variant.bindings[:1],
        "adam.eps = 1e-08",
        "adam.learning_rate = 0.1",
        "adam.b1 = 0.5",
    }
    (_, _, third) = differing_knobs(a, b, lambda binding: "None").knobs
    assert (third.a, third.a_text) == ("", SHOWN["its-default-3"])
    (_, _, third) = differing_knobs(a, b, lambda binding: "0.7").knobs
    assert (third.a, third.a_text, third.b) == ("adam.b1 = 0.7", SHOWN["its-default-2"], "adam.b1 = 0.5")
    theta = GivenCheckpoint(uri="t.npz", variant=Variant(bindings=("X.a = 1",)))
    other = GivenCheckpoint(uri="t.npz", variant=Variant(bindings=("X.a = 2",)))
    assert differing_knobs(theta, other).configuration(KnobSubset({0})).variant.bindings == ("X.a = 2",)
    for one, two, output in (
        (a, Subject.of_optimizer("sgd(); sgd.learning_rate = 1"), SHOWN["use-different-functions"]),
        (a, theta, SHOWN["differ-in-more-than-bindings"]),
        (a, a, SHOWN["differ-in-nothing"]),
    ):
        with pytest.raises(UsageError, match=output):
            differing_knobs(one, two)


def test_a_bound_default_is_no_setting_that_differs() -> None:
    a = Subject.of_optimizer("adam(); adam.learning_rate = 0.01")
    b = Subject.of_optimizer("adam(); adam.learning_rate = 0.1; adam.b1 = 0.9")
    knobs = differing_knobs(a, b, lambda binding: "0.9")
    assert (knobs.bound_defaults, [one.path for one in knobs.knobs]) == (("adam.b1",), ["adam.learning_rate"])
    with pytest.raises(UsageError, match=SHOWN["adam-b1-a-and-b"]):
        differing_knobs(Subject.of_optimizer("adam(); adam.b1 = 0.9"), Subject.of_optimizer("adam()"), lambda _: "0.9")


A = "adam(); adam.learning_rate = 0.001; adam.eps = 1e-8"
B = "adam(); adam.learning_rate = 0.1; adam.eps = 2e-8; adam.b2 = 0.9991"


def ablate(suite: Path, *options: str) -> Done:
    return lobench("ablate", A, B, "--suite", suite, "--workers", "1", "--seeds", "8", "--format", "json", *options)


def test_the_setting_that_matters_is_found_after_a_kill_too_and_nothing_is_trained_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = make_suite(tmp_path)
    monkeypatch.chdir(tmp_path)
    killed = killed_chief(40, 1, "ablate", A, B, "--suite", suite, "--executor", "inline", "--seeds", "8")
    assert killed.returncode == -9, killed.stderr
    store = tmp_path / ".lobench" / "ablate" / "tiny"
    before = {row.key: row.recorded_at for row in read_store(store).rows}
    done = ablate(suite)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["smallest"] == record["forward"] == ["adam.learning_rate"]
    assert record["command"].endswith("--seeds 8")
    assert [one["path"] for one in record["knobs"]] == ["adam.learning_rate", "adam.eps", "adam.b2"]
    assert record["knobs"][0]["alone"]["mean"] > 0.5 and record["knobs"][0]["steps"] < 1
    assert abs(record["knobs"][1]["alone"]["mean"]) < 0.01
    rows = read_store(store).rows
    after = {row.key: row.recorded_at for row in rows}
    assert 0 < len(before) < len(after) == len(rows) and before.items() <= after.items()
    # Real values are arguments of the program: each case has one.
    assert len({row.case.program_key for row in rows}) == 2
    assert json.loads(ablate(suite).stdout) == record
    again = lobench("ablate", A, f"{B}; adam.b1 = 0.9", "--suite", suite, "--workers", "1", "--seeds", "8")
    assert again.returncode == 0 and {row.key: row.recorded_at for row in read_store(store).rows} == after
    assert re.search(r"^ ?adam.learning_rate +0.001 +0.1 .*yes$", again.stdout, re.M), again.stdout
    assert again.stdout.startswith(SHOWN["needed-adam-learning-rate-a"])
    assert SHOWN["adam-b1-bound-to-the"] in again.stdout


def test_settings_of_one_group_change_together() -> None:
    a = Subject.of_optimizer("adam(); adam.b1 = 0.9")
    b = Subject.of_optimizer("sgd(); adam.b1 = 0.9; adam.b2 = 0.8; sgd.learning_rate = 0.1")
    call, b2 = differing_knobs(a, b, groups=[("Case.optimizer", "sgd.learning_rate"), ("adam.b2",)]).knobs
    assert (call.path, call.a) == (SHOWN["case-optimizer-sgd-learning-rate"], "Case.optimizer = @adam()")
    assert (call.b, call.b_text) == ("Case.optimizer = @sgd(); sgd.learning_rate = 0.1", "@sgd(), 0.1")
    both = differing_knobs(a, b, groups=[("Case.optimizer", "sgd.learning_rate"), ("adam.b2",)]).configuration(
        KnobSubset({0})
    )
    lines = ("Case.optimizer = @sgd()", "adam.b1 = 0.9", "sgd.learning_rate = 0.1")
    assert both.variant.bindings == lines and both.label == SHOWN["case-optimizer-sgd-learning-rate-2"]
    assert b2.b == "adam.b2 = 0.8"
    with pytest.raises(UsageError, match=SHOWN["knob-changes-nothing-got-adam"]):
        differing_knobs(a, b, groups=[("adam.b2",), ("adam.b1",)])


GENTLE = """
import lobench, optax

@lobench.configurable
def gentle(learning_rate=0.001, power=1.0, decay=0.0):
    return optax.chain(optax.add_decayed_weights(decay), optax.sgd(learning_rate * power))
"""
LISTED = """
import beside
Experiment.suites = ["../tiny/tiny.gin"]
Experiment.num_sessions = 4
Experiment.first_session = 100
plain/Method.optimizer = @gentle()
plain/Method.knobs = ["gentle.learning_rate = 0.05; gentle.power = 2.0", "gentle.decay = 1e-6"]
tuned/Method.optimizer = @gentle()
tuned/gentle.learning_rate = 0.1
tuned/gentle.decay = 1e-6
"""


def test_an_experiment_lists_what_is_ablated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_suite(tmp_path, "import tiny_tasks\nCase.num_inner_steps = 10\nCase.num_seeds = 2\na/Case.task = @Bowl()\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "beside.py").write_text(GENTLE)
    (tmp_path / "elsewhere" / "listed.gin").write_text(LISTED)
    monkeypatch.chdir(tmp_path)
    done = lobench("ablate", "elsewhere/listed.gin", "--workers", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    together = "gentle.learning_rate, gentle.power"
    assert (record["a"], record["b"]) == ("plain", SHOWN["plain-with-its-knobs"])
    assert record["smallest"] == record["forward"] == [together]
    unlike = {"alone": 0, "without": 0, "steps": 0}
    assert record["knobs"][0] | unlike == {
        "path": together,
        "a": "gentle.learning_rate = 0.001; gentle.power = 1.0",
        "b": "gentle.learning_rate = 0.05; gentle.power = 2.0",
        "in_smallest": True,
        "needed": "needed",
        "harmful": False,
        "in_forward": True,
        **unlike,
    }
    assert record["knobs"][0]["alone"]["mean"] > 0.5 and abs(record["knobs"][1]["alone"]["mean"]) < 0.01
    rows = read_store(tmp_path / ".lobench" / "ablate" / "listed").rows
    assert {row.key.seed_block.seeds for row in rows} == {range(100, 104)} and len(rows) == 4
    # Defaults of the module beside the file are bound too, so that all of them are one program.
    assert len({row.case.program_key for row in rows}) == 1
    assert json.loads(lobench(*shlex.split(record["command"])[1:], "--format", "json").stdout) == record
    done = lobench("ablate", "elsewhere/listed.gin", "--method", "tuned", "--method", "plain", "--workers", "1")
    assert done.returncode == 0 and re.search(r"^ ?gentle.learning_rate +0.1 +0.001 .*yes$", done.stdout, re.M), done
    assert done.stdout.rstrip().endswith(SHOWN["again-lobench-ablate-elsewhere-listed"])


def test_what_cannot_be_ablated_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = make_suite(tmp_path, ONE_CASE)
    monkeypatch.chdir(tmp_path)
    done = lobench("ablate", A, "sgd(); sgd.learning_rate = 0.1", "--suite", suite)
    assert done.returncode == 2 and SHOWN["lobench-case-optimizer-a-and"] in done.stderr, done.stderr
    done = lobench("ablate", A, f"{A}; Bowl.dim = 4", "--suite", suite, "--workers", "1", "--seeds", "4")
    assert done.returncode == 2 and SHOWN["setting-changes-the-case-not"] in done.stderr
    done = lobench("ablate", A, "adam(); adam.learning_rte = 0.1", "--suite", suite, "--workers", "1")
    assert done.returncode == 2 and "learning_rte" in done.stderr and done.stderr.count("Traceback") == 0


def test_what_an_experiment_does_not_list_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_suite(tmp_path)
    monkeypatch.chdir(tmp_path)
    methods = "".join(f"{name}/Method.optimizer = @adam()\n" for name in "abc")
    text = f'Experiment.suites = ["tiny"]\n{methods}x/Method.command = "python {{folder}}"\n'
    (tmp_path / "x.gin").write_text(text)
    (tmp_path / "two.gin").write_text(text + 'a/Method.knobs = ["adam.b1 = 0.5"]\nb/Method.knobs = ["adam.b1 = 0.5"]\n')
    for words, output in {
        "x.gin": SHOWN["x-gin-an-ablation-is"],
        "two.gin": SHOWN["of-one-that-has-knobs-2"],
        "x.gin --method a": SHOWN["of-one-that-has-knobs"],
        "x.gin --method a --method d": SHOWN["unknown-method-d"],
        "x.gin --method a --method a": SHOWN["a-and-b-differ-in"],
        "x.gin --method a --method x": SHOWN["method-x-is-not-ablated"],
        "x.gin --method a --method b --gin-param Experiment.num_sessions=3": SHOWN["experiment-num-sessions-got-3"],
        "x.gin --suite tiny": SHOWN["x-gin-an-experiment-names"],
        "none.gin": SHOWN["none-gin-cannot-read-the"],
        "tiny": SHOWN["b-is-missing-got-tiny"],
        "sgd() --suite tiny": SHOWN["b-is-missing-got-sgd"],
        "adam() sgd()": SHOWN["an-ablation-needs-a-suite"],
        "adam() sgd() --suite tiny --method a": SHOWN["method-is-of-an-experiment"],
    }.items():
        done = lobench("ablate", *words.split(" "))
        assert done.returncode == 2 and output in done.stderr and done.stderr.count("\n") == 1, (words, done)

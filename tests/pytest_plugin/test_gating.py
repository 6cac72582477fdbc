"""`pytest SUITE --lobench-against REF`: PASS, REGRESSED, INCONCLUSIVE, with real checkpoints, stores and baselines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from commands import lobench_here, pytest_session
from forked import python
from shown import texts_of
from stores import add, case_info
from tiny import GIN, TASKS, content, make_run, make_suite, results

from lobench.core.case import CaseSpec, SeedBlock
from lobench.engine.store.ledger import Ledger
from lobench.evaluation.request import ThetaLeaves
from lobench.pytest_plugin.references import _store_reference

SHOWN = texts_of("pytest")

# Its sessions run in one fixture, which beside eight busy processes takes minutes.
pytestmark = pytest.mark.timeout(900)

GOOD, BAD, HARMFUL = "theta_1.npz", "theta_2.npz", "theta_3.npz"


DRIVER = """
import contextlib, io, json, sys
import pytest
found = {}
for name, arguments in json.load(open(sys.argv[1])).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = pytest.main(arguments)
    found[name] = [int(code), out.getvalue(), err.getvalue()]
json.dump(found, sys.stdout)
"""

HEIGHT = """
from lobench.hookspecs import Declaration

def lobench_metrics():
    return [Declaration(name="height", factory=":height")]

def height(curves):
    return {"train/height": curves.final("train/loss")}
"""

# On a quadratic bowl all seeds shrink by one factor, so that two seeds decide; on this one they do not.
DISH = """
@configurable
class Dish(Bowl):
    def loss(self, params, key, data):
        return jnp.sum(params**2 + 0.2 * params**4)
"""
EXPERIMENT = f"""
Experiment.suites = ["tiny"]
good/Method.checkpoint = "run/{GOOD}"
good/Method.label = "Good one"
plain/Method.optimizer = @sgd()
plain/sgd.learning_rate = 0.1
"""
MARGIN = ("--lobench-margin", "0.65")
ONE = ("-k", "test_tiny[b]")
INTO_BASE = ("--lobench-store", "RUNS/base/store", "-v")
# These sessions differ from an earlier one only in their reference, so they reuse its results.
REUSED = ("--lobench-store", "RUNS/store/store", "--lobench-reuse")
ADAPTIVE = (*MARGIN, "--lobench-adaptive-seeds", "32")
# checkpoint, reference (STORE: a folder made by an earlier scenario), options
SCENARIOS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "same": (GOOD, f"run/{GOOD}", ("-v",)),
    "harmful": (HARMFUL, f"run/{GOOD}", ()),
    # A store that the session's own checkpoint is written into.
    "base": (GOOD, f"run/{GOOD}", ()),
    "first call": (HARMFUL, "STORE base", INTO_BASE),
    "second call": (HARMFUL, "STORE base", INTO_BASE),
    "another candidate": (BAD, "STORE base", INTO_BASE),
    "last": (HARMFUL, "last", (*INTO_BASE, "--lobench-reuse")),
    "step of both": (HARMFUL, f"STORE base@{GOOD}", (*INTO_BASE, "--lobench-reuse")),
    "unclear": (BAD, f"run/{GOOD}", (*MARGIN, *ONE)),
    "seed means": (GOOD, f"run/{GOOD}", ("--lobench-seed-means",)),
    "strict": (BAD, f"run/{GOOD}", (*MARGIN, *ONE, "--lobench-strict")),
    "adaptive": (BAD, f"run/{GOOD}", ADAPTIVE),
    "xdist": (BAD, f"run/{GOOD}", (*ADAPTIVE, "-n", "2")),
    "store": (HARMFUL, "STORE same", ()),
    "store, adaptive": (GOOD, f"STORE same@{GOOD}", ADAPTIVE),
    "alone": (GOOD, "STORE same", ()),
    "file's name": (HARMFUL, f"STORE harmful@{GOOD}", REUSED),
    "label": (HARMFUL, "experiment@Good one", REUSED),
    "scope": (HARMFUL, "experiment@good", REUSED),
    "text": (HARMFUL, "experiment@sgd(); sgd.learning_rate = 0.1", REUSED),
    "no such name": (HARMFUL, "STORE same@theta_9.npz", ()),
    "other case": (GOOD, "STORE unclear", ()),
    "fewer seeds": (GOOD, "STORE harmful@theta_3.npz", (*ONE, "--lobench-gin-param", "Case.num_seeds = 4")),
    "own margin": (
        HARMFUL,
        f"run/{GOOD}",
        ("--lobench-gin-param", "a/expect.margin = 3", "--lobench-gin-param", "Case.num_seeds = 3"),
    ),
    "baseline": (HARMFUL, "baseline", REUSED),
    "baseline by name": (HARMFUL, "baseline:adam", REUSED),
    "baseline file": (HARMFUL, "tiny/baselines/adam-velo.json", REUSED),
    "stale": (GOOD, f"run/{GOOD}", ("--lobench-gin-param", "Bowl.dim = 7", "--lobench-gin-param", "Dish.dim = 7")),
    "nothing in common": (GOOD, "STORE unclear", ("-k", "test_tiny[a]")),
    "one case lost": (GOOD, f"run/{GOOD}", ("--lobench-gin-param", "b/Case.learned_optimizer = @AdafacMLPLOpt()")),
    "optimizer": (HARMFUL, "sgd(); sgd.learning_rate = 0.1", ("-v",)),
    "optimizer, more seeds": (
        HARMFUL,
        "sgd(learning_rate=0.1)",
        (*ONE, "--lobench-store", "RUNS/optimizer/store", "--lobench-gin-param", "Case.num_seeds = 6"),
    ),
    "same optimizer": ("", "sgd(); sgd.learning_rate = 0.1", ("--lobench-optimizer", "sgd(); sgd.learning_rate = 0.1")),
    "another optimizer": ("", "sgd()", ("--lobench-optimizer", "sgd(); sgd.learning_rate = 1e-6")),
    "undeclared": (GOOD, f"run/{GOOD}", (*ONE, "--lobench-gin-param", "Case.primary_metric = 'train/height'")),
    "other scale": (GOOD, f"run/{GOOD}", (*ONE, "--lobench-gin-param", "Case.scale = 'linear'")),
    "no reference": (GOOD, "nowhere.npz", ()),
    "no number": (GOOD, f"run/{GOOD}", ("--lobench-margin", "much")),
    "out of range": (GOOD, f"run/{GOOD}", ("--lobench-alpha", "1")),
}


@dataclass(frozen=True)
class Done:
    """A pytest session with a gate."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def verdicts(self) -> dict[str, tuple[str, str]]:
        return verdicts(self.folder / "junit.xml")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """Runs every scenario, one after another in one process: most of a session is the import of jax."""
    folder = tmp_path_factory.mktemp("place")
    suite = make_suite(folder, GIN.replace("b/Case.task = @Bowl()\nb/Bowl", "b/Case.task = @Dish()\nb/Dish"))
    (suite / "tiny_tasks.py").write_text(TASKS + DISH)
    (suite / "conftest.py").write_text(HEIGHT)
    make_run(folder, -2.0, -2.9, -9.0)
    done = lobench_here("baseline", suite.name, "--horizon-factor", "1", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "x.gin").write_text(EXPERIMENT)
    done = lobench_here("run", "x.gin", "--store", "experiment", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    arguments = {}
    for name, (checkpoint, against, options) in SCENARIOS.items():
        own = folder / "runs" / name
        place, _, called = against.removeprefix("STORE ").partition("@")
        stored = f"{folder / 'runs' / place / 'store'}{'@' if called else ''}{called}"
        reference = stored if against.startswith("STORE ") else against
        options = tuple(word.replace("RUNS", str(folder / "runs")) for word in options)
        arguments[name] = ["tiny", "--rootdir", str(folder), "-p", "no:cacheprovider", "-p", "no:randomly"]
        arguments[name] += ["--lobench-checkpoint", f"run/{checkpoint}"] if checkpoint else []
        arguments[name] += ["--lobench-store", str(own / "store")]
        arguments[name] += ["--lobench-against", reference, f"--junitxml={own / 'junit.xml'}", *options]
    (folder / "arguments.json").write_text(json.dumps(arguments))
    ran = python("-c", DRIVER, "arguments.json", cwd=folder, env={**os.environ, "NPROC": "1"})
    assert ran.returncode == 0, ran.stderr
    return {name: Done(*values, folder / "runs" / name) for name, values in json.loads(ran.stdout).items()}


def verdicts(junit: Path) -> dict[str, tuple[str, str]]:
    """Returns verdict and element (failure, skipped or passed) of each test of the gate."""
    found = {}
    for test in ET.parse(junit).iter("testcase"):
        values = {p.get("name"): p.get("value") for p in test.iter("property")}
        if "lobench_gate" in values:
            (kind,) = [child.tag for child in test if child.tag != "properties"] or ["passed"]
            found[test.get("name", "")] = (values["lobench_gate"] or "", kind)
    return found


def test_a_checkpoint_against_itself_passes(runs: dict[str, Done]) -> None:
    done = runs["same"]
    assert done.code == 0, done.out + done.err
    names = ("gate[tiny/a]", "gate[tiny/b]", "gate[mean over the cases]")
    assert done.verdicts() == dict.fromkeys(names, ("PASS", "passed"))
    assert "5 passed" in done.out and "gate[tiny/a] PASS" in done.out and "[100%]" in done.out


def test_a_useless_checkpoint_regressed_and_the_reference_is_recorded(runs: dict[str, Done]) -> None:
    done = runs["harmful"]
    assert done.code == 1, done.out + done.err
    assert done.verdicts()["gate[mean over the cases]"] == ("REGRESSED", "failure")
    recorded = {record["checkpoint"]["uri"].rsplit("/", 1)[-1] for record in results(done.store)}
    assert recorded == {GOOD, HARMFUL}


def test_seed_means_take_all_cases_as_one_group(runs: dict[str, Done]) -> None:
    assert SHOWN["cases-in-one-group-of"] in runs["seed means"].out
    assert SHOWN["cases-in-one-group"] not in runs["same"].out


def test_inconclusive_is_a_category_and_fails_only_when_strict(runs: dict[str, Done]) -> None:
    done, strict = runs["unclear"], runs["strict"]
    assert done.code == 0, done.out + done.err
    assert "1 passed, 1 deselected, 1 inconclusive" in done.out
    assert SHOWN["seeds-would-decide"] in (done.folder / "junit.xml").read_text()
    assert done.verdicts() == {"gate[tiny/b]": ("INCONCLUSIVE", "skipped")}
    assert strict.code == 1 and "1 failed, 1 passed" in strict.out
    assert strict.verdicts() == {"gate[tiny/b]": ("INCONCLUSIVE", "failure")}


def test_adaptive_seeds_decide_and_xdist_says_the_same(runs: dict[str, Done]) -> None:
    alone, spread = runs["adaptive"], runs["xdist"]
    assert alone.code == spread.code == 1, alone.out + spread.out
    assert alone.verdicts() == spread.verdicts()
    assert alone.verdicts()["gate[tiny/b]"] == ("REGRESSED", "failure")
    blocks = {tuple(r["seeds"]) for r in results(alone.store) if r["case"]["name"] == "b"}
    assert len(blocks) > 1, "no seed block was added"
    assert content(alone.store) == content(spread.store)


def test_mean_over_cases_with_different_numbers_of_seeds_names_both_numbers(runs: dict[str, Done]) -> None:
    lines = [line for line in runs["adaptive"].out.splitlines() if " 4 to 16 " in line]
    starts = {line.split()[0] for line in lines}  # of the headline, the table's row and the short summary
    assert starts == {"REGRESSED:", "mean", "REGRESSED"}, runs["adaptive"].out


def test_a_case_may_have_a_margin_of_its_own(runs: dict[str, Done]) -> None:
    assert runs["own margin"].verdicts()["gate[tiny/a]"] == ("PASS", "passed"), runs["own margin"].out
    assert runs["harmful"].verdicts()["gate[tiny/a]"] != ("PASS", "passed")
    assert re.search(r"^mean .* 1\.52 ", runs["own margin"].out, re.MULTILINE), "the mean's is the mean of both"


def test_a_store_is_a_reference(runs: dict[str, Done]) -> None:
    done, same = runs["store"], runs["store, adaptive"]
    assert done.code == 1 and "REGRESSED" in done.out, done.out + done.err
    assert same.code == 0 and "5 passed" in same.out, same.out + same.err


@pytest.mark.parametrize("name", ["second call", "last", "step of both"])
def test_a_gate_called_again_has_the_same_reference_and_verdict(runs: dict[str, Done], name: str) -> None:
    first, again = runs["first call"], runs[name]
    assert first.code == again.code == 1, again.out + again.err
    assert first.verdicts() == again.verdicts() and "REGRESSED" in dict(first.verdicts().values())
    named = [re.findall(rf"{GOOD} \(sha256 [0-9a-f]{{12}}\)", done.out) for done in (first, again)]
    assert named[0] and named[0] == named[1], again.out


def test_a_candidate_that_regressed_is_not_the_next_reference(runs: dict[str, Done]) -> None:
    assert f"against {GOOD} (sha256" in runs["another candidate"].out, runs["another candidate"].out


def test_a_store_that_holds_the_candidate_alone_is_refused(runs: dict[str, Done]) -> None:
    done = runs["alone"]
    assert done.code == 4 and len(done.err.strip().splitlines()) == 1, done.out + done.err
    assert SHOWN["candidate-alone"] in done.err


def test_a_bare_name_is_looked_up_in_the_store_that_the_session_writes_into(runs: dict[str, Done]) -> None:
    by_store = runs["label"]
    folder, store = by_store.folder.parents[1], by_store.folder.parents[1] / "beside"
    shutil.copytree(folder / "experiment", store)

    def gate(checkpoint: str, against: str) -> subprocess.CompletedProcess[str]:
        words = ["-m", "pytest", "tiny", "-p", "no:cacheprovider", "--lobench-store", str(store)]
        words += ["--lobench-checkpoint", f"run/{checkpoint}", "--lobench-against", against]
        words += [f"--junitxml={folder / 'bare.xml'}"]
        return python(*words, cwd=folder)

    harmed = gate(HARMFUL, "Good one")
    assert harmed.returncode == 1, harmed.stdout + harmed.stderr
    assert verdicts(folder / "bare.xml") == by_store.verdicts()
    assert HARMFUL in {record["checkpoint"]["uri"].rsplit("/", 1)[-1] for record in results(store)}
    unknown = gate(HARMFUL, "Good two")
    assert unknown.returncode == 4 and "Good two" in unknown.stderr and "Good one" in unknown.stderr, unknown.stderr
    assert len(unknown.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["file's name", "label", "scope", "text"])
def test_a_name_in_a_store_is_a_reference(runs: dict[str, Done], name: str) -> None:
    done = runs[name]
    assert done.code == 1 and "REGRESSED" in done.out, done.out + done.err
    if name != "text":  # the same subject, by whatever name
        assert done.verdicts() == runs["harmful"].verdicts()


@pytest.mark.parametrize("sizes", [(8, 4), (4, 8)])
def test_a_store_has_every_seed_of_a_problem(tmp_path: Path, sizes: tuple[int, int]) -> None:
    """A case that got more seeds is another case of the same problem; the store holds both."""
    for identity, size in zip("xy", sizes, strict=True):
        values = [0.5 + seed / 100 for seed in range(size)]
        add(tmp_path, 1, {"a": {"train/loss": values}}, identities={"a": identity})
    reference, info, block = _store_reference(tmp_path), case_info("a"), SeedBlock(start=0, size=8)
    found = reference.final_values(CaseSpec(path="", scope="a", root=""), info, [block], no_training)
    assert sorted(found.metrics["train/loss"]) == list(range(8))


def no_training(theta: ThetaLeaves, block: SeedBlock) -> NoReturn:
    raise AssertionError


def test_a_store_without_the_case_or_with_fewer_seeds_notes_so(runs: dict[str, Done]) -> None:
    assert runs["other case"].code == 0 and SHOWN["no-common-seed"] in runs["other case"].out, runs["other case"].out
    fewer = runs["fewer seeds"]
    assert SHOWN["of-4-seeds-count"] in fewer.out and SHOWN["a-lacks-2"] in fewer.out, fewer.out
    assert fewer.verdicts()["gate[tiny/b]"][0] == "INCONCLUSIVE"


def test_a_gate_that_compared_nothing_has_the_exit_code_of_an_error(runs: dict[str, Done]) -> None:
    done = runs["nothing in common"]
    assert done.code == 3 and done.verdicts() == {"gate[tiny/a]": ("INCONCLUSIVE", "skipped")}, done.out + done.err
    assert SHOWN["nothing-was-compared"] in done.out


def test_a_gate_with_a_case_without_a_result_does_not_pass(runs: dict[str, Done]) -> None:
    done = runs["one case lost"]
    assert done.code == 1 and done.verdicts()["gate[tiny/b]"] == ("INCONCLUSIVE", "skipped"), done.out + done.err
    assert done.verdicts()["gate[mean over the cases]"][0] == "INCONCLUSIVE", done.out
    assert SHOWN["no-result-error"] in done.out


@pytest.mark.parametrize("name", ["baseline", "baseline by name", "baseline file"])
def test_a_baseline_is_a_reference(runs: dict[str, Done], name: str) -> None:
    assert runs[name].code == 1 and "REGRESSED" in runs[name].out, runs[name].out + runs[name].err


def test_a_stale_baseline_is_an_error_that_names_the_command(runs: dict[str, Done]) -> None:
    done = runs["stale"]
    assert done.code == 4
    assert "stale" in done.out + done.err and SHOWN["lobench-baseline-tiny"] in done.out + done.err
    assert SHOWN["error-tiny-a-tiny-b"] in done.out + done.err


def test_a_gate_does_not_guess_which_way_a_metric_is_better(runs: dict[str, Done]) -> None:
    done = runs["undeclared"]
    assert done.code == 1 and SHOWN["tiny-b-the-direction-of"] in done.out, done.out
    assert 'metric_directions = {"height": "max"}' in done.out and not done.verdicts()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no reference", SHOWN["no-such-reference"]),
        ("no such name", SHOWN["no-file-theta-9"]),
        ("no number", SHOWN["lobench-margin-got-much-expected"]),
        ("out of range", "--lobench-alpha"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_trained(runs: dict[str, Done], name: str, text: str) -> None:
    done = runs[name]
    assert done.code == 4 and text in done.err, done.out + done.err
    assert not done.store.exists()


def test_a_scale_that_the_baseline_does_not_know_yet_names_the_command(runs: dict[str, Done]) -> None:
    done = runs["other scale"]
    output = done.out + done.err
    assert done.code == 4 and SHOWN["scored-on-another-scale-than"] in output, output
    assert SHOWN["lobench-baseline"] in output and SHOWN["which-takes-seconds"] in output


def test_an_optimizer_is_trained_beside_the_candidate(runs: dict[str, Done]) -> None:
    done = runs["optimizer"]
    assert done.code == 1 and "REGRESSED" in done.out, done.out + done.err
    done = runs["same optimizer"]
    assert done.code == 0 and {verdict for verdict, _ in done.verdicts().values()} == {"PASS"}, done.out + done.err
    done = runs["another optimizer"]
    assert done.code == 1 and "REGRESSED" in done.out, done.out + done.err
    with contextlib.closing(Ledger.open(done.store, read_only=True)) as ledger:
        texts = {one.uri for row in ledger.evaluations() for one in row.sightings}
    assert texts == {"sgd()", "sgd(); sgd.learning_rate = 1e-6"}


def test_an_optimizer_is_trained_on_what_the_store_lacks_of_it(runs: dict[str, Done]) -> None:
    done = runs["optimizer, more seeds"]
    (row,) = [line for line in done.out.splitlines() if line.startswith("tiny/b ") and "REGRESSED" in line]
    assert " 6 " in row and "of 6 seeds" not in row, done.out + done.err


def test_the_margin_of_a_log_scale_is_shown_as_a_ratio(runs: dict[str, Done]) -> None:
    (row,) = [line for line in runs["same"].out.splitlines() if line.startswith("tiny/a ")][:1]
    assert "0.05  x1.14" in row, runs["same"].out


def test_the_verdict_is_kept_in_the_store(runs: dict[str, Done]) -> None:
    ledger = Ledger.open(runs["harmful"].store, read_only=True)
    ((_, event),) = ledger.events("gate")
    ledger.close()
    assert event["score_version"] == 2 and [case["margin"] for case in event["cases"]] == [0.05, 0.05]
    assert event["verdict"] == "REGRESSED" and event["overall"]["harm"] > event["margin"]


def test_a_margin_without_a_gate_is_refused(tmp_path: Path) -> None:
    done = python("-m", "pytest", "--lobench-margin", "0.1", cwd=tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--lobench-margin" in done.stderr and "--lobench-against" in done.stderr


def test_lines_of_the_gate_fit_the_terminal(
    runs: dict[str, Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = runs["same"].folder.parents[1]
    monkeypatch.setenv("COLUMNS", "80")
    options = ("-pno:cacheprovider", f"--lobench-checkpoint=run/{GOOD}", f"--lobench-store={tmp_path / 'store'}")
    done = pytest_session("tiny", f"--rootdir={folder}", *options, f"--lobench-against=run/{GOOD}", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    gate = done.stdout.partition(" lobench gate =")[2].partition("\n=")[0].splitlines()[1:]
    assert "alpha" in "".join(gate) and max(map(len, gate)) <= 80, done.stdout

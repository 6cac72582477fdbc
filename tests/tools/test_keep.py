"""`lobench keep`: the decision as a function of sums, and real scripts in real repositories."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import Done
from commands import lobench_here as lobench
from shown import texts_of
from tiny import results

from lobench.analysis.stats.racing import PairSums
from lobench.engine.store.database import StoreLock
from lobench.tools.keep.decision import DecisionRules, decide, log_evidence

SHOWN = texts_of("keep")

NO_SEEDS = PairSums.of(np.zeros((1, 0)), np.zeros((1, 0)))

# Noise is a hash of numbers: importing `random` and `json` would take as long as the rest of a run.
SCRIPT = """
import sys

lr = LR
seed, out = int(sys.argv[1]), sys.argv[2]
loss = 1 + (lr - 0.3) ** 2 + 0.003 * (hash((seed, lr)) % 1009 / 1009 - 0.5)
open(out + "/metrics.json", "w").write('{"val/loss": %r}' % loss)
"""
COMMAND = "python train.py {seed} {out}"
WORKERS = ("--workers", "8")  # four pairs in each round; inline, a round costs more than its runs


def sums(differences: list[float]) -> PairSums:
    return PairSums.of(np.array([differences]), np.zeros((1, len(differences))))


def answer(screen: PairSums, test: PairSums, **rules: float) -> str:
    found = decide(screen, test, DecisionRules(**{"level": 0.025, "max_seeds": 32, **rules}))  # type: ignore[arg-type]
    names = [name for name, holds in zip(("keep", "discard", "undecided"), found, strict=True) if holds]
    assert len(names) < 2
    return names[0] if names else "open"


def test_evidence_of_five_alike_pairs_is_half_the_bayes_factor() -> None:
    y = np.array([1.0, 1.2, 0.9, 1.1, 1.0])
    n, g = 5, 20.0
    rest = (y**2).sum() - n**2 * g / (1 + n * g) * y.mean() ** 2
    expected = -math.log(1 + n * g) / 2 + n / 2 * math.log((y**2).sum() / rest) - math.log(2)
    assert log_evidence(sums([*y])) == pytest.approx(expected)


def test_decision_needs_three_pairs_of_the_test_to_keep_whatever_the_screen_says() -> None:
    lucky = sums([5.0, 5.1, 5.2, 5.0, 4.9, 5.1])
    assert answer(lucky, NO_SEEDS) == "open"
    assert answer(lucky, sums([5.0, 5.1])) == "open"
    assert answer(NO_SEEDS, sums([5.0, 5.1, 5.2, 5.0, 4.9, 5.1])) == "keep"


def test_decision_of_a_worse_candidate_is_discard_by_the_screen_alone() -> None:
    assert answer(sums([-1.0, -1.1, -0.9]), NO_SEEDS) == "discard"


def test_decision_of_a_promising_candidate_without_budget_is_undecided() -> None:
    pairs = [0.6, -0.1, 0.7, 0.2, 0.5, -0.2, 0.9, 0.1]
    assert answer(NO_SEEDS, sums(pairs), max_seeds=8) == "undecided"
    assert answer(NO_SEEDS, sums(pairs), max_seeds=64) == "open"


def test_decision_of_a_candidate_that_diverges_is_discard_though_its_mean_is_better() -> None:
    a = np.array([[*[-math.inf] * 4, 5.0, 5.1, 5.2, 5.0, 4.9, 5.1]])
    assert answer(NO_SEEDS, PairSums.of(a, np.zeros((1, 10)))) == "discard"


def test_decision_of_a_candidate_that_diverges_less_is_keep_at_equal_means() -> None:
    b = np.array([[*[-math.inf] * 12, 0.0, 0.0]])
    assert answer(NO_SEEDS, PairSums.of(np.zeros((1, 14)), b)) == "keep"


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.email=a@example.org", "-c", "user.name=a")
    subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Repository with a script whose learning rate is 0.1; 0.3 is best."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT.replace("LR", "0.1"))
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    monkeypatch.chdir(folder)
    return folder


def keep(*options: str, command: str = COMMAND, against: str = "git:HEAD") -> Done:
    shared = ("--metric", "val_loss", "--curves", "{out}/metrics.json", "--executor", "inline")
    return lobench("keep", "--command", command, "--against", against, *shared, *WORKERS, *options)


def test_keep_answers_by_exit_code_and_runs_the_incumbent_once_on_shared_seeds(repository: Path) -> None:
    store = repository / ".lobench" / "keep"
    (repository / "train.py").write_text(SCRIPT.replace("LR", "0.3"))
    better = keep("--format", "json", "--description", "lr 0.3")
    assert better.returncode == 0, better.stderr
    record = json.loads(better.stdout)
    decision = record["decision"]
    assert decision["answer"] == "keep" and decision["difference"] == pytest.approx(0.04, abs=0.01)
    assert decision["e_value"] >= 1 / decision["level"] and decision["test"] == 1
    assert len(results(store)) == 2 * decision["pairs"]
    pairs = re.findall(r"^seed \d+: val_loss: candidate [\d.]+, incumbent [\d.]+$", better.stderr, re.MULTILINE)
    assert len(pairs) == decision["pairs"] and SHOWN["outer-step"] not in better.stderr

    again = keep()
    assert again.returncode == 0 and SHOWN["keep-decided-before"] in again.stdout
    assert len(results(store)) == 2 * decision["pairs"]

    assert keep("--description", "a higher rate").returncode == 0
    assert "a higher rate" in lobench("keep", "--log").stdout  # in place of the first description
    ranking = lobench("results", "--store", store)
    assert SHOWN["keep-log"] in ranking.stdout.splitlines()[0] and SHOWN["are-worse"] not in ranking.stdout

    partial = store / "keep/trees/.tmp-killed"  # a call that was killed while it copied leaves one
    partial.mkdir()
    (repository / "train.py").write_text(SCRIPT.replace("LR", "0.0"))
    worse = keep("--format", "json")
    assert not partial.exists()
    assert worse.returncode == 1, worse.stderr
    discarded = json.loads(worse.stdout)["decision"]
    assert (discarded["pairs"], discarded["fresh_pairs"], discarded["test"]) == (3, 0, 0)
    assert len(results(store)) == 2 * decision["pairs"] + 3  # the incumbent's are in the store

    log = json.loads(lobench("keep", "--log", "--format", "json").stdout)
    assert [one["answer"] for one in log["decisions"]] == ["keep", "discard"]
    assert (log["num_tests"], log["num_kept"]) == (1, 1)
    assert git_status(repository) == ["M train.py"]


def git_status(folder: Path) -> list[str]:
    done = subprocess.run(["git", "-C", folder, "status", "--short"], check=True, capture_output=True, text=True)
    return [line.strip() for line in done.stdout.splitlines()]


def test_keep_in_a_hook_compares_the_files_of_the_folder(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "train.py").write_text(SCRIPT.replace("LR", "0.0"))
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    done = keep()
    assert done.returncode == 1, done.stdout + done.stderr


def test_keep_of_two_commands_in_a_folder_without_git_is_undecided_with_few_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("LR", "float(sys.argv[3])"))
    monkeypatch.chdir(tmp_path)
    command = ("--command", f"{COMMAND} 0.3", "--against-command", f"{COMMAND} 0.25", *WORKERS)
    shared = ("--metric", "val_loss", "--curves", "{out}/metrics.json", "--executor", "inline", "--max-seeds", "3")
    done = lobench("keep", *command, *shared)
    assert done.returncode in (1, 4), done.stderr
    other = lobench("keep", *command, *shared, "--fdr", "0.2")
    assert other.returncode == 2 and SHOWN["all-decisions-of-a-store"] in other.stderr


def test_keep_refuses_wrong_input_in_one_line(repository: Path) -> None:
    same = keep()
    assert same.returncode == 2 and SHOWN["candidate-and-incumbent-are-the"] in same.stderr
    unknown = keep(against="git:nothere")
    assert unknown.returncode == 2 and SHOWN["no-such-revision-got-git"] in unknown.stderr
    seedless = keep(command="python train.py 0 {out}")
    assert seedless.returncode == 2 and SHOWN["command-has-no"] in seedless.stderr
    absolute = keep(command=f"python {repository}/train.py {{seed}} {{out}}")
    assert absolute.returncode == 2 and SHOWN["names-a-path-of-the-present"] in absolute.stderr
    piped = keep(command=f"{COMMAND} 2>&1 | tail")
    assert piped.returncode == 2 and SHOWN["is-not-run-by-a-shell"] in piped.stderr
    unlinked = keep("--link", "data")
    assert unlinked.returncode == 2 and SHOWN["link-no-such-file-or"] in unlinked.stderr
    for done in (same, unknown, seedless, unlinked):
        assert len(done.stderr.strip().splitlines()) == 1


def test_keep_notices_a_command_that_ignores_its_seed(repository: Path) -> None:
    script = SCRIPT.replace("LR", "0.3").replace("(seed, lr)", "820").replace("loss = 1 +", "loss = -5 +")
    (repository / "train.py").write_text(script)
    done = keep()
    assert done.returncode == 2 and SHOWN["command-ignores"] in done.stderr
    assert SHOWN["got-val-loss-4-99"] in done.stderr and SHOWN["seed-0-val-loss-candidate"] in done.stderr


def test_keep_of_a_failing_candidate_ends_with_3_and_names_the_ignored_folder(repository: Path) -> None:
    (repository / "data").mkdir()
    (repository / "data" / "x.txt").write_text("0.3")
    (repository / ".gitignore").write_text("data/\n")
    (repository / "train.py").write_text(SCRIPT.replace("LR", 'float(open("data/x.txt").read())'))
    failed = keep("--max-seeds", "3")
    assert failed.returncode == 3 and SHOWN["link-path-shows-it-to"] in failed.stdout.replace("\n  ", " ")
    linked = keep("--max-seeds", "3", "--link", "data")
    assert linked.returncode in (0, 4), linked.stderr


def test_keep_refuses_a_link_over_files_of_the_revision(repository: Path) -> None:
    (repository / "data").mkdir()
    (repository / "data" / "README").write_text("where to get it")
    done = keep("--link", "data")
    assert done.returncode == 2 and SHOWN["link-the-revision-has-files"] in done.stderr


def test_keep_undecided_by_its_cost_continues_with_a_larger_limit(repository: Path) -> None:
    (repository / "train.py").write_text(SCRIPT.replace("LR", "0.3"))
    stopped = keep("--max-core-hours", "1e-9")
    assert stopped.returncode == 4 and SHOWN["max-core-hours-is-used"] in stopped.stdout, stopped.stderr
    same = keep("--max-core-hours", "1e-9")
    assert same.returncode == 4 and SHOWN["decided-before"] in same.stdout
    assert keep().returncode == 0


def test_keep_after_failed_runs_repeats_them_and_counts_no_later_pair_before(repository: Path, tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    script = SCRIPT.replace("LR", "0.3") + f"\nassert sys.argv[1] not in open({str(failing)!r}).read().split()"
    (repository / "train.py").write_text(script)
    options = ("--format", "json")
    failing.write_text("0 2")
    assert keep(*options).returncode == 3
    failing.write_text("3")
    for _ in range(2):
        failed = keep(*options)
        record = json.loads(failed.stdout)
        assert failed.returncode == 3 and "seed 3" in record["error"], record
    assert (record["decision"]["pairs"], record["decision"]["fresh_pairs"]) == (3, 0)
    failing.write_text("")
    assert keep(*options).returncode == 0


def test_keep_of_errors_of_0_and_1_compares_the_pairs_that_differ(repository: Path) -> None:
    script = f"{SCRIPT}\nopen(out + '/metrics.json', 'w').write('{{\"val/loss\": %r}}' % float(lr < 0.2))"
    (repository / "train.py").write_text(script.replace("LR", "0.1"))
    git(repository, "commit", "-qam", "errors")
    (repository / "train.py").write_text(script.replace("LR", "0.3"))
    done = keep("--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    decision = json.loads(done.stdout)["decision"]
    assert decision["difference"] == 1.0
    assert decision["fresh_pairs"] >= 8  # 7 pairs that all differ have an e-value of 13


def test_keep_refuses_a_store_in_which_another_call_decides(repository: Path) -> None:
    (repository / "train.py").write_text(SCRIPT.replace("LR", "0.3"))
    lock = StoreLock(repository / ".lobench" / "keep", "keep", file="keep.lock")
    try:
        done = keep()
    finally:
        lock.release()
    assert done.returncode == 2 and SHOWN["another-lobench-keep-decides-in"] in done.stderr


def test_keep_log_measures_the_total_of_the_chain_on_seeds_that_no_decision_uses(repository: Path) -> None:
    store = repository / ".lobench" / "keep"
    empty = lobench("keep", "--log")
    assert empty.returncode == 2 and SHOWN["no-decisions-here"] in empty.stderr
    for lr in ("0.2", "0.0", "0.3"):  # kept, discarded, kept
        (repository / "train.py").write_text(SCRIPT.replace("LR", lr))
        if keep("--description", f"lr {lr}").returncode == 0:
            git(repository, "commit", "-qam", f"lr {lr}")
    before = json.loads(lobench("keep", "--log", "--format", "json").stdout)
    assert (before["chain"], before["total"]) == ([1, 3], None)
    used = {seed for one in before["decisions"] for seed in (0, 1, 2, *one["seeds"])}

    measured = lobench("keep", "--log", "--measure", "4", "--executor", "inline", *WORKERS, "--format", "json")
    assert measured.returncode == 0, measured.stderr
    total = json.loads(measured.stdout)["total"]
    assert len(total["seeds"]) == total["pairs"] == 4 and not used & set(total["seeds"])
    assert total["lower"] < 0.04 < total["upper"] and total["difference"] == pytest.approx(0.04, abs=0.02)
    count = len(results(store))
    text = lobench("keep", "--log", "--measure", "4", "--executor", "inline", *WORKERS).stdout
    assert len(results(store)) == count, "the same measurement runs nothing"
    first, last = total["seeds"][0], total["seeds"][-1]
    assert "1 lr 0.2; 3 lr 0.3" in text and SHOWN["pairs-on-fresh-seeds-to"].format(first=first, last=last) in text

    (repository / "train.py").write_text(SCRIPT.replace("LR", "0.301"))
    later = json.loads(keep("--max-seeds", "8", "--format", "json").stdout)["decision"]
    assert not set(later["seeds"]) & set(total["seeds"])


def test_keep_log_with_a_failing_run_of_the_measurement_ends_with_3(repository: Path, tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("")
    script = SCRIPT + f"\nassert sys.argv[1] not in open({str(failing)!r}).read().split()"
    (repository / "train.py").write_text(script.replace("LR", "0.3"))
    assert keep().returncode == 0
    used = json.loads(lobench("keep", "--log", "--format", "json").stdout)["decisions"][0]["seeds"]
    failing.write_text(str(used[-1] + 1))
    done = lobench("keep", "--log", "--measure", "2", "--executor", "inline", *WORKERS, "--format", "json")
    record = json.loads(done.stdout)
    assert done.returncode == 3 and f"seed {used[-1] + 1}: " in record["error"], record
    failing.write_text("")
    again = lobench("keep", "--log", "--measure", "2", "--executor", "inline", *WORKERS, "--format", "json")
    assert again.returncode == 0 and json.loads(again.stdout)["total"]["pairs"] == 2


def test_keep_counts_the_files_of_a_submodule(repository: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "rate.py").write_text("rate = 0.1\n")
    git(library, "init", "-q")
    git(library, "add", "-A")
    git(library, "commit", "-qm", "first")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "library")
    lines = "import sys; sys.path.insert(0, 'library'); from rate import rate\n"
    (repository / "train.py").write_text(lines + SCRIPT.replace("LR", "rate"))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "with a library")
    (repository / "library" / "rate.py").write_text("rate = 0.3\n")
    done = keep()
    assert done.returncode == 0, done.stdout + done.stderr
    git(repository / "library", "commit", "-qam", "faster")
    git(repository, "commit", "-qam", "faster")
    other = keep(against="git:HEAD~1")
    assert other.returncode == 0 and SHOWN["decided-before"] in other.stdout, "the same content is the same revision"


def test_keep_runs_the_files_of_its_start_though_they_change_during_a_run(repository: Path) -> None:
    change = f"open({str(repository / 'train.py')!r}, 'w').write('raise SystemExit(5)')\n"
    (repository / "train.py").write_text(change + SCRIPT.replace("LR", "0.3"))
    done = keep("--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (repository / "train.py").read_text() == "raise SystemExit(5)"


def test_keep_of_a_package_that_is_imported_by_an_absolute_path_runs_the_copies(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Editable installs put such paths into sys.path too."""
    package = repository / "src" / "rates_of_the_project"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("rate = 0.1\n")
    (repository / "train.py").write_text("from rates_of_the_project import rate\n" + SCRIPT.replace("LR", "rate"))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "with a package")
    monkeypatch.setenv("PYTHONPATH", str(repository / "src"), prepend=os.pathsep)
    (package / "__init__.py").write_text("rate = 0.3\n")
    done = keep("--max-seeds", "3")
    assert done.returncode in (0, 4), done.stdout + done.stderr


def test_keep_of_a_change_that_the_command_does_not_use_says_so(repository: Path) -> None:
    (repository / "unused.py").write_text("rate = 0.3\n")
    done = keep("--format", "json")
    assert done.returncode == 1 and SHOWN["does-not-use-what-was"] in json.loads(done.stdout)["decision"]["reason"]


EXECUTORS_OF_KILLED = ("inline", "local", "inline")


@pytest.mark.long
def test_keep_that_is_killed_at_random_moments_decides_as_one_that_is_not(repository: Path, tmp_path: Path) -> None:
    """Each kill comes at a random share of the time that a whole call takes, as measured by its runs."""
    counted = tmp_path / "runs"
    script = f"open({str(counted)!r}, 'a').write(sys.argv[1] + '\\n')\n"
    (repository / "train.py").write_text(SCRIPT.replace("\nlr", f"\n{script}lr").replace("LR", "0.3"))
    options = ("--metric", "val_loss", "--curves", "{out}/metrics.json", "--format", "json")
    words = [sys.executable, "-m", "lobench.cli", "keep", "--command", COMMAND, "--against", "git:HEAD", *options]

    def begun(store: Path, executor: str = "inline") -> subprocess.Popen[bytes]:  # others start a worker in each round
        command = [*words, "--store", str(store), "--executor", executor]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    began = time.monotonic()
    whole = json.loads(begun(tmp_path / "whole").communicate()[0])["decision"]
    seconds = time.monotonic() - began
    num_runs = len(counted.read_text().split())
    rng = random.Random(0)
    for executor in EXECUTORS_OF_KILLED:
        process = begun(tmp_path / "killed", executor)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, seconds))
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.communicate()
    both = [begun(tmp_path / "killed") for _ in range(2)]
    said = [process.communicate() for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) in ([0, 0], [0, 2]), said
    record = json.loads(said[codes.index(0)][0])["decision"]
    for name in ("answer", "seeds", "difference", "e_value", "level", "pairs"):
        assert record[name] == whole[name], record
    for code, (_, err) in zip(codes, said, strict=True):
        assert code == 0 or b"another `lobench keep` decides in this store" in err
    assert len(results(tmp_path / "killed")) == len(results(tmp_path / "whole"))
    assert len(counted.read_text().split()) <= 2 * num_runs + len(EXECUTORS_OF_KILLED), (
        "only the runs that were killed are repeated"
    )

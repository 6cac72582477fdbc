"""`lobench alarm` along runs of real checkpoints that get worse, overfit or stall, and its rule by simulation."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from commands import Done
from commands import lobench_here as lobench
from shown import texts_of
from tiny import ONE_CASE, TASKS, killed_chief, make_run, make_suite, write_checkpoint
from tiny import watch_here as watch

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.analysis.store.snapshot import read_store
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import EvaluationKey
from lobench.core.subject import Subject
from lobench.engine.store import network
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.network import READS_LOCAL_COPY
from lobench.report.charts.charts import sections
from lobench.tools.alarm.alarm import alarm as alarmed_run
from lobench.tools.alarm.alarm_rules import AlarmRules
from lobench.tools.alarm.evidence import confirmation_block
from lobench.tools.alarm.rule import AlarmKind, Confirmation, Stall, SuspectThenConfirm, detector_of, level_of_test
from lobench.tools.alarm.watching import _alarm_process

SHOWN = texts_of("alarm")

Run: TypeAlias = Callable[[int], float]

SEEDS = "Case.num_seeds = 3\n"
ROLES = 'a/Suite.role = "meta_train"\nb/Suite.role = "meta_test"\n'
# SGD ends at the bottom of a bowl with a rate of .5, and of one that is four times as steep with .125: from .25 on
# it diverges there.
STEEP = """
@configurable
class Steep(Bowl):
    def __init__(self, *, factor=4.0):
        super().__init__()
        self.factor = factor
    def loss(self, params, key, data):
        return self.factor * super().loss(params, key, data)
"""
STEEP_GIN = """
import tiny_tasks
Case.num_inner_steps = 10
Case.num_seeds = 3
Case.eval_every = 5
trained/Case.task = @Bowl()
trained/Suite.role = "meta_train"
steep/Case.task = @Steep()
steep/Suite.role = "meta_test"
wide/Case.task = @Bowl()
wide/Bowl.dim = 5
wide/Suite.role = "meta_test"
"""
PLUGIN = """
from pathlib import Path
def lobench_alarm_raised(event):
    with open(Path(__file__).parent / "alarms.txt", "a") as file:
        print(event.kind, event.subject.outer_step, event.reference.outer_step, file=file)
"""


def _recorded(store: Path) -> dict[EvaluationKey, float]:
    return {row.key: row.recorded_at for row in read_store(store).rows}


def alarm(run: Path, suite: Path, *options: str | Path) -> Done:
    return lobench("alarm", run, "--suite", suite, "--workers", "1", "--seeds", "4", "--format", "json", *options)


def test_a_run_that_gets_worse_is_told_once_and_a_kill_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, extra=SEEDS), make_run(tmp_path, -3.0, -1.5, -1.5, -4.0, -4.5, -1.5, -3.0)
    (suite / "conftest.py").write_text(PLUGIN)
    assert watch(run, suite, "--once", "--checkpoints", "all", "--workers", "1").returncode == 0
    options = ["--suite", suite, "--executor", "inline", "--seeds", "4", "--format", "json"]
    killed = killed_chief(12, 1, "alarm", run, *options)
    assert killed.returncode == -9
    store = run / "lobench_results" / "tiny" / "alarm"
    before = _recorded(store)
    called = tmp_path / "told.txt"
    command = f'echo "$LOBENCH_ALARM $LOBENCH_OUTER_STEP" >> {called}; exit 3'
    done = alarm(run, suite, "--on-alarm", command, "--sink", "tensorboard")
    assert done.returncode == 1, done.stderr
    record = json.loads(done.stdout)
    # Silent while it stays worse, and again after it was good.
    assert [(one["outer_step"], one["reference_outer_step"]) for one in record["alarms"]] == [(4, 2), (7, 2)]
    assert all(set(one["cases"]) == {"tiny/a", "tiny/b"} and one["bound"] > 0.05 for one in record["alarms"])
    assert record["num_confirmations"] == {"regress": 2} and record["num_checkpoints"] == 7
    after = _recorded(store)
    assert len(before) > 0 and before.items() <= after.items()
    assert sum(key.seed_block.size for key in after) == 2 * 2 * 2 * 4  # confirmations, sides, cases, seeds
    assert called.read_text().splitlines() == ["regress 4", "regress 7"]
    assert (suite / "alarms.txt").read_text() == "regress 4 2\nregress 7 2\n"
    assert SHOWN["ended-with-3"] in done.stderr and SHOWN["alarm-regress-outer-step-4"] in done.stderr
    assert SHOWN["lobench-bisect-suite-case-tiny"].format(run=run, suite=suite) in done.stderr
    again = alarm(run, suite, "--on-alarm", command, "--sink", "tensorboard")
    assert again.returncode == 1 and json.loads(again.stdout) == record
    assert len(called.read_text().splitlines()) == 2 and "ALARM" not in again.stderr
    from lobench_tensorboard.sink import written_scalars

    written = [one for one in written_scalars(store.parent / "tensorboard") if "alarm" in one[0]]
    assert written == [("0_headline/alarm/regress", 4), ("0_headline/alarm/regress", 7)]


def test_a_run_that_was_watched_from_another_folder_is_confirmed_all_the_same(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE, extra=SEEDS), make_run(tmp_path, -1.5, -4.0)
    options = ("--once", "--checkpoints", "all", "--workers", "1")
    assert lobench("watch", run.name, "--suite", suite, *options, cwd=tmp_path).returncode == 0
    done = alarm(run, suite)
    assert done.returncode == 1 and SHOWN["is-gone"] not in done.stderr, done.stderr


def test_checkpoints_with_former_bindings_are_left_out_and_a_confirmation_with_other_ones_is_an_error(
    tmp_path: Path,
) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE, extra=SEEDS), make_run(tmp_path, -1.2)
    config = run / "config.gin"
    texts = [config.read_text(), *(f"{config.read_text()}LearnableSGD.initial_lr = {value}\n" for value in (0.5, 0.6))]
    options = ("--once", "--checkpoints", "latest", "--executor", "inline")
    assert watch(run, suite, *options).returncode == 0
    config.write_text(texts[1])
    for step, log_lr in enumerate((-1.5, -4.0), 2):
        write_checkpoint(run / f"theta_{step}.npz", log_lr)
        assert watch(run, suite, *options).returncode == 0
    config.write_text(texts[2])
    unlike = alarm(run, suite)
    assert unlike.returncode == 2 and SHOWN["cannot-be-confirmed-since-the"] in unlike.stderr, unlike.stderr
    config.write_text(texts[1])
    done = alarm(run, suite)
    assert done.returncode == 1 and SHOWN["results-of-outer-step-1"] in done.stderr, done.stderr
    record = json.loads(done.stdout)
    assert [(one["outer_step"], one["reference_outer_step"]) for one in record["alarms"]] == [(3, 2)]
    assert record["num_checkpoints"] == 2


def test_a_stall_is_told_if_a_regress_cannot_be_confirmed(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, ONE_CASE, extra=SEEDS)
    run = make_run(tmp_path, -1.5, -1.6, -1.5, -1.6, -3.0, -3.5, -4.0, -4.5)
    assert watch(run, suite, "--once", "--checkpoints", "all", "--executor", "inline").returncode == 0
    with (run / "config.gin").open("a") as config:
        config.write("LearnableSGD.initial_lr = 0.5\n")
    done = alarm(run, suite, "--alarm", "regress,stall", "--window", "4", "--rate", "0.5")
    assert done.returncode == 1 and SHOWN["cannot-be-confirmed-since-the"] in done.stderr, done.stderr
    assert [(one["kind"], one["outer_step"]) for one in json.loads(done.stdout)["alarms"]] == [("stall", 8)]


def test_each_of_two_runs_in_one_store_has_bindings_of_its_own(tmp_path: Path) -> None:
    suite, store = make_suite(tmp_path, ONE_CASE, extra=SEEDS), tmp_path / "store"
    run, other_run = make_run(tmp_path, -1.5, -4.0), make_run(tmp_path / "other", -1.5, -1.2)  # of one first theta
    with (other_run / "config.gin").open("a") as config:
        config.write("LearnableSGD.initial_lr = 0.5\n")
    for watched in (run, other_run):
        done = watch(watched, suite, "--store", store, "--once", "--checkpoints", "all", "--executor", "inline")
        assert done.returncode == 0, done.stderr
    done = alarm(run, suite, "--store", store)
    assert done.returncode == 1 and json.loads(done.stdout)["num_checkpoints"] == 2, done.stderr


def test_a_watch_follows_its_run_and_ends_with_the_alarm(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, extra=SEEDS + ROLES), make_run(tmp_path, -1.5, -4.0)
    done = watch(run, suite, "--once", "--checkpoints", "all", "--workers", "1", "--alarm", "regress,overfit")
    assert done.returncode == 1, done.stderr
    store = run / "lobench_results" / "tiny"
    assert json.loads((store / "alarm" / "alarms.json").read_text())["told"][0][::2] == ["regress", 2]
    assert not any(row.key.seed_block.start for row in read_store(store).rows)
    (section,) = [one for one in sections(summary_of(store, [])) if one.view == "alarms"]
    assert any(SHOWN["alarm-regress-outer-step-2"] in line for line in section.lines), section.lines
    write_checkpoint(run / "theta_3.npz", -1.5)
    done = watch(run, suite, "--once", "--workers", "1", "--on-alarm", "true")
    assert done.returncode == 2 and SHOWN["on-alarm-needs-alarm"] in done.stderr
    done = watch(run, suite, "--once", "--workers", "1", "--alarm", "regres")
    assert (
        done.returncode == 2 and SHOWN["alarm-got-regres"] in done.stderr and SHOWN["outer-step-3"] not in done.stdout
    )


@pytest.mark.parametrize(
    ("gin_param", "rates", "line", "cases"),
    [
        # From the fourth on the two shallow bowls still gain. Of the cases out of distribution one alone gets worse.
        (
            "",
            (0.05, 0.1, 0.12, 0.2, 0.23),
            SHOWN["alarm-overfit-outer-step-4"],
            {"steep"},
        ),
        # Where no bowl is steep, all cases get worse alike.
        (
            "Steep.factor = 1.0",
            (0.05, 0.2, 0.02),
            SHOWN["alarm-regress-outer-step-3"],
            {"steep", "trained", "wide"},
        ),
    ],
    ids=["overfits", "gets worse everywhere"],
)
def test_a_watch_reports_a_run_that_overfits_and_none_that_gets_worse_everywhere(
    gin_param: str, rates: tuple[float, ...], line: str, cases: set[str], tmp_path: Path
) -> None:
    suite, run = make_suite(tmp_path, STEEP_GIN), make_run(tmp_path, *map(math.log, rates))
    (suite / "tiny_tasks.py").write_text(TASKS + STEEP)
    options = ["--once", "--checkpoints", "all", "--workers", "1", "--gin-param", gin_param]
    done = watch(
        run, suite, *options, "--alarm", "regress,overfit", "--on-alarm", f'echo "$LOBENCH_CASES" > {tmp_path}/cases'
    )
    assert done.returncode == 1, done.stderr
    store = run / "lobench_results" / "tiny"
    (raised,) = json.loads((store / "alarm" / "alarms.json").read_text())["lines"]
    assert raised.startswith(f"{line} (by "), raised
    assert {*(tmp_path / "cases").read_text().split()} == {f"tiny/{case}" for case in cases}
    assert (
        SHOWN["on-8-fresh-seeds-tiny"] in raised
        and SHOWN["lobench-bisect-suite-case-tiny"].format(run=run, suite=suite) in raised
    )


def test_a_watch_reports_that_its_alarms_ended_early_and_goes_on(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE, extra=SEEDS), make_run(tmp_path, -1.5)
    alarms_file = run / "lobench_results" / "tiny" / "alarm" / "alarms.json"
    alarms_file.parent.mkdir(parents=True)
    alarms_file.write_text("{")
    command = [sys.executable, "-m", "lobench.cli", "watch", str(run), "--suite", str(suite), "--workers", "1"]
    with subprocess.Popen([*command, "--alarm", "regress"], stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        lines = iter(watching.stderr.readline, "")
        assert any(SHOWN["ended-early-with-exit-code"] in line for line in lines)
        assert watching.poll() is None
        watching.terminate()
        watching.stderr.read()
    assert watching.returncode not in (0, 2)


COUNT = """
import sys
from pathlib import Path
from lobench.engine.store.ledger import Ledger
sys.exit(len(Ledger.open(Path(sys.argv[1]), read_only=True).sightings()))
"""


def test_alarms_of_a_watch_on_a_network_disk_read_what_is_not_published_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOBENCH_NETWORK_STORE", "1")
    monkeypatch.setenv("LOBENCH_LOCAL_DIR", str(tmp_path / "disk"))
    monkeypatch.setattr(network, "_PUBLISH_SECONDS", 3600.0)
    with Ledger.open(tmp_path / "store") as ledger:
        ledger.publish()
        ledger.record_sighting(Subject.of_checkpoint(Checkpoint(uri="/c1", sha256="x", outer_step=1)))
        with _alarm_process([sys.executable, "-c", COUNT, str(tmp_path / "store")]) as exit_code:
            pass
        assert exit_code() == 1


def test_alarms_of_a_watch_that_was_killed_before_they_began_name_it_in_their_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", f"import os; os._exit(os.environ[{READS_LOCAL_COPY!r}] != '{os.getpid()}')"]
    with _alarm_process(command) as exit_code:
        pass
    assert exit_code() == 0
    suite, run = make_suite(tmp_path, ONE_CASE, extra=SEEDS), make_run(tmp_path, -1.5)
    assert watch(run, suite, "--once", "--executor", "inline").returncode == 0
    monkeypatch.setenv(READS_LOCAL_COPY, "123456")
    assert alarm(run, suite).returncode == 0
    assert json.loads((run / "lobench_results" / "tiny" / "alarm" / "alarm.lock").read_text())["parent"] == 123456


def test_alarms_begin_again_with_a_run_of_which_no_checkpoint_is_finished_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    suite, run = make_suite(tmp_path, ONE_CASE, extra=SEEDS), make_run(tmp_path, -1.5, -4.0)
    options = ("--once", "--checkpoints", "all", "--executor", "inline")
    assert watch(run, suite, *options).returncode == 0
    looks = [False, True]

    def is_over() -> bool:
        if len(looks) == 1:  # after the first look, the trainer begins again
            restarted = Checkpoint(uri=str(run / "theta_1.npz"), sha256="1" * 64, outer_step=1)
            with Ledger.open(run / "lobench_results" / "tiny") as ledger:
                ledger.record_sighting(Subject.of_checkpoint(restarted), on_restart=lambda restart: None)
        return looks.pop(0)

    alarmed = alarmed_run(run, suite, is_over=is_over, seeds=4, executor="inline")
    assert not looks and alarmed.alarms == ()
    assert (
        SHOWN["alarm-regress-outer-step-2"] in (run / "lobench_results" / "tiny" / "alarm" / "alarms.json").read_text()
    )


def test_a_run_whose_evaluations_all_failed_has_no_verdict(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -1.5, -3.0)
    tasks = (suite / "tiny_tasks.py").read_text()
    broken = "    def init(*_):\n        raise RuntimeError\n\n    def former_init("
    (suite / "tiny_tasks.py").write_text(tasks.replace("    def init(", broken))
    assert watch(run, suite, "--once", "--checkpoints", "all", "--workers", "1").returncode == 3
    done = lobench("alarm", run, "--suite", suite, "--workers", "1")
    assert done.returncode == 3, done.stdout + done.stderr
    assert SHOWN["nothing-was-compared"] in done.stdout and SHOWN["no-alarm"] not in done.stdout


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -1.5)
    for options, output in {
        ("--alarm", "regres"): SHOWN["alarm-got-regres-expected-regress"],
        (): SHOWN["no-store-of-a-watch"],
    }.items():
        done = alarm(run, suite, *options)
        assert done.returncode == 2 and output in done.stderr, done.stderr
    assert watch(run, suite, "--once", "--workers", "1").returncode == 0
    done = alarm(run, suite, "--alarm", "overfit")
    assert done.returncode == 2 and SHOWN["overfit-needs-cases-of-both"] in done.stderr
    called = run / "lobench_results" / "tiny" / "alarm" / "alarms.json"
    called.write_text("{")
    done = alarm(run, suite)
    assert done.returncode == 2 and str(called) in done.stderr and SHOWN["move-it-away"] in done.stderr


class Planted:
    """A run whose true scores, outside and inside, are given."""

    def __init__(
        self, outside: Callable[[int], float], inside: Callable[[int], float], count: int, noise: float
    ) -> None:
        self.true, self.noise, self.count = (outside, inside), noise, count
        self.rng = np.random.default_rng(3)
        self.scores = [self.draw(place, 4) for place in range(count)]
        self.asked: list[Confirmation] = []

    def draw(self, place: int, seeds: int) -> list[list[float]]:
        return [(of(place) + self.rng.normal(0, self.noise, seeds)).tolist() for of in self.true for _ in range(2)]

    def __len__(self) -> int:
        return self.count

    def outer_step(self, place: int) -> int:
        return 1000 * place

    def mean_score(
        self, place: int, at: int, kind: AlarmKind = "stall", number: int = 0, cases: Collection[str] | None = None
    ) -> float:
        return float(np.mean(self.scores[place][: 2 if cases is not None else 4]))

    def usual_samples(self, reference: int, place: int) -> Mapping[str, Samples]:
        return self.samples(self.scores[reference], self.scores[place])

    def fresh_samples(self, asked: Confirmation) -> Mapping[str, Samples]:
        self.asked.append(asked)
        return self.samples(self.draw(asked.reference, 8), self.draw(asked.position, 8))

    def samples(self, a: list[list[float]], b: list[list[float]]) -> Mapping[str, Samples]:
        names = ("out/a", "out/b", "in/a", "in/b")
        return {name: Samples(a=tuple(x), b=tuple(y)) for name, x, y in zip(names, a, b, strict=True)}


def played(kind: AlarmKind, run: Planted, **rules: float) -> SuspectThenConfirm | Stall:
    found = detector_of(kind, AlarmRules(**rules), ("out/a", "out/b"), ("in/a", "in/b"))  # type: ignore[arg-type]
    found.advance(run)
    return found


def test_overfitting_is_told_apart_from_a_fall_everywhere() -> None:
    def drops(place: int) -> float:
        return -0.3 * (place >= 10)

    everywhere, outside = (Planted(drops, of, 20, 0.05) for of in (drops, lambda place: 0.0))
    assert [one.position for one in played("regress", everywhere).alarms] == [10]
    assert not played("overfit", everywhere).alarms
    (found,) = played("overfit", outside).alarms
    assert found.position == 10 and set(found.cases) == {"out/a", "out/b"} and 0.05 < found.bound < found.harm


def test_seeds_that_diverge_are_harm(rng: np.random.Generator | None = None) -> None:
    run = Planted(lambda place: 0.0, lambda place: 0.0, 2, 0.05)
    run.scores[1] = [[DIVERGED] * 4, [DIVERGED] * 4, *run.scores[1][2:]]
    run.draw = lambda place, seeds: [
        [DIVERGED if place and case < 2 else 0.1 * seed for seed in range(seeds)] for case in range(4)
    ]  # type: ignore[method-assign]
    for kind in ("regress", "overfit"):
        (found,) = played(kind, run).alarms  # type: ignore[arg-type]
        assert found.p_value < 1e-3, kind


@pytest.mark.parametrize(("gain", "alarms"), [(0.0, [23]), (0.02, [])])
def test_a_stall_is_a_trend_that_is_surely_below_what_is_asked(gain: float, alarms: list[int]) -> None:
    def rises(place: int) -> float:
        return 0.1 * min(place, 8) + gain * max(0, place - 8)

    run = Planted(rises, rises, 24, 0.002)
    run.scores[9] = [[value + 0.01 for value in case] for case in run.scores[9]]  # the best, before the third window
    assert [one.position for one in played("stall", run, least_gain=0.01).alarms] == alarms


def test_no_seed_is_of_two_confirmations_whatever_their_numbers() -> None:
    blocks = [
        confirmation_block(kind, number, seeds)
        for kind in ("regress", "overfit")
        for number in (1, 2, 3)
        for seeds in (4, 12, 1000)
    ]
    ends = [sorted({block.start, block.start + block.size}) for block in blocks]
    for (start, end), (other, last) in itertools.combinations(ends, 2):
        assert start == other or end <= other or last <= start


def test_levels_sum_to_the_rate_and_a_suspicion_is_no_alarm() -> None:
    assert sum(level_of_test(number, 0.05) for number in range(1, 100_000)) == pytest.approx(0.05, abs=1e-6)
    run = Planted(lambda place: -0.04 * (place >= 5), lambda place: -0.04 * (place >= 5), 30, 0.03)
    found = played("regress", run)
    assert not found.alarms and run.asked and [one.number for one in run.asked] == [*range(1, len(run.asked) + 1)]

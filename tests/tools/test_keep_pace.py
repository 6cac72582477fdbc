"""`lobench keep` stops a candidate that falls far behind its incumbent."""

from __future__ import annotations

import dataclasses
import glob
import json
import math
import os
from pathlib import Path

import pytest
from commands import lobench_here as lobench
from shown import texts_of
from tiny import results

from lobench.experiments import supervised_command
from lobench.tools.keep import launch
from lobench.tools.keep.pace import Pace, PaceCurve

SHOWN = texts_of("keep")

STEPS = [*range(0, 101, 10)]
SCRIPT = """
import json, os, random, sys, time

seed, out, rate = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
loss = 1.0
with open(out + "/metrics.jsonl", "w") as log:
    for step in range(0, 101, 10):
        noise = random.Random(f"{seed} {step}").gauss(0, 0.01)
        log.write(json.dumps({"step": step, "val_loss": loss + noise}) + "\\n")
        log.flush()
        loss = loss * (1 - rate) if rate < 1 else float("nan")
        while os.path.exists(sys.argv[4]) and step == 50:
            time.sleep(0.01)  # until it is stopped
"""


def falling(rate: float, offset: float = 0.0) -> PaceCurve:
    return STEPS, [offset + (1 - rate) ** (step / 10) for step in STEPS]


def pace(*runs: PaceCurve, maximize: bool = False) -> Pace:
    return Pace(candidate="", metric="val_loss", maximize=maximize, curves="", runs=runs)


INCUMBENT = falling(0.3), falling(0.3, 0.02), falling(0.3, -0.02)


def until(run: PaceCurve, step: int) -> PaceCurve:
    count = STEPS.index(step) + 1
    return run[0][:count], run[1][:count]


def test_shortfall_is_judged_after_a_quarter_of_the_steps_against_a_quarter_of_a_candidates_own() -> None:
    stuck = falling(0.0)
    assert pace(*INCUMBENT).shortfall(until(stuck, 20)) == ""
    assert pace(*INCUMBENT).shortfall(until(stuck, 30)) == "", "the incumbent had no second value at step 7"
    found = pace(*INCUMBENT).shortfall(until(stuck, 40))
    assert found == SHOWN["its-best-val-loss-is"]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_shortfall_of_a_slower_equal_or_faster_candidate_is_none(rate: float) -> None:
    for step in STEPS[1:]:
        assert pace(*INCUMBENT).shortfall(until(falling(rate), step)) == ""


def test_shortfall_is_none_without_three_runs_of_the_incumbent() -> None:
    assert pace(*INCUMBENT[:2]).shortfall(falling(0.0)) == ""


def test_shortfall_of_a_metric_that_is_maximized_counts_down() -> None:
    runs = [(STEPS, [-value for value in values]) for _, values in INCUMBENT]
    up, down = (STEPS, [-1.0] * len(STEPS)), (STEPS, [-value for value in falling(0.3)[1]])
    assert pace(*runs, maximize=True).shortfall(up).startswith(SHOWN["its-best-val-loss-is-1"])
    assert pace(*runs, maximize=True).shortfall(down) == ""


def test_run_is_diverged_after_three_values_that_are_not_finite() -> None:
    assert pace().reason_to_stop(([0, 1, 2], [math.nan, 1.0, math.nan])) == ""
    found = pace().reason_to_stop(([0, 1, 2, 3], [1.0, math.nan, math.inf, math.nan]))
    assert found == SHOWN["its-last-3-values-of"]


def test_supervised_command_whose_supervisor_fails_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pace().write(tmp_path / "pace.json")

    def fail(curves: str, metric: str, before: object) -> tuple[object, PaceCurve | None]:
        if (tmp_path / "pid").exists():
            raise RuntimeError("out of luck")
        return None, None

    monkeypatch.setattr(supervised_command, "_state_and_curve", fail)
    line = f"echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid && exec sleep 600"
    with pytest.raises(RuntimeError):
        supervised_command.main([str(tmp_path / "pace.json"), "none", "sh", "-c", line])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_supervised_command_that_does_not_exist_is_a_line_that_names_it(tmp_path: Path) -> None:
    pace().write(tmp_path / "pace.json")
    line = supervised_command.main([str(tmp_path / "pace.json"), "none", "no-such-program"])
    assert isinstance(line, str) and "no-such-program" in line


def test_supervisor_finds_curves_in_a_folder_with_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite").mkdir()
    monkeypatch.chdir(tmp_path / "suite")
    dataclasses.replace(pace(), curves="{out}/m.jsonl").write(tmp_path / "pace.json")
    out = tmp_path / "runs [1]"
    out.mkdir()
    (out / "m.jsonl").touch()
    *_, pattern = launch._supervisor_prefix(Path(".."), "", {"seed": "1", "out": str(out)})
    assert glob.glob(pattern) == [f"{out}/m.jsonl"]


@pytest.mark.parametrize(
    ("rate", "reason"), [("0.0", SHOWN["its-best-val-loss-is-0"]), ("2", SHOWN["are-not-finite-at-step"])]
)
def test_keep_stops_a_candidate_within_its_first_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: str, reason: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(SCRIPT)
    (tmp_path / "wait").touch()  # outside of the files that count
    command = "python train.py {seed} {out}"
    done = lobench(
        *("keep", "--command", f"{command} {rate} {tmp_path}/wait", "--against-command", f"{command} 0.3 none"),
        *("--metric", "val_loss", "--executor", "inline", "--format", "json"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    decision = json.loads(done.stdout)["decision"]
    assert decision["reason"].startswith(SHOWN["stopped-by-lobench-keep-seed"]) and reason in decision["reason"]
    store = folder / ".lobench" / "keep"
    assert len(results(store)) == 4, "the incumbent on three seeds, and the candidate on one"
    again = lobench(
        *("keep", "--command", f"{command} {rate} {tmp_path}/wait", "--against-command", f"{command} 0.3 none"),
        *("--metric", "val_loss", "--executor", "inline"),
    )
    assert again.returncode == 1 and SHOWN["discard-decided-before"] in again.stdout
    assert len(results(store)) == 4

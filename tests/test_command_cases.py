"""A suite of commands through a watch: outcomes, messages, what reads the store, and that nothing imports jax."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from commands import lobench, pytest_session
from disks import on_another_file_system
from pages import Story, blocks_of, follow
from shown import texts_of
from tiny import PATIENCE, results

from lobench.core.errors import LobenchError
from lobench.pytest_plugin.commanded import read_curves

SHOWN = texts_of("lobench")

EVAL = """
import json, pathlib, sys, time
kind, checkpoint, seed, step, out = sys.argv[1:]
size = pathlib.Path(checkpoint).stat().st_size / 1e6
row = lambda step, value: json.dumps({"step": step, "valid/loss": value, "asked": step}) + "\\n"
file = pathlib.Path(out) / "metrics.jsonl"
if kind == "fails": sys.exit("no such data")
if kind == "hangs": time.sleep(600)
if kind == "diverges": file.write_text(row(0, 1.0) + row(1, float("nan")))
if kind == "half": file.write_text(row(0, 1.0) + '{"step": 1, "val')
if kind == "other": file.write_text('{"step": 0, "valid/bleu": 1.0}\\n')
if kind == "text": file.write_text("hello\\n")
if kind in ("works", "judged"): file.write_text(row(0, 4.0) + row(10, 2.0 / (1 + int(step)) + int(seed) / 100))
if kind == "elsewhere": file.with_name("log.csv").write_text("step,loss\\n0,1\\n")
if kind == "final": file.with_suffix(".json").write_text(json.dumps({"valid/loss": 3.5, "name": "x"}))
"""
OUTCOMES = {
    "works": ("passed", ""),
    "final": ("passed", ""),
    "diverges": ("passed", ""),
    "judged": ("failed", "expect.max_final = 0.5: final valid/loss is 1"),
    "fails": ("error", "the command exited with status 1: no such data"),
    "nothing": ("error", "{out}/metrics.jsonl: the command wrote no such file"),
    "elsewhere": ("error", "{out}/metrics.jsonl: the command wrote no such file; got {out}/log.csv"),
    "half": ("error", "{out}/metrics.jsonl: the last line is cut off; got"),
    "other": ("error", "{out}/metrics.jsonl: the command wrote no valid/loss; got valid/bleu"),
    "text": ("error", "{out}/metrics.jsonl: the table lacks the columns step"),
    "hangs": ("timeout", "ran past its deadline; got more than 1 s"),
}


def write_suite(folder: Path, kinds: list[str], extra: str = "") -> Path:
    suite = folder / "lm"
    suite.mkdir()
    (suite / "eval.py").write_text(EVAL)
    lines = ["Case.num_seeds = 1", 'Case.primary_metric = "valid/loss"', 'Case.curves = "{out}/metrics.jsonl"']
    for kind in kinds:
        lines.append(f'{kind}/Case.command = "python eval.py {kind} {{checkpoint}} {{seed}} {{step}} {{out}}"')
    (suite / "eval.gin").write_text("\n".join([*lines, extra]))
    return suite


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    for step in (0, 1):
        np.savez(tmp_path / f"run/theta_{step}.npz", w=np.arange(3.0) + step)
        (tmp_path / f"run/theta_{step}.npz.done").touch()
    return tmp_path / "run"


def without_jax(folder: Path) -> dict[str, str]:
    """Returns an environment in which an import of jax, optax or flax writes into a file, and fails."""
    for name in ("jax", "jaxlib", "optax", "flax"):
        (folder / "poison" / name).mkdir(parents=True)
        text = f"open({str(folder / 'imported')!r}, 'a').write('{name} ')\nraise ImportError('poisoned')\n"
        (folder / "poison" / name / "__init__.py").write_text(text)
    return {**os.environ, "PYTHONPATH": str(folder / "poison")}


def test_watch_of_commands_records_each_outcome_without_jax(tmp_path: Path, run: Path) -> None:
    extra = 'judged/expect.max_final = 0.5\nhangs/Case.timeout_seconds = 1\nfinal/Case.curves = "{out}/metrics.json"\n'
    suite, store = write_suite(tmp_path, [*OUTCOMES], extra), tmp_path / "store"
    words, environment = [sys.executable, "-m", "lobench.cli"], without_jax(tmp_path)
    watch = [
        *words,
        "watch",
        str(run),
        "--suite",
        str(suite),
        "--store",
        str(store),
        "--once",
        "--checkpoints",
        "latest",
        "--workers",
        "1",
    ]
    for command, code in (
        (watch, 3),
        ([*words, "results", "--store", str(store)], 0),
        ([*words, "report", str(store), "--output", str(tmp_path / "r.html")], 0),
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    found = {one["case"]["name"]: one for one in results(store, "--curves")}
    assert {name: one["outcome"] for name, one in found.items()} == {name: one for name, (one, _) in OUTCOMES.items()}
    for name, (_, message) in OUTCOMES.items():
        assert message in found[name]["message"], (name, found[name]["message"])
    assert found["works"]["curves"]["valid/loss"] == [[4.0, 1.0]] and found["works"]["eval_steps"] == [0, 10]
    assert found["works"]["curves"]["asked"] == [[0.0, 10.0]]  # nobody asked for it, and it is kept
    assert found["final"]["curves"] == {"valid/loss": [[3.5]]} and found["final"]["eval_steps"] == [0]
    assert found["diverges"]["diverged"] == 1


def test_large_checkpoint_on_another_file_system_is_evaluated_in_place_and_expires_if_deleted(
    tmp_path: Path, run: Path
) -> None:
    suite = write_suite(tmp_path, ["works", "removes"])
    text = "import pathlib, sys\nkind, checkpoint, seed, step, out = sys.argv[1:]\n"
    (suite / "eval.py").write_text(f"{text}if kind == 'removes': pathlib.Path(checkpoint).resolve().unlink()\n{EVAL}")
    with tempfile.TemporaryDirectory(dir=on_another_file_system(tmp_path)) as store:
        words = ("--store", store, "--once", "--checkpoints", "latest", "--workers", "1", "--keep-limit", "0")
        done = lobench("watch", run, "--suite", suite, *words)
        assert done.returncode == 3 and SHOWN["theta-1-npz-has"] in done.stdout, done.stdout + done.stderr
        found = {one["case"]["name"]: one["outcome"] for one in results(Path(store))}
    assert found == {"removes": "expired", "works": "passed"} or found == {"removes": "expired", "works": "expired"}
    assert not (run / "theta_1.npz").exists()


def test_commands_under_compare_and_pytest_have_equal_metrics(tmp_path: Path, run: Path) -> None:
    suite, store = write_suite(tmp_path, ["works"], "Case.num_seeds = 2\n"), tmp_path / "store"
    paths = [str(run / f"theta_{step}.npz") for step in (0, 1)]
    done = lobench("compare", *paths, "--suite", suite, "--store", store, cwd=tmp_path)
    assert done.returncode == 0 and SHOWN["theta-1-npz-b-is"] in done.stdout
    done = pytest_session(suite, "--lobench-checkpoint", paths[1], "--lobench-store", tmp_path / "other", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    (header,) = (line for line in done.stdout.splitlines() if line.startswith("case "))
    assert header.split() == ["case", "seeds", "outcome", "valid/loss", "final", "best", "diverged", "exploded"]
    kept = [(one["seeds"], one["curves"]) for one in results(store, "--curves") if one["checkpoint"]["outer_step"] == 1]
    found = [(one["seeds"], one["curves"]) for one in results(tmp_path / "other", "--curves")]
    assert sorted(found, key=str) == sorted(kept, key=str) and len(found) == 2
    weights = run / "weights.bin"  # which no reader of lobench knows
    weights.write_bytes(b"1")
    done = pytest_session(suite, "--lobench-checkpoint", paths[1], "--lobench-against", weights, cwd=tmp_path)
    assert done.returncode == 4
    assert SHOWN["store-has-no-results-of"] in done.stderr and SHOWN["no-reader"] not in done.stderr


EDITED_WHILE_IT_RUNS = """
import json, pathlib, sys
next = pathlib.Path("level.next")
if next.exists(): next.rename("level.py")
import level
(pathlib.Path(sys.argv[1]) / "metrics.jsonl").write_text(json.dumps({"step": 1, "valid/loss": level.VALUE}) + "\\n")
"""


@pytest.mark.parametrize("command", ["watch", "pytest"])
def test_command_whose_code_is_edited_while_it_runs_has_results_of_todays_code_alone(
    tmp_path: Path, run: Path, command: str
) -> None:
    suite, store = write_suite(tmp_path, []), tmp_path / "store"
    (suite / "eval.py").write_text(EDITED_WHILE_IT_RUNS)
    (suite / "level.py").write_text("VALUE = 1.0\n")
    (suite / "level.next").write_text("VALUE = 2.0\n")
    with (suite / "eval.gin").open("a") as file:
        file.write('level/Case.command = "python eval.py {out}"\n')
    checkpoint = run / "theta_1.npz"
    if command == "watch":
        done = lobench(
            "watch", checkpoint, "--suite", suite, "--store", store, "--once", "--workers", "1", cwd=tmp_path
        )
        assert done.returncode == 0 and SHOWN["level-py-has-changed-restarting"] in done.stdout
    else:
        options = ("--lobench-checkpoint", checkpoint, "--lobench-store", store)
        done = pytest_session(suite, *options, cwd=tmp_path)
        assert done.returncode == 1 and SHOWN["code-of-the-case-was"] in done.stdout
        done = pytest_session(suite, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
    found = [one["curves"]["valid/loss"] for one in results(store, "--curves") if one["outcome"] == "passed"]
    assert found == [[[2.0]]]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("m.csv", "step,val_loss\n0,2\n1,1", {"val/loss": ([0, 1], [2, 1])}),
        ("m.json", '{"val/loss": 3, "note": "x"}', {"val/loss": ([0], [3])}),
        (
            "m.json",
            '{"valid": {"loss": 3, "by": {"de": 1}, "name": "x"}, "n": 2}',
            {"valid/loss": ([0], [3]), "valid/by/de": ([0], [1]), "n": ([0], [2])},
        ),
        ("m.jsonl", '{"val/loss": NaN}', {"val/loss": ([0], [float("nan")])}),
        # The step of the checkpoint next to final values is no step of a curve.
        ("m.jsonl", '{"step": 5, "val/loss": NaN}\n', {"val/loss": ([0], [float("nan")])}),
        ("m.json", '{"epoch": 1, "val/loss": 2.0}', {"val/loss": ([0], [2])}),
        (
            "m.json",
            '{"global_step": 20, "valid": {"loss": 3, "acc": 98.5}, "val/loss": 3}',
            {"valid/loss": ([0], [3]), "valid/acc": ([0], [98.5]), "val/loss": ([0], [3])},
        ),
        ("m.csv", "epoch,step,val_loss\n1,20,2", {"val/loss": ([0], [2])}),
    ],
)
def test_read_curves_of_a_format_returns_each_metric(tmp_path: Path, name: str, text: str, expected: dict) -> None:
    (tmp_path / name).write_text(text)
    found = read_curves(tmp_path / name, "val/loss")
    assert found.keys() == expected.keys()
    for metric, (steps, values) in expected.items():
        np.testing.assert_array_equal(found[metric][0], steps)
        np.testing.assert_array_equal(found[metric][1], values)


def test_read_curves_of_two_cases_in_a_file_is_refused(tmp_path: Path) -> None:
    rows = [{"case": case, "step": step, "val/loss": 1.0} for step in (0, 1) for case in "ab"]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(LobenchError) as raised:
        read_curves(tmp_path / "m.jsonl", "val/loss")
    assert raised.value.got == "cases 'a' and 'b'"


def test_page_of_torch_runs_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: `ci/test --all` installs it")
    (suite,) = (one for one in blocks_of("any_evaluator.md") if one.title == "suites/lm/lm.gin")
    one_seed = {suite.title: suite.text.replace("num_seeds = 2", "num_seeds = 1")}  # each imports torch
    follow("any_evaluator.md", tmp_path, Story(instead=one_seed))
    found = results(tmp_path / "runs/torch/lobench_results/lm")
    assert sorted((one["checkpoint"]["outer_step"], one["outcome"]) for one in found) == [
        (150, "passed"),
        (200, "passed"),
    ]

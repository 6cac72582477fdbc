"""A torch trainer, its watch and the workers, killed at random: python benchmarks/torch_kills.py FOLDER --kills 20

The trainer writes `checkpoint-N` folders as the trainer of Hugging Face does, keeps the last two, and continues from
the last one after a kill. It waits until at most three checkpoints are not evaluated. A watch evaluates each with a
command and with a test, both in torch, and delivers to TensorBoard and MLflow. Meanwhile the trainer, the watch or one
of its workers is killed with SIGKILL. At the end, each checkpoint that the watch has seen has each evaluation once, and
each sink each scalar once; otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

TRAIN = """
import json, shutil, sys, time
from pathlib import Path
import torch
import lobench

run, store, last, seconds = Path("run"), "store", int(sys.argv[1]), float(sys.argv[2])
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
truth = torch.linspace(-1.0, 1.0, 10)
steps = lambda: sorted(int(one.name.partition("-")[2]) for one in run.glob("checkpoint-*"))
whole = [step for step in steps() if (run / f"checkpoint-{step}/trainer_state.json").exists()]
begin = whole[-1] if whole else 0
if begin:
    saved = torch.load(run / f"checkpoint-{begin}/model.pt", weights_only=True)
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"])
for step in range(begin + 1, last + 1):
    torch.manual_seed(step)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        x = torch.randn(64, 10)
        loss = torch.nn.functional.mse_loss(model(x)[:, 0], x @ truth)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    folder = run / f"checkpoint-{step}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "model.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    for old in steps()[:-2]:
        shutil.rmtree(run / f"checkpoint-{old}")
    lobench.wait_for_evaluations(store, max_pending=3, timeout=600)
"""
LOSS = """
import torch

def loss_of(checkpoint, seed):
    model = torch.nn.Linear(10, 1)
    model.load_state_dict(torch.load(checkpoint / "model.pt", weights_only=True)["model"])
    torch.manual_seed(seed)
    x = torch.randn(1000, 10)
    with torch.no_grad():
        return torch.nn.functional.mse_loss(model(x)[:, 0], x @ torch.linspace(-1.0, 1.0, 10)).item()
"""
EVALUATE = """
import json, sys
from pathlib import Path
from loss import loss_of
checkpoint, seed, out = sys.argv[1:]
(Path(out) / "metrics.json").write_text(json.dumps({"valid/loss": loss_of(Path(checkpoint), int(seed))}))
"""
TEST = """
from loss import loss_of

def test_loss(checkpoint, record):
    record("valid/loss", loss_of(checkpoint.path, 7))
"""
GIN = """
command/Case.command = "python evaluate.py {checkpoint} {seed} {out}"
command/Case.curves = "{out}/metrics.json"
command/Case.primary_metric = "valid/loss"
command/Case.num_seeds = 2
"""
NAMES = {("command", (0,)), ("command", (1,)), ("test_loss", (0,))}


def write(folder: Path) -> None:
    (folder / "suite").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    for name, text in {"loss.py": LOSS, "evaluate.py": EVALUATE, "test_lm.py": TEST, "lm.gin": GIN}.items():
        (folder / "suite" / name).write_text(text)


def started(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "OMP_NUM_THREADS": "1"}
    log = (folder / "log").open("ab")
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, stdout=log, stderr=log)


def children(pid: int) -> list[int]:
    """Returns the processes that one started: the workers of a watch, and not the commands that they run."""
    with contextlib.suppress(OSError):
        files = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for file in files for child in file.read_text().split()]
    return []


def scalars_of(store: Path) -> dict[str, Counter[tuple[str, int]]]:
    """Returns how often TensorBoard and MLflow have each scalar."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    files = [str(file) for file in (store / "tensorboard").rglob("events.*")]
    events = [event for file in files for event in EventFileLoader(file).Load()]
    board = Counter((value.tag, event.step) for event in events for value in event.summary.value)
    flow: Counter[tuple[str, int]] = Counter()
    for file in (one for one in (store / "mlruns").glob("*/*/metrics/**/*") if one.is_file()):
        home = next(one for one in file.parents if one.name == "metrics")
        flow.update((file.relative_to(home).as_posix(), int(line.split()[2])) for line in file.read_text().splitlines())
    return {"tensorboard": board, "mlflow": flow}


def faults_of(store: Path) -> list[str]:
    """Returns a line for each evaluation or scalar that is missing or repeated, or that failed."""
    words = [sys.executable, "-m", "lobench.cli", "results", "--store", str(store), "--format", "json"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    counts = Counter((one["checkpoint"]["outer_step"], one["case"]["name"], tuple(one["seeds"])) for one in found)
    seen = sorted({step for step, _, _ in counts})
    print(f"{len(seen)} checkpoints evaluated: {', '.join(map(str, seen))}")
    wanted = {(step, *name) for step in seen for name in NAMES}
    faults = [f"{one} is there {counts[one]} times" for one in wanted | counts.keys() if counts[one] != 1]
    faults += [
        f"{one['case']['name']} is {one['outcome']}: {one['message']}" for one in found if one["outcome"] != "passed"
    ]
    for sink, scalars in scalars_of(store).items():
        steps = {step for name, step in scalars if "valid/loss" in name}
        faults += [
            f"{sink}: {one} is there {n} times" for one, n in scalars.items() if n > 1 and "config" not in one[0]
        ]
        faults += [f"{sink} lacks step {step}" for step in {*seen} - steps]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="new folder")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--checkpoints", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0, help="mean time between kills, and between checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder, rng = arguments.folder.resolve(), random.Random(arguments.seed)
    write(folder)
    train = ("train.py", str(arguments.checkpoints), str(arguments.seconds))
    watch = ("-m", "lobench.cli", "watch", "run", "--suite", "suite", "--store", "store", "--checkpoints", "all")
    watch += ("--workers", "2", "--sink", "tensorboard", "--sink", "mlflow")
    (folder / "run").mkdir()
    trainer, watcher, kills = started(folder, *train), started(folder, *watch), Counter[str]()
    while kills.total() < arguments.kills:
        time.sleep(rng.uniform(0, 2 * arguments.seconds))  # kills at random times are the point
        below = children(watcher.pid)
        victim = rng.choice(["trainer", "watch", "worker"])
        if victim == "worker" and below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(below), signal.SIGKILL)
                kills["worker"] += 1
        elif victim == "watch":
            watcher.kill()
            watcher.wait()
            kills["watch"] += 1
            watcher = started(folder, *watch)
        elif victim == "trainer" and trainer.poll() is None:
            trainer.kill()
            trainer.wait()
            kills["trainer"] += 1
            trainer = started(folder, *train)
        elif trainer.poll() is not None and not below:
            break
    trainer.wait()
    watcher.send_signal(signal.SIGTERM)
    watcher.wait()
    started(folder, *watch, "--once").wait()
    print(f"{kills.total()} kills: {', '.join(f'{count} of the {name}' for name, count in sorted(kills.items()))}")
    faults = faults_of(folder / "store")
    print("\n".join(faults) or "each evaluation once, and each scalar once in TensorBoard and MLflow")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""The scripts of examples/cluster and the commands of docs/cluster.md: sound, and made of options that exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from reference import ROOT
from shown import texts_of

from lobench.cli.watch import watch

SHOWN = texts_of("lobench")

CLUSTER = ROOT / "examples" / "cluster"
SCRIPTS = sorted(CLUSTER.glob("*.sh"))


def watch_commands(text: str) -> list[list[str]]:
    """Returns the arguments of each `lobench watch` in a text, continued lines and shell variables included."""
    text = re.sub(r"\\\n\s*", " ", text)
    commands = [shlex.split(line) for line in re.findall(r"lobench watch ([^`\n]*)", text)]
    return [[word for word in command if word not in ("...", "$@")] for command in commands]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script: Path) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_manifest_has_one_image_tokens_and_a_head_without_slots() -> None:
    spec = yaml.safe_load((CLUSTER / "rayjob.yaml").read_text())["spec"]
    cluster = spec["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {container["image"] for group in groups for container in group["template"]["spec"]["containers"]}
    assert len(images) == 1
    (command,) = watch_commands(spec["entrypoint"])
    volume = cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["mountPath"]
    paths = [word for word in command if word.startswith("/")]
    assert len(paths) == 3
    assert all(path.startswith(volume) for path in paths)


TEXTS = [path for path in (*SCRIPTS, ROOT / "docs" / "cluster.md") if "lobench watch" in path.read_text()]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_watch_is_made_of_options_that_exist(path: Path) -> None:
    commands = watch_commands(path.read_text())
    assert commands
    for command in commands:
        arguments = command if "--suite" in command else ["runs/today", "--suite", "suites/quick", *command]
        context = watch.make_context("watch", arguments)
        assert context.params["executor"].partition(":")[0] in ("ray", "slurm")


def shares(folder: Path, ids: range, count: int) -> list[str]:
    """Runs the array's script as SLURM would, with a `lobench` that says its arguments; returns each id's share."""
    binaries = folder / "venv" / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    (binaries / "activate").write_text(f'PATH="{binaries}:$PATH"\n')
    (binaries / "lobench").write_text('#!/bin/sh\necho "$@"\n')
    (binaries / "lobench").chmod(0o755)
    found = []
    for number in ids:
        array = {"ID": number, "COUNT": len(ids), "MIN": ids[0], "MAX": ids[-1]}
        environment = {
            "PATH": os.environ["PATH"],
            "LOBENCH_VENV": str(folder / "venv"),
            **{f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in array.items()},
        }
        command = [str(CLUSTER / "evolve_array.sh"), "a.gin", "store", str(count), "--seeds", "10"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found.append(done.stdout.split("--shard ")[1].split()[0] if done.returncode == 0 else done.stderr)
    return found


@pytest.mark.parametrize("first", [0, 1, 17])
def test_an_array_runs_each_share_once_wherever_its_ids_begin(tmp_path: Path, first: int) -> None:
    found = shares(tmp_path, range(first, first + 4), 4)
    assert sorted(found) == ["0/4", "1/4", "2/4", "3/4"]


def test_a_task_that_is_submitted_again_alone_runs_its_share(tmp_path: Path) -> None:
    whole = shares(tmp_path, range(1, 5), 4)
    assert [shares(tmp_path, range(number, number + 1), 4)[0] for number in range(1, 5)] == whole


def test_an_array_that_is_wider_than_its_shares_is_refused(tmp_path: Path) -> None:
    assert all(SHOWN["two-tasks-would-run-one"] in text for text in shares(tmp_path, range(5), 4))

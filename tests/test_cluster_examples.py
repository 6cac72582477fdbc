"""The scripts of examples/cluster and the commands of docs/cluster.md: sound, and made of options that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from reference import ROOT

from lobench.cli.watch import watch

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
        assert context.params["executor"] == "ray"

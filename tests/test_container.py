"""The Containerfile: what `ci/clean_root.py` runs in a clean Debian root is what an engine would run."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reference import ROOT
from shown import texts_of

SHOWN = texts_of("lobench")

spec = importlib.util.spec_from_file_location("clean_root", ROOT / "ci" / "clean_root.py")
assert spec is not None and spec.loader is not None
clean_root = importlib.util.module_from_spec(spec)
sys.modules["clean_root"] = clean_root
spec.loader.exec_module(clean_root)


def steps() -> list[tuple[str, str]]:
    return list(clean_root.instructions((ROOT / "Containerfile").read_text()))


def test_every_step_is_a_script_that_is_sound_and_knows_it() -> None:
    script = ROOT / "ci" / "container.sh"
    known = set(re.findall(r"^(\w+)\)", script.read_text(), re.MULTILINE))
    runs = [rest for name, rest in steps() if name == "RUN"]
    called = [re.fullmatch(r"/opt/lobench/source/ci/container\.sh (\w+)( \$EXTRAS)?", run) for run in runs]
    assert len(called) == 3 and {found[1] for found in called if found} == known - {"check"}
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([script, "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "usage:" in done.stderr


def test_an_instruction_that_the_root_could_not_run_is_refused() -> None:
    with pytest.raises(ValueError, match=SHOWN["line-2-healthcheck-is-unknown"]):
        list(clean_root.instructions("FROM debian:bookworm-slim\nHEALTHCHECK true\n"))

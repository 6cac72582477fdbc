"""A watch of a case that asks for more cores than its block can use says so at its end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from shown import texts_of
from stores import case_info, curves
from tiny import make_run, make_suite, watch

from lobench.api import utilisation
from lobench.api.utilisation import UtilisationProgress
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.progress import SilentProgress

SHOWN = texts_of("api")


def test_a_watch_names_the_case_and_the_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Shorter trainings are looked at than users', which are half a second long or more.
    monkeypatch.setattr("lobench.core.utilisation._MIN_SECONDS", 0.05)
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    given = (
        "Case.num_cpus = 2",
        "Case.num_seeds = 1",
        "Case.num_inner_steps = 6000000",
        "Case.eval_every = 2000000",
    )
    options = [word for text in given for word in ("--gin-param", text)]
    done = watch(run, suite, "--once", "--workers", "2", "--store", str(tmp_path / "store"), *options)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "cores; bind" in line]
    assert SHOWN["of-2-cores-bind-case"] in line


def test_devices_are_asked_only_where_a_case_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for nvidia-smi that is asked again and again; an answer that takes too long ends nothing."""
    asked = tmp_path / "asked"
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n[ -e {asked} ] || {{ echo x > {asked}; exec sleep 600; }}\necho 12\necho 3\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(utilisation, "_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(utilisation, "_ANSWER_SECONDS", 0.5)
    found = curves({"train/loss": [1.0]})
    subject = Subject.of_checkpoint(Checkpoint(uri="a.npz", sha256="0" * 64, outer_step=0))
    lines = []
    for num_gpus in (0.0, 0.5):
        measuring = UtilisationProgress(SilentProgress(), devices=True)
        case = case_info("c").__class__(**{**_fields(case_info("c")), "num_gpus": num_gpus})
        measuring.evaluation_leased(0, subject, case)
        sampler = measuring._devices
        assert sampler is not None and (sampler._thread is not None) == (num_gpus > 0)
        while num_gpus and not sampler._shares:
            sampler._ended.wait(0.01)
        event = EvaluationFinished(
            subject=subject, case=case, seed_block=SeedBlock(start=0, size=1), outcome=Outcome.PASSED, curves=found
        )
        measuring.evaluation_finished(event, 0)
        lines.append(measuring.advice(num_workers=1, num_cores=1))
    assert lines[0] == "" and lines[1].startswith(SHOWN["devices-were-busy-12-of"])
    assert asked.exists()


def _fields(case: object) -> dict[str, object]:
    return {name: getattr(case, name) for name in case.__dataclass_fields__}  # type: ignore[attr-defined]

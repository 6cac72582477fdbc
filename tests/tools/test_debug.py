"""`lobench debug` on a real case, in a process of its own, as people start it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from commands import lobench
from shown import texts_of
from tiny import PATIENCE, make_run, make_suite

from lobench.core.case import CaseSpec
from lobench.tools.debug.debug import _page_name

SHOWN = texts_of("debug")


def test_a_rate_that_is_too_high_is_found_and_shown(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, 3.0)
    options = ["debug", f"{suite}/a", "--checkpoint", str(run / "theta_1.npz"), "--seed", "1", "--home", ""]
    done = subprocess.run(
        [sys.executable, "-m", "lobench.cli", *options, "--output", "page.html", "--format", "json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["case"] == "tiny/a" and record["kind"] == "all_layers" and record["step"] == 1
    assert record["difference"] == 0.0 and record["block"] == "0+2"
    assert record["layers"][0]["update_over_weights"] > 10
    page = (tmp_path / "page.html").read_text()
    assert record["verdict"] in page and page.count("<svg") >= 4 and "<script" not in page
    assert shlex.split(record["command"])[1:] == options  # with --home "", and not with the one that is the default


def test_pages_of_two_subjects_have_two_names(tmp_path: Path) -> None:
    spec = CaseSpec(path=tmp_path / "tiny" / "tiny.gin", scope="a", root=tmp_path)
    thetas = [("one/theta_3.npz", ()), ("two/theta_3.npz", ())]
    subjects = [("sgd()", ()), ("sgd()", ("sgd.learning_rate = 3.0",)), ("adam()", ()), *thetas, ("", ())]
    names = [_page_name(spec, 1, text, params) for text, params in subjects]
    assert len({*names}) == len(names) and all(name.startswith("tiny-a-seed1") for name in names)
    assert "-adam-" in names[2] and "-theta_3-" in names[3]


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    suite = make_suite(tmp_path)

    def refused(*arguments: str) -> str:
        done = lobench("debug", *arguments)
        assert done.returncode == 2 and not done.stdout and len(done.stderr.strip().splitlines()) == 1, done
        return done.stderr

    assert SHOWN["case-has-no-optimizer-of"] in refused(f"{suite}/a")
    assert (
        SHOWN["no-case-c"] in (line := refused(f"{suite}/c", "--optimizer", "adam()")) and SHOWN["one-of-a-b"] in line
    )
    (suite / "other.gin").write_text((suite / "tiny.gin").read_text())
    twice = refused(f"{suite}/a", "--optimizer", "adam()")
    assert SHOWN["several-cases-are-called-a"] in twice
    (suite / "other.gin").unlink()
    assert SHOWN["which-suite-has-the-case"] in refused("a", "--optimizer", "adam()")
    assert SHOWN["no-checkpoint-found"] in refused(f"{suite}/a", "--checkpoint", str(tmp_path / "none.npz"))

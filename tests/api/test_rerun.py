"""What a watch says of an expectation that was not met, and the command that evaluates it again."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from forked import programs
from shown import texts_of
from tiny import make_run, make_suite, results, watch

SHOWN = texts_of("api")


def test_the_command_of_a_failure_gives_the_same_numbers_in_pytest(tmp_path: Path) -> None:
    folder = tmp_path / "an odd 'folder'"
    suite, run = make_suite(folder), make_run(folder, -6.0, -3.0)
    test = suite / "test_tiny.py"
    test.write_text(
        test.read_text().replace("evaluate(case)", "assert evaluate(case).final('train/loss').mean() < 0.1")
    )
    options = ("--once", "--workers", "1", "--gin-param", "Case.num_inner_steps = 14")
    done = watch(run, suite, *options, "--gin-param", "b/Bowl.dim = 7")
    assert done.returncode == 1, done.stdout + done.stderr
    output = done.stdout.splitlines()
    place = next(
        index for index, line in enumerate(output) if line.startswith("FAILED tiny/b, outer step 2: Assertion")
    )
    curve, again = output[place + 1], output[place + 2]
    (record,) = [one for one in results(run / "lobench_results" / "tiny", "--case", "b") if one["outcome"] == "failed"]
    finals = record["metrics"]["train/loss"]["per_seed"]
    assert (
        curve.startswith("  train/loss  █") and SHOWN["by-seed-0-1"].format(value=finals[0], value_2=finals[1]) in curve
    )

    command = again.removeprefix("  again: ") + " -p no:cacheprovider --color no --junitxml=junit.xml"
    places = (programs(), Path(sys.executable).parent, os.environ["PATH"])
    path = os.pathsep.join(str(place) for place in places if place)
    tested = subprocess.run(
        command, shell=True, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert tested.returncode == 1 and "1 failed" in tested.stdout, tested.stdout + tested.stderr
    assert curve.strip() in tested.stdout and again.strip() in tested.stdout
    properties = {one.get("name"): one.get("value") for one in ET.parse(folder / "junit.xml").iter("property")}
    assert properties["lobench_final_by_seed:train/loss"] == " ".join(f"{value:.7g}" for value in finals)
    assert properties["lobench_case"] == "tiny/b" and properties["lobench_diverged"] == "0"
    assert "lobench_score" not in properties, "no baseline lies beside it"

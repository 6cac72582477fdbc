"""The sessions as functions: called from a plain Python process in another folder, with no terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shown import texts_of
from tiny import ONE_CASE, PATIENCE, make_run, make_suite

import lobench
from lobench.core.errors import UsageError

SHOWN = texts_of("api")

SCRIPT = """
import json, sys
import lobench

run, suite = sys.argv[1:]
watched = lobench.watch(run, suite, once=True, checkpoints="all", workers=1)
again = lobench.watch(run, suite, once=True, checkpoints="all", workers=1)
found = lobench.best(run, suite, top=1, workers=1)
told = lobench.compare(f"{watched.store}@1", f"{watched.store}@2", progress=None)
print(json.dumps({
    "store": str(watched.store),
    "outcomes": [dict(one.ending.outcomes) for one in (watched, again)],
    "recorded": dict(again.ending.recorded),
    "best": found.uri,
    "verdicts": told.verdicts(),
    "imported": [name for name in ("click", "rich.live") if name in sys.modules],
}))
"""


def test_a_script_watches_chooses_and_compares_and_prints_what_it_prints_itself(tmp_path: Path) -> None:
    suite, run, elsewhere = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -4.0, -1.5), tmp_path / "elsewhere"
    elsewhere.mkdir()
    gin = suite / "tiny.gin"  # of two seeds without spread nothing is said
    gin.write_text(gin.read_text().replace("Case.num_seeds = 2", "Case.num_seeds = 3"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(run), str(suite)],
        cwd=elsewhere,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 and not done.stderr
    found = json.loads(done.stdout)
    assert found["store"] == str(run / "lobench_results" / "tiny")
    assert found["outcomes"] == [{"passed": 2}, {}] and found["recorded"] == {"passed": 2}
    assert found["best"] == str(run / "theta_2.npz")
    assert found["verdicts"] == ["PASS"]
    assert found["imported"] == []
    assert list(elsewhere.iterdir()) == []


def test_bad_input_is_an_error_and_no_exit(tmp_path: Path) -> None:
    suite = make_suite(tmp_path)
    with pytest.raises(UsageError, match=SHOWN["no-such-suite"]):
        lobench.watch(tmp_path, tmp_path / "tin", once=True)
    with pytest.raises(UsageError, match=SHOWN["there-is-nothing-here"]):
        lobench.watch(tmp_path / "nowhere", suite, once=True)
    with pytest.raises(UsageError, match=SHOWN["nothing-to-compare-with"]):
        lobench.compare("adam()", suites=suite)
    with pytest.raises(UsageError, match=SHOWN["no-such-suite"]):
        lobench.baseline(tmp_path / "tin")
    with pytest.raises(TypeError, match=SHOWN["watch-got-an-unexpected-keyword"]):
        lobench.watch(tmp_path, suite, one_time=True)
    with pytest.raises(TypeError, match=SHOWN["compare-worker-did-you-mean"]):
        lobench.compare("adam()", "sgd()", suites=suite, worker=2)
    with pytest.raises(TypeError, match=SHOWN["baseline-optimizer-did-you-mean"]):
        lobench.baseline(suite, optimizer="adam")

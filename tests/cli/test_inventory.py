"""`lobench list suites`, whatever lies in the folder; and names that are nearly right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from commands import lobench, lobench_here
from forked import python
from shown import texts_of
from stores import add
from tiny import ONE_CASE, make_run, make_suite, watch_here

from lobench.api.settings import default_store, unused_store
from lobench.cli import group

SHOWN = texts_of("lobench")


def test_a_broken_suite_is_named_and_hides_no_other(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.gin").write_text("x/Case.task = @Bowl()\n")
    (tmp_path / "neither.gin").write_text("x/Case.task = @Bowl(\n")
    done = lobench("list", "suites", "--folder", tmp_path)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [f"{tmp_path / name}.gin: x" for name in ("first", "second")]
    assert len(done.stderr.splitlines()) == 1 and str(tmp_path / "neither.gin") in done.stderr


def test_list_parameters_case_shows_paths_that_patterns_match(tmp_path: Path) -> None:
    namesake = "from lobench import configurable\n\n@configurable\ndef sgd():\n    return None\n"
    (tmp_path / "own_rules.py").write_text(namesake)  # of the optimizer that lobench binds here
    imports = "import lobench.inner.tasks.image\nimport own_rules"
    (tmp_path / "own.gin").write_text(f"{imports}\nx/Case.task = @DigitsMLP()\nDigitsMLP.hidden_sizes = (4,)\n")
    done = lobench("list", "parameters", f"{tmp_path / 'own.gin'}:x")
    assert done.stdout.splitlines() == [
        "b0  float32[4]", "b1  float32[10]", "w0  float32[64, 4]", "w1  float32[4, 10]"
    ]  # fmt: skip
    done = lobench("list", "parameters")
    assert (done.returncode, SHOWN["lobench-list-parameters-suite-case"] in done.stderr) == (2, True)


def test_what_a_person_wants_to_know_of_an_optimizer_is_listed() -> None:
    done = lobench("list", "optimizers", "-v")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line, *rest in [
        ("adam  Adam.", "learning_rate = 0.001, b1 = 0.9, b2 = 0.999, eps = 1e-08", "Kingma and Ba 2014"),
        ("soap  SOAP: Adam in the eigenbasis", "update_interval = 10", "arXiv 2409.11321"),
        ("MLPLOpt  ", "step_mult = ", "Metz et al. 2019"),
        ("optax.contrib.muon  Muon: ", "learning_rate, ns_coeffs = (3.4445", "Source: Jordan, modded-nanogpt"),
        ("optax.nadamw  ", "nesterov = True", "Loshchilov"),
        ("optax.lbfgs  ", "memory_size = 10, scale_init_precond = True, linesearch = GradientTransf", "Source: "),
    ]:
        place = next(number for number, found in enumerate(lines) if found.startswith(line))
        assert all(any(text in found for found in lines[place + 1 : place + 3]) for text in rest), lines[place:][:3]
    assert not any("optax.scale_by" in line or "optax.losses" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wtch"], SHOWN["no-such-command-wtch-did"]),
        (["list", "taks"], SHOWN["did-you-mean-tasks"]),
        (["watch", ".", "--suite", "mysuit"], SHOWN["mysuit-no-such-suite-did"]),
        (["watch", ".", "--suite", "mysuite", "--checkpoints", "latst"], SHOWN["did-you-mean-latest"]),
    ],
)
def test_a_name_that_is_nearly_right_is_suggested(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mysuite").mkdir()
    done = lobench(*arguments)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_a_command_of_a_plugin_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "plugin_commands", dict)
    done = CliRunner().invoke(group.cli, ["evolve"])
    assert SHOWN["no-such-command-evolve-it"] in done.output


POLICY = """
from lobench.hookspecs import Declaration

class Policy:
    def __init__(self, argument):
        self.n = int(argument)

def lobench_admission_policies():
    return [Declaration(name="mine", factory=":Policy")]
"""


def test_a_policy_of_a_plugin_that_refuses_its_argument_is_one_line(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    (suite / "conftest.py").write_text(POLICY)
    done = lobench("watch", run, "--suite", suite, "--checkpoints", "mine:x", "--once")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and SHOWN["checkpoints-mine-x-mine-of"] in line
    assert SHOWN["valueerror-invalid-literal-for-int"] in line


def test_a_runs_store_is_no_package_of_pythons_and_an_earlier_one_is_gone_on_with(tmp_path: Path) -> None:
    assert default_store(str(tmp_path), "quick") == tmp_path / "lobench_results" / "quick"
    earlier = tmp_path / "lobench" / "quick"
    earlier.mkdir(parents=True)
    assert default_store(str(tmp_path), "quick") == tmp_path / "lobench_results" / "quick", (
        "an empty folder is no store"
    )
    add(earlier, 1, {"a": {"train/loss": [1.0]}})
    assert default_store(str(tmp_path), "quick") == earlier
    assert default_store(str(tmp_path), "digits") == tmp_path / "lobench_results" / "digits"
    assert default_store("gs://bucket/run", "quick") == Path(".lobench") / "quick"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("mode", "is_continued"), [(0o777, True), (0o755, False)])
def test_default_store_in_another_users_folder_is_the_one_that_the_group_may_write(
    mode: int, is_continued: bool
) -> None:
    code = """
import os, sys
from lobench.api.settings import default_store
os.seteuid(65534)
print(default_store(sys.argv[1], "quick"))
"""
    with tempfile.TemporaryDirectory() as run:  # pytest's own are closed to others
        store = Path(run) / "lobench_results" / "quick"
        store.mkdir(parents=True)
        (store / "ledger.sqlite").touch()
        for path in (Path(run), store.parent, store, store / "ledger.sqlite"):
            path.chmod(mode)
        done = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == (str(store) if is_continued else ".lobench/quick")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_default_store_of_root_in_another_users_folder_is_elsewhere(tmp_path: Path) -> None:
    add(tmp_path / "lobench_results" / "quick", 1, {"a": {"train/loss": [1.0]}})
    os.chown(tmp_path, 65534, 65534)
    assert default_store(str(tmp_path), "quick") == Path(".lobench") / "quick"


def test_unused_store_is_the_one_beside_checkpoints_that_became_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    assert unused_store(str(run), "tiny", default_store(str(run), "tiny")) is None
    add(run / "lobench_results" / "tiny", 1, {"a": {"train/loss": [1.0]}})
    assert unused_store(str(run), "tiny", default_store(str(run), "tiny")) is None
    monkeypatch.setattr("lobench.api.settings.may_write", lambda path: False)
    assert unused_store(str(run), "tiny", default_store(str(run), "tiny")) == run / "lobench_results" / "tiny"
    monkeypatch.chdir(tmp_path)
    for tool in ("best", "alarm"):
        done = lobench_here(tool, run, "--suite", suite)
        assert done.returncode == 2 and SHOWN["store-is-read-only"] in done.stderr, done.stderr
        assert "lobench_results/tiny" in done.stderr
    done = lobench_here("bisect", run, "--suite", suite, "--case", "a")  # needs no store
    assert SHOWN["bisecting-takes-two"] in done.stderr and SHOWN["store-is-not-used"] in done.stdout + done.stderr
    add(Path(".lobench", "tiny"), 1, {"a": {"train/loss": [1.0]}})  # may be another run's
    done = lobench_here("alarm", run, "--suite", suite)
    assert SHOWN["store-is-not-used"] in done.stdout + done.stderr


def test_watch_of_a_run_whose_store_became_read_only_names_that_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    add(run / "lobench_results" / "tiny", 1, {"a": {"train/loss": [1.0]}})
    monkeypatch.setattr("lobench.api.settings.may_write", lambda path: False)
    monkeypatch.chdir(tmp_path)
    done = watch_here(run, suite, "--once")
    assert done.returncode == 0, done.stderr
    assert f"`lobench results --store {run}/lobench_results/tiny`" in done.stdout


def test_a_command_whose_reader_is_gone_ends_quietly_and_is_no_verdict() -> None:
    command = [sys.executable, "-m", "lobench.cli", "list", "tasks"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_list_alone_lists_the_kinds() -> None:
    done = lobench("list")
    assert done.returncode == 0 and SHOWN["lobench-list-optimizers"] in done.stdout and "--sink" in done.stdout


PROBLEMS = '''
import gin
from lobench import LearnedOptimizer, Task, TaskFamily
from lobench.hookspecs import Declaration

__all__ = ["Dunes", "Family", "Lopt", "helper"]

def lobench_gin_modules():
    return [Declaration(name="problems", factory="problems:")]

@gin.configurable
class Dunes(Task):
    """Hills of sand."""

@gin.configurable
class Family(TaskFamily):
    """Family of hills."""

@gin.configurable
class Lopt(LearnedOptimizer):
    """Sand blaster."""

def helper():
    """None of these."""
'''


def test_list_shows_tasks_and_optimizers_of_a_gin_module_with_any_name(tmp_path: Path) -> None:
    info = tmp_path / "problems-1.0.dist-info"
    info.mkdir()
    (tmp_path / "problems.py").write_text(PROBLEMS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: problems\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lobench]\nproblems = problems\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    listed = {
        kind: python("-m", "lobench.cli", "list", kind, env=environment).stdout for kind in ("tasks", "optimizers")
    }
    assert re.search(r"^Dunes +Hills of sand\.$", listed["tasks"], re.M)
    assert re.search(r"^Family +Family of hills\.$", listed["tasks"], re.M)
    assert re.search(r"^Lopt +Sand blaster\.$", listed["optimizers"], re.M)
    assert not re.search("Lopt|helper", listed["tasks"]) and not re.search(
        "Dunes|Family  |helper", listed["optimizers"]
    )

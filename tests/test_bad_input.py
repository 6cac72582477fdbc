"""Bad input gets one clear line, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from disks import MOUNTING, small_disk
from forked import python
from shown import texts_of
from tiny import (
    GIN,
    KILLED_CHIEF,
    ONE_CASE,
    PATIENCE,
    content,
    make_run,
    make_suite,
    results,
    watch,
    watch_command,
    write_checkpoint,
)

SHOWN = texts_of("lobench")

ONCE = ("--once", "--checkpoints", "all", "--workers", "1")
HERE = (*ONCE, "--executor", "inline")  # a worker as any other, without a second for its start


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_suite(tmp_path_factory.mktemp("suite"), gin=GIN.replace("b/Case.task = @Bowl()\nb/Bowl.dim = 5\n", ""))


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return lines[0]


def test_a_missing_directory(tmp_path: Path, suite: Path) -> None:
    done = watch(tmp_path / "nowhere", suite, *ONCE)
    assert done.returncode == 2
    assert SHOWN["nowhere-there-is-nothing-here"] in only_line(done)


def test_an_empty_directory(tmp_path: Path, suite: Path) -> None:
    done = watch(make_run(tmp_path), suite, *ONCE)
    assert done.returncode == 2
    assert SHOWN["no-checkpoint-to-evaluate"] in only_line(done)


def test_a_half_written_file_is_named(tmp_path: Path, suite: Path) -> None:
    run = make_run(tmp_path, -3.0)
    data = (run / "theta_1.npz").read_bytes()
    (run / "theta_1.npz").write_bytes(data[: len(data) // 2])
    done = watch(run, suite, *ONCE)
    assert done.returncode == 3
    assert "unreadable: " in done.stdout and "older" not in done.stdout.replace(str(tmp_path), "")
    last = done.stdout.splitlines()[-1]
    assert last.startswith(SHOWN["newest-checkpoint-could-not-be"])
    assert SHOWN["theta-1-npz-cannot-read"] in last


def test_what_cannot_be_read_is_told_and_the_rest_goes_on(tmp_path: Path, suite: Path) -> None:
    run = make_run(tmp_path, -3.0)
    (run / "theta_2.pkl").write_bytes(b"\x80\x04N.")
    (run / "theta_2.pkl.done").touch()
    broken = run / "theta_3.msgpack"
    broken.write_bytes(b"\xde\xff\xff\x01")
    os.utime(broken, (1, 1))
    np.savez(run / "theta_4.npz", log_lr=np.asarray(["text"]))
    np.savez(run / "theta_5.npz")
    done = watch(run, suite, *HERE)
    assert done.returncode == 3, done.stdout + done.stderr  # the newest is among them
    assert SHOWN["newest-checkpoint-could-not-be-read"] in done.stdout.splitlines()[-1]
    assert SHOWN["theta-2-pkl-a-pickle"] in done.stdout
    assert SHOWN["theta-3-msgpack-cannot-read"] in done.stdout
    assert SHOWN["theta-4-npz-leaf-log"] in done.stdout
    assert SHOWN["theta-5-npz-theta-is"] in done.stdout
    found = {Path(r["checkpoint"]["uri"]).name: r for r in results(run / "lobench_results" / "tiny")}
    assert {name: (r["outcome"], r["checkpoint"]["outer_step"], len(r["seeds"])) for name, r in found.items()} == {
        "theta_1.npz": ("passed", 1, 2),
        **dict.fromkeys(("theta_2.pkl", "theta_3.msgpack", "theta_4.npz", "theta_5.npz"), ("error", None, 0)),
    }
    assert SHOWN["theta-is-empty"] in found["theta_5.npz"]["message"]
    store = run / "lobench_results" / "tiny"
    table = lobench("results", "--store", store, "--evaluations").stdout
    assert "tiny/a" in table and SHOWN["theta-5-npz-theta-is"] in table


def test_a_theta_of_another_architecture_and_a_nan_theta(tmp_path: Path, suite: Path) -> None:
    run = make_run(tmp_path, -3.0)
    np.savez(run / "theta_2.npz", log_lr=np.zeros(3, np.float32), extra=np.float32(1))
    write_checkpoint(run / "theta_3.npz", float("nan"))
    done = watch(run, suite, *HERE)
    assert done.returncode == 3
    found = {r["checkpoint"]["outer_step"]: r for r in results(run / "lobench_results" / "tiny")}
    assert found[2]["outcome"] == "error"
    for part in (SHOWN["extra-float32-is-not-expected"], SHOWN["log-lr-is-float32-3"], "LearnableSGD"):
        assert part in found[2]["message"]
    assert (found[3]["outcome"], found[3]["diverged"], found[3]["diverged_at"]) == ("passed", 2, [1, 1])


CONFIGS = {
    "Case.learned_optimizer = @LearnableSDG()": SHOWN["unknown-name-learnablesdg-did-you"],
    "Case.learned_optimizer = @LearnableSGD(": SHOWN["gin-syntax-error"],
    "": SHOWN["no-optimizer-put-case-learned"],
}


@pytest.mark.parametrize("config", CONFIGS)
def test_a_wrong_config_gin(tmp_path: Path, suite: Path, config: str) -> None:
    run = make_run(tmp_path, -3.0)
    (run / "config.gin").write_text(config)
    done = watch(run, suite, *ONCE)
    assert done.returncode == 2
    assert CONFIGS[config] in only_line(done)


def test_a_trainers_own_config_gin_is_accepted(tmp_path: Path, suite: Path) -> None:
    run = make_run(tmp_path, -3.0)
    (run / "config.gin").write_text(
        "import my_trainer.outer\nfrom somewhere import outer\ntrain_loop.steps = 5\nouter/Adam.lr = %lr\nlr = 0.1\n"
        "LearnableSGD.no_such_parameter = 1\nx.y = @unknown/thing()\n"
        "eval_chief_config.learned_opt = @LearnableSGD()\n"
    )
    assert watch(run, suite, *HERE).returncode == 0


SUITES = {
    GIN.replace("@Bowl()", "@Bwol()"): SHOWN["unknown-name-bwol-did-you"],
    GIN.replace("num_seeds = 2", "num_seeds = (2"): "tiny.gin:",
    GIN.replace("num_seeds = 2", "num_seeds = 0"): SHOWN["case-num-seeds-got-0"],
    GIN.replace("num_seeds", "num_sedes"): SHOWN["case-has-no-parameter-num"],
    GIN.replace("import tiny_tasks", "import tiny_taks"): SHOWN["cannot-import-tiny-taks"],
    "Case.num_seeds = 1\n": SHOWN["holds-no-case"],
}


@pytest.mark.parametrize("gin", SUITES, ids=list(SUITES.values()))
def test_a_wrong_suite(tmp_path: Path, gin: str) -> None:
    done = watch(make_run(tmp_path, -3.0), make_suite(tmp_path, gin=gin), *HERE)
    assert done.returncode == 2
    assert SUITES[gin] in only_line(done)


def test_unknown_names_on_the_command_line(tmp_path: Path, suite: Path) -> None:
    run = make_run(tmp_path, -3.0)
    for options, text in {
        ("--sink", "tensorbord"): SHOWN["did-you-mean-tensorboard"],
        ("--checkpoints", "every:0"): SHOWN["checkpoints-every-got-0"],
        ("--executor", "slrum"): SHOWN["unknown-executor-slrum"],
        ("--workers", "many"): SHOWN["workers-got-many"],
    }.items():
        done = watch(run, suite, *(ONCE if options[0] not in ONCE else ONCE[:1]), *options)
        assert done.returncode == 2
        assert text in only_line(done)


def test_a_store_that_cannot_be_written_or_is_no_store(tmp_path: Path, suite: Path) -> None:
    run = make_run(tmp_path, -3.0)
    (tmp_path / "file").write_text("in the way")
    done = watch(run, suite, *ONCE, "--store", str(tmp_path / "file" / "store"))
    assert done.returncode == 2
    assert SHOWN["cannot-use-the-result-store"] in only_line(done)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "ledger.sqlite").write_bytes(b"no database" * 1000)
    done = watch(run, suite, *ONCE, "--store", str(tmp_path / "broken"))
    assert done.returncode == 2
    assert SHOWN["not-a-database"] in only_line(done)


@MOUNTING
def test_a_full_disk_loses_nothing(tmp_path: Path, suite: Path) -> None:
    with small_disk(tmp_path / "disk", "200k") as disk:
        run = make_run(tmp_path, -3.0, -2.0)
        (disk.path / "ballast").write_bytes(bytes(120_000))
        done = watch(run, suite, *ONCE, "--store", str(disk.path / "store"))
        assert done.returncode == 2
        assert "full" in only_line(done) or SHOWN["no-space-left"] in only_line(done)
        (disk.path / "ballast").unlink()
        disk.resize("50m")
        assert watch(run, suite, *HERE, "--store", str(disk.path / "store")).returncode == 0
        assert len(results(disk.path / "store")) == 2


STEPS = (-3.0, -2.5, -2.0, -1.5)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, suite: Path) -> list[tuple[object, ...]]:
    """What a watch of those steps records where nothing fills."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert watch(make_run(folder, *STEPS), suite, *HERE, "--store", str(folder / "store")).returncode == 0
    return content(folder / "store")


@MOUNTING
@pytest.mark.parametrize("room", [0, 4096, 40_960], ids=["full at once", "room for a page", "room for some results"])
def test_a_disk_that_fills_in_mid_run(
    tmp_path: Path, suite: Path, undisturbed: list[tuple[object, ...]], room: int
) -> None:
    """What was said to be done is there; with space again, the same command ends with the ledger that it would have."""
    with small_disk(tmp_path / "disk", "50m") as disk:
        run, store = make_run(tmp_path, *STEPS[:1]), disk.path / "store"
        command = watch_command(run, suite, "--checkpoints", "all", "--workers", "1", "--store", str(store))
        chief = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert chief.stdout is not None
        line = next(line for line in chief.stdout if "  passed  " in line)
        disk.fill(room)
        for index, log_lr in enumerate(STEPS[1:], 2):
            write_checkpoint(run / f"theta_{index}.npz", log_lr)
        output, errors = chief.communicate(timeout=PATIENCE)
        assert chief.returncode == 2, output + errors
        (error,) = errors.splitlines()
        assert "full" in error or SHOWN["no-space-left"] in error, error
        disk.empty()
        recorded = {(one["checkpoint"]["outer_step"], one["case"]["name"]) for one in results(store)}
        finished = (line + output).count("  passed  ")
        assert len(recorded) >= finished >= 1, "what was said to be done is there"
        assert watch(run, suite, *HERE, "--store", str(store)).returncode == 0
        assert content(store) == undisturbed


@MOUNTING
def test_a_read_only_disk_can_be_looked_at_and_not_written(tmp_path: Path, suite: Path) -> None:
    """As one is after a crash: what the log holds is read too."""
    with small_disk(tmp_path / "disk", "50m") as disk:
        run = make_run(disk.path, -3.0, -2.0)
        store = run / "lobench_results" / "tiny"
        # Ended after the last commit, without closing the database: its log stays.
        program = KILLED_CHIEF.replace(
            "main()", "leave = os._exit\nledger.Ledger.close = lambda self: self._lock and leave(0)\nmain()"
        )
        words = ("100000", "0", "watch", run, "--suite", suite, *HERE)
        assert python("-c", program, *words, timeout=PATIENCE).returncode == 0
        assert (store / "ledger.sqlite-wal").stat().st_size > 0
        disk.remount("ro")
        assert len(results(store)) == 2
        done = watch(run, suite, *ONCE, "--store", str(store))
        assert done.returncode == 2
        assert SHOWN["cannot-use-the-result-store-got"] in only_line(done)
        beside = watch(run, suite, *HERE)
        assert beside.returncode == 0, "the default store goes elsewhere by itself"
        assert len(results(suite.parent / ".lobench" / "tiny")) == 2


CONFTEST = """
from lobench.hookspecs import Declaration
def lobench_evaluation_finished(event):
    raise RuntimeError("observer broke")
def lobench_checkpoint_finished(event):
    print("observed", event.checkpoint.outer_step, len(event.evaluations), flush=True)
class Jammed:
    def __init__(self, context):
        pass
    def deliver(self, deliveries):
        pass
    def close(self):
        raise RuntimeError("jammed")
def lobench_result_sinks():
    return [Declaration(name="jammed", factory=":Jammed")]
"""


@pytest.mark.parametrize(("leave", "text"), [("sys.exit(7)", "7"), ("os._exit(7)", "os._exit(7)")])
def test_a_conftest_that_exits_when_it_is_imported_and_what_was_left_out(leave: str, text: str, tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    (suite / "conftest.py").write_text(f"import os, sys\nif 'watch' in sys.argv:\n    {leave}\n")
    (run / "half\n2.npz").write_bytes(b"PK")
    (run / "half\n2.npz.done").touch()  # nobody waits for the rest of it
    done = python(*watch_command(run, suite, *ONCE)[1:], timeout=PATIENCE, cwd=suite.parent)
    assert done.returncode == 3, done.stdout + done.stderr
    assert SHOWN["conftest-py-cannot-be-imported"].format(text=text) in done.stdout
    assert "unreadable: " in done.stdout and SHOWN["half-2-npz-cannot-read"] in done.stdout


def test_an_observer_that_raises_silences_nobody(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    (suite / "conftest.py").write_text(CONFTEST)
    done = watch(run, suite, *HERE, "--sink", "jammed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert SHOWN["hook-lobench-evaluation-finished"] in done.stdout
    assert SHOWN["sink-jammed-runtimeerror-jammed-while"] in done.stdout
    assert "observed 1 2" in done.stdout


def install(folder: Path, name: str, module: str) -> None:
    """Makes a distribution with one entry point in the group, as pip would leave it."""
    (folder / f"{name}.py").write_text(module)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lobench]\n{name} = {name}\n")


TWIN = """
from lobench.hookspecs import Declaration
def lobench_result_sinks():
    return [Declaration(name="tensorboard", factory="twin:Sink")]
"""


def test_plugins_that_break_or_share_a_name(tmp_path: Path) -> None:
    install(tmp_path, "broken", "import no_such_module\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = python("-m", "lobench.cli", "plugins", env=environment)
    assert done.returncode == 0
    assert SHOWN["tensorboard-lobench-result-sinks"] in done.stdout
    assert SHOWN["broken-broken-does-not-import"] in done.stderr
    shutil.rmtree(tmp_path / "broken-1.0.dist-info")
    install(tmp_path, "twin", TWIN)
    done = python("-m", "lobench.cli", "list", "sinks", env=environment)
    assert done.returncode == 2
    assert SHOWN["two-plugins-declare-tensorboard"] in done.stderr
    assert "'twin'" in done.stderr and "(lobench_tensorboard.sink:TensorBoardSink)" in done.stderr


SINK = "from lobench.hookspecs import Declaration\ndef lobench_result_sinks(): return [Declaration({})]\n"


@pytest.mark.parametrize(
    ("module", "code", "text"),
    [
        ("import sys; sys.exit('no GPU')\n", 0, SHOWN["wrong-wrong-does-not-import"]),
        ("import pytest; pytest.skip('none', allow_module_level=True)\n", 0, SHOWN["does-not-import-skipped-none"]),
        (
            "def lobench_result_sink(): return []\n",
            0,
            SHOWN["unknown-hook-lobench-result-sink"],
        ),
        (
            "def lobench_checkpoint_finished(envt): pass\n",
            0,
            SHOWN["takes-no-part-plugin-wrong"],
        ),
        ("def lobench_result_sinks(): raise SystemExit(0)\n", 3, SHOWN["hook-lobench-result-sinks-failed"]),
        ("def lobench_result_sinks(): return None\n", 3, SHOWN["got-nonetype"]),
        (
            SINK.format("name=5, factory=':S'"),
            3,
            SHOWN["plugin-wrong-hook-lobench-result"],
        ),
        (
            SINK.format("name='s', factory=print"),
            3,
            SHOWN["declares-s-with-a-factory"],
        ),
        (
            SINK.format("name='s', factory=':S', summary=None"),
            3,
            SHOWN["declares-s-with-a-summary"],
        ),
    ],
)
def test_a_plugin_that_is_none_is_named_and_no_verdict(module: str, code: int, text: str, tmp_path: Path) -> None:
    install(tmp_path, "wrong", module)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = python("-m", "lobench.cli", *(["list", "sinks"] if code else ["plugins"]), env=environment)
    assert done.returncode == code and text in done.stderr and "Traceback" not in done.stderr


def test_a_command_of_a_plugin_that_is_no_command_is_one_line(tmp_path: Path) -> None:
    declared = "def lobench_cli_commands(): return [Declaration(name='mine', factory=':print')]\n"
    install(tmp_path, "wrong", "from lobench.hookspecs import Declaration\nprint = print\n" + declared)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = python("-m", "lobench.cli", "mine", env=environment)
    text = SHOWN["lobench-plugin-wrong-the-command"]
    assert done.returncode == 3 and done.stderr.startswith(text)


def test_list_of_sinks_names_a_plugin_that_does_not_import(tmp_path: Path) -> None:
    install(tmp_path, "wrong", "raise ValueError('planted')\n")
    done = python("-m", "lobench.cli", "list", "sinks", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    named = [line for line in done.stderr.splitlines() if "'wrong'" in line or "wrong (" in line]
    assert done.returncode == 0 and len(named) == 1 and "planted" in named[0], done.stderr


def test_a_command_of_a_plugin_that_has_the_name_of_lobenchs_own_is_said(tmp_path: Path) -> None:
    declared = "def lobench_cli_commands(): return [Declaration(name='watch', factory='own:watch')]\n"
    install(tmp_path, "own", "from lobench.hookspecs import Declaration\n" + declared)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = python("-m", "lobench.cli", "list", "commands", env=environment)
    text = SHOWN["two-plugins-declare-watch-own"]
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr

"""`lobench.evaluate` called again and again in one process, as notebooks do."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from shown import texts_of
from tiny import GIN, TASKS, is_alive, make_suite

import lobench

SHOWN = texts_of("evaluation")

TWO_CORES = "cores/Case.task = @Bowl()\ncores/Case.num_cpus = 2\n"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_suite(tmp_path_factory.mktemp("notebook"), extra=TWO_CORES) / "tiny.gin"


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stays: the evaluating process, which later tests have too, keeps modules that it imported there."""
    return tmp_path_factory.mktemp("notebook")


def children() -> set[int]:
    """Evaluating processes that live under this one."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (folder / "cmdline").read_text()
            forked = (folder / "comm").read_text().strip()  # of a process that a test's server forked
        except OSError:
            continue
        is_evaluating = "lobench.evaluation.isolated" in command or forked == "lobench.evaluation.isolated"[:15]
        if parent == os.getpid() and is_evaluating and is_alive(int(folder.name)):
            found.add(int(folder.name))
    return found


def test_cases_with_other_numbers_of_cores_follow_each_other(suite: Path) -> None:
    one = lobench.evaluate(suite, case="tiny.a", optimizer="sgd()")
    two = lobench.evaluate(suite, case="cores", optimizer="sgd()")
    assert two.final("train/loss").shape == (2,)
    again = lobench.evaluate(suite, case="a", optimizer="sgd()")
    assert again.metrics["train/loss"].tobytes() == one.metrics["train/loss"].tobytes()


def test_other_settings_leave_no_process_behind(suite: Path) -> None:
    for rate in (0.1, 0.01):
        lobench.evaluate(suite, case="a", optimizer=f"sgd(); sgd.learning_rate = {rate}")
    assert len(children()) == 1


def test_a_changed_file_counts(folder: Path) -> None:
    suite = make_suite(folder) / "tiny.gin"
    assert lobench.evaluate(suite, case="a", optimizer="sgd()").eval_steps[-1] == 10
    suite.write_text(GIN.replace("num_inner_steps = 10", "num_inner_steps = 15"))
    assert lobench.evaluate(suite, case="a", optimizer="sgd()").eval_steps[-1] == 15


def test_a_changed_or_removed_data_file_counts(folder: Path) -> None:
    suite, tasks = folder / "suite", folder / "suite" / "read_tasks.py"
    suite.mkdir()
    text = TASKS.split("@configurable\nclass Killer")[0].replace("Bowl", "ReadBowl")
    text = text.replace("jnp.sum(params**2)", "OFFSET + jnp.sum(params**2)")
    tasks.write_text(
        f"{text}\nfrom pathlib import Path\nFILE = Path(__file__).parents[1] / 'offset.txt'\n"
        "OFFSET = float(FILE.read_text()) if FILE.exists() else 5000.0\n"
    )
    (suite / "read.gin").write_text(GIN.replace("tiny_tasks", "read_tasks").replace("Bowl", "ReadBowl"))
    losses = []
    offset = folder / "offset.txt"
    for text in ("0", "1000", None):
        offset.unlink() if text is None else offset.write_text(text)
        losses.append(lobench.evaluate(suite / "read.gin", case="a", optimizer="sgd()").final("train/loss"))
    assert losses[0].max() < 900 < losses[1].min() < 2000 < losses[2].min()


ENDLESS = """
import time, jax, jax.numpy as jnp
from tiny_tasks import Bowl
from lobench import configurable

@configurable
class Endless(Bowl):
    def eval_loss_with_aux(self, params, model_state, key, data):
        def wait(x):
            open({begun!r}, "w").close()
            while True:
                time.sleep(600)
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((), jnp.float32), params, vmap_method="sequential"), {{}}
"""


def test_an_interrupted_answer_is_not_the_next_ones(suite: Path) -> None:
    """The interrupt comes while the evaluating process trains, and that ends only with its process."""
    slow, begun = suite.parent / "slow.gin", suite.parent / "begun"
    (suite.parent / "endless_tasks.py").write_text(ENDLESS.format(begun=str(begun)))
    slow.write_text(GIN + "import endless_tasks\na/Case.task = @Endless()\n")
    options = {"optimizer": "sgd()", "gin_params": ("Bowl.dim = 4",)}

    def interrupt() -> None:
        while not begun.exists() and evaluating.is_set():
            time.sleep(0.01)
        if evaluating.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # a read is cut short in its own thread

    # A shell's background job, which a test session may be, is started with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    evaluating = threading.Event()
    evaluating.set()
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            lobench.evaluate(slow, case="a", **options)
    finally:
        evaluating.clear()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert lobench.evaluate(suite, case="b", **options).eval_steps.tolist() == [0, 5, 10]


def test_errors_keep_their_class(suite: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "theta.npz", other=np.zeros(3, np.float32))
    (tmp_path / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\n")
    with pytest.raises(lobench.ThetaMismatch, match=SHOWN["other-float32"]):
        lobench.evaluate(suite, case="a", checkpoint=tmp_path / "theta.npz")


def test_the_part_of_a_checkpoint_that_is_theta_can_be_named(suite: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "theta.npz", **{"slow/log_lr": np.float32(-9), "fast/log_lr": np.float32(-1), "step": 3})
    (tmp_path / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\n")
    with pytest.raises(lobench.ThetaMismatch, match=SHOWN["several-parts-fit-learnablesgd-got"]):
        lobench.evaluate(suite, case="a", checkpoint=tmp_path / "theta.npz")
    losses = [
        lobench.evaluate(
            suite, case="a", checkpoint=tmp_path / "theta.npz", gin_params=(f"Checkpoint.theta = '{part}'",)
        ).final("train/loss")
        for part in ("slow", "fast")
    ]
    assert (losses[0] > 2 * losses[1]).all()


def test_an_optimizer_whose_state_changes_its_dtype_is_told_which_part(folder: Path) -> None:
    """jax's first line says only that something differs."""
    suite = make_suite(folder)
    (suite / "drifting.py").write_text(
        "import jax.numpy as jnp, optax\nfrom lobench import configurable\n@configurable\ndef drifting():\n"
        "    return optax.GradientTransformation(lambda p: {'trace': p}, "
        "lambda g, s, p=None: (g, {'trace': s['trace'].astype(jnp.bfloat16)}))\n"
    )
    (suite / "drifting.gin").write_text(GIN.replace("import", "import drifting\nimport", 1))
    with pytest.raises(lobench.LobenchError, match=SHOWN["they-differ-trace-float32-bfloat16"]) as caught:
        lobench.evaluate(suite / "drifting.gin", case="a", optimizer="drifting()")
    assert "\n" not in str(caught.value)

"""A suite whose task, data, metric, fixture and optimizers are the user's code in several files, and edits of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from commands import lobench_here, pytest_session
from forked import ALL, python
from forked import TORCH as WITH_TORCH
from tiny import write_checkpoint

__all__ = [
    "COMMANDS",
    "EDITS",
    "TORCH_EDITS",
    "Edit",
    "edit",
    "make_world",
    "notebook_losses",
    "num_trained",
    "run_text",
    "watch_text",
]

FILES = {
    "suite/rules.py": '''
        """Update rules."""
        import jax, jax.numpy as jnp, optax
        import lobench
        from lobench.inner.optimizers.learnable import LearnableSGD
        from helper import scaled

        FACTOR = 1.0  # of each step

        @lobench.configurable
        def signs(learning_rate=0.1, momentum=0.0):
            """Sign descent."""
            def update(grads, state, params=None, **extra):
                return jax.tree.map(lambda g: -learning_rate * FACTOR * scaled(jnp.sign(g)) + momentum, grads), state
            return optax.GradientTransformationExtraArgs(lambda params: (), update)

        @lobench.configurable
        class Scaled(LearnableSGD):
            """A learned learning rate, scaled."""
            factor = scaled(FACTOR)
        ''',
    "suite/helper.py": "from deep import SCALE\ndef scaled(x):\n    return SCALE * x\n",
    "suite/deep.py": "SCALE = 1.0\n",
    "suite/tasks.py": """
        import jax, jax.numpy as jnp
        from lobench import Task, configurable
        import points

        @configurable
        class Bowl(Task):
            def __init__(self, *, center=0.0):
                self.center = center
            def init(self, key):
                return jax.random.normal(key, (3,))
            def loss(self, params, key, data):
                return jnp.sum((params - self.center) ** 2) + 1.0
        """,
    "suite/points.py": """
        from pkgutil import resolve_name
        from lobench import configurable

        @configurable
        def middle():
            return 1.0 * resolve_name("half:VALUE")
        """,
    "suite/half.py": "VALUE = 0.5\n",
    "suite/near.py": "def closeness(curves):\n    return {'near': [1.0] * len(curves.seeds)}\n",
    "suite/conftest.py": """
        import pytest
        from lobench.hookspecs import Declaration, hookimpl

        @pytest.fixture
        def level():
            return 1e9

        @hookimpl
        def lobench_metrics():
            return [Declaration(name="near", factory="near:closeness")]
        """,
    "suite/test_bowl.py": """
        import lobench

        @lobench.cases("bowl.gin")
        def test_bowl(case, evaluate, level):
            assert evaluate(case).final("train/loss").mean() < level
        """,
    "suite/bowl.gin": """
        import tasks
        import rules
        bowl/Case.task = @Bowl()
        bowl/Bowl.center = @middle()
        Case.num_inner_steps = 4
        Case.eval_every = 4
        Case.num_seeds = 2
        """,
    "experiment.gin": """
        import rules
        Experiment.suites = ["suite"]
        Experiment.num_sessions = 2
        signs/Method.optimizer = @signs()
        """,
    "descent.py": '''
        """Torch optimizers."""
        import torch

        FACTOR = 1.0  # of each step

        class Descent(torch.optim.Optimizer):
            def __init__(self, params, lr=0.1):
                super().__init__(params, {"lr": lr})

            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for param in group["params"]:
                        param.add_(param.grad, alpha=-group["lr"] * FACTOR)
        ''',
    "torch.gin": """
        Experiment.suites = ["suite"]
        Experiment.num_sessions = 1
        steps/Method.optimizer = @torch_optimizer()
        steps/torch_optimizer.optimizer = "descent:Descent"
        steps/torch_optimizer.lr = 0.1
        """,
    "script.gin": """
        Experiment.num_sessions = 1
        mine/Method.command = "python train.py {out} {session}"
        mine/Method.curves = "{out}/curves.jsonl"
        mine/Method.files = ["rates.json"]
        """,
    "train.py": '''
        """Trains."""
        import json, sys
        rate = json.load(open("rates.json"))["rate"]  # of decay
        with open(f"{sys.argv[1]}/curves.jsonl", "w") as file:
            for step in range(3):
                value = (1.0 - rate) ** step
                line = {"method": "mine", "case": "c", "seed": int(sys.argv[2]), "step": step}
                file.write(json.dumps({**line, "metric": "train/loss", "value": value}) + "\\n")
        ''',
    "rates.json": '{"rate": 0.1}\n',
    "notebook.py": """
        import sys
        import lobench
        for edit in ("", *sys.argv[2:]):
            exec(edit)
            found = lobench.evaluate("suite/bowl.gin", optimizer=sys.argv[1], test="test_bowl")
            print(found.metrics["train/loss"].tolist())
        """,
}

TORCH = 'torch_optimizer(); torch_optimizer.optimizer = "descent:Descent"; torch_optimizer.lr = 0.1'

Edit = tuple[str, str, str]  # file, text, and the text in its place

EDITS: dict[str, Edit] = {
    "constant": ("suite/rules.py", "FACTOR = 1.0", "FACTOR = 0.5"),
    "default argument": ("suite/rules.py", "momentum=0.0", "momentum=0.01"),
    "helper two imports away": ("suite/deep.py", "1.0", "0.5"),
    "package instead of a module": ("suite/deep/__init__.py", "", "SCALE = 0.25\n"),
    "task": ("suite/tasks.py", "+ 1.0", "+ 2.0"),
    "metric": ("suite/near.py", "1.0", "2.0"),
    "data function": ("suite/points.py", "1.0", "0.5"),
    "module named in a text": ("suite/half.py", "0.5", "0.25"),
    "conftest fixture": ("suite/conftest.py", "1e9", "1e8"),
    "test": ("suite/test_bowl.py", "< level", "<= level"),
    "script": ("train.py", "1.0 - rate", "1.0 - 2 * rate"),
    "script's helper in Method.files": ("rates.json", "0.1", "0.2"),
    "torch class": ("descent.py", "FACTOR = 1.0", "FACTOR = 0.5"),
    "torch class's comment": ("descent.py", "# of each step", "# of every step"),
    "comment": ("suite/rules.py", "# of each step", "# of every step"),
    "docstring": ("suite/rules.py", '"""Sign descent."""', '"""Descends by signs."""'),
    "script's comment": ("train.py", "# of decay", "# per step"),
    "unrelated file": ("suite/unrelated.py", "", "X = 1\n"),
}
TORCH_EDITS = ("torch class", "torch class's comment")


def make_world(folder: Path) -> Path:
    import textwrap

    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    (folder / "run").mkdir()
    (folder / "run" / "config.gin").write_text("import rules\nCase.learned_optimizer = @Scaled()\n")
    write_checkpoint(folder / "run" / "theta_1.npz", -2.0)
    return folder


def edit(folder: Path, name: str) -> None:
    file, before, after = EDITS[name]
    text = (folder / file).read_text(encoding="utf-8") if before else ""
    assert before in text
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(text.replace(before, after) if before else after, encoding="utf-8")


def _lobench(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _passed(text: str) -> int:
    """Returns how many evaluations the last line of a run or a watch reports as new."""
    last = next(line for line in reversed(text.splitlines()) if line.startswith("done:"))
    if "nothing new" in last:
        return 0
    found = re.search(r"(\d+) passed", last)
    assert found is not None, last
    return int(found[1])


def run_text(folder: Path, *options: str) -> str:
    """Returns what `lobench run` prints, in a process of its own and with a worker."""
    return _lobench(folder, "lobench.cli", "run", "experiment.gin", "--workers", "1", *options)


def _run(folder: Path) -> int:
    return _passed(run_text(folder))


def _script(folder: Path) -> int:
    return _passed(_here(folder, "run", "script.gin"))


def _torch(folder: Path) -> int:
    return _passed(_lobench(folder, "lobench.cli", "run", "torch.gin", "--workers", "1", env=WITH_TORCH))


_WATCH = ("watch", "run", "--suite", "suite", "--once", "--workers", "1", "--checkpoints", "all")


def watch_text(folder: Path) -> str:
    """Returns what `lobench watch` prints."""
    return _lobench(folder, "lobench.cli", *_WATCH)


def _here(folder: Path, *words: str, codes: tuple[int, ...] = (0,)) -> str:
    """Runs a command of lobench in this process, which forgets the modules of the world afterwards."""
    done = lobench_here(*words, cwd=folder)
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout + done.stderr


def _watch(folder: Path) -> int:
    return _passed(_here(folder, *_WATCH))


def _compare(folder: Path) -> int:
    before = _num_stored(folder / ".lobench" / "compare" / "suite")
    subjects = ("signs()", "signs(); signs.learning_rate = 0.2")
    _here(folder, "compare", *subjects, "--suite", "suite", codes=(0, 1))
    return _num_stored(folder / ".lobench" / "compare" / "suite") - before


def _pytest(folder: Path, optimizer: str = "signs()") -> int:
    before = _num_stored(folder / ".lobench" / "suite")
    options = ("-q", "-p", "no:cacheprovider", "--lobench-optimizer", optimizer, "--lobench-reuse")
    if optimizer == TORCH:  # which stays imported
        _lobench(folder, "pytest", "suite", *options, env=WITH_TORCH)
    else:
        done = pytest_session("suite", *options, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    return _num_stored(folder / ".lobench" / "suite") - before


def _torch_by_pytest(folder: Path) -> int:
    return _pytest(folder, TORCH)


def _best(folder: Path) -> int:
    store = folder / "run" / "lobench_results" / "suite"
    if not store.exists():
        _watch(folder)
    before = _num_stored(store / "best") + _num_stored(store / "best" / "winner")
    _here(folder, "best", "run", "--suite", "suite", "--top", "1", "--workers", "1")
    return _num_stored(store / "best") + _num_stored(store / "best" / "winner") - before


def _num_stored(store: Path) -> int:
    from lobench.engine.store.ledger import Ledger

    if not (store / "ledger.sqlite").is_file():
        return 0
    with Ledger.open(store, read_only=True) as ledger:
        return sum(1 for _ in ledger.evaluations(all_codes=True))


COMMANDS: dict[str, Callable[[Path], int]] = {
    "run": _run,
    "script": _script,
    "torch": _torch,
    "watch": _watch,
    "compare": _compare,
    "pytest": _pytest,
    "torch by pytest": _torch_by_pytest,
    "best": _best,
}


def num_trained(folder: Path, command: str) -> int:
    """Returns how many evaluations a command adds to its store."""
    return COMMANDS[command](folder)


def notebook_losses(folder: Path, *names: str) -> list[list[list[float]]]:
    """Returns what `lobench.evaluate` gives before the first and after each of several edits in one process."""
    edits = []
    for file, before, after in map(EDITS.__getitem__, names):
        text = f"p.read_text().replace({before!r}, {after!r})" if before else repr(after)
        change = f"p.parent.mkdir(exist_ok=True); p.write_text({text})"
        edits.append(f"from pathlib import Path; p = Path({file!r}); {change}")
    is_of_torch = bool({*names} & {*TORCH_EDITS})
    env = {**os.environ, **ALL, **(WITH_TORCH if is_of_torch else {})}
    done = python("notebook.py", TORCH if is_of_torch else "signs()", *edits, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]

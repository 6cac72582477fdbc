"""What google/learned_optimization's trainer writes as config.gin says which optimizer it trains; nothing else does.

A package of the same name, with modules and names as there, is a stand-in for it. Everything runs in one process of its
own: what is registered with gin stays so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from shown import texts_of

SHOWN = texts_of("config")

TRAINER = """\
# Parameters for Adam:
# ==============================================================================
Adam.learning_rate = 0.001

# Parameters for GradientLearner:
# ==============================================================================
GradientLearner.meta_init = @{lopt}()
GradientLearner.theta_opt = @GradientClipOptimizer()

# Parameters for run_train:
# ==============================================================================
run_train.lopt = @{lopt}()
run_train.num_steps = 60
run_train.outer_learner_fn = @GradientLearner
"""
MODULE = """
import gin

@gin.configurable
class {name}:
    def __init__(self, step_mult=0.001, opt=None):
        self.step_mult, self.opt = step_mult, opt

    def init(self, key):
        return {{}}

    def opt_fn(self, theta, is_training=False):
        return None
"""
FILES = {
    "learned_optimization/learned_optimizers/lopts.py": MODULE.format(name="TheirLOpt"),
    "learned_optimization/learned_optimizers/lopts_test.py": MODULE.format(name="TheirLOpt"),
    "learned_optimization/learned_optimizers/mlp_lopt.py": MODULE.format(name="MLPLOpt"),
    "learned_optimization/research/inner_lopt.py": MODULE.format(name="Inner"),
    "learned_optimization/research/twice.py": MODULE.format(name="Twice"),
    "learned_optimization/research/twice_too.py": MODULE.format(name="Twice"),
    "learned_optimization/research/needs_more.py": "import no_such_package\n" + MODULE.format(name="NeedsMore"),
    "my_lopts/mine.py": MODULE.format(name="Mine"),
    "my_lopts/commented.py": MODULE.format(name="Commented"),
    "broken_lopts/__init__.py": "raise RuntimeError('no licence')\n",
    "wanting_lopts/__init__.py": "import no_such_package\n",
    "suite/cases.gin": "a/Case.task = @Quadratic()\n",
    "suite/own.gin": "a/Case.task = @Quadratic()\na/Case.optimizer = @sgd()\n",
}
# In this order: the last ones import what is ambiguous from then on.
CONFIGS = {
    "ours": TRAINER.format(lopt="AdafacMLPLOpt") + "AdafacMLPLOpt.step_mult = 0.5\n",
    "theirs by name": TRAINER.format(lopt="TheirLOpt") + "TheirLOpt.step_mult = 0.5\n",
    "by the end of its module": TRAINER.format(lopt="inner_lopt.Inner"),
    "by its module": TRAINER.format(lopt="my_lopts.mine.Mine"),
    "by a comment": SHOWN["parameters-for-my-lopts-commented"] + TRAINER.format(lopt="Commented"),
    "meta_init alone": "GradientLearner.meta_init = @AdafacMLPLOpt()\n",
    "a macro": SHOWN["run-train-lopt-lopt-lopt"],
    "in a scope": "default_scope/run_train.lopt = @AdafacMLPLOpt()\n",
    "evaluated with another": TRAINER.format(lopt="TheirLOpt") + "eval_chief_config.learned_opt = @RNNProp()\n",
    "ours goes first": TRAINER.format(lopt="Nowhere") + "Case.learned_optimizer = @RNNProp()\n",
    "nowhere": TRAINER.format(lopt="Nowhere"),
    "nowhere, not needed": TRAINER.format(lopt="Nowhere"),
    "defined twice": TRAINER.format(lopt="Twice"),
    "cannot be imported": TRAINER.format(lopt="NeedsMore"),
    "a broken package": TRAINER.format(lopt="broken_lopts.mine.Mine"),
    "a package that wants more": TRAINER.format(lopt="wanting_lopts.mine.Mine"),
    "no such package": TRAINER.format(lopt="no_such_package.mine.Nobodys"),
    "both imported": SHOWN["import-learned-optimization-learned"] + TRAINER.format(lopt="MLPLOpt"),
    "one of two in it": TRAINER.format(lopt="TheirLOpt") + "TheirLOpt.opt = @MLPLOpt()\n",
    "not their config": "Case.learned_optimizer = @MLPLOpt()\n",
    "the remedy": "Case.learned_optimizer = @lobench.MLPLOpt()\n",
}
SCRIPT = """
import json, sys
from pathlib import Path
from lobench.core.case import CaseSpec
from lobench.core.errors import LobenchError
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
root, found = Path.cwd(), {}
for name, text in json.load(sys.stdin).items():
    (root / "config.gin").write_text(text)
    file = "own.gin" if "not needed" in name else "cases.gin"
    spec = CaseSpec(path=str(root / "suite" / file), scope="a", root=str(root))
    modules = ("lobench.inner.optimizers", "lobench.inner.tasks")
    layers = Layers(trainer_config=str(root / "config.gin"), gin_modules=modules)
    try:
        found[name] = bind_case(spec, layers, build=False).optimizer_bindings.splitlines()
    except LobenchError as error:
        found[name] = str(error)
print(json.dumps(found))
"""
OPTIMIZER = "lobench.Case.learned_optimizer = @"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str] | str]:
    root = tmp_path_factory.mktemp("run")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for folder in ("learned_optimization", "learned_optimization/learned_optimizers", "learned_optimization/research"):
        (root / folder / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(CONFIGS),
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},  # a run's folder, whose modules are asked for
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["ours", "meta_init alone", "a macro", "in a scope"])
def test_what_the_trainer_trains_is_the_learned_optimizer(found: dict[str, list[str]], name: str) -> None:
    assert any("AdafacMLPLOpt()" in line for line in found[name]), found[name]
    if name == "ours":
        assert found[name] == ["lobench.AdafacMLPLOpt.step_mult = 0.5", OPTIMIZER + "AdafacMLPLOpt()"]


def test_it_is_imported_where_its_name_tells_the_module(found: dict[str, list[str]]) -> None:
    theirs = "learned_optimization.learned_optimizers.lopts.TheirLOpt"
    assert found["theirs by name"] == [f"{theirs}.step_mult = 0.5", OPTIMIZER + "TheirLOpt()"]
    assert found["by the end of its module"] == [OPTIMIZER + "inner_lopt.Inner()"]
    assert found["by its module"] == [OPTIMIZER + "my_lopts.mine.Mine()"]
    assert found["by a comment"] == [OPTIMIZER + "Commented()"]


def test_what_says_evaluation_goes_before_what_says_training(found: dict[str, list[str]]) -> None:
    assert found["evaluated with another"] == found["ours goes first"] == [OPTIMIZER + "RNNProp()"]


def test_what_is_defined_nowhere_is_an_error_with_a_next_step_where_it_is_needed(found: dict[str, str]) -> None:
    for name, wanted in (("nowhere", "Nowhere"), (SHOWN["defined-twice"], "Twice")):
        assert (
            SHOWN["config-gin-12-unknown-name"].format(wanted=wanted) in found[name]
            and SHOWN["import-the-module"] in found[name]
        )
    assert found["nowhere, not needed"] == ["lobench.Case.optimizer = @sgd()"]
    assert SHOWN["cannot-import-learned-optimization"] in found["cannot be imported"]
    assert SHOWN["no-module-named-no-such"] in found["cannot be imported"]
    assert (
        SHOWN["cannot-import-broken-lopts-mine"] in found["a broken package"]
        and SHOWN["no-licence"] in found["a broken package"]
    )
    assert SHOWN["cannot-import-wanting-lopts-mine"] in found["a package that wants more"]
    assert SHOWN["unknown-name-no-such-package"] in found["no such package"]


def test_in_their_config_a_name_means_theirs(found: dict[str, list[str]]) -> None:
    theirs = "learned_optimization.learned_optimizers.mlp_lopt.MLPLOpt"
    assert found["both imported"] == [f"{theirs}.step_mult = 0.5", f"{OPTIMIZER}{theirs}()"]
    lopts = "learned_optimization.learned_optimizers.lopts.TheirLOpt"
    assert found["one of two in it"] == [f"{lopts}.opt = @{theirs}()", OPTIMIZER + "TheirLOpt()"]


def test_elsewhere_the_error_says_what_to_write(found: dict[str, str]) -> None:
    assert SHOWN["mlplopt-is-ambiguous"] in found["not their config"]
    theirs = "learned_optimization.learned_optimizers.mlp_lopt.MLPLOpt"
    assert SHOWN["write-which-one-is-meant"].format(theirs=theirs) in found["not their config"]
    assert found["the remedy"] == [OPTIMIZER + "lobench.MLPLOpt()"]

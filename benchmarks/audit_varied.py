"""How often `lobench audit` accuses honest bundles of many kinds, and passes tampered ones.

Usage:
  python benchmarks/audit_varied.py honest [--count 10] [--first 0]
  python benchmarks/audit_varied.py tampered [--count 20] [--first 0]

`honest`: each bundle is of a store that is drawn: experiments of baselines on one or two cases, searches, two
experiments in one store, races, suites with metrics of their own, seeds that diverge, results of pytest sessions,
watches of checkpoints, imported curves, cases in Python, commands, ordinary tests, items, decisions of `lobench keep`.
Each is published and audited in full. An accusation is a contradiction, or a result that
differs. `tampered`: a store of two experiments, of which a row was removed, or two rows exchanged a value or were made
equal in it, by somebody who makes all hashes and the root anew. The changes are drawn without replacement. A change
passes if the audit passes and does not name what was changed. Changes that leave the same bundle are not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from commands import lobench_here as lobench
from commands import pytest_session
from tampered_fields import _chain, _Content, name_of_field
from tiny import make_run, make_suite

from lobench.core.errors import LobenchError
from lobench.tools.audit.audit import Audit, audit
from lobench.tools.publish.publish import publish

_BASE = "import tiny_tasks\nCase.num_inner_steps = {steps}\nCase.num_seeds = {seeds}\nCase.eval_every = {every}\n"
_METRIC = """
from lobench.hookspecs import Declaration

def lobench_metrics():
    return [Declaration(name="fall", factory=":fall", metric_directions={"fall": "min"})]

def fall(curves):
    return {"train/fall": [row[-1] / row[0] for row in curves.metrics["train/loss"].tolist()]}
"""
_IN_PYTHON = """
from lobench import Case, cases
from tiny_tasks import Bowl

a = Case(task=Bowl(), num_inner_steps={steps}, num_seeds={seeds}, eval_every={every})


@cases(a=a, b=a.replace(task=Bowl(dim={dim})))
def test_tiny(case, evaluate):
    assert evaluate(case).final("train/loss").max() < {most}
"""
_EVALUATOR = """
import csv, json, pathlib, random, sys
checkpoint, seed, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
level = json.loads((checkpoint / "level.json").read_text())
draw = random.Random(f"{level} {seed}")
if level < 0.1:
    sys.exit("no such model")
(out / "metrics.json").write_text(json.dumps({"valid/loss": level + draw.random()}))
with (out / "answers.csv").open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["item", "correct"])
    writer.writerows([f"q{place}", int(draw.random() < level)] for place in range(20))
"""
_COMMANDS = """
loss/Case.command = "python evaluate.py {{checkpoint}} {{seed}} {{out}}"
loss/Case.curves = "{{out}}/metrics.json"
loss/Case.primary_metric = "valid/loss"
loss/Case.num_seeds = {seeds}
"""
_ITEMS = """
qa/Case.command = "python evaluate.py {checkpoint} 0 {out}"
qa/Case.curves = "{out}/answers.csv"
qa/Case.primary_metric = "correct"
qa/Case.metric_directions = {"correct": "max"}
qa/Case.replicates = "items"
"""
_TESTS = """
import json
import pytest

def level_of(checkpoint):
    return json.loads((checkpoint.path / "level.json").read_text())

@pytest.mark.lobench(num_seeds={seeds})
@pytest.mark.parametrize("width", [1, 2])
def test_loss(checkpoint, record, width):
    for seed in range({seeds}):
        record("valid/loss", level_of(checkpoint) * width + seed, seed)
    assert level_of(checkpoint) < 0.7

def test_large(checkpoint):
    if level_of(checkpoint) < 0.2:
        pytest.skip("too small")
    assert level_of(checkpoint) > 0.4
"""
_TESTS_OF_ITEMS = """

def test_items(checkpoint, record):
    for place in range(20):
        record("accuracy", float(place / 20 < level_of(checkpoint)), item=f"q{place}")
"""
_TRAIN = """
import json, random, sys
rate = {rate}
seed, out = int(sys.argv[1]), sys.argv[2]
loss = 1 + (rate - 0.3) ** 2 + random.Random(f"{{seed}} {{rate}}").gauss(0, 0.005)
open(out + "/metrics.json", "w").write(json.dumps({{"val/loss": loss}}))
"""
_OF_TRAININGS = ("experiment", "search", "two experiments", "watch", "pytest", "imported", "mixed", "race", "in Python")
_OF_EVALUATORS = ("commands", "tests", "items")
_WAYS = (*_OF_TRAININGS, *_OF_EVALUATORS, "keep")


def make_store(folder: Path, number: int) -> tuple[Path, Path, str]:
    """Makes a store that is drawn.

    Returns:
      The store, its suite, and what it is.
    """
    rng = np.random.default_rng(number)
    way = _WAYS[number % len(_WAYS)]
    if way in _OF_EVALUATORS:
        return _evaluated(folder, rng, way), folder / "lm", way
    if way == "keep":
        return _kept(folder, rng), folder / "project", way
    gin = _BASE.format(steps=rng.integers(4, 12), seeds=rng.integers(1, 5), every=rng.integers(1, 4))
    if rng.random() < 0.4:
        gin += "Case.seed_block = 1\n"
    for name in ("a", "b")[: rng.integers(1, 3)]:
        gin += f"{name}/Case.task = @Bowl()\n{name}/Bowl.dim = {rng.integers(1, 6)}\n"
    suite, store = make_suite(folder, gin), folder / "store"
    has_metric = rng.random() < 0.4
    if has_metric:
        (suite / "conftest.py").write_text(_METRIC)
    if way in ("experiment", "search", "two experiments", "mixed"):
        _run(folder, "first", _experiment(rng, has_search=way == "search"))
    if way == "race":
        rates = sorted(10 ** rng.uniform(-3, 1, 3))
        methods = [f"sgd(); sgd.learning_rate = {rate:.3g}" for rate in rates]
        _done("compare", "--race", *methods, "--suite", "tiny", "--store", store, "--seeds", "6", cwd=folder)
    if way == "in Python":
        (suite / "tiny.gin").unlink()
        settings = {"steps": rng.integers(4, 12), "seeds": rng.integers(1, 5), "every": rng.integers(1, 4)}
        text = _IN_PYTHON.format(**settings, dim=rng.integers(1, 6), most=rng.choice(["1e9", "1e-3"]))
        (suite / "test_tiny.py").write_text(text)
        if rng.random() < 0.5:
            _run(folder, "first", _experiment(rng, has_search=False))
        else:
            run = make_run(folder, *rng.uniform(-4, 6, rng.integers(1, 4)))
            _done("watch", run, "--suite", "tiny", "--once", "--checkpoints", "all", "--store", store, cwd=folder)
    if way == "two experiments":
        _run(folder, "second", _experiment(rng, has_search=rng.random() < 0.5))
    if way in ("watch", "mixed"):
        run = make_run(folder, *rng.uniform(-4, 6, rng.integers(1, 4)))
        _done("watch", run, "--suite", "tiny", "--once", "--checkpoints", "all", "--store", store, cwd=folder)
    if way == "pytest":
        rate = f"sgd(); sgd.learning_rate = {10 ** rng.uniform(-3, 3):.3g}"
        pytest_session("-q", "tiny", "--lobench-optimizer", rate, "--lobench-store", store, cwd=folder)
    if way in ("imported", "mixed"):
        lines = ["method,case,seed,step,loss"]
        lines += [
            f"theirs,task,{seed},{step},{rng.random()}" for seed in range(rng.integers(1, 4)) for step in range(3)
        ]
        (folder / "curves.csv").write_text("\n".join(lines) + "\n")
        _done("import", "curves.csv", "--store", store, cwd=folder)
    return store, suite, f"{way}{', own metric' * has_metric}"


def _evaluated(folder: Path, rng: np.random.Generator, way: str) -> Path:
    """Makes a store of checkpoints that commands or ordinary tests evaluated, and returns it."""
    suite, run, store = folder / "lm", folder / "run", folder / "store"
    suite.mkdir()
    seeds = rng.integers(1, 4)
    if way != "tests":
        (suite / "evaluate.py").write_text(_EVALUATOR)
        (suite / "lm.gin").write_text(_COMMANDS.format(seeds=seeds) + _ITEMS * (way == "items"))
    if way != "commands":
        (suite / "test_lm.py").write_text(_TESTS.format(seeds=seeds) + _TESTS_OF_ITEMS * (way == "items"))
    steps = range(rng.integers(1, 4))
    for step in steps:
        (run / f"checkpoint-{step}").mkdir(parents=True)
        (run / f"checkpoint-{step}/level.json").write_text(json.dumps(rng.random()))
        (run / f"checkpoint-{step}/trainer_state.json").write_text("{}")
    if rng.random() < 0.6:
        how = ("--once", "--checkpoints", "all", "--store", store)
        _done("watch", run, "--suite", "lm", *how, cwd=folder, codes=(0, 1, 3))
    else:
        for step in steps:
            checkpoint = run / f"checkpoint-{step}"
            pytest_session("-q", "lm", "--lobench-checkpoint", checkpoint, "--lobench-store", store, cwd=folder)
    return store


def _kept(folder: Path, rng: np.random.Generator) -> Path:
    """Makes a store of decisions of `lobench keep`, and returns it."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(_TRAIN.format(rate=0.1))
    _git(project, "init", "-q")
    _git(project, "add", ".")
    _git(project, "commit", "-q", "-m", "first")
    for rate in rng.uniform(0.0, 0.6, rng.integers(1, 3)):
        (project / "train.py").write_text(_TRAIN.format(rate=f"{rate:.3f}"))
        words = ("--command", "python train.py {seed} {out}", "--metric", "val/loss", "--curves", "{out}/metrics.json")
        how = ("--against", "git:HEAD", "--store", folder / "store", "--max-seeds", "8")
        _done("keep", *words, *how, cwd=project, codes=(0, 1, 4))
    return folder / "store"


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def _experiment(rng: np.random.Generator, *, has_search: bool) -> str:
    text = f'import tiny_tasks\nExperiment.suites = ["tiny"]\nExperiment.num_sessions = {rng.integers(1, 4)}\n'
    for place, name in enumerate(rng.permutation(["sgd", "adam", "momentum"])[: rng.integers(1, 4)]):
        text += (
            f"m{place}/Method.optimizer = @{name}()\nm{place}/{name}.learning_rate = {10 ** rng.uniform(-3, 4):.3g}\n"
        )
    if has_search:
        text += "s/Method.optimizer = @sgd()\ns/sgd.learning_rate = @rate/Real()\nrate/Real.low = 0.01\n"
        text += "rate/Real.high = 0.5\ns/Method.search = @random()\ns/Method.num_trials = 2\n"
    return text


def _run(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.gin").write_text(text)
    _done("run", f"{name}.gin", "--store", "store", cwd=folder)


def _done(*words: str | Path, cwd: Path, codes: Sequence[int] = (0, 1)) -> None:
    done = lobench(*words, cwd=cwd)
    if done.returncode not in codes:
        sys.exit(f"{words}: {done.stdout}{done.stderr}")


@contextlib.contextmanager
def evaluated_here() -> Iterator[tuple[Callable[[Path], None], list[Any]]]:
    """Has audits evaluate in this process, each evaluation once, and equal programs of all suites compiled once.

    Yields:
      A function that sets the suite, and the curves of all that is asked for, unperturbed.
    """
    from lobench.core.case import CaseSpec
    from lobench.engine.config.layers import Layers
    from lobench.evaluation.programs import Programs
    from lobench.evaluation.runner import BlockRunner
    from lobench.tools.audit import reevaluation

    suites, evaluated, isolated = [Path()], list[Any](), reevaluation.IsolatedRunner
    programs, runners, known = Programs(), dict[Any, BlockRunner](), dict[Any, Any]()

    class Here(reevaluation.IsolatedRunner):
        def run(self, layers: Layers, spec: CaseSpec, test: str, theta: Any, block: Any, **how: Any) -> Any:
            suite = suites[-1]
            told, ours = Path(spec.path), suite / Path(spec.path).name
            if spec.text or not ours.is_file() or told.read_bytes() != ours.read_bytes():  # somebody changed it
                return super().run(layers, spec, test, theta, block, **how)
            spec = dataclasses.replace(spec, path=str(ours), root=str(suite.parent))
            key = (suite, layers, spec, test, theta.sha256, block, repr(sorted(how.items())))
            if key not in known:
                runner = runners.setdefault((suite, layers), BlockRunner(layers, programs))
                try:
                    known[key] = runner.repeat(spec, test, theta, block, **{"together": "", "perturbation": 0} | how)
                except Exception as error:  # noqa: BLE001  (raised again, each time)
                    known[key] = error
            if isinstance(known[key], Exception):
                raise known[key]
            if not how.get("perturbation"):
                evaluated.append(known[key])
            return known[key]

    reevaluation.IsolatedRunner = Here  # type: ignore[misc]
    try:
        yield suites.append, evaluated
    finally:
        reevaluation.IsolatedRunner = isolated  # type: ignore[misc]


def honest(count: int, first: int) -> int:
    """Returns the number of honest bundles that were accused."""
    accused = 0
    with evaluated_here() as (set_suite, _):
        for number in range(first, first + count):
            with tempfile.TemporaryDirectory() as name:
                begun = time.perf_counter()
                store, suite, what = make_store(Path(name), number)
                publish(store, Path(name) / "made.lobench", suites=[suite])
                set_suite(suite)
                found = audit(Path(name) / "made.lobench")
                accused += not found.is_passed
                seconds = time.perf_counter() - begun
                print(f"{number}: {what}: {dict(found.verdict_counts)}, {seconds:.0f} s", flush=True)
                if not found.is_passed:
                    reasons = [one.why for one in found.evaluations if one.verdict == "differs"]
                    print("  ACCUSED", found.contradictions, reasons)
    print(f"{count} honest bundles: {accused} accused", flush=True)
    return accused


def changes(content: _Content) -> Iterator[tuple[str, str, Callable[[_Content], None]]]:
    """Yields the field of each change, what it is, and a function that makes it."""
    for table in content.tables:
        rows = content.rows(table)
        for number, row in enumerate(rows):
            yield (
                table,
                f"{table} row {number} removed",
                lambda to, t=table, n=number: _edit(to, t, lambda all_: all_.pop(n)),
            )
            if number + 1 < len(rows):
                later = rows[number + 1]
                for column in row:
                    if row[column] != later[column]:
                        what = f"{table}.{column} of rows {number} and {number + 1}"
                        swap = lambda to, t=table, n=number, c=column: _edit(to, t, lambda all_: _swap(all_, n, c))  # noqa: E731
                        yield f"{table}.{column}", f"{what} exchanged", swap
                        copied = lambda to, t=table, n=number, c=column: _edit(  # noqa: E731
                            to, t, lambda all_: all_[n].update({c: all_[n + 1][c]})
                        )
                        yield f"{table}.{column}", f"{what} made equal", copied


def _swap(rows: list[dict[str, Any]], number: int, column: str) -> None:
    one, other = rows[number], rows[number + 1]
    one[column], other[column] = other[column], one[column]


def _edit(content: _Content, table: str, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    rows = content.rows(table)
    change(rows)
    content.update(table, rows)
    with contextlib.suppress(KeyError):  # events that no plan has: the hashes stay as they are
        _chain(content)


def tampered(count: int, first: int) -> int:
    """Returns the number of tampered bundles that passed, and of which nothing was named."""
    passed = counted = 0
    with tempfile.TemporaryDirectory() as name, evaluated_here() as (set_suite, _):
        folder = Path(name)
        store, suite, _ = make_store(folder, 2)  # two experiments
        publish(store, folder / "honest.lobench", suites=[suite])
        set_suite(suite)
        before = audit(folder / "honest.lobench")
        assert before.is_passed, before.contradictions
        content = _Content(folder / "honest.lobench")
        drawn = list(changes(content))
        np.random.default_rng(0).shuffle(drawn)  # type: ignore[arg-type]
        for number, (field, what, change) in enumerate(drawn[first:], first):
            if counted == count:
                break
            output = folder / f"{number}.lobench"
            how = _audited(copy.deepcopy(content), change, output, before, name_of_field(field))
            output.unlink(missing_ok=True)
            if how == "the same":
                continue
            counted += 1
            passed += how == "PASSED"
            print(f"{number}: {what}: {how}", flush=True)
    print(f"{counted} tampered bundles of {len(drawn)}: {passed} passed", flush=True)
    return passed


def _audited(
    content: _Content, change: Callable[[_Content], None], output: Path, before: Audit, documented: str
) -> str:
    honest_root = content.head["root"]
    try:
        change(content)
        content.write(output)
        from lobench.engine.store.bundle import ResultBundle

        if ResultBundle(output).root == honest_root:
            return "the same"
        found = audit(output)
    except (sqlite3.IntegrityError, LobenchError) as error:
        return f"refused: {type(error).__name__}"
    if not found.is_passed:
        kinds = sorted({one.kind for one in found.contradictions}) or ["differs"]
        return f"contradiction: {', '.join(kinds)}"
    if documented and any(documented in one for one in (*found.not_auditable, *found.stated)):
        return f"named: {documented}"
    named = {*found.not_auditable, *found.stated} - {*before.not_auditable, *before.stated}
    return f"named: {min(named)[:60]}" if named else "PASSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["honest", "tampered"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    count = options.count or {"honest": 10, "tampered": 20}[options.what]
    sys.exit(bool({"honest": honest, "tampered": tampered}[options.what](count, options.first)))


if __name__ == "__main__":
    main()

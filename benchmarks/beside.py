"""Whole evaluations by google/learned_optimization's loop over lobench's.

Usage:
  python benchmarks/beside.py --beside CHECKOUT
  python benchmarks/beside.py --beside CHECKOUT --quick
  python benchmarks/beside.py --beside CHECKOUT --only "its defaults" --optimizers adam

CHECKOUT is one of google/learned_optimization; flax, dm-haiku, chex, toolz and tqdm are to be installed, TensorFlow
need not be. Both sides run in one process, on one thread of jax, with the same theta, compiled before: processor
seconds, in turns, medians. Its arrays of images are the digits, and all else is its own code: its loader, which
shuffles on the host and reads ahead in a thread, and its loop with its progress bar. `_SET_UPS` says what is evaluated.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from harness import Rounds, interleaved, machine, seconds_of

__all__ = ["DRAWN", "LABELS", "SetUp", "ours", "rounds_of", "theirs"]

LABELS = {"adafac": "AdafacMLPLOpt", "adam": "Adam", "mlp": "MLPLOpt"}
_SPLITS = ("train", "outer_valid", "test")
_TARGETS = {1: {"adafac": 25, "adam": 30, "mlp": 12}, 4: {"adafac": 10, "adam": 8, "mlp": 4}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """What both sides evaluate.

    Attributes:
      name: For `--only`, which takes any part of it.
      num_tasks: One: `single_task_training_curves`; more: `multi_task_training_curves`, and as many seeds of ours.
      eval_batches: Of each split, every `eval_every` steps.
      is_drawn: Whether its batches come from a compiled sampler on the device, not from its own loader on the host.
    """

    name: str
    num_tasks: int
    splits: tuple[str, ...] = _SPLITS
    eval_every: int = 10
    eval_batches: int = 5
    is_drawn: bool = False

    def __str__(self) -> str:
        tasks = "one task" if self.num_tasks == 1 else f"{self.num_tasks} tasks"
        batches = "1 batch" if self.eval_batches == 1 else f"{self.eval_batches} batches"
        source = "batches drawn on the device" if self.is_drawn else "batches of its loader"
        return f"{tasks}, {batches} of {', '.join(self.splits)} every {self.eval_every} steps, {source}"


DRAWN = SetUp(name="drawn, one task", num_tasks=1, is_drawn=True)
_SET_UPS = (
    # The defaults of its baselines' `inner_train_task`.
    SetUp(name="its defaults, one task", num_tasks=1),
    # The defaults of `multi_task_training_curves`, with which its workers of continuous evaluation call it.
    SetUp(name="its defaults, four tasks", num_tasks=4, splits=("train",), eval_batches=1),
    SetUp(name="all splits, four tasks", num_tasks=4),
    # The binding of its general_lopt configurations.
    SetUp(name="general_lopt, four tasks", num_tasks=4, splits=("train",), eval_every=200, eval_batches=10),
    DRAWN,
    SetUp(name="drawn, all splits, four tasks", num_tasks=4, is_drawn=True),
)


def _imported() -> None:
    """Imports google/learned_optimization; what is never called of TensorFlow need not be installed."""
    for name in ("tensorflow", "tensorflow.compat", "tensorflow.compat.v2", "tensorflow_datasets"):
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = mock.MagicMock(__path__=[], __spec__=None)
    importlib.import_module("learned_optimization.eval_training")


def _loaded(ours: Any) -> Any:
    """Returns the digits as its own loader of images gives them; TensorFlow would only have read and cast them."""
    import numpy as np
    from learned_optimization.tasks.datasets import base

    arrays = {}
    for split in _SPLITS:
        found = getattr(ours.datasets, split).arrays
        arrays[split] = {"image": 255 * np.asarray(found["image"]).reshape(-1, 8, 8, 1), "label": found["label"]}
    features = {"label": types.SimpleNamespace(num_classes=10), "image": types.SimpleNamespace(shape=(8, 8, 1))}
    builder = types.SimpleNamespace(info=types.SimpleNamespace(features=features))
    with mock.patch.multiple(
        base,
        _cached_tfds_load=lambda name, split, batch_size: arrays[split],
        tfds=types.SimpleNamespace(as_numpy=dict, builder=lambda name: builder),
        tf=types.SimpleNamespace(cast=lambda values, dtype: np.asarray(values, dtype), float32="f4", int32="i4"),
    ):
        train, outer_valid, test = _SPLITS
        return base.preload_tfds_image_classification_datasets(
            "digits", (train, train, outer_valid, test), batch_size=128, image_size=(8, 8)
        )


def _drawn(ours: Any, split: str) -> Iterator[Any]:
    import jax

    sample, key = jax.jit(getattr(ours.datasets, split).sample), jax.random.key(0)
    while True:
        key, used = jax.random.split(key)
        yield sample(used)


@functools.cache
def _their_task(is_drawn: bool) -> Any:
    from inner import _digits
    from learned_optimization.tasks import base
    from learned_optimization.tasks.datasets import base as datasets

    ours = _digits()

    class Digits(base.Task):  # type: ignore[misc]
        def __init__(self) -> None:
            if not is_drawn:
                self.datasets = _loaded(ours)
                return
            splits = {split: _drawn(ours, split) for split in _SPLITS}
            self.datasets = datasets.Datasets(**splits, inner_valid=_drawn(ours, "train"))

        def init(self, key: Any) -> Any:
            return ours.init_with_state(key)[0]

        def loss(self, params: Any, key: Any, data: Any) -> Any:
            flat = {**data, "image": data["image"].reshape(-1, 64)}
            return ours.loss_with_state(params, None, key, flat)[0]

    return Digits()


@functools.cache
def _their_optimizer(name: str) -> tuple[Any, Any, Any]:
    """Returns its learned optimizer, our theta in its structure, and the optimizer of that theta."""
    import jax
    import optax
    from inner import _theta
    from learned_optimization.learned_optimizers import adafac_mlp_lopt, base, mlp_lopt
    from learned_optimization.optimizers import optax_opts

    if name == "adam":
        optimizer = optax_opts.OptaxOptimizer(optax.adam(1e-3))
        return base.learned_optimizer_from_opt(optimizer), None, optimizer
    learned = {"adafac": adafac_mlp_lopt.AdafacMLPLOpt, "mlp": mlp_lopt.MLPLOpt}[name]()
    # Haiku joins the names of modules that our tree has one below the other.
    drawn = learned.init(jax.random.PRNGKey(0))
    theta = jax.tree.unflatten(jax.tree.structure(drawn), jax.tree.leaves(jax.device_put(_theta(name))))
    assert jax.tree.map(jax.numpy.shape, theta) == jax.tree.map(jax.numpy.shape, drawn), name
    return learned, theta, learned.opt_fn(theta)


def theirs(set_up: SetUp, name: str, num_steps: int) -> Callable[[], Mapping[str, Any]]:
    """Returns its loop on the digits.

    Raises:
      ImportError: It, or what it needs, can't be imported.
    """
    _imported()
    import jax
    from learned_optimization import eval_training

    task, (learned, theta, optimizer) = _their_task(set_up.is_drawn), _their_optimizer(name)
    if set_up.num_tasks == 1:
        assert set_up.splits == _SPLITS, "it evaluates these"
        return _with_silent_bar(
            functools.partial(
                eval_training.single_task_training_curves,
                task,
                optimizer,
                num_steps,
                jax.random.PRNGKey(0),
                eval_every=set_up.eval_every,
                eval_batches=set_up.eval_batches,
                last_eval_batches=set_up.eval_batches,
            )
        )
    family = _family(task)
    at_once = 5 if set_up.eval_batches == 10 else 1  # as general_lopt has it, and as it is by default
    return _with_silent_bar(
        functools.partial(
            eval_training.multi_task_training_curves,
            family,
            learned,
            theta,
            set_up.num_tasks,
            seed=0,
            steps=num_steps,
            splits=set_up.splits,
            eval_every=set_up.eval_every,
            n_eval_batches_vec=at_once,
            n_eval_batches=set_up.eval_batches // at_once,
            last_eval_batches=set_up.eval_batches // at_once,
        )
    )


def _with_silent_bar(work: Callable[[], Mapping[str, Any]]) -> Callable[[], Mapping[str, Any]]:
    """Returns the same, whose progress bar is drawn where nobody sees it."""

    def silent() -> Mapping[str, Any]:
        with contextlib.redirect_stderr(io.StringIO()):
            return work()

    return silent


@functools.cache
def _family(task: Any) -> Any:
    """Returns a family of one task: always the same one, by which its compiled programs are found again."""
    from learned_optimization.tasks import base

    return base.single_task_to_family(task)


def ours(set_up: SetUp, name: str, num_steps: int) -> Callable[[], Any]:
    """Returns lobench's training program on the same, as a worker calls it."""
    from inner import _digits, _program, _theta

    from lobench.core.case import SeedBlock
    from lobench.inner.task import Datasets

    task, theta, num_tasks = _digits(), _theta(name), set_up.num_tasks
    task.datasets = Datasets(**{split: getattr(task.datasets, split) for split in set_up.splits})
    evaluations = {"eval_every": set_up.eval_every, "eval_batches": set_up.eval_batches}
    program = _program(task, name, num_steps, num_tasks, **evaluations)
    return lambda: program.run(theta, SeedBlock(start=0, size=num_tasks))


def rounds_of(set_up: SetUp, name: str, num_steps: int, rounds: int, *, by_processor_time: bool) -> Rounds:
    """Returns seconds of its loop over seconds of ours.

    Raises:
      ImportError: As `theirs` does.
    """
    return interleaved(
        f"{LABELS[name]}, {num_steps:,} steps, {set_up}",
        theirs(set_up, name, num_steps),
        ours(set_up, name, num_steps),
        rounds,
        by_processor_time=by_processor_time,
    )


def _bare(set_up: SetUp, num_steps: int) -> Callable[[], object]:
    """Returns bare SGD on one fixed batch with the same evaluations: what any one program of this kind must do."""
    from inner import _floor

    return _floor(
        num_steps,
        num_seeds=set_up.num_tasks,
        splits=set_up.splits,
        eval_every=set_up.eval_every,
        eval_batches=set_up.eval_batches,
    )


def _ratios(set_ups: list[SetUp], names: list[str], num_steps: int, *, quick: bool) -> Iterator[str]:
    yield "| set-up | optimizer | its loop over ours | target | its loop, ms | ours, ms | its loop over bare SGD |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for set_up in set_ups:
        for name in names:
            count = 1 if quick else 5 if name == "mlp" else 7
            found = rounds_of(set_up, name, num_steps, count, by_processor_time=True)
            assert found.seconds is not None
            bare = _bare(set_up, num_steps)
            bare()
            floor = statistics.median(seconds_of(bare, time.process_time) for _ in range(count))
            ratio, low, high = statistics.median(found.ratios), min(found.ratios), max(found.ratios)
            cells = [f"{ratio:.1f} ({low:.1f} - {high:.1f} of {count})", f"{_TARGETS[set_up.num_tasks][name]}"]
            cells += [f"{1e3 * side:.0f}" for side in found.seconds]
            yield f"| {set_up.name} | {LABELS[name]} | {' | '.join(cells)} | {found.seconds[0] / floor:.1f} |"


def main() -> int:
    """Prints the table; returns 2 where google/learned_optimization can't be imported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", required=True, metavar="CHECKOUT", help="Of google/learned_optimization.")
    parser.add_argument("--quick", action="store_true", help="One round of fewer steps: a look, not a record.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="Part of a set-up's name.")
    parser.add_argument("--optimizers", default=",".join(LABELS))
    options = parser.parse_args()
    sys.path.insert(0, str(Path(options.beside).absolute()))
    try:
        _imported()
    except ImportError as error:
        print(f"{error}; flax, dm-haiku, chex, toolz and tqdm are to be installed", file=sys.stderr)
        return 2
    from lobench.inner.backend import claim_backend

    claim_backend(1)
    names = options.optimizers.split(",")
    set_ups = [each for each in _SET_UPS if not options.only or any(part in each.name for part in options.only)]
    num_steps = 200 if options.quick else 1000
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    print(f"\n{num_steps:,} steps of the digits MLP 64-32-10, batches of 128, one thread, processor time:\n")
    print("\n".join(f"- {each.name}: {each}" for each in set_ups))
    print()
    for line in _ratios(set_ups, names, num_steps, quick=options.quick):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

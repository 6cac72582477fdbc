"""`lobench debug`: replay and diagnosis of one training."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np

from lobench.api.components import plugins_of
from lobench.api.resolve import find_training_setup
from lobench.api.settings import as_texts, command_text
from lobench.core.case import CaseSpec
from lobench.core.errors import LobenchError, UsageError
from lobench.core.settings_field import changed_fields, check_keywords, settings_from
from lobench.core.subject import Variant
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.bound import bind_case, binds_optimizer
from lobench.engine.config.layers import Layers
from lobench.engine.config.scopes import check_scopes
from lobench.engine.config.shipped import find_suite
from lobench.engine.config.suite import find_case, specs_of_suites
from lobench.engine.whole_file import require_writable, write_whole
from lobench.evaluation.request import ThetaLeaves
from lobench.report.live.notebook_progress import default_progress
from lobench.tools.debug.debug_output import DebugResult, write_debug_page
from lobench.tools.debug.debug_settings import DebugKeywords, DebugSettings
from lobench.tools.debug.diagnosis import InputRanges, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["debug"]

FOLDER = Path(".lobench") / "debug"
_MOST_LETTERS = 40  # of a subject in the name of its page


def debug(
    case: str,
    *,
    suite: str | Path = "",
    store: str | Path | None = None,
    output: str | Path | None = None,
    gin_files: Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    allow_pickle: bool = False,
    progress: WatchProgress | None = None,
    **options: Unpack[DebugKeywords],
) -> DebugResult:
    """Replays a training bit for bit, step by step, and writes a page on it.

    The backend of jax must not be initialized yet, because the case decides its number of threads.

    Example:
        found = debug("quick/relu32", optimizer="sgd(); sgd.learning_rate = 30.0", seed=3)
        found.verdict.line

    Args:
      case: `suites/quick/relu32`, or `relu32` with a suite.
      suite: Folder, `.gin` file, or name of a shipped suite.
      store: Store in which names are looked up: a label, a scope or an outer step. `STORE@NAME` works too.
      output: Path of the page. None: a file in `.lobench/debug`.
      gin_files, gin_params: Bound over the bindings of the suite, in this order.
      allow_pickle: Whether a pickled checkpoint may be loaded. Unpickling can run arbitrary code.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Fields of `DebugSettings`: `checkpoint` or `optimizer`, as for `lobench.evaluate` (neither is needed if
        the case binds an optimizer), `seed`, `task_index` and `home`.
    Raises:
      UsageError: Both a checkpoint and an optimizer are given, or neither although the case needs one; or the seed is
        negative.
      SuiteError: No case has this name.
      LobenchError: As for `lobench.evaluate`.
    """
    check_keywords("debug", options, DebugKeywords)
    settings = settings_from(DebugSettings, options)
    checkpoint = settings.checkpoint
    optimizer = settings.optimizer
    seed, home_suite = settings.seed, settings.home
    if checkpoint and optimizer:
        raise UsageError("debugging takes a checkpoint or an optimizer, one of them")
    trained_params = gin_params
    variant = Variant()
    if checkpoint or optimizer:
        kind: Literal["checkpoint", "optimizer"] = "checkpoint" if checkpoint else "optimizer"
        trained_subject = find_training_setup(checkpoint or optimizer, kind, None if store is None else Path(store))
        checkpoint = trained_subject.checkpoint
        optimizer = trained_subject.optimizer
        trained_params = (*trained_subject.gin_params, *gin_params)
        variant = trained_subject.variant
    if seed < 0:
        raise UsageError("--seed", got=str(seed), expected="0 or more")
    progress = progress or default_progress()
    log = progress.log
    folder, spec = find_case(case, str(suite))
    page_path = Path(output) if output else FOLDER / _page_name(spec, seed, checkpoint or optimizer, trained_params)
    require_writable(page_path)
    usual_suite = find_suite(home_suite) if home_suite else None
    manager = plugins_of([str(folder)], progress)
    theta = ThetaLeaves(leaves=None, where="optimizer")
    if checkpoint:
        _, theta = ThetaLeaves.read_checkpoint(checkpoint, manager, allow_pickle=allow_pickle)
    layers = gin_layers_at(
        checkpoint, manager, optimizer=optimizer, gin_files=gin_files, gin_params=trained_params, variant=variant
    )
    check_scopes(spec, layers, specs_of_suites(folder))
    if not checkpoint and not optimizer and not binds_optimizer(spec, layers):
        raise UsageError(
            "the case has no optimizer of its own",
            where=f"{spec.suite}/{spec.name}",
            next_step="give --checkpoint PATH or --optimizer 'adam()'",
        )
    from lobench.evaluation.runner import claim_for, wrong_threads_error
    from lobench.tools.debug.replayed_case import replay_case  # imports jax, which reads the number of threads

    if not claim_for(spec, layers):
        raise wrong_threads_error(1, spec.path)
    log(f"replaying {spec.suite}/{spec.name}, seed {seed}")
    replay = replay_case(layers, spec, theta, seed, task_index=settings.task_index)
    training, home_note = replay.training, ""
    if usual_suite is not None and theta.leaves is not None and any(step.input_ranges for step in training.steps):
        training = replace(training, usual_ranges=_usual_ranges(home_suite, usual_suite, layers, theta, spec, log))
        home_note = f"The rule's inputs are compared with those that it has on {home_suite}."
    result = DebugResult(
        name=f"{spec.suite}/{spec.name}",
        trained_with=checkpoint or optimizer or "its own optimizer",
        seed=seed,
        block=str(replay.block),
        training=training,
        verdict=diagnose(training),
        difference=replay.difference,
        home_note=home_note,
        command=command_text(
            *("lobench", "debug", case),
            suite=str(suite),
            **{**changed_fields(settings), "seed": seed},
            store=str(store or ""),
            gin_file=as_texts(gin_files),
            gin_param=tuple(gin_params),
        )
        + " --home ''" * (not home_suite)
        + " --allow-pickle" * allow_pickle,
    )
    write_debug_page(result, page_path)
    log(f"page: {page_path}")
    return result


def _page_name(spec: CaseSpec, seed: int, trained_with: str, gin_params: Sequence[str]) -> str:
    """Returns the name of a page, which differs between subjects.

    Args:
      spec: The case.
      seed: Its seed.
      trained_with: Path of a checkpoint, or text of an optimizer. "": the case has its own.
      gin_params: Bindings of the training.
    """
    name = f"{spec.suite}-{spec.name}-seed{seed}"
    if not trained_with and not gin_params:
        return f"{name}.html"
    last_part = trained_with if "(" in trained_with else Path(trained_with).stem
    subject = re.sub(r"[^\w.]+", "-", last_part)[:_MOST_LETTERS].strip("-.")
    digest = hashlib.sha256("\n".join((trained_with, *gin_params)).encode()).hexdigest()[:6]
    return "-".join(filter(None, (name, subject, digest))) + ".html"


def _code_hashes(specs: Sequence[CaseSpec], layers: Layers) -> list[str]:
    """Returns the fingerprint of the user's code behind each case; "" if a case cannot be bound."""
    codes = []
    for spec in specs:
        try:
            codes.append(bind_case(spec, layers, build=False).info.code)
        except LobenchError:
            codes.append("")
    return codes


def _usual_ranges(
    home_name: str, suite: Path, layers: Layers, theta: ThetaLeaves, spec: CaseSpec, log: Callable[[str], None]
) -> InputRanges:
    """Returns the ranges of the learned rule's inputs on all cases of a suite except the given one.

    The ranges are cached next to the pages.
    """
    from lobench.tools.debug.replayed_case import measure_ranges, widen_ranges

    suite_hash = hashlib.sha256(repr((layers, _code_hashes(specs_of_suites(suite), layers))).encode()).hexdigest()[:8]
    name = "-".join([theta.sha256[:16], suite_hash, home_name.strip("/").replace("/", "-"), spec.suite, spec.name])
    cache_path = FOLDER / "ranges" / f"{name}.json"
    if cache_path.is_file():
        record = json.loads(cache_path.read_text(encoding="utf-8"))
        return {
            name: (np.asarray(bounds[0], np.float32), np.asarray(bounds[1], np.float32))
            for name, bounds in record.items()
        }
    ranges: InputRanges = {}
    for usual_spec in specs_of_suites(suite):
        if (usual_spec.path, usual_spec.name) == (spec.path, spec.name):
            continue
        log(f"the rule's usual inputs: {usual_spec.suite}/{usual_spec.name}")
        try:
            ranges = widen_ranges(ranges, measure_ranges(layers, usual_spec, theta, 0))
        except LobenchError as error:
            log(f"left out: {error}")
    cache_path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(
        cache_path, json.dumps({name: [bound.tolist() for bound in bounds] for name, bounds in ranges.items()}) + "\n"
    )
    return ranges

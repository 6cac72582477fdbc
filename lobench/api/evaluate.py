"""`lobench.evaluate`, and `evaluate_into`, through which all commands evaluate given subjects into a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from lobench.api.engine_run import WatchOutcome, run_rounds
from lobench.api.resolve import TrainingSetup, find_training_setup
from lobench.api.settings import EvaluateIntoKeywords, WatchSettings, as_texts
from lobench.core.case import Case
from lobench.core.errors import UsageError
from lobench.core.settings_field import check_keywords, settings_from
from lobench.core.subject import GivenCheckpoint, RequestedSubject
from lobench.engine.checkpoints.given import given_subject
from lobench.engine.chief.interfaces import WatchProgress
from lobench.report.live.notebook_progress import default_progress

if TYPE_CHECKING:
    from lobench.evaluation.result import Result

__all__ = ["StoreEvaluator", "evaluate", "evaluate_into"]


def evaluate(
    suite: str | Path | None = None,
    *,
    case: str | Case | None = None,
    task: object = None,
    checkpoint: str | Path | None = None,
    optimizer: object = "",
    store: str | Path | None = None,
    gin_files: Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    test: str | None = None,
    allow_pickle: bool = False,
) -> Result:
    """Trains one case and returns its result.

    The training runs in a child process that stays warm, since the bits of a result depend on the number of threads of
    jax's backend. After an edit of code that the case or its optimizer imports, this process imports it again, and
    a new child is started.

    Example:
        result = lobench.evaluate("quick/quick.gin", case="relu32", optimizer="adam(); adam.learning_rate = 1e-3")
        result.metrics["train/loss"]  # [seeds, evaluations]

        lobench.evaluate(task=MyTask(width=32), optimizer=optax.adam(1e-3))  # no file

    Args:
      suite: `.gin` file with cases, or the name of a shipped one, such as "quick/quick.gin". None: `case` or `task` is
        an object. If all of its parts can be named, the bits are those of the same case in a gin file. Other objects,
        such as optimizers of optax and tasks that a notebook defines, are trained in this process.
      case: Scope of the case. May be omitted if the file has a single case. Without a suite, a `lobench.Case`.
      task: Without a suite, the task of a case with default settings.
      checkpoint: Checkpoint file or step directory; a `config.gin` next to it is bound too. Or a name in a store:
        `STORE@NAME`, or NAME with `store` (a label, a scope, an outer step, or the first digits of a sha256).
      optimizer: Optimizer to evaluate instead of a checkpoint: gin text, or a name in a store; without a suite also an
        optax transformation. Neither is given for a case that binds an optimizer of its own.
      store: Store in which names are looked up.
      gin_files, gin_params: Bound over the bindings of the suite, in this order.
      test: Name of the test that wraps the case in the suite's `test_*.py`. It is part of the case's identity.
      allow_pickle: Whether a pickled checkpoint may be loaded. Unpickling can run arbitrary code.
    Raises:
      UsageError: Both a checkpoint and an optimizer are given, or neither although the case needs one; or a name is
        unknown; or both a suite and objects are given.
      SuiteError: The suite has no case of this name.
      ConfigError, CheckpointError, ThetaMismatch: The case, the checkpoint, or both together are invalid.

    >>> result = lobench.evaluate("quadratic.gin", case="small", optimizer="sgd(); sgd.learning_rate = 0.1")
    >>> result.final("train/loss").shape
    (2,)
    """
    from lobench.evaluation.notebook import evaluate as evaluate_in_notebook

    python_case = _case_of(suite, case, task, optimizer)
    optimizer = optimizer if isinstance(optimizer, str) else ""
    training_setup = TrainingSetup(checkpoint=str(checkpoint or ""), optimizer=optimizer)
    if bool(checkpoint) != bool(optimizer):
        kind: Literal["checkpoint", "optimizer"] = "checkpoint" if checkpoint else "optimizer"
        training_setup = find_training_setup(str(checkpoint or optimizer), kind, None if store is None else Path(store))
    return evaluate_in_notebook(
        str(suite or ""),
        case=case if isinstance(case, str) else None,
        python_case=python_case,
        checkpoint=training_setup.checkpoint or None,
        optimizer=training_setup.optimizer,
        gin_files=gin_files,
        gin_params=(*training_setup.gin_params, *gin_params),
        variant=training_setup.variant,
        test=test,
        allow_pickle=allow_pickle,
    )


def _case_of(suite: str | Path | None, case: str | Case | None, task: object, optimizer: object) -> Case | None:
    """Returns the case that is given as objects; None with a suite.

    Raises:
      UsageError: Both a suite and objects are given, or neither.
    """
    is_text = isinstance(optimizer, str)
    if suite is not None and (isinstance(case, Case) or task is not None or not is_text):
        raise UsageError("lobench.evaluate takes a suite or objects, and not both", got=f"the suite {suite}")
    if suite is not None:
        return None
    if isinstance(case, str) or isinstance(case, Case) == (task is not None):
        got = f"the case {case!r}" if isinstance(case, str) else ""
        expected = "case=lobench.Case(...) or task=..., one of them"
        raise UsageError("lobench.evaluate without a suite", got=got, expected=expected)
    bound_case = case if isinstance(case, Case) else Case(task=task)
    return bound_case if is_text else bound_case.replace(optimizer=optimizer)


def evaluate_into(
    store: str | Path,
    subjects: Sequence[str | Path | RequestedSubject],
    suites: str | Path | Sequence[str | Path],
    *,
    location: str | Path = "",
    progress: WatchProgress | None = None,
    **options: Unpack[EvaluateIntoKeywords],
) -> WatchOutcome:
    """Evaluates subjects on suites, except evaluations that the store already has. Errors are retried.

    All subjects are planned together: if the gin text of one is wrong, nothing runs. Identical subjects are
    reported in a line and computed once.

    Args:
      store: Folder of the ledger.
      subjects: Paths of checkpoints, with bindings after semicolons, and gin texts of optimizers. Empty: all
        checkpoints at `location`.
      suites: Folders, `.gin` files, or names of shipped suites.
      location: Run whose `config.gin` applies, with lower precedence than the suites, to each checkpoint that is given
        without texts of `config.gin`. "": the `config.gin` next to each checkpoint.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Further options of `lobench watch`, such as `workers` and `cases`.
    Raises:
      LobenchError: Wrong usage, a store that is busy or not writable, a suite that cannot be collected, no subject, or
        gin text that does not parse or names something unknown.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.
    """
    check_keywords("evaluate_into", options, EvaluateIntoKeywords)
    settings = settings_from(
        WatchSettings,
        options,
        location=str(location),
        suites=as_texts(suites),
        store=str(store),
        checkpoints="all",
        once=True,
        retry_errors=True,
    )
    requests = [_to_request(subject, has_run=bool(location)) for subject in subjects]
    outcome = run_rounds(settings, progress or default_progress(), requests=requests, has_source=not requests)
    if outcome.ending.interrupted:
        raise KeyboardInterrupt
    return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEvaluator:
    """Evaluates subjects for a tool, as `evaluate_into` does, with one store, suites and options.

    Attributes:
      store: Folder of the store.
      suites: Suites to evaluate on.
      progress: Receives progress events.
      location: Run whose `config.gin` is bound below the bindings of the suites, as in `evaluate_into`.
      options: Keywords of `evaluate_into`, such as `name`, `workers` and `gin_params`.
    """

    store: Path
    suites: tuple[str, ...]
    progress: WatchProgress
    location: str = ""
    options: EvaluateIntoKeywords = field(default_factory=EvaluateIntoKeywords)

    def evaluate(
        self,
        subjects: Sequence[RequestedSubject],
        bindings: Sequence[str] = (),
        *,
        suites: Sequence[str] = (),
        cases: Sequence[str] = (),
    ) -> None:
        """Evaluates subjects, except evaluations that the store already has.

        Args:
          subjects: The subjects.
          bindings: Bindings of this call that override all others, such as those of the seeds.
          suites: Suites of this call. (): those of the evaluator.
          cases: Names of the cases of this call. (): those of the evaluator.
        Raises:
          LobenchError, KeyboardInterrupt: As in `evaluate_into`.
        """
        options = self.options.copy()
        options["gin_params"] = (*options.get("gin_params", ()), *bindings)
        if cases:
            options["cases"] = cases
        evaluate_into(
            self.store,
            subjects,
            tuple(suites) or self.suites,
            location=self.location,
            progress=self.progress,
            **options,
        )


def _to_request(subject: str | Path | RequestedSubject, *, has_run: bool) -> RequestedSubject:
    if not isinstance(subject, str | Path):
        return subject
    request = given_subject(str(subject))
    if has_run and isinstance(request, GivenCheckpoint):
        return dataclasses.replace(request, variant=dataclasses.replace(request.variant, trainer_config=None))
    return request

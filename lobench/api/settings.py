"""Settings of a watch, a comparison and an evaluation; an `option` field is also an option of the command."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Self, TypedDict

from lobench.core.errors import UsageError
from lobench.core.settings_field import option
from lobench.engine.chief.interfaces import WatchOptions
from lobench.engine.config.shipped import find_suite
from lobench.engine.paths import path_exists, similar_path_advice
from lobench.engine.retries import retried
from lobench.engine.store.database import may_write

__all__ = [
    "LOCAL_EXECUTORS",
    "BaselineKeywords",
    "BaselineSettings",
    "CompareKeywords",
    "CompareSettings",
    "EvaluateIntoKeywords",
    "EvaluationKeywords",
    "EvaluationSettings",
    "ImportKeywords",
    "ImportSettings",
    "RunNaming",
    "TuneSettings",
    "WatchKeywords",
    "WatchSettings",
    "WorkerKeywords",
    "WorkerSettings",
    "as_texts",
    "command_text",
    "default_store",
    "min_workers",
    "num_cores",
    "num_workers",
    "unused_store",
    "unused_store_line",
]

LOCAL_EXECUTORS = ("local", "inline")  # executors whose workers run on this machine
NAME = r"[A-Za-z_]\w*"


@dataclass(frozen=True, kw_only=True)  # a class with two bases has the slots of one of them
class WorkerSettings:
    """Options of commands that evaluate on workers.

    Attributes:
      workers: Number of workers, or "auto".
    """

    workers: str | int = option("auto", "Worker processes, one core each: a number, MIN:MAX or auto.")
    executor: str = option("local", "local, inline, or a plugin's.", metavar="NAME[:ARG]")
    ray_address: str = option("auto", "For --executor ray: auto, HOST:PORT or local.")
    insecure: bool = option(False, "Use a cluster without authentication.")


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(WorkerSettings):
    """Options of commands that evaluate subjects. Options of workers are inherited."""

    sinks: tuple[str, ...] = option((), "Sink for results; repeatable.", flag="--sink", metavar="NAME[:ARG]")
    gin_params: tuple[str, ...] = option((), "gin binding over everything else.", flag="--gin-param")
    allow_pickle: bool = option(False, "Load pickled checkpoints, which can run code.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings(EvaluationSettings, WatchOptions):
    """Options of `lobench watch`, under the same names. Options of evaluations and of the chief are inherited.

    Attributes:
      location: A run's folder, or one checkpoint. "": the subjects are given and belong to no run.
      import_folders: Folders searched for modules that gin files import, besides those of the suites.
    """

    location: str
    suites: tuple[str, ...] = option(
        MISSING, "Suite folder, .gin file or name of a shipped suite; repeatable.", flag="--suite", required=True
    )
    name: str = option("", "Name of this watch and its store (default: the suite's).")
    checkpoints: str = option("latest", "latest (the newest of each run), all, or every:N.")
    quiet: bool = option(False, "Print only the lines of finished checkpoints and of failures.", flag="--quiet -q")
    source: str = option("directory", "Checkpoint source.")
    store: str = option(
        "", "Result store (default: CKPT_DIR/lobench_results/NAME if CKPT_DIR is yours, or you may write that store)."
    )
    gin_files: tuple[str, ...] = option((), "gin file bound over the suite's own.", flag="--gin-file")
    complete_when: str = option(
        "", "For commands: pattern of paths in a checkpoint's folder, one of which completes it.", metavar="GLOB"
    )
    keep_limit: float = option(
        20.0, "For commands: largest checkpoint that is copied if it cannot be linked.", metavar="GB", least=0
    )

    import_folders: tuple[str, ...] = ()

    @property
    def watch_name(self) -> str:
        """Name of the watch and of its store."""
        return self.name or Path(self.suites[0]).resolve().stem

    @property
    def store_folder(self) -> Path:
        """Folder of the store. The location must exist."""
        return Path(self.store) if self.store else default_store(self.location, self.watch_name)

    def resolved(self) -> Self:
        """Returns the settings with paths in place of names of suites, and the full names of cases.

        Raises:
          UsageError: A suite does not exist.
          SuiteError: The suites have no such case.
        """
        suites, cases = tuple(str(find_suite(suite)) for suite in self.suites), self.cases
        if suites and cases:
            from lobench.engine.config.suite import specs_called

            specs_called(cases, *suites, with_tests=True)  # raises for an unknown name
            with_parameters = [name for name in cases if "[" in name]  # only pytest knows the parameters of tests
            case_names = [name for name in cases if "[" not in name]
            specs = specs_called(case_names, *suites, with_tests=True) if case_names else []
            cases = (*with_parameters, *(spec.names[-1] for spec in specs))
        return replace(self, suites=suites, cases=cases)


class WorkerKeywords(TypedDict, total=False):
    """Keywords of functions that run on workers, described at `WorkerSettings`."""

    workers: str | int
    executor: str
    ray_address: str
    insecure: bool


class EvaluationKeywords(WorkerKeywords, total=False):
    """Keywords of functions that evaluate subjects, described at `WatchSettings`."""

    gin_files: Sequence[str | Path]
    gin_params: Sequence[str]
    sinks: Sequence[str]
    together: int
    max_core_hours: float | None
    keep_results: bool
    allow_pickle: bool
    complete_when: str
    keep_limit: float


class EvaluateIntoKeywords(EvaluationKeywords, total=False):
    """Keywords of `evaluate_into`, through which tools evaluate."""

    name: str
    cases: Sequence[str]
    import_folders: Sequence[str]


class WatchKeywords(EvaluateIntoKeywords, total=False):
    """Keywords of `lobench.watch`."""

    store: str | Path
    source: str
    checkpoints: str
    once: bool
    until_step: int | None
    idle_timeout: float | None
    retry_errors: bool
    quiet: bool
    experiment: str
    trial: str
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """Options of the statistics of `lobench compare`, under the same names."""

    margin: float | None = option(
        None,
        "Harm to the score that the gate tolerates (default: 0.05 on a log scale, 0.02 on a linear one). With --race: "
        "end when no remaining method can be better than the leader by more than this (default: 0, never).",
        least=0,
        most=3,
    )
    alpha: float = option(
        0.05,
        "Chance of a false alarm; intervals are of level 1 - alpha. With --race: chance that any method is eliminated "
        "although it is at least as good.",
        least=0.0001,
        most=0.5,
    )
    max_diverged: float = option(
        1.0,
        "PASS requires that at most this share of B's seeds diverges, such as 0.1 (1: print the bound only).",
        least=0,
        most=1,
    )
    independent_cases: bool = option(
        False,
        "Treat all cases as independent (default: cases of one training, or with common imported seeds, form a group, "
        "and each seed counts once with its mean over the group).",
    )
    seed_means: bool = option(False, "Take all cases as one group: always valid, with less power at few seeds.")
    target: str | float | None = option(
        None,
        "Report after how many steps, and seconds of training, each side reaches this value (default: of the primary "
        "metric).",
        metavar="[METRIC=]VALUE",
    )
    until_step: str | None = option(
        None,
        "common: compare all curves at the last step that all seeds of a case have (default: at the end of each).",
        choices=("common",),
    )


class CompareKeywords(EvaluationKeywords, total=False):
    """Keywords of `lobench.compare`, described at `CompareSettings`."""

    margin: float | None
    alpha: float
    max_diverged: float
    independent_cases: bool
    seed_means: bool
    target: str | float | None
    until_step: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSettings:
    """Options of `lobench baseline`."""

    optimizers: tuple[str, ...] = option(("adam",), "Optimizer, by its name in gin; repeatable.", flag="--optimizer")
    grid: str = option("velo", "velo, algoperf, defaults or a JSON file.")
    search: str = option("", "A search instead of a grid; see `lobench list searches`.")
    vary: tuple[str, ...] = option((), "With --search: PATH = SPACE, as in `lobench tune`; repeatable.")
    num_trials: int | None = option(None, "Number of trials; a grid has a fixed number.", least=1)
    seeds: int = option(5, "Number of seeds per point.", flag="--seeds --sessions", least=2)
    horizon_factor: int = option(10, "Length of a training, as a multiple of the case's budget.", least=1)
    cases: tuple[str, ...] = option(
        (), "Only this case: relu32, quick/relu32 or digits.relu32; repeatable.", flag="--case"
    )
    force: bool = option(False, "Tune up-to-date cases again too.")


class BaselineKeywords(TypedDict, total=False):
    """Keywords of `lobench.baseline`, described at `BaselineSettings`."""

    optimizers: Sequence[str]
    grid: str
    search: str
    vary: Sequence[str]
    num_trials: int | None
    seeds: int
    horizon_factor: int
    cases: Sequence[str]
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """Options of `lobench tune`.

    Attributes:
      suites: Suite folders and gin files on which the optimizer is tuned.
    """

    suites: tuple[str, ...]
    optimizer: str = option(MISSING, "Optimizer, by its name in gin; bindings after semicolons.", required=True)
    vary: tuple[str, ...] = option((), "PATH = SPACE; repeatable (default: the learning rate, 1e-5 to 1).")
    search: str = option("", "Search, see `lobench list searches` (default: ic_grid; random with --num-trials).")
    num_trials: int | None = option(None, "Number of trials; a grid has a fixed number.", least=1)
    sessions: int | None = option(
        None, "Number of seeds per case (default: each case's own).", flag="--sessions --seeds", least=1
    )
    report_sessions: int | None = option(None, "Number of fresh seeds for the best trial (default: --seeds).", least=0)
    race: bool = option(False, "Race the settings of a grid, or random ones: those shown to be worse leave.")

    @property
    def selector(self) -> str:
        """Name of the optimizer in gin, such as `adam` or `torch.optim.AdamW`."""
        match = re.match(rf"@?((?:{NAME}\.)*{NAME})", self.optimizer.strip())
        if match is None:
            raise UsageError("--optimizer", got=repr(self.optimizer), expected="a name such as adam")
        return match[1]

    @property
    def method(self) -> str:
        """Name of the method: that of the optimizer without its module."""
        return self.selector.rpartition(".")[2]

    @property
    def search_name(self) -> str:
        if self.search or self.num_trials is not None:
            return self.search or "random"
        return "grid" if self.race else "ic_grid"

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return f"{'race' if self.race else 'tune'}-{self.method}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNaming:
    """Options of an import that name the method, the case and the seed of each run.

    Attributes:
      method, case, seed: Names for all rows of a file that has none. "": not given.
      pattern: Regular expression for names of runs, with groups `method`, `case` and `seed`.
      method_from, case_from: Name of the logged value that contains the method or case.
      seed_from: Names of logged values that distinguish seeds. The first one gives their numbers.
    """

    method: str = option("", "Method of the curves, if the file has none; runs are then its seeds.")
    case: str = option("", "Case of the curves, if the file has none.")
    seed: str = option("", "Seed of the curves, if the file has none.")
    pattern: str = option(
        "", "Regular expression for names of runs and paths of files, with groups method, case and seed."
    )
    method_from: str = option(
        "",
        "For logged runs: value that names the method, such as config.KEY, params.KEY, tags.KEY or group.",
        metavar="KEY",
    )
    case_from: str = option("", "For logged runs: value that names the case, such as config.problem.", metavar="KEY")
    seed_from: tuple[str, ...] = option(
        (), "For logged runs: value that names the seed; several of them together distinguish seeds.", metavar="KEY"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings(RunNaming):
    """Options of `lobench import`."""

    kind: str = option("", "Format of the files, if it cannot be detected.")
    metrics: tuple[str, ...] = option(
        (), "Metric to import; the first one is the primary metric.", flag="--metric", metavar="NAME[=AS]"
    )
    columns: tuple[str, ...] = option(
        (), "For a table: role of a column, such as seed=run or value=loss.", flag="--column", metavar="ROLE=COLUMN"
    )
    rename: tuple[str, ...] = option((), "New name for a method or a case.", metavar="OLD=NEW")
    until_step: tuple[str, ...] = option(
        (), "Step at which curves end (default: their last one).", metavar="[METHOD=]STEP"
    )
    maximize: tuple[str, ...] = option((), "Metric for which higher is better.", metavar="METRIC")
    minimize: tuple[str, ...] = option((), "Metric for which lower is better, if it is not a loss.", metavar="METRIC")
    paired_seeds: bool = option(
        False,
        "Seeds of one number have the same data and initial parameters in every file imported with this; "
        "otherwise seeds are labels, and comparisons take Welch's interval.",
    )
    last_counts: bool = option(False, "If a run has a step twice, use the last value: the training was resumed.")
    replace: bool = option(False, "Replace earlier imports of these files and curves.")
    targets: str = option("", "AlgoPerf's targets, JSON.", metavar="PATH")


class ImportKeywords(TypedDict, total=False):
    """Keywords of `lobench.import_curves`, described at `ImportSettings`: a key for each keyword."""

    kind: str
    method: str
    case: str
    seed: str
    metrics: Sequence[str]
    columns: Sequence[str]
    pattern: str
    method_from: str
    case_from: str
    seed_from: Sequence[str]
    rename: Sequence[str]
    until_step: Sequence[str]
    maximize: Sequence[str]
    minimize: Sequence[str]
    paired_seeds: bool
    last_counts: bool
    replace: bool
    targets: str | Path


def default_store(location: str, name: str) -> Path:
    """Returns CKPT_DIR/lobench_results/NAME if the folder is local, writable and the user's own, else .lobench/NAME.

    In another user's folder, an existing store is used if this user may write its ledger, for example as a member of
    its group. Root never uses a store there, because the owner could not write root's files. An existing store of an
    earlier version at CKPT_DIR/lobench/NAME is used.

    Raises:
      UsageError: The location does not exist.
    """
    if "://" not in location:
        folder = _folder_of_run(location)
        is_own = retried(folder.stat, retries_forbidden=False).st_uid == os.geteuid() and may_write(folder)
        existing = _store_in(folder, name)
        if existing is not None and (is_own or _is_of_users_group(existing)):
            return existing
        if is_own:
            return folder / "lobench_results" / name
    return Path(".lobench") / name


def unused_store(location: str, name: str, store: Path) -> Path | None:
    """Returns the store beside a run's checkpoints if it is not used; None without such a store.

    Such a store is read-only, or another user's.

    Args:
      location: Folder or checkpoint of the run.
      name: Name of the watch.
      store: Store that is used, from `default_store`.
    Raises:
      UsageError: The location does not exist.
    """
    existing = None if "://" in location else _store_in(_folder_of_run(location), name)
    return existing if existing != store else None


def unused_store_line(earlier_store: Path, store: Path) -> str:
    """Returns the line that names the store of `unused_store`, and the one used in its place."""
    results_command = shlex.join(["lobench", "results", "--store", str(earlier_store)])
    return (
        f"the store of this run, {earlier_store}, is read-only or another user's: its results are not used, and new "
        f"ones go to {store}; `{results_command}` shows it"
    )


def _folder_of_run(location: str) -> Path:
    """Returns the folder of a run's checkpoints, which is around the location if that is a checkpoint.

    Raises:
      UsageError: The location does not exist.
    """
    folder = Path(location)
    if not retried(folder.exists, retries_forbidden=False):
        raise UsageError("no run found", where=location, next_step=similar_path_advice(location))
    is_run = path_exists(folder, kind="folder") and not path_exists(folder / "_CHECKPOINT_METADATA")
    return folder if is_run else folder.parent


def _store_in(folder: Path, name: str) -> Path | None:
    """Returns the store in the folder of a run, also one of an earlier version; None without one."""
    stores = (folder / "lobench" / name, folder / "lobench_results" / name)
    return next((store for store in stores if path_exists(store / "ledger.sqlite", kind="file")), None)


def _is_of_users_group(store: Path) -> bool:
    return os.geteuid() != 0 and may_write(store) and may_write(store / "ledger.sqlite")


def num_workers(workers: str | int) -> int:
    """Returns the largest number of cores that `--workers` allows.

    Raises:
      UsageError: The value is neither a number, nor MIN:MAX, nor "auto".
    """
    return num_cores() if workers == "auto" else _worker_range(workers)[1]


def min_workers(workers: str | int) -> int:
    """Returns the number of cores that an elastic executor keeps without work: MIN of MIN:MAX, otherwise 0."""
    return 0 if workers == "auto" else _worker_range(workers)[0]


def _worker_range(workers: str | int) -> tuple[int, int]:
    least, is_range, most = str(workers).partition(":")
    least, most = (least, most) if is_range else ("0", least)
    if not (least.isdecimal() and most.isdecimal() and int(least) <= int(most) and int(most) >= 1):
        raise UsageError("--workers", got=repr(workers), expected="a number >= 1, MIN:MAX, or auto")
    return int(least), int(most)


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def command_text(*command_words: str, **options: object) -> str:
    """Returns a command, quoted for a shell. Options that are None or "" are left out."""
    command = [*command_words]
    for name, value in options.items():
        for text in value if isinstance(value, tuple) else (value,):
            command += [] if text in (None, "") else [f"--{name.replace('_', '-')}", str(text)]
    return shlex.join(command)


def as_texts(value: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """Returns one path or several as a tuple of texts."""
    return (str(value),) if isinstance(value, str | Path) else tuple(map(str, value))

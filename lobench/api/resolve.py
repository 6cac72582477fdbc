"""Name resolution: finds a subject or a run by label, scope, gin text, file, outer step or sha256.

All commands, pytest options and Python functions resolve names here. `STORE@NAME` is looked up in STORE; if an option
names a store, NAME alone is looked up there.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lobench.analysis.comparisons.run_history import find_stores
from lobench.analysis.store import names
from lobench.analysis.store.methods import read_methods
from lobench.analysis.store.names import match_name, subject_index_named
from lobench.analysis.store.reference import ReferenceChoice, choose_reference
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.analysis.store.subjects import StoredSubject, last_subject
from lobench.core.errors import CheckpointError, ConfigError, StoreError, UsageError, suggestion, with_parts
from lobench.core.subject import GivenCheckpoint, RequestedSubject, SubjectKey, Variant, canonical_optimizer
from lobench.core.subject import Subject as Who
from lobench.engine.checkpoints.given import given_checkpoint, given_subject
from lobench.engine.checkpoints.kept import readable_location
from lobench.engine.checkpoints.places import is_below
from lobench.engine.config.syntax import Binding, parse_text
from lobench.engine.paths import path_exists
from lobench.engine.store.bundle import has_ledger, split_store_and_name
from lobench.engine.store.ledger import Ledger

__all__ = [
    "FoundSubject",
    "RunFolder",
    "TrainingSetup",
    "find_request",
    "find_run",
    "find_stored_subject",
    "find_training_setup",
    "is_store",
    "names_last_subject",
    "snapshot_with_name",
    "subjects_of_snapshots",
    "subjects_setting_scales",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSubject:
    """A subject found in a store, with the snapshot in which it was found: an experiment's methods, or all subjects."""

    subject: StoredSubject
    snapshot: Snapshot

    @property
    def store(self) -> Path:
        return self.snapshot.store

    @property
    def request(self) -> RequestedSubject:
        """The subject in the form in which it can be trained again.

        Raises:
          UsageError: Its curves were imported, or its cases bind optimizers of their own.
          CheckpointError: Its file was deleted, or has another theta now.
        """
        identity = self.subject.subject
        if identity.is_imported or (identity.is_optimizer and not identity.uri):
            raise UsageError(f"lobench cannot train {self.subject.label!r}", where=str(self.store), got=identity.label)
        if identity.is_optimizer:
            return identity
        other_paths = [
            subject.subject.uri for subject in self.snapshot.subjects if subject.subject.sha256 == identity.sha256
        ]
        path = readable_location(self.store, identity.uri, identity.sha256, other_paths=other_paths)
        if path is None and "://" not in identity.uri and not path_exists(identity.uri):
            raise CheckpointError(
                f"the file of {self.subject.label!r} is gone", where=str(self.store), got=identity.uri
            )
        if path is None:
            raise CheckpointError(
                f"the file of {self.subject.label!r} holds another theta now",
                where=str(self.store),
                got=identity.uri,
                expected=f"the theta {identity.sha256[:12]}, which was evaluated",
                next_step="choose another subject, or evaluate the present file by its path",
            )
        variant = identity.variant
        if variant.trainer_config is None:  # a watch, too, binds the `config.gin` of its run
            variant = given_checkpoint(identity.uri, variant.bindings).variant
        return GivenCheckpoint(uri=path, variant=variant, label=self.subject.label, sha256=identity.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """A checkpoint's path or an optimizer's gin text, with the gin bindings that belong to it.

    Attributes:
      checkpoint, optimizer: One of them; "" for the other.
      gin_params: Bindings, as given by `--gin-param`.
      trainer_config: Text of the `config.gin` that a watch bound. None: the file next to the checkpoint.
    """

    checkpoint: str = ""
    optimizer: str = ""
    gin_params: tuple[str, ...] = ()
    trainer_config: str | None = None

    @property
    def variant(self) -> Variant:
        """Bindings with lower precedence than the suite's."""
        return Variant(trainer_config=self.trainer_config)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The folder of a meta-training run.

    Attributes:
      location: Path or URL of the folder.
      bindings: gin bindings with which its checkpoints are evaluated.
      shares_store: Whether the store contains checkpoints of other runs too, because the run is a session of a command
        or below the watched folder.
    """

    location: str
    bindings: tuple[str, ...] = ()
    shares_store: bool = False

    def contains(self, uri: str) -> bool:
        """Returns whether a checkpoint of the store belongs to this run."""
        return not self.shares_store or is_below(uri, self.location)

    def request_for(self, evaluated_subject: Who) -> GivenCheckpoint:
        """Returns a checkpoint that a watch evaluated, to be evaluated again with the `config.gin` texts of that watch.

        For a run below the watched folder, these include the texts of the folders above it. If the watch used the
        `config.gin` in the watched folder, the checkpoint uses the `config.gin` in the folder of this run.
        """
        variant = Variant(
            trainer_config=evaluated_subject.variant.trainer_config
        )  # its other bindings are `self.bindings`
        return GivenCheckpoint(uri=evaluated_subject.uri, sha256=evaluated_subject.sha256, variant=variant)

    def path_of(self, uri: str) -> str:
        """Returns the path of a checkpoint in this run. The store may have it relative to another working directory."""
        path = Path(uri)
        if "://" in uri or path.is_absolute() or path.exists():
            return uri
        candidates = (Path(self.location, *path.parts[start:]) for start in range(len(path.parts)))
        return str(next((candidate for candidate in candidates if candidate.exists()), path))


def is_store(folder: str | Path) -> bool:
    return has_ledger(folder)


def find_stored_subject(
    text: str,
    store: Path | None,
    *,
    candidates: Collection[SubjectKey] = (),
    choices: Sequence[ReferenceChoice] = (),
) -> FoundSubject:
    """Returns the subject that a text names: `STORE`, `STORE@NAME`, a folder with one store below it, or NAME.

    A store without a name means its last checkpoint.

    Args:
      store: Store in which NAME is looked up.
      candidates: Subjects to be compared with the named one. A store never means one of them, and they are left
        out if several subjects share the name.
      choices: Earlier choices of references; see `choose_reference`.
    Raises:
      UsageError: No subject has this name, several have it, or the store does not exist.
    """
    store_path, name = _resolve_store(text, store)
    if name in _LAST_NAMES:
        snapshot = read_store(store_path)
        if not snapshot.subjects:
            raise UsageError("the store holds no evaluation yet", where=str(store_path))
        chosen = choose_reference(snapshot, candidates, choices) if candidates else last_subject(snapshot.subjects)
        return FoundSubject(subject=chosen, snapshot=snapshot)
    snapshot = snapshot_with_name(store_path, name)
    if not snapshot.subjects:
        raise UsageError(f"no file is called {name!r}, and the store holds no evaluation yet", where=str(store_path))
    index = subject_index_named(snapshot, name, candidates)
    return FoundSubject(subject=snapshot.subjects[index], snapshot=snapshot)


def names_last_subject(text: str, store: Path | None) -> bool:
    """Returns whether lobench chooses the subject of a text: a store without a name, or with the name `last`.

    Raises:
      UsageError: As in `find_stored_subject`.
    """
    return _resolve_store(text, store)[1] in _LAST_NAMES


_TABLE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
_LAST_NAMES = ("", "last")  # names of the last subject of a store


def _resolve_store(text: str, store: Path | None) -> tuple[Path, str]:
    store_path, name = split_store_and_name(text)
    if store_path and is_store(store_path):
        return Path(store_path), name
    # With --store, a folder without a store below it does not name a store: it may be a checkpoint, such as `100`.
    if (
        store_path
        and path_exists(store_path, kind="folder")
        and (store is None or any(Path(store_path).rglob("ledger.sqlite")))
    ):
        stores = find_stores(Path(store_path))
        if len(stores) > 1:
            raise UsageError(
                "several stores lie here",
                where=store_path,
                got=", ".join(map(str, stores)),
                next_step="name one of them",
            )
        return stores[0], name
    if store is None:
        raise UsageError(
            "neither a store nor a folder with one",
            got=repr(text),
            next_step=f"if it is a table of curves, import it: `lobench import {text} --store STORE`"
            if Path(text).suffix in _TABLE_SUFFIXES and path_exists(text, kind="file")
            else "give --suite to evaluate it now, or --store to look it up there (or STORE@NAME)",
        )
    return store, text


def find_request(text: str, store: Path | None, *, candidates: Collection[SubjectKey] = ()) -> RequestedSubject:
    """Returns the subject to train: a path or URL with bindings after semicolons, gin text, or a name in a store.

    Args:
      store: Store in which names are looked up.
      candidates: Subjects to be compared with the named one; see `find_stored_subject`.
    Raises:
      UsageError: Nothing has this name, or both a subject of the store and a file have it.
      ConfigError: The gin text is invalid.
    """
    store = store if store is not None and is_store(store) else None
    if _is_explicit(text):
        request = given_subject(text)
        if namesakes := _namesakes(text, request, store):
            kind = "path" if isinstance(request, GivenCheckpoint) or path_exists(text) else "gin text"
            spelling = repr(f"./{text}" if kind == "path" else f"{text};")
            raise UsageError(
                f"{text!r} is a {kind}, and the name of another one",
                where=str(store),
                got=f"{namesakes[0].uri} ({namesakes[0].sha256[:12]})",
                next_step=f"say {spelling} or '{store}@{namesakes[0].sha256[:12]}'",
            )
        return request
    if store is None and not is_store(split_store_and_name(text)[0] or "no store"):
        _refuse_gin(text)
        raise UsageError(
            "neither a checkpoint nor an optimizer",
            got=repr(text),
            expected="a path, a call such as 'adam()', or STORE@NAME",
            next_step="; ".join([*_call_advice(text), "if it is a name in a store, give that store with --store"]),
        )
    try:
        return find_stored_subject(text, store, candidates=candidates).request
    except UsageError as error:
        _refuse_gin(text)
        if not (advice := _call_advice(text)):
            raise
        next_step = "; ".join([*filter(None, [error.next_step]), *advice])
        raise with_parts(error, UsageError, next_step=next_step) from error


def _call_advice(text: str) -> list[str]:
    """Returns advice if a text may be the name of an optimizer."""
    is_name = text.isidentifier() or text.startswith("optax.")
    return [f"if it is an optimizer, write {canonical_optimizer(text)!r}"] if is_name else []


def find_training_setup(text: str, kind: Literal["checkpoint", "optimizer"], store: Path | None) -> TrainingSetup:
    """Returns the checkpoint or optimizer that an option names. A text that no store knows is returned unchanged.

    Raises:
      UsageError: As in `find_request`; or the name is that of an optimizer where a checkpoint is expected, or the
        reverse.
    """
    has_store = store is not None and is_store(store)
    is_name = has_store or is_store(split_store_and_name(text)[0] or "no store")
    request = find_request(text, store) if is_name else None
    if request is None or _is_explicit(text):
        return TrainingSetup(checkpoint=text) if kind == "checkpoint" else TrainingSetup(optimizer=text)
    if isinstance(request, GivenCheckpoint) != (kind == "checkpoint"):
        other_kind = "optimizer" if kind == "checkpoint" else "checkpoint"
        raise UsageError(
            f"{text!r} is no {kind}", got=f"the {other_kind} {request.uri}", next_step=f"give it as the {other_kind}"
        )
    if isinstance(request, GivenCheckpoint):
        variant = request.variant
        return TrainingSetup(checkpoint=request.uri, gin_params=variant.bindings, trainer_config=variant.trainer_config)
    return TrainingSetup(optimizer=request.uri)


def find_run(text: str, store: Path | None) -> RunFolder:
    """Returns a run by its folder or URL, or by the name of a command's session: scope or label, `mine` or `mine-3`.

    Raises:
      UsageError: No run has this name, or several have it.
    """
    store_path, name = split_store_and_name(text)
    if store_path and name and is_store(store_path):
        store = Path(store_path)
        text = name
    elif "://" in text or path_exists(text) or store is None or not is_store(store):
        return RunFolder(
            location=text, shares_store=store is not None and is_store(store) and _store_has_other_runs(text, store)
        )
    folders_by_label = _sessions_of_commands(store)
    exact_folders = folders_by_label.get(text, [])
    if len(exact_folders) == 1:
        folder = exact_folders[0]
        with Ledger.open(store, read_only=True) as ledger:
            sightings = [
                sighting for sighting in ledger.sightings().values() if Path(sighting.uri).is_relative_to(folder)
            ]
        bindings = sightings[-1].variant.bindings if sightings else ()
        return RunFolder(location=str(folder), bindings=bindings, shares_store=True)
    unique_labels = [label for label, folders in folders_by_label.items() if len(folders) == 1]
    if exact_folders:
        candidates = [
            label for label in unique_labels if folders_by_label[label][0] in exact_folders and label.startswith(text)
        ]
        raise UsageError(
            f"several runs are called {text!r}", where=str(store), next_step=f"say {' or '.join(candidates)}"
        )
    raise UsageError(
        f"unknown run {text!r}",
        where=str(store),
        expected="the folder of a run" + (f", or one of {', '.join(unique_labels)}" if unique_labels else ""),
        next_step=suggestion(text, folders_by_label),
    )


def _store_has_other_runs(folder: str, store: Path) -> bool:
    """Returns whether a store has checkpoints below a folder and also checkpoints elsewhere."""
    with Ledger.open(store, read_only=True) as ledger:
        uris = {sighting.uri for sighting in ledger.sightings().values() if sighting.has_theta}
    uris_below = {uri for uri in uris if is_below(uri, folder)}
    return bool(uris_below) and uris_below != uris


def _sessions_of_commands(store: Path) -> dict[str, list[Path]]:
    """Returns the session folders of commands by name. Folders of the latest experiment are first."""
    with Ledger.open(store, read_only=True) as ledger:
        sessions: dict[str, list[Path]] = {}
        for experiment_row in sorted(ledger.experiments(), key=lambda row: -row.last_at):
            labels = _labels_in(experiment_row.config)
            sessions_of_experiment: dict[str, list[Path]] = {}
            for row in ledger.trials(experiment_row.id):
                if folder := row.parameters.get("folder"):
                    path = store.absolute() / "commands" / str(folder)
                    for name in dict.fromkeys((row.method, labels.get(row.method, row.method))):
                        for session_name in (name, f"{name}-{path.name}"):
                            sessions_of_experiment.setdefault(session_name, []).append(path)
            sessions = {**sessions_of_experiment, **sessions}
    return sessions


def _labels_in(config: str) -> dict[str, str]:
    try:
        statements = parse_text(config, "the experiment")
    except ConfigError:
        return {}
    bindings = [statement for statement in statements if isinstance(statement, Binding)]
    return {
        binding.scope: str(binding.value)
        for binding in bindings
        if (binding.name, binding.parameter) == ("Method", "label")
    }


def snapshot_with_name(store: Path, name: str) -> Snapshot:
    """Returns the snapshot of a store's last experiment, or of the whole store if the name is found only there."""
    return names.snapshot_with_name(read_methods(store), functools.partial(read_store, store), name)


def _namesakes(text: str, request: RequestedSubject, store: Path | None) -> list[Who]:
    """Returns other subjects of a store that have a text as their label or as their scope in an experiment.

    The end of a path is not compared, since every run has its `theta_100.npz`.
    """
    if store is None or not is_store(store):
        return []
    try:
        with Ledger.open(store, read_only=True) as ledger:
            sightings = set(ledger.sightings().values())
            has_scope = any(f"{text}/Method." in experiment_row.config for experiment_row in ledger.experiments())
    except StoreError:
        return []  # the command that writes to the store reports the reason
    namesakes = [subject for subject in sightings if subject.label == text and not subject.uri.endswith(text)]
    if has_scope:
        snapshot = snapshot_with_name(store, text)
        namesakes += [snapshot.subjects[index].subject for index in match_name(snapshot, text).indices]
    return [subject for subject in namesakes if not _is_same_subject(request, subject)]


def _is_explicit(text: str) -> bool:
    """Returns whether a text is a path or gin text. Opens no store."""
    name = text.partition(";")[0].strip()
    if name.endswith(".gin") or path_exists(name) or "://" in name:
        return not is_store(name)
    if not any(character in name for character in "(=@"):
        return False
    try:
        given_subject(text)
    except (ConfigError, UsageError):
        return False
    return True


def _refuse_gin(text: str) -> None:
    """Raises ConfigError for a text that looks like a gin call but is not valid."""
    if "(" in text.partition(";")[0]:
        given_subject(text)


def _is_same_subject(request: RequestedSubject, subject: Who) -> bool:
    if isinstance(request, Who):
        return (
            request.is_optimizer
            and subject.is_optimizer
            and sorted(request.variant.bindings) == sorted(subject.variant.bindings)
        )
    return subject.has_theta and Path(request.uri).resolve() == Path(subject.uri).resolve()


def subjects_of_snapshots(stored_subjects: Sequence[FoundSubject]) -> list[StoredSubject]:
    """Returns the subjects of all snapshots, without duplicates."""
    return _distinct_subjects((entry.store, entry.snapshot.subjects) for entry in stored_subjects)


def subjects_setting_scales(stored_subjects: Sequence[FoundSubject]) -> list[StoredSubject]:
    """Returns all subjects of the stores, each once. Without a tuned baseline, the best mean among them scores 1."""
    return _distinct_subjects((entry.store, entry.snapshot.scale_subjects) for entry in stored_subjects)


def _distinct_subjects(subjects_by_store: Iterable[tuple[Path, Sequence[StoredSubject]]]) -> list[StoredSubject]:
    pairs = [(store.resolve(), subject) for store, subjects in subjects_by_store for subject in subjects]
    return list({(store, subject.checkpoint, subject.optimizer_hashes): subject for store, subject in pairs}.values())

"""Names of a store's subjects: the only lookup of subjects by text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from lobench.analysis.store.snapshot import Snapshot
from lobench.core.errors import ConfigError, UsageError, suggestion
from lobench.core.subject import Subject, SubjectKey, optimizer_bindings
from lobench.engine.config.syntax import binding_text, only_bindings, parse_text
from lobench.engine.paths import path_exists

__all__ = ["NameMatches", "match_name", "snapshot_with_name", "subject_index_named", "subject_names"]

_MIN_HASH_DIGITS = 6  # fewest digits that count as the start of a sha256
_MAX_NAMES = 8  # most names in an error


class NameMatches(NamedTuple):
    """Result of a lookup: indices of the matching subjects, and whether the text is exactly their name or path."""

    indices: tuple[int, ...]
    is_exact: bool


def subject_names(snapshot: Snapshot, index: int) -> list[str]:
    """Returns the names of a subject: its scope in an experiment, its labels, its text or path."""
    subject = snapshot.subjects[index]
    scopes = [snapshot.experiment.method_names[index]] if snapshot.experiment.method_names else []
    labels = [
        snapshot.labels[index],
        snapshot.capitalized_labels[index],
        subject.label,
        subject.subject.label,
        subject.subject.name,
    ]
    return [name for name in dict.fromkeys([*scopes, *labels, subject.subject.uri]) if name]


def match_name(snapshot: Snapshot, text: str, excluded_keys: Collection[SubjectKey] = ()) -> NameMatches:
    """Returns the subjects that match a text.

    First come subjects with this scope, label, whole path or gin text. If none matches, the text may be an outer
    step, the start of a sha256 or the end of a path. If there are checkpoints and no methods, a number is an outer step
    first: `run/7` at outer step 0 is not the checkpoint 7.

    Args:
      snapshot: Snapshot of the store.
      text: Text to look up.
      excluded_keys: Subjects that are not returned.
    """
    permitted_indices = [
        index for index, subject in enumerate(snapshot.subjects) if subject.subject.key not in excluded_keys
    ]
    if text.isdecimal() and not snapshot.experiment.method_names:
        subjects = {index: snapshot.subjects[index].subject for index in permitted_indices}
        if steps := [index for index in permitted_indices if subjects[index].known_outer_step == int(text)]:
            return NameMatches(tuple(steps), is_exact=False)
    exact_matches = [index for index in permitted_indices if text in subject_names(snapshot, index)]
    exact_matches = exact_matches or [
        index for index in permitted_indices if _is_text_or_path(snapshot.subjects[index].subject, text)
    ]
    if exact_matches:
        return NameMatches(tuple(exact_matches), is_exact=True)
    similar_indices = [index for index in permitted_indices if _is_similar(snapshot.subjects[index].subject, text)]
    path_matches = [index for index in similar_indices if snapshot.subjects[index].subject.uri.endswith(f"/{text}")]
    return NameMatches(tuple(path_matches or similar_indices), is_exact=False)


def snapshot_with_name(methods_snapshot: Snapshot, make_store_snapshot: Callable[[], Snapshot], text: str) -> Snapshot:
    """Returns the snapshot in which a text is looked up: that of an experiment's methods, or of the whole store.

    Args:
      methods_snapshot: Snapshot of the methods. If the store has no experiment, it is that of the whole store.
      make_store_snapshot: Function that makes the snapshot of the whole store. It is called if the text is not exactly
        the name of a method.
      text: Text to look up.
    """
    if not methods_snapshot.all_stored_subjects or match_name(methods_snapshot, text).is_exact:
        return methods_snapshot
    store_snapshot = make_store_snapshot()
    is_of_store = not methods_snapshot.subjects or match_name(store_snapshot, text).indices
    return store_snapshot if is_of_store else methods_snapshot


def subject_index_named(snapshot: Snapshot, text: str, candidates: Collection[SubjectKey] = ()) -> int:
    """Returns the index of the only subject that matches a text.

    The same theta at several outer steps, with the same bindings, counts as one subject: the last of them.

    Args:
      snapshot: Snapshot of the store.
      text: Text to look up.
      candidates: Subjects to which the result is compared. They are used only if no other subject matches.

    Raises:
      UsageError: No subject matches, or several do. The message lists them, and names that distinguish them.
    """
    indices = match_name(snapshot, text, candidates).indices or match_name(snapshot, text).indices
    if not indices:
        names_by_subject = [subject_names(snapshot, index) for index in range(len(snapshot.subjects))]
        first_names = list(dict.fromkeys(names[0] for names in names_by_subject))
        is_path = "/" in text or bool(Path(text).suffix)
        raise UsageError(
            f"no file {text!r}, and no result of this name" if is_path else f"nothing here is called {text!r}",
            where=str(snapshot.store),
            expected=f"one of {', '.join(map(repr, first_names[-_MAX_NAMES:]))}"
            + " ..." * (len(first_names) > _MAX_NAMES),
            next_step=suggestion(text, [name for names in names_by_subject for name in names]),
        )
    subjects = [snapshot.subjects[index] for index in indices]
    if len({(subject.subject.sha256, subject.optimizer_hashes) for subject in subjects}) > 1:
        unique_names = [_unique_name(snapshot, index) for index in indices]
        raise UsageError(
            f"several are called {text!r}",
            where=str(snapshot.store),
            got=", ".join(
                f"{name!r} ({snapshot.subjects[index].subject.uri})"
                for name, index in zip(unique_names, indices, strict=True)
            ),
            next_step=f"say {' or '.join(map(repr, unique_names))}",
        )
    return indices[-1]


def _unique_name(snapshot: Snapshot, index: int) -> str:
    """Returns a name that matches only this subject.

    Without such a name, returns the label: other subjects may have the same theta with other bindings.
    """
    sha256 = snapshot.subjects[index].subject.sha256
    distinct_names = (
        name
        for name in [*subject_names(snapshot, index), sha256[:12]]
        if match_name(snapshot, name).indices == (index,)
    )
    return next(distinct_names, snapshot.labels[index])


def _is_text_or_path(subject: Subject, text: str) -> bool:
    if subject.is_optimizer:
        return (
            bool(subject.uri) and (lines := _gin_statements(text)) is not None and lines == _gin_statements(subject.uri)
        )
    is_path = subject.has_theta and "://" not in text and path_exists(text)
    return is_path and Path(text).resolve() == Path(subject.uri).resolve()


def _is_similar(subject: Subject, text: str) -> bool:
    if subject.is_imported:  # only by its whole name, because `imported:nadam` ends with `adam`
        return False
    if text.isdecimal() and subject.known_outer_step == int(text):
        return True
    is_hash = len(text) >= _MIN_HASH_DIGITS and subject.sha256.startswith(text)
    return is_hash or (subject.has_theta and bool(text) and subject.uri.endswith(text) and not text.isdecimal())


def _gin_statements(text: str) -> Sequence[str] | None:
    """Returns an optimizer's gin text as canonical statements, where `adam` is equal to `adam()`.

    None if it is invalid.
    """
    full_text = text if any(character in text for character in "(=@") or text.endswith(".gin") else f"{text}()"
    try:
        return [
            binding_text(binding)
            for binding in only_bindings(parse_text("\n".join(optimizer_bindings(full_text)), "a name"))
        ]
    except ConfigError:
        return None

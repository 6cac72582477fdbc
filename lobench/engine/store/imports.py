"""Imported curves in a ledger. They are evaluations of separate subjects, which a chief never runs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.errors import UsageError
from lobench.core.program import IMPORTED, Program
from lobench.core.result import Curves, EvaluationKey, Outcome, read_header
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.reader import case_from_json
from lobench.engine.store.schema import decoding_errors, store_errors

__all__ = [
    "CurveWriter",
    "ImportCounts",
    "ImportedFile",
    "cases_with_origin",
    "digests_of_imported",
    "imported_curves",
    "imported_files",
    "record_imported_file",
    "record_imported_subject",
    "remove_imported_curves",
    "seeds_by_run",
]

_PROGRAM_KEY = IMPORTED.key


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """File or folder from which curves were imported.

    Attributes:
      file: Path of the file.
      sha256: Hash of its content.
      reader: Name of the reader.
      options: Options of the import in canonical form. The same file with other options is another import.
      name: Name of its run, if the file contains no names of runs.
    """

    file: str
    sha256: str
    reader: str
    options: str
    name: str = ""


class ImportCounts:
    """Numbers of imported curves: new, already known, and replacing others."""

    def __init__(self) -> None:
        self.new = self.known = self.replaced = 0


def imported_files(ledger: Ledger) -> list[ImportedFile]:
    """Returns the imports of a store, oldest first."""
    fields = ImportedFile.__dataclass_fields__
    return [
        ImportedFile(**{name: str(detail.get(name, "")) for name in fields}) for _, detail in ledger.events("imported")
    ]


def digests_of_imported(ledger: Ledger, subject: Subject) -> set[tuple[str, str]]:
    """Returns the path and the SHA-256 of each file that an imported subject's curves are of, at their import."""
    return {file for _, files in _files_of_imported_curves(ledger, [subject]) for file in files}


def record_imported_file(ledger: Ledger, file: ImportedFile, **counts: int) -> None:
    """Records that a file was imported, in the transaction of its curves."""
    ledger.record_event(
        "imported",
        file=file.file,
        sha256=file.sha256,
        reader=file.reader,
        options=file.options,
        name=file.name,
        **counts,
    )


def cases_with_origin(ledger: Ledger) -> list[tuple[CaseInfo, bool]]:
    """Returns the cases of a store in order of their last record, each with whether it was imported."""
    query = "SELECT case_json, program_version FROM evaluations GROUP BY case_json ORDER BY MAX(id)"
    with store_errors(ledger.store), decoding_errors(ledger.store):
        rows = ledger.connection.execute(query).fetchall()
        cases: dict[CaseInfo, bool] = {}
        for case_text, program in reversed(rows):  # a case that two versions wrote has two texts
            # Rows that differ only in the code have the same case.
            case = replace(case_from_json(case_text), case_code="", subject_code="", task_code="")
            cases.setdefault(case, program == _PROGRAM_KEY)
    return list(cases.items())[::-1]


def seeds_by_run(ledger: Ledger, subject: Subject, case: CaseInfo) -> dict[str, int]:
    """Returns the seed number of each run of an imported subject on a case, by the run's name in its file."""
    query = "SELECT payload FROM evaluations WHERE checkpoint_sha256 = ? AND case_identity = ? AND program_version = ?"
    values = (subject.sha256, case.identity, _PROGRAM_KEY)
    with decoding_errors(ledger.store):
        headers = (read_header(payload)[0] for (payload,) in ledger.connection.execute(query, values))
        return {header["provenance"].imported.get("run", ""): header["seeds"][0] for header in headers}


def imported_curves(ledger: Ledger, subject: Subject, case: CaseInfo) -> Iterator[tuple[EvaluationKey, Curves]]:
    """Yields the curves of an imported subject on a case, one seed each, with their keys."""
    query = (
        "SELECT seed_start, payload FROM evaluations WHERE checkpoint_sha256 = ? AND case_identity = ? "
        "AND program_version = ? ORDER BY id"
    )
    with decoding_errors(ledger.store):
        rows = ledger.connection.execute(query, (subject.sha256, case.identity, _PROGRAM_KEY)).fetchall()
        for seed, payload in rows:
            yield _imported_key(subject, case, seed), Curves.from_payload(payload)


def _imported_key(subject: Subject, case: CaseInfo, seed: int) -> EvaluationKey:
    return EvaluationKey(
        checkpoint_sha256=subject.sha256,
        optimizer_hash="",
        case_identity=case.identity,
        seed_block=SeedBlock(start=seed, size=1),
        program_version=_PROGRAM_KEY,
    )


def record_imported_subject(ledger: Ledger, subject: Subject) -> None:
    """Records an imported subject. It is marked as finished, so that no chief runs it and no sink receives it."""
    with ledger.transaction():
        position = ledger.record_sighting(subject)
        query = "UPDATE subjects SET admission = 'admitted', finished = 1 WHERE position = ?"
        ledger.connection.execute(query, (position,))


class CurveWriter:
    """Writes the curves of an import. Each call of `add` records one seed of a subject on a case, or all of its items.

    Use it within one transaction: it reads once, at the beginning, which curves the store has.

    Args:
      ledger: Ledger of the store.
      counts_added: Counters that `add` increments.
    """

    def __init__(self, ledger: Ledger, counts_added: ImportCounts) -> None:
        self._ledger, self._counts_added = ledger, counts_added
        self._program: Program | None = IMPORTED  # registered with the first curve
        query = "SELECT checkpoint_sha256, case_identity, seed_start FROM evaluations WHERE program_version = ?"
        with store_errors(ledger.store), decoding_errors(ledger.store):
            self._stored_identities = {tuple(row) for row in ledger.connection.execute(query, (_PROGRAM_KEY,))}

    def add(self, subject: Subject, case: CaseInfo, curves: Curves, *, replaces: bool) -> EvaluationKey:
        """Records one seed, or all items.

        Args:
          subject: Subject of the curves.
          case: Case of the curves.
          curves: Curves of one seed, or of the items of a case, with the imported file in their provenance.
          replaces: Whether to replace other curves of the same subject, case and seed instead of raising an error.
        Raises:
          UsageError: The store has other values of this subject, case and seed.
        """
        first_seed = 0 if curves.items else curves.seeds[0]
        key = _imported_key(subject, case, first_seed)
        identity = (subject.sha256, case.identity, first_seed)
        stored_curves = _stored_curves(self._ledger, key) if identity in self._stored_identities else None
        if stored_curves is not None and _are_equal(stored_curves, curves):
            self._counts_added.known += 1
            return key
        if stored_curves is not None and not replaces:
            raise _other_values_error(subject, case, stored_curves, curves)
        self._ledger.record_evaluation(
            *(key, case, Outcome.PASSED), curves=curves, positions=(), replace=replaces, program=self._program
        )
        self._stored_identities.add(identity)
        self._program = None
        self._counts_added.replaced += stored_curves is not None
        self._counts_added.new += stored_curves is None
        return key


def remove_imported_curves(ledger: Ledger, file: str, subjects: Collection[Subject] | None = None) -> int:
    """Removes the curves imported from a file, before a new import, and returns their number.

    Args:
      ledger: The ledger.
      file: Path of the file.
      subjects: Imported subjects whose curves are removed. None: all.
    """
    with ledger.transaction():
        evaluation_ids = [
            evaluation_id
            for evaluation_id, files in _files_of_imported_curves(ledger, subjects)
            if any(path == file for path, _ in files)
        ]
        for evaluation_id in evaluation_ids:
            for table in ("memberships", "deliveries", "completions"):
                ledger.connection.execute(f"DELETE FROM {table} WHERE evaluation = ?", (evaluation_id,))
            ledger.connection.execute("DELETE FROM evaluations WHERE id = ?", (evaluation_id,))
        ledger.reset_codes()
        return len(evaluation_ids)


def _files_of_imported_curves(
    ledger: Ledger, subjects: Collection[Subject] | None
) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Yields the id of each imported evaluation, with the path and the SHA-256 of each file that its curves are of.

    Args:
      ledger: The ledger.
      subjects: Imported subjects. None: all.
    """
    hashes = None if subjects is None else {subject.sha256 for subject in subjects}
    query = "SELECT id, checkpoint_sha256 FROM evaluations WHERE program_version = ?"
    with decoding_errors(ledger.store):
        for evaluation_id, subject_hash in ledger.connection.execute(query, (_PROGRAM_KEY,)).fetchall():
            if hashes is None or subject_hash in hashes:
                (payload,) = ledger.connection.execute(
                    "SELECT payload FROM evaluations WHERE id = ?", (evaluation_id,)
                ).fetchone()
                origin = read_header(payload)[0]["provenance"].imported
                names, digests = (origin[name].split("; ") for name in ("file", "sha256"))
                yield evaluation_id, list(itertools.zip_longest(names, digests, fillvalue=""))  # a name may have "; "


def _stored_curves(ledger: Ledger, key: EvaluationKey) -> Curves | None:
    query = (
        "SELECT payload FROM evaluations WHERE checkpoint_sha256 = ? AND case_identity = ? AND seed_start = ? "
        "AND program_version = ?"
    )
    values = (key.checkpoint_sha256, key.case_identity, key.seed_block.start, key.program_version)
    with decoding_errors(ledger.store):
        row = ledger.connection.execute(query, values).fetchone()
        return Curves.from_payload(row[0]) if row is not None else None


def _are_equal(curves: Curves, other_curves: Curves) -> bool:
    """Returns whether two curves have the same values at the same steps, from the same draws."""
    draws = [compared_curves.provenance.imported.get("draws") for compared_curves in (curves, other_curves)]
    values = [
        {name: bytes(column) for name, column in compared_curves.metrics.items()}
        for compared_curves in (curves, other_curves)
    ]
    are_values_equal = curves.items == other_curves.items and values[0] == values[1]
    return curves.eval_steps == other_curves.eval_steps and are_values_equal and draws[0] == draws[1]


def _is_beginning(stored_curves: Curves, curves: Curves) -> bool:
    """Returns whether stored curves of one seed are the beginning of other curves."""
    num_stored_steps = len(stored_curves.eval_steps)
    steps = list(curves.eval_steps)
    return (
        len(steps) > num_stored_steps
        and steps[:num_stored_steps] == list(stored_curves.eval_steps)
        and stored_curves.metrics.keys() == curves.metrics.keys()
        and all(bytes(column).startswith(bytes(stored_curves.metrics[name])) for name, column in curves.metrics.items())
    )


def _other_values_error(subject: Subject, case: CaseInfo, stored_curves: Curves, curves: Curves) -> UsageError:
    stored_origin = stored_curves.provenance.imported
    new_origin = curves.provenance.imported
    run = new_origin.get("run", "")
    seed = f"seed {curves.seeds[0]}" + (f" ({run})" if run not in ("", str(curves.seeds[0])) else "")
    if curves.items:
        seed = f"its {len(curves.items):,} items"
    problem = "the store has other values"
    got = _origin_difference(stored_origin, new_origin)
    if _is_beginning(stored_curves, curves):
        problem = "the store has only a part"
        got = f"steps to {stored_curves.eval_steps[-1]:,} there, to {curves.eval_steps[-1]:,} now"
    file = os.path.basename(new_origin["file"]) if new_origin.get("file") else "this file"
    next_step = f"--replace stores the values of {file} instead"
    if stored_origin.get("file") != new_origin.get("file"):
        next_step += f"; --rename {subject.name}=NEW imports this file as another method"
    problem += f" of {subject.name!r}, case {case.suite}/{case.name!s}, {seed}"
    return UsageError(problem, where=new_origin.get("file", ""), got=got, next_step=next_step)


def _origin_difference(stored_origin: Mapping[str, str], new_origin: Mapping[str, str]) -> str:
    if stored_origin.get("file") != new_origin.get("file"):
        return f"in the store those of {stored_origin.get('file', '')}"
    if stored_origin.get("sha256") == new_origin.get("sha256"):
        return "this very file, imported with other options"
    hashes = ", now ".join(origin.get("sha256", "")[:12] for origin in (stored_origin, new_origin))
    return f"a file that has changed since it was imported: sha256 {hashes}"

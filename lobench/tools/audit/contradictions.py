"""Checks of a bundle that need no evaluation: root, signature, plan, labels, thetas, suites, card."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lobench.core.code import split_code
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.items import item_seed
from lobench.core.subject import Subject, optimizer_sha256
from lobench.core.suite_place import BASELINES
from lobench.core.wording import counted, headline
from lobench.engine.checkpoints.spool import load_theta
from lobench.engine.config.reached_files import reached_files
from lobench.engine.config.shipped import shipped_suite
from lobench.engine.config.syntax import parse_text
from lobench.engine.store.about import ledger_about, ledger_gaps, lobench_version_and_hash
from lobench.engine.store.bundle import ResultBundle
from lobench.engine.store.current import PLAN_EVENT, CasePlace, place_of_case
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.ledger_tables import OLDEST_SCHEMA, SCHEMA_VERSION
from lobench.engine.store.plans import PlannedSubject, files_changed_since_plan, missing_evaluations
from lobench.report.bundle_card import card_of, folders_with_baselines, patch_files_of
from lobench.tools.audit.cases import code_findings, files_of_codes, planned_case_findings
from lobench.tools.audit.experiment_checks import configured_labels, experiment_findings, seed_findings
from lobench.tools.audit.findings import UNUSED_FILES, AuditFinding, Contradiction, Unaudited
from lobench.tools.audit.ledger_checks import Tables, record_findings

__all__ = ["findings", "label_changes", "suite_folders"]

_RECORD_ERRORS = (ValueError, TypeError, KeyError, AttributeError, IndexError)
_TYPES_IN_RECORDS = (type(None), bool, int, float, str, bytes, list, tuple, dict)
_NO_LABELS: Mapping[str, Set[str]] = MappingProxyType({})
_FIXED_MEMBERS = ("bundle.json", "about.json", "card.md", "signature")
_MEMBER_FOLDERS = ("ledger", "suites", "theta")


def findings(
    bundle: ResultBundle, ledger: Ledger, rows: Sequence[EvaluationRow], folder: Path
) -> Iterator[AuditFinding]:
    """Yields contradictions within the bundle, and the names of claims that cannot be checked.

    It stops at the first record with an unknown format.

    Args:
      bundle: The bundle.
      ledger: Ledger with the bundle's tables.
      rows: Evaluations of the ledger.
      folder: Folder with the extracted members of the bundle.
    """
    try:
        yield from _findings(bundle, ledger, rows, folder)
    except LobenchError as error:
        if bundle.computed_root() == bundle.root:
            raise
        yield Contradiction("record", f"a file of the bundle cannot be read: {headline(error)}")
    except _RECORD_ERRORS as error:
        if _is_of_lobench(error):
            raise RuntimeError("a check of the audit has an error, which says nothing about the bundle") from error
        yield Contradiction("record", f"a record is of another form than lobench writes: {headline(error)}")


def _is_of_lobench(error: Exception) -> bool:
    """Returns whether an error is one of lobench's code: whether it is about an object that no record can hold.

    A wrong record has a text, a number, a list or a dictionary where lobench expects something else.
    """
    if isinstance(error, AttributeError):
        return not isinstance(error.obj, _TYPES_IN_RECORDS)
    if not isinstance(error, TypeError) or "argument '" in str(error):  # fields of a record may be called anything
        return False
    names = set(re.findall(r"'(\w+)'", str(error)))
    if names & {record_type.__name__ for record_type in _TYPES_IN_RECORDS}:
        return False
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "lobench"]
    classes = (value for module in modules for value in vars(module).values() if isinstance(value, type))
    return any(value.__name__ in names and value.__module__.startswith("lobench.") for value in classes)


def _findings(
    bundle: ResultBundle, ledger: Ledger, rows: Sequence[EvaluationRow], folder: Path
) -> Iterator[AuditFinding]:
    if (computed_root := bundle.computed_root()) != bundle.root:
        yield Contradiction(
            "root", f"it states {bundle.root[:16]}, and its content has {computed_root[:16]}: it was changed later"
        )
    tables = Tables(bundle)
    planned_subjects = ledger.planned_subjects()
    sightings = list(ledger.sightings().values())
    members = {name: bundle.read(name) for name in bundle.members_in("suites")}
    folders = suite_folders(bundle, folder)
    if not planned_subjects:
        yield Unaudited("which evaluations were planned, and under which names: the ledger has no plan")
    yield from _header_findings(bundle)
    yield from _experiment_contradictions(bundle)
    yield from _plan_findings(planned_subjects, rows)
    yield from planned_case_findings(planned_subjects, rows, _codes_by_case(tables))
    yield from _place_findings(tables, rows)
    yield from seed_findings(planned_subjects, rows, has_gate=bool(tables.events("gate")))
    yield from _label_findings(planned_subjects, sightings, ledger, configured_labels(ledger, folders))
    yield from record_findings(tables, rows)
    yield from experiment_findings(ledger, rows, folders)
    yield from code_findings(ledger, rows, members)
    yield from _file_findings(planned_subjects, rows, members, folder, ledger)
    yield from _theta_findings(bundle, folder, sightings)
    yield from _row_contradictions(rows)
    yield from _about_findings(bundle, ledger, rows)
    yield from _card_findings(bundle, ledger, folders)


def suite_folders(bundle: ResultBundle, folder: Path) -> list[Path]:
    """Returns the folders of the suites of a bundle that was extracted to a folder."""
    names = {"/".join(member.split("/")[:3]) for member in bundle.members_in("suites")}
    return [suite_folder for suite_folder in sorted(folder / name for name in names) if suite_folder.is_dir()]


def _header_findings(bundle: ResultBundle) -> Iterator[AuditFinding]:
    header = json.loads(bundle.read("bundle.json"))
    columns, _ = bundle.read_table("evaluations")
    if set(header) != {"version", "schema", "root"} or header["version"] != 1:
        yield Contradiction("root", "the head of the bundle has other fields, or another version, than any bundle")
    is_known = header.get("schema") in range(OLDEST_SCHEMA, SCHEMA_VERSION + 1)
    if not is_known or (header["schema"] < SCHEMA_VERSION) == ("code" in columns):
        yield Contradiction("root", f"the head states schema {header.get('schema')}, and its tables have another")
    for name in bundle.member_names:
        if name not in _FIXED_MEMBERS and name.partition("/")[0] not in _MEMBER_FOLDERS:
            yield Contradiction("record", f"{name} does not belong in a bundle")


def _experiment_contradictions(bundle: ResultBundle) -> Iterator[Contradiction]:
    columns, rows = bundle.read_table("experiments")
    for row in rows:
        experiment_row = dict(zip(columns, row, strict=True))
        if (
            experiment_row["config"]
            and hashlib.sha256(experiment_row["config"].encode()).hexdigest() != experiment_row["config_sha256"]
        ):
            yield Contradiction(
                "plan", f"the file of experiment {experiment_row['name']} has another hash than in the ledger"
            )


def _plan_findings(
    planned_subjects: Sequence[PlannedSubject], rows: Sequence[EvaluationRow]
) -> Iterator[Contradiction]:
    for planned_subject in planned_subjects:
        if planned_subject.problem:
            yield Contradiction("plan", f"the plan of {planned_subject.label}: {planned_subject.problem}")
    for planned_subject, case, blocks in missing_evaluations(planned_subjects, rows):
        seeds = ", ".join(block.seed_range_text for block in blocks)
        yield Contradiction(
            "absent", f"{planned_subject.label} on {case.name}: seeds {seeds} were planned, and have no outcome"
        )
    planned_keys = {
        (planned_subject.sha256, case.identity, case.optimizer_hash)
        for planned_subject in planned_subjects
        for case in planned_subject.cases
    }
    unplanned_rows = [
        row
        for row in rows
        if planned_subjects
        and not any(sighting.is_imported for sighting in row.sightings)
        and (row.key.checkpoint_sha256, row.key.case_identity, row.key.optimizer_hash) not in planned_keys
    ]
    if unplanned_rows:
        yield Contradiction(
            "plan",
            f"{counted(len(unplanned_rows), 'result')} of evaluations that were not planned, "
            f"such as {unplanned_rows[0].where}",
        )


def _codes_by_case(tables: Tables) -> dict[tuple[str, str], set[str]]:
    """Returns the code of all results by identity and optimizer of their case."""
    codes_by_case: dict[tuple[str, str], set[str]] = {}
    for row in tables["evaluations"]:
        key = (row["case_identity"], row["optimizer_hash"])
        codes_by_case.setdefault(key, set()).add(row.get("code", ""))
    return codes_by_case


def _place_findings(tables: Tables, rows: Sequence[EvaluationRow]) -> Iterator[AuditFinding]:
    """Yields cases whose `CasePlace` differs between the plan and the results."""
    places_by_case: dict[tuple[str, str], set[CasePlace]] = {}
    for row in rows:
        places_by_case.setdefault((row.case.identity, row.case.optimizer_hash), set()).add(place_of_case(row.case))
    for _, detail in tables.events(PLAN_EVENT):
        for planned_case in detail["cases"]:
            places_of_results = places_by_case.get((planned_case["identity"], planned_case["optimizer_hash"]))
            if (
                places_of_results is not None
                and "place" in planned_case
                and CasePlace(*planned_case["place"]) not in places_of_results
            ):
                yield Contradiction(
                    "plan",
                    f"{planned_case['name']} was planned at {'::'.join(planned_case['place'])}, and is elsewhere",
                )


def _label_findings(
    planned_subjects: Sequence[PlannedSubject],
    sightings: Sequence[Subject],
    ledger: Ledger,
    labels_of_hash: Mapping[str, Set[str]],
) -> Iterator[AuditFinding]:
    for subject in sightings:
        if subject.is_optimizer and optimizer_sha256(subject.uri) != subject.sha256:
            yield Contradiction("label", f"the optimizer {subject.uri!r} has another hash than in the ledger")
        if subject.has_theta and optimizer_sha256(subject.uri) == subject.sha256:
            yield Contradiction("label", f"{subject.uri!r} is an optimizer, and the ledger has {subject.kind}")
    for text, is_second_name in label_changes(planned_subjects, sightings, labels_of_hash):
        yield Unaudited(f"a second name: {text}") if is_second_name else Contradiction("label", text)
    for experiment_row in ledger.experiments():
        try:
            parse_text(experiment_row.config, "the experiment")
        except ConfigError as error:
            yield Contradiction("plan", f"the configuration of an experiment cannot be read: {headline(error)}")


def label_changes(
    planned_subjects: Sequence[PlannedSubject],
    sightings: Iterable[Subject],
    labels_by_hash: Mapping[str, Set[str]] = _NO_LABELS,
) -> Iterator[tuple[str, bool]]:
    """Yields a line for each label that differs from the plan, and whether it is only a second name.

    If the store already has all results of an experiment, the experiment plans nothing and only adds second names. A
    label that was planned for another subject is not a second name, unless experiments have given the subject both the
    label and a planned one. This happens if the methods of an experiment were edited after their results were stored.

    Args:
      planned_subjects: Planned subjects.
      sightings: Subjects as the ledger has them.
      labels_by_hash: Labels that experiments give to subjects, by hash.
    """
    labels: dict[tuple[str, str], set[str]] = {}
    for subject in planned_subjects:
        labels.setdefault((subject.sha256, subject.variant), set()).add(subject.label)
    planned_labels = {subject.label for subject in planned_subjects}
    for key, name in sorted({(sighting.key, sighting.label) for sighting in sightings}):
        labels_before = labels.get(key)
        if labels_before and name not in labels_before:
            given_labels = labels_by_hash.get(key[0], frozenset())
            is_second_name = name not in planned_labels or (name in given_labels and bool(labels_before & given_labels))
            yield f"{name!r} was planned as {' and '.join(map(repr, sorted(labels_before)))}", is_second_name


def _file_findings(
    planned_subjects: Sequence[PlannedSubject],
    rows: Sequence[EvaluationRow],
    members: Mapping[str, bytes],
    folder: Path,
    ledger: Ledger,
) -> Iterator[AuditFinding]:
    """Yields files of suites that were changed after the plan. Files that no result depends on are only named."""
    names = {name for row in rows for code in split_code(row.key.code) for name in ledger.code_parts(code) or ()}
    binding_texts = {text for row in rows for sighting in row.sightings for text in sighting.variant.bindings}
    reached_paths: set[Path] = set()
    bundle_folders = sorted({Path(*Path(name).parts[:3]) for name in members})
    for bundle_folder in bundle_folders:
        if (folder / bundle_folder).is_dir():
            cases = list(dict.fromkeys(row.case for row in rows if row.case.suite == bundle_folder.name))
            reached_paths |= reached_files(folder / bundle_folder, cases, code_names=names, texts=sorted(binding_texts))
    used_files = {
        str(file.relative_to(folder.resolve())) for file in reached_paths if file.is_relative_to(folder.resolve())
    }
    planned_files = [planned_file for files in ledger.planned_files() for planned_file in files.items()]
    last_digests = dict(planned_files)
    for name in sorted({name for name, digest in planned_files if digest != last_digests[name]}):
        yield Unaudited(f"what {name} was under an earlier plan")
    codes = {code for subject in planned_subjects for case in subject.cases for code in split_code(case.code)}
    code_members = files_of_codes(ledger, codes, members)
    for changed_file, line in files_changed_since_plan(last_digests, members, code_members):
        if changed_file is None:
            yield Unaudited(f"{UNUSED_FILES}: {line}")
        elif changed_file in used_files:
            yield Contradiction("suite", line)
        else:
            yield Unaudited(f"a file on which no result depends: {line}")
    for name in sorted(used_files):
        path = Path(name)
        if path.parent.name == BASELINES and not _is_shipped(path, members[name]):
            yield Unaudited(f"the baseline {path.name} of suite {path.parents[1].name}")
        elif path.suffix not in (".py", ".gin") and path.parent.name != BASELINES and name not in code_members:
            yield Unaudited(f"whether {path.name} was the same when the evaluations were planned")


def _is_shipped(path: Path, content: bytes) -> bool:
    """Returns whether a baseline is equal to the one shipped with lobench."""
    shipped_file = shipped_suite("/".join(path.parts[2:]))
    return shipped_file is not None and shipped_file.is_file() and shipped_file.read_bytes() == content


def _theta_findings(bundle: ResultBundle, folder: Path, sightings: Sequence[Subject]) -> Iterator[AuditFinding]:
    known_hashes = {subject.sha256 for subject in sightings if subject.has_theta}
    for name in bundle.members_in("theta"):
        try:
            load_theta(folder / name)  # raises if the file's hash is not its name
        except LobenchError:
            yield Contradiction("theta", f"theta {Path(name).stem[:12]} does not match the hash in its name")
        if Path(name).stem not in known_hashes:
            yield Contradiction("theta", f"theta {Path(name).stem[:12]} is of no subject")


def _about_findings(bundle: ResultBundle, ledger: Ledger, rows: Sequence[EvaluationRow]) -> Iterator[AuditFinding]:
    """Yields statements of `about.json` that differ from the ledger and the files."""
    stated_about: dict[str, Any] = json.loads(bundle.read("about.json"))
    expected_about = ledger_about(ledger, rows)
    if "plan" not in stated_about:
        yield Unaudited("whether the end of the plan was cut off: the bundle is of an older lobench")
    for name, value in expected_about.items():
        if name != "lobench" and name in stated_about and stated_about[name] != value:
            message = f"about.json has {name} = {stated_about[name]!r}, unlike the ledger"
            yield Contradiction("plan" if name == "plan" else "record", message)
    bundle_folders = {"/".join(name.split("/")[:2]) for name in bundle.members_in("suites")}
    if {member_path.rpartition("/")[0] for member_path in stated_about["suites"].values()} != bundle_folders:
        yield Contradiction("record", "about.json names other places of suites than there are")
    for name, suite_path in stated_about["suites"].items():
        if not bundle.members_in(suite_path) or (
            "plan" in stated_about and name.partition(" (")[0] != Path(suite_path).name
        ):
            yield Contradiction("record", f"about.json has suite {name!r} at {suite_path}")
    suites = {Path(path).name for path in stated_about["suites"].values()}
    missing_suites = {
        row.case.suite for row in rows if not any(sighting.is_imported for sighting in row.sightings)
    } - suites
    for suite in sorted(missing_suites):
        if "plan" in stated_about and not any(
            line.startswith(f"the files of suite {suite},") for line in stated_about["left_out"]
        ):
            yield Contradiction("case", f"results are of suite {suite!r}, which the bundle neither has nor leaves out")
    for name in dict(stated_about["files_not_included"]):
        yield Unaudited(f"{name}, which is too large")
    gaps = ledger_gaps(ledger, rows)
    lines = list(stated_about["left_out"])
    if lines[: len(gaps)] != gaps:
        yield Contradiction("record", "about.json leaves out other results than the ledger lacks")
    for line in lines[len(gaps) :]:
        yield Unaudited(f"left out: {line}")
    if unknown_fields := set(stated_about) - {*expected_about, "left_out", "suites", "files_not_included"}:
        yield Contradiction("record", f"about.json has the unknown field {min(unknown_fields)!r}")


def _card_findings(bundle: ResultBundle, ledger: Ledger, folders: Sequence[Path]) -> Iterator[AuditFinding]:
    """Writes the card again and compares the two."""
    stated_about = json.loads(bundle.read("about.json"))
    if stated_about.get("lobench") != lobench_version_and_hash():
        yield Unaudited("card.md, which another version of lobench wrote")
        return
    expected_card = card_of(
        ledger.store, folders_with_baselines(folders), stated_about["left_out"], patch_files_of(ledger)
    )
    published_card = bundle.read("card.md").decode(errors="replace")
    if published_card != expected_card:
        pairs = itertools.zip_longest(published_card.splitlines(), expected_card.splitlines(), fillvalue="")
        line, expected_line = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        yield Contradiction("card", f"card.md has the line {line[:80]!r}, and the ledger gives {expected_line[:80]!r}")


def _row_contradictions(rows: Sequence[EvaluationRow]) -> Iterator[Contradiction]:
    for row in rows:
        if not row.recorded_sightings:
            yield Contradiction("result", f"{row.where}: no subject has this hash")
        if row.payload is None:
            continue
        header, _ = row.header()
        seeds = list(row.key.seed_block.seeds)
        if row.case.has_items and header["seeds"]:
            seeds = [item_seed(str(name)) for name in header.get("items", ())]
        if seeds != header["seeds"]:
            yield Contradiction(
                "result", f"{row.where}: curves of seeds {header['seeds']}, expected {row.key.seed_block}"
            )

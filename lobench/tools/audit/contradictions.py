"""Checks of a bundle that need no evaluation: root, signature, plan, labels, thetas, suites, card."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from lobench.core.errors import ConfigError, LobenchError
from lobench.core.subject import Subject, optimizer_sha256
from lobench.core.wording import counted, headline
from lobench.engine.checkpoints.spool import load_theta
from lobench.engine.config.syntax import Binding, parse_text
from lobench.engine.store.bundle import ResultBundle
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.plans import PlannedSubject, absent, changed_files

__all__ = ["Contradiction", "ContradictionKind", "contradictions", "renamed"]

ContradictionKind: TypeAlias = Literal["root", "signature", "plan", "absent", "label", "theta", "suite", "result"]


class Contradiction(NamedTuple):
    """Something that contradicts the rest of the bundle."""

    kind: ContradictionKind
    what: str


def contradictions(
    bundle: ResultBundle, ledger: Ledger, rows: Sequence[EvaluationRow], folder: Path
) -> Iterator[Contradiction]:
    """Yields what contradicts something else.

    Args:
      folder: Where the bundle's members are extracted.
    """
    if (found := bundle.computed_root()) != bundle.root:
        yield Contradiction(
            "root", f"it says {bundle.root[:16]}, and its content has {found[:16]}: it was changed later"
        )
    planned, sightings = ledger.planned(), list(ledger.sightings().values())
    yield from _of_experiments(bundle)
    yield from _of_plans(planned, rows)
    yield from _of_labels(planned, sightings, ledger)
    for name in changed_files(planned, {name: bundle.read(name) for name in bundle.below("suites")}):
        yield Contradiction("suite", name)
    yield from _of_thetas(bundle, folder)
    yield from _of_rows(rows)


def _of_experiments(bundle: ResultBundle) -> Iterator[Contradiction]:
    columns, rows = bundle.table("experiments")
    for row in rows:
        one = dict(zip(columns, row, strict=True))
        if one["config"] and hashlib.sha256(one["config"].encode()).hexdigest() != one["config_sha256"]:
            yield Contradiction("plan", f"the file of experiment {one['name']} has another hash than the ledger says")


def _of_plans(planned: Sequence[PlannedSubject], rows: Sequence[EvaluationRow]) -> Iterator[Contradiction]:
    for one in planned:
        if one.problem:
            yield Contradiction("plan", f"the plan of {one.label}: {one.problem}")
    for one, case, blocks in absent(planned, rows):
        seeds = ", ".join(block.span for block in blocks)
        yield Contradiction("absent", f"{one.label} on {case.name}: seeds {seeds} were planned, and have no outcome")
    known = {(one.sha256, case.identity, case.optimizer_hash) for one in planned for case in one.cases}
    beside = [
        row
        for row in rows
        if planned
        and not any(one.is_imported for one in row.sightings)
        and (row.key.checkpoint_sha256, row.key.case_identity, row.key.optimizer_hash) not in known
    ]
    if beside:
        yield Contradiction("plan", f"{counted(len(beside), 'result')} of what no plan has, such as {beside[0].where}")


def _of_labels(
    planned: Sequence[PlannedSubject], sightings: Sequence[Subject], ledger: Ledger
) -> Iterator[Contradiction]:
    for who in sightings:
        if who.is_optimizer and optimizer_sha256(who.uri) != who.sha256:
            yield Contradiction("label", f"the optimizer {who.uri!r} has another hash than the ledger says")
    for text, is_second_name in renamed(planned, sightings):
        if not is_second_name:
            yield Contradiction("label", text)
    for form in ledger.experiments():
        yield from _of_members(form.config, ledger, form.id)


def renamed(planned: Sequence[PlannedSubject], sightings: Iterable[Subject]) -> Iterator[tuple[str, bool]]:
    """Yields what each label is called that no plan has, and whether it is a second name.

    An experiment that finds all its results in the store of a comparison gives second names, and plans nothing. A label
    that was planned for something else is none.
    """
    labels: dict[tuple[str, str], set[str]] = {}
    for one in planned:
        labels.setdefault((one.sha256, one.variant), set()).add(one.label)
    every = {one.label for one in planned}
    for key, name in sorted({(who.key, who.label) for who in sightings}):
        before = labels.get(key)
        if before and name not in before:
            yield f"{name!r} was planned as {' and '.join(map(repr, sorted(before)))}", name not in every


def _of_members(config: str, ledger: Ledger, experiment: int) -> Iterator[Contradiction]:
    """Yields the methods whose evaluations are of a subject that is called otherwise."""
    try:
        statements = parse_text(config, "the experiment")
    except ConfigError as error:
        yield Contradiction("plan", f"the configuration of an experiment cannot be read: {headline(error)}")
        return
    called = {
        one.scope: str(one.value)
        for one in statements
        if isinstance(one, Binding) and (one.name, one.parameter) == ("Method", "label")
    }
    subjects: dict[str, set[str]] = {}
    known: dict[str, set[str]] = {}
    for who in ledger.sightings().values():
        known.setdefault(who.sha256, set()).add(who.label)
    for member in ledger.memberships(experiment):
        subjects.setdefault(member.method, set()).add(member.evaluation.sha256)
    for method, hashes in subjects.items():
        names = {label for sha256 in hashes for label in known.get(sha256, ())}
        if method in called and len(hashes) == 1 and names and called[method] not in names:
            text = " and ".join(map(repr, sorted(names)))
            yield Contradiction("label", f"method {method} is called {called[method]!r}, and has the results of {text}")


def _of_thetas(bundle: ResultBundle, folder: Path) -> Iterator[Contradiction]:
    for name in bundle.below("theta"):
        try:
            load_theta(folder / name)  # its name is its hash
        except LobenchError:
            yield Contradiction("theta", f"theta {Path(name).stem[:12]} is another one than its name says")


def _of_rows(rows: Sequence[EvaluationRow]) -> Iterator[Contradiction]:
    for row in rows:
        if not row.subjects:
            yield Contradiction("result", f"{row.where}: nobody was seen with this hash")
        if row.payload is None:
            continue
        header, _ = row.header()
        if list(row.key.seed_block.seeds) != header["seeds"]:
            yield Contradiction(
                "result", f"{row.where}: curves of seeds {header['seeds']}, expected {row.key.seed_block}"
            )

"""Site of bundles: reads bundles, groups their methods and writes the pages."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from lobench.analysis.comparisons.best_group import bold_means
from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.methods import read_methods
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.core.case import CaseInfo
from lobench.core.errors import StoreError, UsageError
from lobench.core.result import mean_of
from lobench.core.subject import SubjectKey
from lobench.core.wording import cause, counted
from lobench.engine.store.bundle import ResultBundle, has_ledger
from lobench.engine.store.ledger import EvaluationRow
from lobench.engine.store.merge import merge_stores
from lobench.report.tables.text import interval_cell, markdown_line, markdown_table
from lobench.tools.site.pages import MARK, MARKED, final_cell, marked, write_board, write_bundle_pages

__all__ = ["Board", "BoardLine", "PublishedBundle", "SiteRecord", "make_site", "site_markdown", "site_text"]


class BoardLineRecord(TypedDict):
    """Method of a table: its mean score with the 95% interval, and its final value on each case of the table."""

    group: int
    label: str
    mean_score: float
    lower: float
    upper: float
    finals: Annotated[list[float | None], "Mean over the seeds of each case. null: no value."]
    checked: Annotated[list[bool], "Whether audits repeated all evaluations, for each case."]
    is_score_checked: Annotated[bool, "Whether audits repeated all evaluations that the score depends on."]
    bundles: Annotated[list[str], "Bundles that contain its evaluations."]


class BoardRecord(TypedDict):
    """Table on the site's first page."""

    suite: str
    budget: str
    scale: str
    pooled: Annotated[list[str], "Notes on the compared bundles, and on methods whose seeds are from several bundles."]
    cases: list[str]
    methods: list[BoardLineRecord]


class SiteRecord(TypedDict):
    """`lobench site`: the bundles of the pages, and the tables of the first page."""

    output: str
    bundles: dict[str, str]
    suites: list[str]
    boards: list[BoardRecord]
    not_audited: list[str]
    conflicts: list[str]


@dataclass(frozen=True, kw_only=True)  # no slots, because of the cached properties
class PublishedBundle:
    """Bundle of a site.

    Attributes:
      path: Path of the bundle.
      id: Start of its root, which is also the folder of its pages.
      root: Hash of its content.
      audit: Record of `lobench audit --format json`. None: not audited.
      about: Content of its `about.json`.
      card: Its card in Markdown.
      snapshot: Its results.
      shown: Indices of the subjects in tables; of a run, the last checkpoint.
    """

    path: Path
    id: str
    root: str
    audit: Mapping[str, Any] | None
    about: Mapping[str, Any]
    card: str
    snapshot: Snapshot
    shown: tuple[int, ...]

    @property
    def audit_text(self) -> str:
        """One line on the result of the audit."""
        if self.audit is None:
            return "not audited"
        checked = self.audit["checked"]
        if not self.is_audited:
            return f"not audited: none of {counted(self.audit['num_evaluations'], 'evaluation')} was made again"
        counts = {name: sum(one["verdict"] == name for one in checked) for name in ("identical", "consistent")}
        again = f"{len(checked)} of {self.audit['num_evaluations']} evaluations made again"
        beacon = f", drawn by {self.audit['beacon']!r}" if self.audit["beacon"] else ""
        named = f"; not auditable: {'; '.join(self.not_auditable)}" if self.not_auditable else ""
        return f"audited: {again}, {counts['identical']} identical, {counts['consistent']} consistent{beacon}{named}"

    @property
    def is_audited(self) -> bool:
        """Whether an audit repeated any of its evaluations."""
        return bool(self._made_again)

    @property
    def is_whole(self) -> bool:
        """Whether an audit repeated all evaluations, and could check all claims."""
        return len(self._made_again) == len(self.snapshot.rows) and not self.not_auditable

    @property
    def not_auditable(self) -> Sequence[str]:
        """Names of claims that an audit could not check; () for audits of older versions."""
        return self.audit.get("not_auditable", ()) if self.audit is not None else ()

    @functools.cached_property
    def _made_again(self) -> frozenset[tuple[str, str, int, int]]:
        checked = self.audit["checked"] if self.audit is not None else ()
        return frozenset(
            (one["subject"], one["case"], one["first_seed"], one["num_seeds"])
            for one in checked
            if one["verdict"] in ("identical", "consistent")
        )

    @functools.cached_property
    def _rows(self) -> Mapping[tuple[SubjectKey, str], Sequence[EvaluationRow]]:
        found: dict[tuple[SubjectKey, str], list[EvaluationRow]] = {}
        for row in self.snapshot.rows:
            for key in dict.fromkeys(who.key for who in row.sightings):
                found.setdefault((key, row.case.identity), []).append(row)
        return found

    def has_rows(self, key: SubjectKey, case: CaseInfo) -> bool:
        """Returns whether the bundle has evaluations of a subject on a case."""
        return (key, case.identity) in self._rows and self.place_of(key) is not None

    def is_checked(self, key: SubjectKey, case: CaseInfo) -> bool:
        """Returns whether an audit repeated all evaluations of a subject on a case."""
        rows = self._rows.get((key, case.identity), ())
        if any(line.startswith(f"metric {case.primary_metric} of ") for line in self.not_auditable):
            return False
        return all(
            (row.sightings[0].label, f"{row.case.suite}/{row.case.name}", block.start, block.size) in self._made_again
            for row in rows
            for block in (row.key.seed_block,)
        )

    def place_of(self, key: SubjectKey) -> int | None:
        """Returns the index of a subject in this bundle; None if it is not shown."""
        return next((place for place in self.shown if self.snapshot.subjects[place].who.key == key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardLine:
    """Method on a suite.

    Attributes:
      group: Number of the group. Group 1 has the best method and those that no comparison distinguishes from it.
      label: Label of the method.
      key: Its key as a subject.
      score: Mean score.
      finals: Mean final value of the primary metric, by case; None without results.
      bundles: Bundles with results of the method.
      checked: For each case, whether audits repeated all of its evaluations.
      is_score_checked: Whether audits repeated all evaluations that the score depends on.
      machines: Machines of the evaluations.
    """

    group: int
    label: str
    key: SubjectKey
    score: Interval
    finals: tuple[float | None, ...]
    bundles: tuple[PublishedBundle, ...]
    checked: tuple[bool, ...]
    is_score_checked: bool
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Methods on a suite at a budget.

    Attributes:
      suite: Name of the suite.
      budget: Inner steps of its cases, as text.
      cases: Cases of the table.
      lines: Methods, the best first.
      scale: Description of the score scale: what 0 and 1 stand for.
    """

    suite: str
    budget: str
    cases: tuple[CaseInfo, ...]
    lines: tuple[BoardLine, ...]
    scale: str

    @property
    def pooled(self) -> Sequence[str]:
        """Lines on methods with seeds from several bundles, and one if several bundles are compared."""
        names = {one.root: f"{one.path.name} ({one.audit_text})" for line in self.lines for one in line.bundles}
        found = [f"compared across {counted(len(names), 'bundle')}: {', '.join(names.values())}"] * (len(names) > 1)
        found += [
            f"the seeds of {line.label} are those of {' and '.join(one.path.name for one in line.bundles)} together"
            for line in self.lines
            if len(line.bundles) > 1
        ]
        return found

    def record(self) -> BoardRecord:
        """Returns the record for `--format json`."""
        return BoardRecord(
            suite=self.suite,
            budget=self.budget,
            scale=self.scale,
            pooled=list(self.pooled),
            cases=[case.name for case in self.cases],
            methods=[
                BoardLineRecord(
                    group=line.group,
                    label=line.label,
                    mean_score=line.score.mean,
                    lower=line.score.lower,
                    upper=line.score.upper,
                    finals=list(line.finals),
                    checked=list(line.checked),
                    is_score_checked=line.is_score_checked,
                    bundles=[one.path.name for one in line.bundles],
                )
                for line in self.lines
            ],
        )


def make_site(bundles: Sequence[Path], output: Path, *, title: str = "Results") -> SiteRecord:
    """Writes the pages.

    Example:
        record = make_site([Path("celo.lobench"), Path("adam.lobench")], Path("public"))
        record["not_audited"]

    Args:
      bundles: Paths of the bundles.
      output: Folder of the pages.
      title: Title of the first page.
    Raises:
      UsageError: A file is not a bundle, its audit failed, or the folder cannot be written.
      StoreError: A bundle is damaged, or was changed.
    """
    found = {one.root: one for one in map(_read, bundles)}
    entries = sorted(found.values(), key=lambda one: (one.path.name, one.root))
    with tempfile.TemporaryDirectory(prefix="lobench-site-") as folder:
        merged = merge_stores([one.path for one in entries], Path(folder) / "merged")
        conflicts = [f"{one.store.name}: {line}" for one in merged for line in one.conflicts]
        boards = _boards(read_store(Path(folder) / "merged"), entries)
    try:
        for one in entries:
            write_bundle_pages(one, output / one.id)
            shutil.copyfile(one.path, output / one.id / "results.lobench")
        write_board(boards, entries, conflicts, output / "index.html", title=title)
    except OSError as error:
        raise UsageError("cannot write the pages", where=str(output), got=cause(error)) from error
    return SiteRecord(
        output=str(output),
        bundles={str(one.path): one.id for one in entries},
        suites=sorted({board.suite for board in boards}),
        boards=[board.record() for board in boards],
        not_audited=[str(one.path) for one in entries if not one.is_audited],
        conflicts=conflicts,
    )


def site_text(record: SiteRecord) -> str:
    """Returns the lines of the text output."""
    of = f"{counted(len(record['bundles']), 'bundle')} on {counted(len(record['suites']), 'suite')}"
    lines = [f"{record['output']}/index.html: {of}"]
    lines += [f"not audited: {path}" for path in record["not_audited"]]
    lines += [f"{board['suite']}, {line}" for board in record["boards"] for line in board["pooled"]]
    lines += [f"conflict, the first one is shown: {line}" for line in record["conflicts"]]
    return "\n".join(lines)


def site_markdown(record: SiteRecord) -> str:
    """Returns the tables of the first page as Markdown."""
    parts = []
    for board in record["boards"]:
        rows = [["group", "method", "mean score [95%]", *board["cases"]]]
        for one in board["methods"]:
            score = interval_cell(Interval(mean=one["mean_score"], lower=one["lower"], upper=one["upper"]))
            score = marked(score, one["is_score_checked"])
            finals = [marked(final_cell(value), ok) for value, ok in zip(one["finals"], one["checked"], strict=True)]
            rows.append([str(one["group"]), one["label"], score, *finals])
        about = f"{board['suite']}, {board['budget']}. Scores: {board['scale']}."
        notes = [*board["pooled"], *([MARKED] if any(MARK in cell for row in rows for cell in row) else [])]
        below = "".join(f"\n{markdown_line(note)}\n" for note in notes)
        parts.append(f"{markdown_line(about)}\n\n{markdown_table(rows)}\n{below}")
    return "\n".join(parts)


def _read(path: Path) -> PublishedBundle:
    if not path.is_file() or not has_ledger(path):
        raise UsageError("not a bundle", where=str(path), next_step="`lobench publish` makes one of a store")
    bundle, snapshot = ResultBundle(path), read_methods(path)
    if not snapshot.rows:
        raise StoreError("the bundle holds no evaluation", where=str(path))
    groups = snapshot.groups
    shown = _each_once(snapshot, {*groups.alone, *(run[-1] for run in groups.runs)})
    return PublishedBundle(
        path=path,
        id=bundle.root[:12],
        root=bundle.root,
        audit=_audit_of(path, bundle.root),
        about=json.loads(bundle.read("about.json")),
        card=bundle.read("card.md").decode(errors="replace"),
        snapshot=snapshot,
        shown=shown,
    )


def _each_once(snapshot: Snapshot, places: Iterable[int]) -> tuple[int, ...]:
    """Removes duplicates of a theta or gin text under several names. The last name stays."""
    return tuple({snapshot.subjects[place].who.key: place for place in sorted(places)}.values())


def _audit_of(path: Path, root: str) -> Mapping[str, Any] | None:
    """Returns the audit record of a bundle; None if the bundle with this root was not audited.

    Raises:
      UsageError: The audit failed, or the file is not an audit record.
    """
    file = path.with_name(f"{path.name}.audit.json")
    if not file.is_file():
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        document: Mapping[str, Any] = record if "root" in record else record["audit"]
        is_passed, of_root = bool(document["passed"]), str(document["root"])
        if not isinstance(document["checked"], list):
            raise TypeError("its checked evaluations are not a list")
    except (OSError, ValueError, KeyError, TypeError) as error:
        next_step = f"`lobench audit {path} --format json > {file}` makes it"
        raise UsageError("not an audit", where=str(file), got=cause(error), next_step=next_step) from error
    if of_root != root:
        return None
    if not is_passed:
        raise UsageError("its audit failed", where=str(path), next_step=f"`lobench audit {path}` shows why")
    return document


def _boards(merged: Snapshot, entries: Sequence[PublishedBundle]) -> list[Board]:
    """Returns a table for each suite and budget."""
    groups: dict[tuple[str, str], list[CaseInfo]] = {}
    suites: dict[str, set[int]] = {}
    # A case that two suites share is in both tables, although it counts once in the whole store.
    cases = {row.case.identity: row.case for row in merged.rows if row.case.identity in merged.current.identities}
    for case in cases.values():
        suites.setdefault(case.suite, set()).add(case.num_inner_steps)
    for case in cases.values():
        budget = " and ".join(f"{steps:,}" for steps in sorted(suites[case.suite]))
        groups.setdefault((case.suite, f"{budget} steps"), []).append(case)
    keys = {one.snapshot.subjects[place].who.key for one in entries for place in one.shown}
    return [_board(merged, entries, keys, *place, members) for place, members in sorted(groups.items())]


def _board(
    merged: Snapshot,
    entries: Sequence[PublishedBundle],
    keys: set[SubjectKey],
    suite: str,
    budget: str,
    cases: Sequence[CaseInfo],
) -> Board:
    identities = {case.identity for case in cases}
    rows = [row for row in merged.rows if row.case.identity in identities]
    part = Snapshot.of(merged.store, rows, current=merged.current)
    places = _each_once(part, (place for place, subject in enumerate(part.subjects) if subject.who.key in keys))
    summary = Summary(part, Scales.of(part.subjects, None), compared=places)
    lines = [
        _line(summary, entries, place, group)
        for group, members in enumerate(_groups(summary, places), 1)
        for place in members
    ]
    # Without a baseline, the scale depends on the best of the methods.
    hangs_on_others = not summary.scales.tuned and not all(all(line.checked) for line in lines)
    is_named = any(name.startswith("the baseline ") for one in entries for name in one.not_auditable)
    if is_named or hangs_on_others:
        lines = [dataclasses.replace(line, is_score_checked=False) for line in lines]
    return Board(suite=suite, budget=budget, cases=part.cases, lines=tuple(lines), scale=summary.scale_label)


def _groups(summary: Summary, places: Sequence[int]) -> list[list[int]]:
    """Splits methods into groups: the best and all that are not distinguished from it, then the same for the rest.

    Methods without a score are in the last group.
    """
    left, groups = list(places), list[list[int]]()
    while left:
        best = sorted(bold_means(summary, left, "primary").places)
        members = [left[index] for index in best] or list(left)
        members.sort(key=lambda place: -_mean(summary, place))
        groups.append(members)
        left = [place for place in left if place not in members]
    return groups


def _mean(summary: Summary, place: int) -> float:
    mean = summary.mean_score(place, "primary").mean
    return mean if mean == mean else -float("inf")


def _line(summary: Summary, entries: Sequence[PublishedBundle], place: int, group: int) -> BoardLine:
    subject = summary.snapshot.subjects[place]
    cells = [summary.snapshot.cell(place, case) for case in range(len(summary.snapshot.cases))]
    machines = {
        curves.cost.machine
        for cell in cells
        if cell is not None
        for curves, _ in cell.sources.values()
        if curves.cost is not None
    }
    finals = []
    for case, cell in zip(summary.snapshot.cases, cells, strict=True):
        values = list(cell.final.get(case.primary_metric, {}).values()) if cell is not None else []
        finals.append(mean_of(values) if values else None)
    key = subject.who.key
    bundles = tuple(one for one in entries if any(one.has_rows(key, case) for case in summary.snapshot.cases))
    checked = tuple(
        bool(bundles) and all(one.is_checked(key, case) for one in bundles) for case in summary.snapshot.cases
    )
    return BoardLine(
        group=group,
        label=summary.snapshot.labels[place],
        key=key,
        score=summary.mean_score(place, "primary").interval,
        finals=tuple(finals),
        bundles=bundles,
        checked=checked,
        is_score_checked=all(checked),
        machines=tuple(sorted(machines)),
    )

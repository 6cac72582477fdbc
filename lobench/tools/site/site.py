"""Site of bundles: reads bundles, groups their methods and writes the pages."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

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
from lobench.engine.store.merge import merge_stores
from lobench.report.tables.text import interval_cell, markdown_line, markdown_table
from lobench.tools.site.boards import Board, BoardLine, BoardRecord, PublishedBundle
from lobench.tools.site.pages import MARK, MARK_NOTE, final_cell, mark_unless_checked, write_board, write_bundle_pages

__all__ = ["Board", "BoardLine", "PublishedBundle", "SiteRecord", "make_site", "site_markdown", "site_text"]


class SiteRecord(TypedDict):
    """`lobench site`: the bundles of the pages, and the tables of the first page."""

    output: str
    bundles: dict[str, str]
    suites: list[str]
    boards: list[BoardRecord]
    not_audited: list[str]
    conflicts: list[str]


def make_site(bundles: Sequence[Path], output: Path, *, title: str = "Results") -> SiteRecord:
    """Writes a static site of leaderboards from bundles.

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
    bundles_by_root = {bundle.root: bundle for bundle in map(_read_bundle, bundles)}
    published_bundles = sorted(bundles_by_root.values(), key=lambda bundle: (bundle.path.name, bundle.root))
    with tempfile.TemporaryDirectory(prefix="lobench-site-") as folder:
        merge_results = merge_stores([bundle.path for bundle in published_bundles], Path(folder) / "merged")
        conflicts = [f"{bundle.store.name}: {line}" for bundle in merge_results for line in bundle.conflicts]
        boards = _make_boards(read_store(Path(folder) / "merged"), published_bundles)
    try:
        for bundle in published_bundles:
            write_bundle_pages(bundle, output / bundle.id)
            shutil.copyfile(bundle.path, output / bundle.id / "results.lobench")
        write_board(boards, published_bundles, conflicts, output / "index.html", title=title)
    except OSError as error:
        raise UsageError("cannot write the pages", where=str(output), got=cause(error)) from error
    return SiteRecord(
        output=str(output),
        bundles={str(bundle.path): bundle.id for bundle in published_bundles},
        suites=sorted({board.suite for board in boards}),
        boards=[board.to_record() for board in boards],
        not_audited=[str(bundle.path) for bundle in published_bundles if not bundle.is_audited],
        conflicts=conflicts,
    )


def site_text(record: SiteRecord) -> str:
    """Returns the lines of the text output."""
    counts_text = f"{counted(len(record['bundles']), 'bundle')} on {counted(len(record['suites']), 'suite')}"
    lines = [f"{record['output']}/index.html: {counts_text}"]
    lines += [
        f"not audited: {path} (audit it: lobench audit {shlex.quote(path)} --format json "
        f"> {shlex.quote(path + '.audit.json')})"
        for path in record["not_audited"]
    ]
    lines += [f"{board['suite']}, {line}" for board in record["boards"] for line in board["pooled"]]
    lines += [f"conflict, the first one is shown: {line}" for line in record["conflicts"]]
    return "\n".join(lines)


def site_markdown(record: SiteRecord) -> str:
    """Returns the tables of the first page as Markdown."""
    board_texts = []
    for board in record["boards"]:
        rows = [["group", "method", "mean score [95%]", *board["cases"]]]
        for method in board["methods"]:
            score = interval_cell(Interval(mean=method["mean_score"], lower=method["lower"], upper=method["upper"]))
            score = mark_unless_checked(score, method["is_score_checked"])
            finals = [
                mark_unless_checked(final_cell(value), ok)
                for value, ok in zip(method["finals"], method["checked"], strict=True)
            ]
            rows.append([str(method["group"]), method["label"], score, *finals])
        board_text = f"{board['suite']}, {board['budget']}. Scores: {board['scale']}."
        notes = [*board["pooled"], *([MARK_NOTE] if any(MARK in cell for row in rows for cell in row) else [])]
        notes_text = "".join(f"\n{markdown_line(note)}\n" for note in notes)
        board_texts.append(f"{markdown_line(board_text)}\n\n{markdown_table(rows)}\n{notes_text}")
    return "\n".join(board_texts)


def _read_bundle(path: Path) -> PublishedBundle:
    if not path.is_file() or not has_ledger(path):
        raise UsageError("not a bundle", where=str(path), next_step="`lobench publish` makes one of a store")
    bundle = ResultBundle(path)
    snapshot = read_methods(path)
    if not snapshot.rows:
        raise StoreError("the bundle holds no evaluation", where=str(path))
    groups = snapshot.groups
    shown_indices = _without_duplicates(snapshot, {*groups.single_indices, *(run[-1] for run in groups.runs)})
    return PublishedBundle(
        path=path,
        id=bundle.root[:12],
        root=bundle.root,
        audit=_read_audit(path, bundle.root),
        about=json.loads(bundle.read("about.json")),
        card=bundle.read("card.md").decode(errors="replace"),
        snapshot=snapshot,
        shown_indices=shown_indices,
    )


def _without_duplicates(snapshot: Snapshot, indices: Iterable[int]) -> tuple[int, ...]:
    """Removes subjects with the same theta or gin text as a later one."""
    return tuple({snapshot.subjects[index].subject.key: index for index in sorted(indices)}.values())


def _read_audit(path: Path, root: str) -> Mapping[str, Any] | None:
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
        is_passed = bool(document["passed"])
        audited_root = str(document["root"])
        if not isinstance(document["checked"], list):
            raise TypeError("its checked evaluations are not a list")
    except (OSError, ValueError, KeyError, TypeError) as error:
        next_step = f"`lobench audit {path} --format json > {file}` makes it"
        raise UsageError("not an audit", where=str(file), got=cause(error), next_step=next_step) from error
    if audited_root != root:
        return None
    if not is_passed:
        raise UsageError("its audit failed", where=str(path), next_step=f"`lobench audit {path}` shows why")
    return document


def _make_boards(snapshot: Snapshot, published_bundles: Sequence[PublishedBundle]) -> list[Board]:
    """Returns a table for each suite and budget."""
    groups: dict[tuple[str, str], list[CaseInfo]] = {}
    suites: dict[str, set[int]] = {}
    # A case that two suites share is in both tables, although it counts once in the whole store.
    cases = {row.case.identity: row.case for row in snapshot.rows if row.case.identity in snapshot.current.identities}
    for case in cases.values():
        suites.setdefault(case.suite, set()).add(case.num_inner_steps)
    for case in cases.values():
        budget = " and ".join(f"{steps:,}" for steps in sorted(suites[case.suite]))
        groups.setdefault((case.suite, f"{budget} steps"), []).append(case)
    keys = {entry.snapshot.subjects[index].subject.key for entry in published_bundles for index in entry.shown_indices}
    return [
        _make_board(snapshot, published_bundles, keys, *suite_and_budget, cases_of_board)
        for suite_and_budget, cases_of_board in sorted(groups.items())
    ]


def _make_board(
    snapshot: Snapshot,
    published_bundles: Sequence[PublishedBundle],
    shown_keys: set[SubjectKey],
    suite: str,
    budget: str,
    cases: Sequence[CaseInfo],
) -> Board:
    identities = {case.identity for case in cases}
    rows = [row for row in snapshot.rows if row.case.identity in identities]
    board_snapshot = Snapshot.of(snapshot.store, rows, current=snapshot.current)
    indices = _without_duplicates(
        board_snapshot,
        (index for index, subject in enumerate(board_snapshot.subjects) if subject.subject.key in shown_keys),
    )
    summary = Summary(board_snapshot, Scales.of(board_snapshot.subjects, None), compared=indices)
    lines = [
        _board_line(summary, published_bundles, method_index, group)
        for group, members in enumerate(_method_groups(summary, indices), 1)
        for method_index in members
    ]
    # Without a baseline, the scale depends on the best of the methods.
    has_relative_scale = not summary.scales.baselines.baseline_by_case and not all(all(line.checked) for line in lines)
    has_unaudited_baseline = any(
        name.startswith("the baseline ") for entry in published_bundles for name in entry.not_auditable
    )
    if has_unaudited_baseline or has_relative_scale:
        lines = [dataclasses.replace(line, is_score_checked=False) for line in lines]
    return Board(suite=suite, budget=budget, cases=board_snapshot.cases, lines=tuple(lines), scale=summary.scale_label)


def _method_groups(summary: Summary, indices: Sequence[int]) -> list[list[int]]:
    """Splits methods into groups: the best method with all that no test distinguishes from it, and so on for the rest.

    Methods without a score are in the last group.
    """
    remaining_indices = list(indices)
    groups = list[list[int]]()
    while remaining_indices:
        best_indices = sorted(bold_means(summary, remaining_indices, "primary").indices)
        members = [remaining_indices[index] for index in best_indices] or list(remaining_indices)
        members.sort(key=lambda index: -_mean_or_lowest(summary, index))
        groups.append(members)
        remaining_indices = [index for index in remaining_indices if index not in members]
    return groups


def _mean_or_lowest(summary: Summary, index: int) -> float:
    mean = summary.mean_score(index, "primary").mean
    return mean if mean == mean else -float("inf")


def _board_line(summary: Summary, published_bundles: Sequence[PublishedBundle], index: int, group: int) -> BoardLine:
    subject = summary.snapshot.subjects[index]
    cells = [summary.snapshot.cell(index, case) for case in range(len(summary.snapshot.cases))]
    machines = {
        curves.cost.machine
        for cell in cells
        if cell is not None
        for curves, _ in cell.curves_by_seed.values()
        if curves.cost is not None
    }
    finals = []
    for case, cell in zip(summary.snapshot.cases, cells, strict=True):
        values = list(cell.final_values.get(case.primary_metric, {}).values()) if cell is not None else []
        finals.append(mean_of(values) if values else None)
    key = subject.subject.key
    bundles = tuple(
        bundle for bundle in published_bundles if any(bundle.has_rows(key, case) for case in summary.snapshot.cases)
    )
    is_checked_by_case = tuple(
        bool(bundles) and all(bundle.is_checked(key, case) for bundle in bundles) for case in summary.snapshot.cases
    )
    return BoardLine(
        group=group,
        label=summary.snapshot.labels[index],
        key=key,
        score=summary.mean_score(index, "primary").interval,
        finals=tuple(finals),
        bundles=bundles,
        checked=is_checked_by_case,
        is_score_checked=all(is_checked_by_case),
        machines=tuple(sorted(machines)),
    )

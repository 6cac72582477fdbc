"""Bundles and leaderboards of a site."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.snapshot import Snapshot
from lobench.core.case import CaseInfo
from lobench.core.json_numbers import record_from
from lobench.core.subject import SubjectKey
from lobench.core.wording import counted
from lobench.engine.store.ledger import EvaluationRow

__all__ = ["Board", "BoardLine", "BoardRecord", "PublishedBundle"]


class BoardLineRecord(TypedDict):
    """Line of a leaderboard: mean score of a method with its 95% interval, and its final value on each case."""

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
    """Leaderboard on the site's first page."""

    suite: str
    budget: str
    scale: str
    pooled: Annotated[list[str], "Notes on the compared bundles, and on methods whose seeds are from several bundles."]
    cases: list[str]
    methods: list[BoardLineRecord]


@dataclass(frozen=True, kw_only=True)  # no slots, because of the cached properties
class PublishedBundle:
    """Bundle whose results are shown on a site.

    Attributes:
      path: Path of the bundle.
      id: Start of the bundle's root, which is also the name of the folder with its pages.
      root: Hash of the bundle's content.
      audit: Record of `lobench audit --format json`. None: not audited.
      about: Content of the bundle's `about.json`.
      card: The bundle's card in Markdown.
      snapshot: Results in the bundle.
      shown_indices: Indices of the subjects in tables. A run is represented by its last checkpoint.
    """

    path: Path
    id: str
    root: str
    audit: Mapping[str, Any] | None
    about: Mapping[str, Any]
    card: str
    snapshot: Snapshot
    shown_indices: tuple[int, ...]

    @property
    def audit_text(self) -> str:
        """One line on the result of the audit."""
        if self.audit is None:
            return "not audited"
        checks = self.audit["checked"]
        if not self.is_audited:
            return f"not audited: none of {counted(self.audit['num_evaluations'], 'evaluation')} was made again"
        counts = {name: sum(check["verdict"] == name for check in checks) for name in ("identical", "consistent")}
        count_text = f"{len(checks)} of {self.audit['num_evaluations']} evaluations made again"
        beacon = f", drawn by {self.audit['beacon']!r}" if self.audit["beacon"] else ""
        not_auditable_text = f"; not auditable: {'; '.join(self.not_auditable)}" if self.not_auditable else ""
        verdicts = f"{counts['identical']} identical, {counts['consistent']} consistent"
        return f"audited: {count_text}, {verdicts}{beacon}{not_auditable_text}"

    @property
    def is_audited(self) -> bool:
        """Whether an audit repeated any of its evaluations."""
        return bool(self._confirmed_evaluations)

    @property
    def is_whole(self) -> bool:
        """Whether an audit repeated all evaluations, and could check all claims."""
        return len(self._confirmed_evaluations) == len(self.snapshot.rows) and not self.not_auditable

    @property
    def not_auditable(self) -> Sequence[str]:
        """Names of claims that an audit could not check; () for audits of older versions."""
        return self.audit.get("not_auditable", ()) if self.audit is not None else ()

    @functools.cached_property
    def _confirmed_evaluations(self) -> frozenset[tuple[str, str, int, int]]:
        checks = self.audit["checked"] if self.audit is not None else ()
        return frozenset(
            (check["subject"], check["case"], check["first_seed"], check["num_seeds"])
            for check in checks
            if check["verdict"] in ("identical", "consistent")
        )

    @functools.cached_property
    def _rows_by_subject(self) -> Mapping[tuple[SubjectKey, str], Sequence[EvaluationRow]]:
        rows_by_subject: dict[tuple[SubjectKey, str], list[EvaluationRow]] = {}
        for row in self.snapshot.rows:
            for key in dict.fromkeys(sighting.key for sighting in row.sightings):
                rows_by_subject.setdefault((key, row.case.identity), []).append(row)
        return rows_by_subject

    def has_rows(self, key: SubjectKey, case: CaseInfo) -> bool:
        """Returns whether the bundle has evaluations of a subject on a case."""
        return (key, case.identity) in self._rows_by_subject and self.subject_index(key) is not None

    def is_checked(self, key: SubjectKey, case: CaseInfo) -> bool:
        """Returns whether an audit repeated all evaluations of a subject on a case."""
        rows = self._rows_by_subject.get((key, case.identity), ())
        if any(line.startswith(f"metric {case.primary_metric} of ") for line in self.not_auditable):
            return False
        return all(
            (row.sightings[0].label, f"{row.case.suite}/{row.case.name}", block.start, block.size)
            in self._confirmed_evaluations
            for row in rows
            for block in (row.key.seed_block,)
        )

    def subject_index(self, key: SubjectKey) -> int | None:
        """Returns the index of a subject in this bundle; None if it is not shown."""
        return next((index for index in self.shown_indices if self.snapshot.subjects[index].subject.key == key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardLine:
    """Line of a leaderboard: results of a method on the cases of a suite.

    Attributes:
      group: Number of the group. Group 1 has the best method and all methods that are not significantly worse.
      label: Label of the method.
      key: Key of the method as a subject.
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
    """Leaderboard of the methods on a suite, all trained for equally many inner steps.

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
        names = {
            bundle.root: f"{bundle.path.name} ({bundle.audit_text})" for line in self.lines for bundle in line.bundles
        }
        notes = [f"compared across {counted(len(names), 'bundle')}: {', '.join(names.values())}"] * (len(names) > 1)
        notes += [
            f"the seeds of {line.label} are those of "
            f"{' and '.join(bundle.path.name for bundle in line.bundles)} together"
            for line in self.lines
            if len(line.bundles) > 1
        ]
        return notes

    def to_record(self) -> BoardRecord:
        """Returns the record for `--format json`."""
        methods = [
            record_from(
                BoardLineRecord,
                line,
                line.score,
                mean_score=line.score.mean,
                bundles=[bundle.path.name for bundle in line.bundles],
            )
            for line in self.lines
        ]
        return record_from(BoardRecord, self, cases=[case.name for case in self.cases], methods=methods)

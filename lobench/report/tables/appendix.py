"""Appendix for reviewers: `lobench report --format appendix`, as Markdown or LaTeX, from the ledger alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.store.methods import hyperparameters_text
from lobench.analysis.store.search_history import edge_notes_by_label
from lobench.analysis.store.snapshot import Snapshot
from lobench.core.number_checks import is_number
from lobench.core.result import Outcome
from lobench.core.wording import counted, one_line, seed_ranges_text, shortened_list
from lobench.engine.store.experiments import ExperimentRow
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.report.tables.latex import engine_notes, escape
from lobench.report.tables.text import code_block, markdown_line, subject_name

__all__ = ["appendix_latex", "appendix_markdown"]

_MAX_NAMED = 10  # methods or checkpoints that failed alike on a case


@dataclass(frozen=True, slots=True)
class _Part:
    """Section of the appendix: a title, and lines of a name and a text. The name may be ""."""

    title: str
    lines: tuple[tuple[str, str], ...]


def appendix_markdown(summary: Summary, level: int = 1) -> str:
    """Returns settings, spaces, budgets, seeds, machines, versions and exclusions as Markdown.

    Args:
      summary: Results.
      level: Level of the appendix's heading, from 1.

    Raises:
      StoreError: The store has no evaluations.
    """
    parts, experiment = _appendix_parts(summary)
    title, subtitle = "#" * level, "#" * (level + 1)
    lines = [f"{title} Appendix: how the evaluations were made"]
    for part in parts:
        lines += ["", f"{subtitle} {part.title}", ""]
        lines += [
            f"- {f'**{markdown_line(name)}**: ' if name else ''}{markdown_line(text)}" for name, text in part.lines
        ]
    if experiment is not None:
        lines += ["", f"{subtitle} Configuration", "", code_block("\n".join(_config_lines(experiment)), "gin")]
    return "\n".join([*lines, ""])


def appendix_latex(summary: Summary) -> str:
    """Returns the appendix as LaTeX that needs no package.

    Raises:
      StoreError: The store has no evaluations.
    """
    parts, experiment = _appendix_parts(summary)
    lines = ["% lobench report --format appendix", r"\section{How the evaluations were made}"]
    for part in parts:
        lines += [f"\\subsection*{{{escape(part.title)}}}", r"\begin{itemize}\raggedright"]
        for name, text in part.lines:
            bold = f"\\textbf{{{_breakable_latex(name)}}}: " if name else ""
            lines.append(f"\\item {bold}{_breakable_latex(text)}")
        lines.append(r"\end{itemize}")
    if experiment is not None:
        lines += [r"\subsection*{Configuration}", r"{\footnotesize\ttfamily\raggedright\noindent"]
        lines += [_breakable_latex(line) + r"\par\noindent" for line in _config_lines(experiment) if line.strip()]
        lines += ["\\par}"]
    return "\n".join([*engine_notes(lines), *lines, ""])


def _config_lines(experiment: ExperimentRow) -> list[str]:
    return [one_line(line) for line in experiment.config.splitlines()]


def _breakable_latex(text: str) -> str:
    """Returns LaTeX text with break points in long names, which have no hyphenation."""
    return re.sub(r"([/.=,:;)]|\\_)(?=\S)", r"\1\\allowbreak{}", escape(text))


def _appendix_parts(summary: Summary) -> tuple[list[_Part], ExperimentRow | None]:
    snapshot = summary.snapshot
    snapshot.require_rows()
    with Ledger.open(snapshot.store, read_only=True) as ledger:
        experiments = [row for row in ledger.experiments() if row.config]
    matching_experiments = [row for row in experiments if _belongs_to(snapshot, row)]
    experiment = matching_experiments[-1] if matching_experiments else None
    seeds_by_case = _seeds_by_case(summary)
    parts = [
        _methods_part(summary, experiment),
        _spaces_part(summary),
        _budgets_part(summary, seeds_by_case),
        _seeds_part(seeds_by_case),
        _machines_part(summary),
    ]
    parts += [_versions_part(summary, experiment), _exclusions_part(summary)]
    return [part for part in parts if part.lines], experiment


def _belongs_to(snapshot: Snapshot, experiment: ExperimentRow) -> bool:
    if snapshot.experiment.name:
        return experiment.name == snapshot.experiment.name
    return bool(snapshot.experiment.method_names) and all(
        name in experiment.config for name in snapshot.experiment.method_names
    )


def _methods_part(summary: Summary, experiment: ExperimentRow | None) -> _Part:
    snapshot = summary.snapshot
    lines = []
    for index, label in enumerate(snapshot.labels):
        subject = snapshot.subjects[index].subject
        text = hyperparameters_text(snapshot, index)
        if not text and subject.is_optimizer:
            text = "its name contains all of its settings"
        elif not text and experiment is not None:
            text = "its settings are in the configuration"
        elif not text:
            text = "settings not recorded" if subject.is_imported else "no bindings of its own"
        lines.append((label, f"{text}; sha256 {subject.sha256[:16]}" if subject.has_theta else text))
    scale = [("Scale of the scores", summary.scale_label)]
    baseline = summary.scales.baselines.first_baseline
    if baseline is not None:
        scale.append(("Baseline", f"{baseline.label}, {baseline.protocol} protocol, made by {baseline.refresh}"))
    return _Part("Methods and their settings", (*lines, *scale))


def _spaces_part(summary: Summary) -> _Part:
    """Returns the trials of searches: their numbers, and the values of each parameter."""
    lines = []
    snapshot = summary.snapshot
    trials = [trial for trial in snapshot.experiment.trials if trial.parameters]
    labels = snapshot.method_labels
    edges = edge_notes_by_label(snapshot)
    for method in dict.fromkeys(trial.method for trial in trials):
        trials_of_method = [trial for trial in trials if trial.method == method]
        value_texts = []
        for name in dict.fromkeys(name for trial in trials_of_method for name in trial.parameters):
            values = [trial.parameters[name] for trial in trials_of_method if name in trial.parameters]
            numbers = [*filter(is_number, values)]
            distinct_texts = list(dict.fromkeys(map(str, values)))
            if len(numbers) == len(values):
                value_texts.append(f"{name} from {min(numbers):g} to {max(numbers):g}")
            else:
                value_texts.append(f"{name} of {', '.join(distinct_texts)}")
        states = Counter(trial.state for trial in trials_of_method)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        texts = [f"{counted(len(trials_of_method), 'trial')} ({counts})", f"tried {'; '.join(value_texts)}"]
        lines.append((method, "; ".join([*texts, *edges.get(labels.get(method, method), [])])))
    return _Part("Searches: settings that were tried (the spaces are in the configuration)", tuple(lines))


def _budgets_part(summary: Summary, seeds_by_case: Mapping[str, Collection[int]]) -> _Part:
    lines = []
    for case in summary.snapshot.cases:
        name = f"{case.suite}/{case.name}"
        cells = [cell for subject in summary.snapshot.subjects if (cell := subject.cells.get(case.identity))]
        # Imports have no plan, and each look of a race has its own.
        is_planned = summary.race is None and not all(cell.is_imported for cell in cells)
        num_seeds = case.num_seeds if is_planned else len(seeds_by_case[name])
        text = (
            f"{counted(case.num_inner_steps, 'inner step')}, {counted(num_seeds, 'seed')}, by {case.primary_metric}, "
            f"at most {case.timeout_seconds:g} s; identity {case.identity[:16]}"
        )
        lines.append((name, text))
    return _Part("Cases and budgets", tuple(lines))


def _seeds_by_case(summary: Summary) -> dict[str, set[int]]:
    """Returns the seeds of each case, over all methods. A case whose values are of items has none."""
    seeds_by_case: dict[str, set[int]] = {}
    for row in summary.snapshot.rows:
        name = f"{row.case.suite}/{row.case.name}"
        seeds_by_case.setdefault(name, set()).update(() if row.case.has_items else row.key.seed_block.seeds)
    return seeds_by_case


def _seeds_part(seeds_by_case: Mapping[str, Collection[int]]) -> _Part:
    names_by_seeds: dict[str, list[str]] = {}
    for name, seeds in seeds_by_case.items():
        names_by_seeds.setdefault(seed_ranges_text(sorted(seeds)) or "items of a data set", []).append(name)
    return _Part("Seeds", tuple((", ".join(names), seeds) for seeds, names in names_by_seeds.items()))


def _machines_part(summary: Summary) -> _Part:
    machines = Counter(
        (curves.origin.host or "not recorded", f"{curves.origin.device}: " if curves.origin.device else "")
        for row in summary.snapshot.rows
        if (curves := row.curves_or_summary) is not None
    )
    lines = ((host, f"{device}{counted(count, 'evaluation')}") for (host, device), count in sorted(machines.items()))
    return _Part("Machines", tuple(lines))


def _versions_part(summary: Summary, experiment: ExperimentRow | None) -> _Part:
    origins = [curves.origin for row in summary.snapshot.rows if (curves := row.curves_or_summary) is not None]
    versions: dict[str, set[str]] = {}
    for name, version in (pair for origin in origins for pair in origin.versions.items()):
        versions.setdefault(name, set()).add(version)
    revisions = {
        origin.git_revision + " with local changes" * origin.git_dirty for origin in origins if origin.git_revision
    }
    lines = [(name, ", ".join(sorted(versions_of_package))) for name, versions_of_package in sorted(versions.items())]
    lines += [("Inner program", "; ".join(sorted({str(row.program) for row in summary.snapshot.rows})))]
    lines += [("Revision of the suite", ", ".join(sorted(revisions)) or "not in git")]
    if experiment is not None:
        revision = experiment.revision
        lines += [
            (
                f"Revision of {experiment.name}",
                (revision.commit or "not in git") + " with local changes" * revision.is_dirty,
            )
        ]
    return _Part("Versions", tuple(lines))


def _exclusions_part(summary: Summary) -> _Part:
    """Returns notes on missing numbers: failed evaluations, seeds without a result, lost seeds, missing cases."""
    snapshot = summary.snapshot
    failed_rows: dict[tuple[str, str, str], list[EvaluationRow]] = {}
    for row in snapshot.rows:
        if row.outcome is not Outcome.PASSED and row.present_sightings:
            kind = f"{row.case.suite}/{row.case.name}", str(row.outcome), one_line(row.message)
            failed_rows.setdefault(kind, []).append(row)
    lines = []
    for (name, outcome, why), rows in sorted(failed_rows.items()):
        subjects = dict.fromkeys(subject_name(subject) for row in rows for subject in row.present_sightings)
        subjects_text = shortened_list([*subjects], _MAX_NAMED)
        text = f"{counted(len(rows), 'evaluation')} of {subjects_text} ended as {outcome}{f': {why}' if why else ''}"
        lines.append((name, text))
    for index, label in enumerate(snapshot.labels):
        subject = snapshot.subjects[index]
        for number, outcome in ((subject.num_diverged, "diverged"), (subject.num_exploded, "exploded")):
            if number:
                lines.append((label, f"{number} of {counted(subject.num_seeds, 'seed')} {outcome}"))
        missing_cases = []
        for case in range(len(snapshot.cases)):
            name, cell = snapshot.case_name(case), snapshot.cell(index, case)
            if cell is None:
                missing_cases.append(name)
            elif cell.missing_seeds:
                seeds = f"{len(cell.missing_seeds)} of {counted(cell.num_planned, 'seed')}"
                lines.append((label, f"{seeds} without a result on {name}: {cell.missing_seeds_text()}"))
        if missing_cases:
            lines.append((label, f"was not evaluated on {', '.join(missing_cases)}"))
    return _Part(
        "Exclusions",
        tuple(lines) or (("", "None: every evaluation passed, no seed is missing, and none diverged or exploded."),),
    )

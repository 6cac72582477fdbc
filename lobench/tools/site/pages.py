"""Pages of a site: the tables, and the origin of each number of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.rerun_command import results_command, seed_options, subject_options, training_command
from lobench.analysis.store.subjects import Cell
from lobench.core.case import CaseInfo, SeedBlock
from lobench.drawing.svg import STYLES, Series, inner_chart, needs_log_axis
from lobench.engine.whole_file import write_whole
from lobench.report.page.page import write_page
from lobench.report.page.templates import render_template
from lobench.report.tables.text import interval_cell
from lobench.tools.site.boards import Board, PublishedBundle

__all__ = ["MARK", "MARK_NOTE", "final_cell", "mark_unless_checked", "write_board", "write_bundle_pages"]

_TEMPLATE_FOLDER = Path(__file__).parent
_MOST_CURVES = len(STYLES)

MARK = "†"
MARK_NOTE = f"{MARK}: of what this is made of, not all was evaluated again by an audit, or could be"


def write_board(
    boards: Sequence[Board],
    published_bundles: Sequence[PublishedBundle],
    conflicts: Sequence[str],
    output: Path,
    *,
    title: str,
) -> None:
    """Writes the first page: a table for each suite and budget, with choices of suite, budget and machine."""
    lines = [line for board in boards for line in board.lines]
    choices = {
        "suite": sorted({board.suite for board in boards}),
        "budget": sorted({board.budget for board in boards}),
        "machine": sorted({machine for line in lines for machine in line.machines}),
    }
    context: dict[str, Any] = {
        "choices": choices,
        "rules": Markup(_style_rules(choices)),
        "boards": [
            {
                "suite": board.suite,
                "budget": board.budget,
                "attributes": _choice_classes(choices, {"suite": [board.suite], "budget": [board.budget]}),
                "scale": board.scale,
                "pooled": board.pooled,
                "cases": [case.name for case in board.cases],
                "lines": [
                    {
                        "group": line.group,
                        "starts_group": index > 0 and line.group != board.lines[index - 1].group,
                        "label": line.label,
                        "score": mark_unless_checked(interval_cell(line.score), line.is_score_checked),
                        "attributes": _choice_classes(choices, {"machine": line.machines}),
                        "machines": ", ".join(line.machines),
                        "bundles": [{"id": bundle.id, "audit": bundle.audit_text} for bundle in line.bundles],
                        "cells": [
                            (
                                mark_unless_checked(final_cell(value), is_checked),
                                ""
                                if value is None or not line.bundles
                                else _cell_address(line.bundles[0], line.key, case),
                            )
                            for value, is_checked, case in zip(line.finals, line.checked, board.cases, strict=True)
                        ],
                    }
                    for index, line in enumerate(board.lines)
                ],
            }
            for board in boards
        ],
        "entries": [
            {"id": entry.id, "name": entry.path.name, "root": entry.root, "audit": entry.audit_text}
            for entry in published_bundles
        ],
        "conflicts": conflicts,
        "marked": MARK_NOTE if any(not line.is_score_checked for line in lines) else "",
    }
    write_whole(output, render_template("board.html", folder=_TEMPLATE_FOLDER, title=title, **context))


def final_cell(value: float | None) -> str:
    """Returns a final value with four digits, or `-`."""
    return "-" if value is None else f"{value:.4g}"


def mark_unless_checked(text: str, is_checked: bool) -> str:
    """Appends a mark to a number unless audits repeated all evaluations behind it. `-` is never marked."""
    return text if is_checked or text == "-" else f"{text}{MARK}"


def _choice_classes(choices: dict[str, list[str]], values: dict[str, Sequence[str]]) -> Markup:
    """Returns the CSS classes by which `_style_rules` hides an element if its values are not chosen.

    Classes have numbers instead of values, because values may contain any character.
    """
    classes = [
        f"{name}-{choices[name].index(value)}"
        for name, values_of_choice in values.items()
        for value in values_of_choice
    ]
    return Markup(" ".join(classes))


def _style_rules(choices: dict[str, list[str]]) -> str:
    """Returns style rules that hide elements whose values are not chosen, because the pages run no scripts."""
    rules = []
    for name, values in choices.items():
        hidden_element = "tr.method" if name == "machine" else "section.board"
        for number in range(len(values)):
            rules.append(
                f"body:has(#{name}-{number}:checked) {hidden_element}:not(.{name}-{number}) {{ display: none; }}"
            )
    return "\n".join(rules)


def _cell_address(bundle: PublishedBundle, key: Any, case: CaseInfo) -> str:
    subject_index = bundle.subject_index(key)
    case_index = next(
        (index for index, case_info in enumerate(bundle.snapshot.cases) if case_info.identity == case.identity), None
    )
    return (
        f"{bundle.id}/index.html#of-{subject_index}-{case_index}"
        if subject_index is not None and case_index is not None
        else ""
    )


def write_bundle_pages(bundle: PublishedBundle, folder: Path) -> None:
    """Writes a bundle's own pages: its report, and the curves, bindings, command and audit of each number."""
    snapshot = bundle.snapshot
    cell_parts = []
    for index in bundle.shown_indices:
        subject = snapshot.subjects[index]
        for case_index, case in enumerate(snapshot.cases):
            cell = snapshot.cell(index, case_index)
            if cell is None:
                continue
            blocks = sorted({_seed_block(curves.seeds) for curves, _ in cell.curves_by_seed.values()})
            command = " ".join(
                filter(None, [training_command(case), subject_options(subject.subject), seed_options(case, blocks)])
            )
            cell_parts.append(
                {
                    "id": f"of-{index}-{case_index}",
                    "title": f"{snapshot.labels[index]} on {snapshot.case_name(case_index)}",
                    "chart": _seeds_chart(cell, snapshot.case_name(case_index)),
                    "bindings": _bindings_of(cell),
                    "command": f"{command}\n{results_command(case)}",
                    "audit": _verdict_lines(bundle, subject.label, case),
                    "troubles": [f"{outcome}: {message}" for outcome, message in cell.failures],
                }
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_page(summary_of(bundle.path, snapshot=snapshot), folder / "report.html")
    if not bundle.is_whole:
        report_path = folder / "report.html"
        note = f"These are numbers of the bundle's author; {bundle.audit_text}"
        text = report_path.read_text(encoding="utf-8")
        write_whole(report_path, text.replace("<body>", f'<body>\n<p class="warning">{escape(note)}</p>', 1))
    text = render_template(
        "bundle.html",
        folder=_TEMPLATE_FOLDER,
        title=bundle.path.name,
        root=bundle.root,
        audit=bundle.audit_text,
        card=bundle.card,
        is_whole=bundle.is_whole,
        parts=cell_parts,
    )
    write_whole(folder / "index.html", text)


def _seed_block(seeds: Sequence[int]) -> SeedBlock:
    return SeedBlock(start=seeds[0], size=len(seeds))


def _bindings_of(cell: Cell) -> str:
    return next((curves.provenance.bindings for curves, _ in cell.curves_by_seed.values()), "")


def _seeds_chart(cell: Cell, name: str) -> Markup:
    metric = cell.case.primary_metric
    series = [
        Series(
            label=f"seed {seed}",
            x=list(curves.eval_steps),
            y=np.asarray(curves.metrics[metric], np.float64)[row].tolist(),
            style=STYLES[index % len(STYLES)],
        )
        for index, (seed, (curves, row)) in enumerate(sorted(cell.curves_by_seed.items())[:_MOST_CURVES])
        if metric in curves.metrics
    ]
    return inner_chart(name, metric, series, log_y=needs_log_axis(series)).svg() if series else Markup("")


def _verdict_lines(bundle: PublishedBundle, label: str, case: CaseInfo) -> list[str]:
    if bundle.audit is None:
        return []
    return [
        f"seeds {check['first_seed']}-{check['first_seed'] + check['num_seeds'] - 1}: {check['verdict']}"
        + (f" ({check['why']})" if check["why"] else "")
        for check in bundle.audit["checked"]
        if (check["subject"], check["case"]) == (label, f"{case.suite}/{case.name}")
    ]

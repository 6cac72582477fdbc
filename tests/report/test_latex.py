"""The table for a paper."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from report_store import make_baseline, make_store
from shown import texts_of
from stores import add, case_info

from lobench.analysis.comparisons.best_group import bold_cells
from lobench.analysis.comparisons.method_comparison import compare_subjects
from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell
from lobench.analysis.tables.table import cell_text
from lobench.analysis.tables.tabulate import tabulate
from lobench.cli.command_records import verdict_record
from lobench.core.errors import UsageError
from lobench.core.metric import Direction
from lobench.core.result import Outcome
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.report.tables.appendix import appendix_latex, appendix_markdown
from lobench.report.tables.comparison import case_means
from lobench.report.tables.latex import escape, latex_table
from lobench.report.tables.method_table import method_records
from lobench.report.tables.text import interval_cell, ratio_cell
from lobench.report.tables.verdict import pair_card

SHOWN = texts_of("report")


def cell(values: dict[int, float], draws: str = LOBENCH_SEEDS) -> Cell:
    """An accuracy or a loss that began at 10 on every seed."""
    names = ("train/loss", "train/accuracy")
    return Cell(
        case=case_info("case"),
        final_values=dict.fromkeys(names, values),
        untrained_values=dict.fromkeys(names, dict.fromkeys(values, 10.0)),
        directions={"train/accuracy": Direction.MAX},
        draws=draws,
    )


def bold(columns: Sequence[dict[int, float]], metric: str = "train/loss", draws: str = LOBENCH_SEEDS) -> set[int]:
    cells = [cell(values, draws) if values else None for values in columns]
    known = [one for one in cells if one is not None]
    scales = Scales(all_cells={"case": known}, cases={"case": known[0].case} if known else {})
    return set(bold_cells(cells, metric, scales).indices)


def test_best_by_direction_and_within_noise_are_bold() -> None:
    clear = [{0: 1.0, 1: 1.1, 2: 0.9}, {0: 2.0, 1: 2.1, 2: 1.95}]
    assert bold(clear) == {0}
    assert bold(clear, "train/accuracy") == {1}
    assert bold([{0: 1.0, 1: 2.0, 2: 3.0}, {0: 1.5, 1: 1.8, 2: 3.3}]) == {0, 1}
    assert bold(clear, "train/unheard_of") == set()


def test_what_no_test_can_tell_apart_is_bold_with_the_best() -> None:
    assert bold([{0: 1.0}, {0: 2.0}]) == {0, 1}
    assert bold([{0: 1.0, 1: 1.1}, {5: 2.0, 6: 2.1}]) == {0, 1}
    fresh = {FIRST_REPORT_SEED: 2.0, FIRST_REPORT_SEED + 1: 2.1}  # of a search's best: Welch's t test
    assert bold([{0: 1.0, 1: 1.1}, fresh]) == {0}
    assert bold([{0: 1.0, 1: 1.6}, {**fresh, FIRST_REPORT_SEED: 1.2}]) == {0, 1}
    assert bold([{0: 1.0}, fresh]) == {0, 1}
    assert bold([{0: 1.0, 1: 1.1}, {0: 2.0, 1: 2.3}], draws="") == {0}


def test_what_diverged_or_is_missing_is_never_bold() -> None:
    assert bold([{0: math.nan, 1: 0.1}, {0: 2.0, 1: 2.1}, {}]) == {1}
    assert bold([{}, {0: math.nan}]) == set()


def test_a_bound_that_rounds_to_zero_has_no_sign() -> None:
    assert interval_cell(Interval(mean=-1e-9, lower=-2e-9, upper=1e-9)) == "0.000 [0.000, 0.000]"


@pytest.mark.parametrize(
    ("lower", "mean", "upper", "expected"),
    [
        (-3.7e-7, -2e-7, -3e-8, "-2.0e-07 [-3.7e-07, -3.0e-08]"),
        (1.2e-4, 4.5e-4, 0.0012, "+0.00045 [+0.00012, +0.0012]"),
        (-2e-7, -1e-7, 3e-8, "+0.000 [+0.000, +0.000]"),
        (0.0, 0.0, 0.0, "+0.000 [+0.000, +0.000]"),
        (0.0002, 0.001, 0.0018, "+0.001 [+0.000, +0.002]"),
    ],
)
def test_a_difference_that_its_bounds_tell_from_0_is_not_printed_as_0(
    lower: float, mean: float, upper: float, expected: str
) -> None:
    assert interval_cell(Interval(mean=mean, lower=lower, upper=upper), "+z.3f") == expected


@pytest.mark.parametrize(
    ("lower", "mean", "upper", "expected"),
    [
        (0.9999996, 0.9999998, 0.9999999, "0.99999980 [0.99999960, 0.99999990]"),
        (1.003, 1.004, 1.005, "1.0040 [1.0030, 1.0050]"),
        (0.999, 1.004, 1.009, "1.00 [0.999, 1.01]"),
        (0.994, 0.996, 0.998, "0.996 [0.994, 0.998]"),
        (1.0, 1.0, 1.0, "1.00 [1.00, 1.00]"),
        (2.0, 20_000.0, 2e8, "> 10,000 [2.00, > 10,000]"),
    ],
)
def test_a_ratio_that_its_bounds_tell_from_1_is_not_printed_as_1(
    lower: float, mean: float, upper: float, expected: str
) -> None:
    assert ratio_cell(Interval(mean=mean, lower=lower, upper=upper)) == expected


def test_a_method_whose_seeds_all_exploded_is_never_bold(tmp_path: Path) -> None:
    for step, finals in enumerate(([0.1, 0.11, 0.12], [5.0, 5e4, 5e8], [0.12, 0.1, 0.11]), 1):
        add(tmp_path, step, {name: {"train/loss": finals} for name in "ab"})
    table = latex_table(summary_of(tmp_path))
    rows = [line.split("&") for line in table.splitlines() if line.startswith((r"\quad a", r"\quad b", "mean score"))]
    assert len(rows) == 3
    assert all([r"\mathbf" in text for text in row[1:]] == [True, False, True] for row in rows), table


def test_exploded_seeds_are_marked_in_each_cell_and_counted_in_each_record(tmp_path: Path) -> None:
    finals = {1: [0.1, 0.11, 0.12, 0.1], 2: [0.1, 0.12, 5.0, 6.0], 3: [math.nan, 0.12, 5.0, 0.1]}
    for step, values in finals.items():
        add(tmp_path, step, {"a": {"train/loss": values}})
    summary = summary_of(tmp_path)
    found = tabulate(summary)
    one, two, three = (cell_text(entry, 3) for entry in found.panels[0].lines[0].entries[:3])
    assert "exploded" not in one and two.endswith("(2/4 exploded)") and three == "diverged (1/4) (1/4 exploded)"
    assert any(line.startswith(SHOWN["a-b-exploded"]) for line in found.footnotes())
    assert latex_table(summary).count(r"$^{\dagger}$") == 3  # two cells and the note
    records = [(one["seeds"], one["diverged"], one["exploded"]) for one in method_records(found)]
    counts = [(4, 0, 0), (4, 0, 2), (4, 1, 1)]
    assert records[:3] == counts and records[3:6] == counts  # the case and the mean score
    subjects = verdict_record(summary, [])["subjects"]
    assert [(one["num_seeds"], one["num_diverged"], one["num_exploded"]) for one in subjects] == counts
    exclusions = appendix_markdown(summary).partition("Exclusions")[2]
    assert SHOWN["of-4-seeds-exploded"] in exclusions and SHOWN["of-4-seeds-diverged"] in exclusions
    card = pair_card("2 against 1", summary.comparison(0, 1, "primary"))  # type: ignore[arg-type]  # both have the case
    assert SHOWN["diverged-or-exploded-2-of"] in card.note
    (pair,) = compare_subjects(summary.snapshot.subjects[:2], scales=summary.scales)
    # Means of a comparison are over the seeds that converge on both sides, as its differences are.
    assert case_means(pair, pair.primary, "s/a", uses_arithmetic_means=False) == ["0.1049", "0.1095 (2/4 exploded)"]
    assert case_means(pair, pair.primary, "s/a", uses_arithmetic_means=True) == ["0.105", "0.11 (2/4 exploded)"]


def test_the_table_has_groups_rules_intervals_and_a_column_for_the_baseline(tmp_path: Path) -> None:
    table = latex_table(summary_of(make_store(tmp_path), [make_baseline(tmp_path)]), precision=2)
    note, comment, *lines = table.splitlines()
    assert comment.startswith(SHOWN["lobench-report"]) and note.startswith(SHOWN["train-loss-test-loss-mean"])
    assert lines[0] == r"\begin{tabular}{lrrrrr}"
    assert lines[2] == SHOWN["outer-step-0-outer-step"]
    assert [line for line in lines if "multicolumn" in line] == [
        SHOWN["ulticolumn"],
        SHOWN["ulticolumn-2"],
    ]
    assert "diverged (1/4)" in table and r"\pm" not in table
    row = next(line for line in lines if "case0" in line)
    assert row.count("&") == 5 and row.endswith(r"$\mathbf{0.20}\,[0.17, 0.24]$ \\")
    assert lines[-4:-1] == [r"\bottomrule", r"\end{tabular}", r"\par\smallskip"]
    assert SHOWN["means-over-seeds-brackets-95"] in lines[-1]
    assert SHOWN["1-of-b"] not in table and SHOWN["of-b-seeds-diverged"] in lines[-1]
    assert SHOWN["mean-score-train-loss"] in table and SHOWN["mean-rank-train-loss"] in table


def test_names_that_would_end_a_row_are_shown_in_one(tmp_path: Path) -> None:
    losses = {"train/loss": [1.0, 0.5]}
    for step, uri in ((1, "run/x\n\n\x1b[31m.npz"), (1, "run/y")):
        add(tmp_path, step, {"a\rb\n\nc\x07": losses}, uri=uri, sha256=uri)
    table = latex_table(summary_of(tmp_path, []))
    assert [line for line in table.splitlines() if not line] == [] and table[:-1].replace("\n", "").isprintable()
    assert r"a\textbackslash{}rb\textbackslash{}n\textbackslash{}nc\textbackslash{}x07 & $" in table


def test_names_are_escaped() -> None:
    assert escape("a_b & 50% #1 {x} \\ ~^$") == (
        r"a\_b \& 50\% \#1 \{x\} \textbackslash{} \textasciitilde{}\textasciicircum{}\$"
    )


def many(folder: Path) -> Path:
    """A store of 9 methods and 12 cases."""
    for method in range(9):
        losses = {"train/loss": [10.0, 0.1234 + 0.01 * method], "test/loss": [10.0, 123.4 + method]}
        cases = {f"long_case_name_{case}": losses for case in range(12)}
        add(folder, 1, cases, uri=f"run/method_{method}", sha256=str(method))
    return folder


def compiled(folder: Path, table: str, options: str) -> str:
    """Returns the log of LaTeX."""
    if shutil.which("latex") is None or shutil.which("kpsewhich") is None:
        pytest.skip("LaTeX is not installed")
    packages = ["booktabs", "siunitx"] if r"\num{" in table else ["booktabs"]
    for package in packages:
        if subprocess.run(["kpsewhich", f"{package}.sty"], capture_output=True, check=False).returncode:
            pytest.skip(f"LaTeX's {package} is not installed")
    uses = "".join(f"\\usepackage{{{package}}}" for package in packages)
    head = f"\\documentclass[{options}]{{article}}{uses}\\begin{{document}}\n"
    (folder / "paper.tex").write_text(f"{head}{table}\\end{{document}}\n")
    found = subprocess.run(
        ["latex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-2000:]
    return (folder / "paper.log").read_text(errors="replace")


def test_greek_labels_and_signs_compile_and_other_letters_name_the_engine(tmp_path: Path) -> None:
    greek = "".join(map(chr, [*range(0x391, 0x3A2), *range(0x3A3, 0x3AA), *range(0x3B1, 0x3CA)]))
    label = f"Adam {greek} \u2264 \u2192 \u2013 \xe9\u0159"
    add(tmp_path / "store", 1, {"\u03b2": {"train/loss": [1.0, 2.0]}})
    summary = summary_of(tmp_path / "store", [])
    table = latex_table(summary)
    assert r"\ensuremath{\beta}" in table and "lualatex" not in table
    compiled(tmp_path, f"{table}\n{escape(label)}", "10pt")
    add(tmp_path / "other", 1, {"\u5b66": {"train/loss": [1.0, 2.0]}})
    assert latex_table(summary_of(tmp_path / "other", [])).startswith(SHOWN["pdflatex-has-no-compile-with"])


@pytest.mark.parametrize("numbers", ["plain", "siunitx"])
@pytest.mark.parametrize(("columns", "width"), [("onecolumn", r"\textwidth"), ("twocolumn", r"\linewidth")])
def test_nine_methods_and_twelve_cases_fit(tmp_path: Path, columns: str, width: str, numbers: str) -> None:
    summary = summary_of(many(tmp_path / "store"), [])
    table = latex_table(summary, width=width, numbers=numbers)  # type: ignore[arg-type]  # a parameter of the test
    log = compiled(tmp_path, table, f"10pt,{columns}")
    assert "Overfull" not in log, re.findall(r"Overfull.*", log)
    for case in range(12):
        assert len(re.findall(rf"long\\_case\\_name\\_{case}\b", table)) == 1


@pytest.mark.parametrize("width", ["wide", "3", "-3in", "0pt", r"\hsize"])
def test_a_width_that_is_none_is_refused(tmp_path: Path, width: str) -> None:
    with pytest.raises(UsageError, match="--width"):
        latex_table(summary_of(make_store(tmp_path), []), width=width)


def test_the_appendix_says_what_a_reviewer_asks(tmp_path: Path) -> None:
    summary = summary_of(make_store(tmp_path), [make_baseline(tmp_path)])
    text = appendix_markdown(summary)
    titles = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        SHOWN["methods-and-their-settings"],
        SHOWN["cases-and-budgets"],
        "Seeds",
        "Machines",
        "Versions",
        "Exclusions",
    ]
    assert SHOWN["inner-step"] in text and "0 to 3" in text and "diverged" in text.partition("## Exclusions")[2]
    log = compiled(tmp_path, appendix_latex(summary), "10pt,twocolumn")
    assert "Overfull" not in log, re.findall(r"Overfull.*", log)


def test_the_appendix_names_the_methods_whose_evaluations_failed(tmp_path: Path) -> None:
    for step, (optimizer, result) in enumerate(
        (("sgd()", {"train/loss": [1.0]}), ("adam()", Outcome.TIMEOUT), ("lion()", Outcome.TIMEOUT))
    ):
        add(tmp_path, step, {"a": result}, optimizer=optimizer)
    assert SHOWN["2-evaluations-of-adam-lion"] in appendix_markdown(summary_of(tmp_path))


def test_the_appendix_shows_hostile_names_as_they_are(tmp_path: Path) -> None:
    add(
        tmp_path / "store", 1, {"a_b<script>`x`\n# no": {"train/loss": [1.0, 0.5]}}, uri="run/$x_{", sha256="y", host=""
    )
    summary = summary_of(tmp_path / "store", [])
    assert "<script>" not in appendix_markdown(summary).replace("\\<", "") and "\n# no" not in appendix_markdown(
        summary
    )
    machines = appendix_markdown(summary).partition("## Machines")[2].partition("## ")[0].strip()
    assert machines == SHOWN["not-recorded-1-evaluation"]
    compiled(tmp_path, appendix_latex(summary), "10pt")

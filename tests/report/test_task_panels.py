"""A panel for each loss of a task with several, and for each weight: a line for each method, one legend for all."""

from __future__ import annotations

import math
from pathlib import Path

from shown import texts_of
from stores import add

from lobench.analysis.comparisons.summary import summary_of
from lobench.report.page.page import render_page

SHOWN = texts_of("report")

LOSSES = {"train/loss": (1.0, 1.0), "train/loss_task_1": (0.5, 0.7), "train/loss_task_2": (1.5, 1.3)}
WEIGHTS = {"train/weight_task_1": (0.4, 0.6), "train/weight_task_2": (1.6, 1.4)}


def of_methods(store: Path, *weighers: bool, single: bool = True) -> str:
    """Writes methods, of which some weigh, on a case with two losses and, with `single`, one with one; the page."""
    for index, weighs in enumerate(weighers):
        cases = {"two": LOSSES | WEIGHTS if weighs else LOSSES}
        cases |= {"one": {"train/loss": (1.0, 1.0)}} if single else {}
        add(store, 0, cases, optimizer=f"method{index}()", sha256=f"{index:064d}")
    return render_page(summary_of(store, []))


def section(page: str) -> str:
    _, _, rest = page.partition('id="h-tasks"')
    return rest.partition("</section>")[0]


def test_each_loss_has_a_panel_with_a_line_for_each_method_and_each_weight_one_of_who_weighs(tmp_path: Path) -> None:
    drawn = section(of_methods(tmp_path, False, True, False))
    titles = [part.partition("</h3>")[0] for part in drawn.split("<h3>")[1:]]
    kinds = ("loss_task_1", "loss_task_2", "weight_task_1", "weight_task_2")
    assert titles == [SHOWN["two-train"].format(kind=kind) for kind in kinds]
    panels = drawn.split("<figure>")[1:]
    assert [panel.count('class="line ') for panel in panels] == [3, 3, 1, 1]
    style = panels[2].partition('class="line ')[2].partition('"')[0]
    assert all(f'class="line {style}"' in panel for panel in panels), "a method's style is the same in every panel"
    assert [drawn.count(f"</span>method{index}()") for index in range(3)] == [1, 1, 1], "one legend"
    assert "method0() 0.6, method1() 0.6" in panels[0]


def test_many_methods_have_styles_of_their_own_and_what_is_more_is_not_drawn(tmp_path: Path) -> None:
    drawn = section(of_methods(tmp_path, *[False] * 18, single=False))
    first = drawn.split("<figure>")[1]
    styles = {part.partition('"')[0] for part in first.split('class="line ')[1:]}
    assert len(styles) == 16 == first.count('class="line ')
    assert SHOWN["first-16-of-18-methods"] in drawn


def test_tasks_with_one_loss_have_no_panels(tmp_path: Path) -> None:
    add(tmp_path, 0, {"one": {"train/loss": (1.0, math.nan)}}, optimizer="adam()", sha256="0" * 64)
    page = render_page(summary_of(tmp_path, []))
    assert section(page) == "" and SHOWN["loss-by-loss"] not in page

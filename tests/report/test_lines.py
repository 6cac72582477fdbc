"""Tables of text."""

from __future__ import annotations

from lobench.extend import text_table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [("name", "loss", "note"), ("a", "10.25", ""), ("longer", "2", "diverged")]
    assert text_table(rows).splitlines() == [
        "name    loss   note",
        "a       10.25",
        "longer  2      diverged",
    ]
    assert text_table(rows, left={0, 2}).splitlines() == [
        "name     loss  note",
        "a       10.25",
        "longer      2  diverged",
    ]
    assert text_table([]) == ""


def test_a_cell_stays_in_its_line_and_steers_no_terminal() -> None:
    assert text_table([("a\nb", "x"), ("\x1b[31mred{0}", "[bold]")]).splitlines() == [
        "a\\nb            x",
        "\\x1b[31mred{0}  [bold]",
    ]

"""Colours of methods in charts, common to the page and the figures of a paper.

Any two differ by more than 20 (CIEDE2000) for normal sight, protanopes and deuteranopes (Machado et al. 2009), and each
has a contrast of 3:1 or more to the background.
"""

from __future__ import annotations

__all__ = ["DARK_COLOURS", "LIGHT_COLOURS", "style_variables"]

LIGHT_COLOURS = ("#0063a8", "#dd7711", "#551111", "#0099ff", "#994411", "#441144", "#889988", "#556666")
DARK_COLOURS = ("#62b5f0", "#ddff00", "#aa4444", "#00cc99", "#8811ff", "#cc8800", "#aaffff", "#338888")


def style_variables() -> str:
    """Returns the rules of a style sheet that bind `--c1` to `--c8`, by the scheme that the reader prefers."""
    light, dark = (
        " ".join(f"--c{index}: {value};" for index, value in enumerate(colours, 1))
        for colours in (LIGHT_COLOURS, DARK_COLOURS)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"

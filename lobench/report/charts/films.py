"""Films of episodes as animated SVG without scripts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from lobench.analysis.comparisons.summary import Summary
from lobench.core.film import Film

__all__ = ["FilmFigure", "film_svg", "films"]

_SIDE = 200
_MAX_FILMS = 12  # films on a page
_LAST_SECONDS = 0.5  # time for which the last frame is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class FilmFigure:
    """Film with its caption."""

    title: str
    svg: Markup
    note: str


def films(summary: Summary) -> list[FilmFigure]:
    """Returns a film for each case and subject that has one, of the first seed, ordered by case. At most twelve."""
    snapshot = summary.snapshot
    figures: list[FilmFigure] = []
    for case in range(len(snapshot.cases)):
        for index in range(len(snapshot.subjects)):
            if len(figures) == _MAX_FILMS:
                return figures
            cell = snapshot.cell(index, case)
            blocks = cell.blocks if cell is not None else ()
            film = next((block.film for block in blocks if block.film is not None), None)
            if film is None:
                continue
            title = f"{snapshot.case_name(case)}: {snapshot.capitalized_labels[index]}"
            frames = np.asarray(film.frames)
            seconds = film.scene.frame_seconds * (len(frames) - 1)
            note = (
                f"{film.scene.title}, seed {film.seed}, after the last step: {seconds:.3g} s of {len(frames)} frames."
            )
            figures.append(FilmFigure(title=title, svg=film_svg(film, f"An episode of {title}"), note=note))
    return figures


def film_svg(film: Film, description: str) -> Markup:
    """Returns a film as markup.

    Args:
      film: The film.
      description: Alternative text for screen readers.
    """
    frames = np.asarray(film.frames, np.float64)
    padded_frames = np.concatenate([frames, frames[-1:]])
    seconds = film.scene.frame_seconds * max(len(frames) - 1, 1) + _LAST_SECONDS
    times = [*np.linspace(0, 1 - _LAST_SECONDS / seconds, len(frames)), 1.0]
    key_times = ";".join(f"{time:.4g}" for time in times)
    elements = []
    for index, shape in enumerate(film.scene.shapes):
        x = _SIDE * padded_frames[:, index, ::2]
        y = _SIDE * (1 - padded_frames[:, index, 1::2])
        if shape.kind == "dot":
            name = "circle"
            style = f'class="dot {escape(shape.style)}" r="{_SIDE * padded_frames[0, index, 2]:.1f}"'
            values = {"cx": x[:, 0], "cy": y[:, 0]}
        else:
            name = "line"
            style = f'class="{escape(shape.style)}" stroke-width="{shape.width:g}"'
            values = {"x1": x[:, 0], "y1": y[:, 0], "x2": x[:, 1], "y2": y[:, 1]}
        first_values = " ".join(f'{attribute}="{row[0]:.1f}"' for attribute, row in values.items())
        animations = "".join(
            f'<animate attributeName="{attribute}" dur="{seconds:.3g}s" repeatCount="indefinite" '
            f'keyTimes="{key_times}" values="{";".join(f"{value:.1f}" for value in row)}"/>'
            for attribute, row in values.items()
            if np.ptp(row) > 0.05
        )
        elements.append(Markup(f"<{name} {style} {first_values}>{animations}</{name}>"))
    body = Markup("").join(elements)
    return Markup(
        f'<svg class="film" viewBox="0 0 {_SIDE} {_SIDE}" role="img" aria-label="{escape(description)}">{body}</svg>'
    )

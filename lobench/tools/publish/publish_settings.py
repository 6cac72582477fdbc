"""Settings of `lobench publish`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from lobench.core.settings_field import option

__all__ = ["PublishKeywords", "PublishSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """Options of `lobench publish`, under the same names."""

    suites: tuple[Path, ...] = option(
        (), "Folder of a suite, if the store does not have it; repeatable.", flag="--suite", exists=True
    )
    no_thetas: bool = option(False, "Leave out thetas; the bundle names their hashes and paths.")
    without_patch: bool = option(False, "Leave out the patch of uncommitted changes; the bundle names its hash.")
    key: Path | None = option(None, "SSH key that signs the root.", flag="--sign", exists=True)
    croissant: Path | None = option(
        None, "Empty or new folder for the curves as a Croissant data set: curves.csv and croissant.json."
    )
    license: str = option("", "License that the data set states, such as CC-BY-4.0.")


class PublishKeywords(TypedDict, total=False):
    """Keywords of `publish`, described at `PublishSettings`."""

    suites: Sequence[Path]
    no_thetas: bool
    without_patch: bool
    key: Path | None
    croissant: Path | None
    license: str

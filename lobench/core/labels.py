"""Labels of evaluations, as given to `lobench watch`."""

from __future__ import annotations

from dataclasses import dataclass

from lobench.core.settings_field import option

__all__ = ["NO_LABELS", "Labels"]

_HELP = "Label of the evaluations, for studies."


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Place of evaluations in a study that another program organizes. "" is no label."""

    experiment: str = option("", _HELP)
    trial: str = option("", _HELP)
    session: str = option("", _HELP)


NO_LABELS = Labels()

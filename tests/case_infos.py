"""Descriptions of cases for tests that train nothing."""

from __future__ import annotations

from typing import Any

from lobench.core.case import CaseInfo

__all__ = ["case_info"]


def case_info(name: str = "c", **fields: Any) -> CaseInfo:
    """Returns a case with one seed and one inner step in the suite `s`, if `fields` do not say otherwise."""
    defaults = {
        "identity": name,
        "optimizer_hash": "o",
        "suite": "s",
        "node_id": name,
        "num_inner_steps": 1,
        "num_seeds": 1,
        "seed_block": None,
    }
    return CaseInfo(name=name, **{**defaults, **fields})

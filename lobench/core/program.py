"""The version of the inner program: results of two versions are not the same evaluation."""

from __future__ import annotations

__all__ = ["PROGRAM_VERSION"]

# Raise it when a change of the inner program changes its numbers.
PROGRAM_VERSION = "3"

"""Tasks whose initial parameters are worth learning."""

from __future__ import annotations

__all__: list[str] = []

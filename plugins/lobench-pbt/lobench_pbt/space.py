"""Search spaces: lobench's own; a study's parameters are those of any search."""

from __future__ import annotations

from lobench.extend import Kind, Parameter, Rule, Scale, Space, check_parameters

__all__ = ["Kind", "Parameter", "Rule", "Scale", "Space", "check_parameters"]

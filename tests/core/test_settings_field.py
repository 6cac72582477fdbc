"""Settings of a command from the keyword arguments of a function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lobench.core.settings_field import changed_fields, option, settings_from


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    name: str
    rate: float = option(0.05, "Rate.")
    seeds: int | None = option(None, "Number of seeds.")


def test_settings_from_options_takes_its_own_fields_and_leaves_the_others() -> None:
    options: dict[str, Any] = {"rate": 0.1, "workers": 2}
    settings = settings_from(_Settings, options, name="a")
    assert settings == _Settings(name="a", rate=0.1)
    assert options == {"workers": 2}
    assert changed_fields(settings) == {"name": "a", "rate": 0.1}

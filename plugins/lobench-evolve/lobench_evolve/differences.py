"""Differences between the configuration of a run and that stored in its folder, and advice on how to proceed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lobench import UsageError

__all__ = ["BINDINGS_FIELD", "LENGTH_SETTING", "Difference", "continuation_error", "differences"]

LENGTH_SETTING = "Evolve.num_generations"
BINDINGS_FIELD = "bindings_text"  # field of a journal with the lines whose hash is `bindings`
_STRATEGY_CLASSES = {"ga": "TruncationGA", "es": "AntitheticES"}
_SHOWN_CHARACTERS = 120  # characters


class Difference(NamedTuple):
    """A field with its current value and its value in the stored run; "" for a value that is not set."""

    name: str
    current_value: str
    stored_value: str

    def __str__(self) -> str:
        return f"{self.name} is {self.current_value or 'not bound'} and was {self.stored_value or 'not bound'}"


def differences(recorded_values: Mapping[str, str], values: Mapping[str, str]) -> list[Difference]:
    """Returns the fields that differ between a journal and the current configuration."""
    all_differences: list[Difference] = []
    for name in (
        name
        for name in values
        if name != BINDINGS_FIELD and name in recorded_values and values[name] != recorded_values[name]
    ):
        if name == "settings":
            all_differences += _settings_differences(recorded_values[name], values[name])
        elif name == "bindings":
            all_differences += _bindings_differences(
                recorded_values.get(BINDINGS_FIELD, ""), values.get(BINDINGS_FIELD, "")
            )
        else:
            all_differences.append(Difference(name, *_excerpts(values[name], recorded_values[name])))
    return all_differences


def continuation_error(where: str, all_differences: Sequence[Difference], *, values: Mapping[str, str]) -> UsageError:
    """Returns the error of a run that can be neither resumed nor extended.

    Args:
      where: Folder of the run.
      all_differences: Differences from the stored run.
      values: Current values by field.
    """
    is_longer = [difference.name for difference in all_differences] == [LENGTH_SETTING] and int(
        all_differences[0].current_value
    ) > int(all_differences[0].stored_value)
    if is_longer:
        num_added = int(all_differences[0].current_value) - int(all_differences[0].stored_value)
        next_step = (
            f"to resume it, leave {LENGTH_SETTING} at {all_differences[0].stored_value}; to extend it by {num_added} "
            "generations, whose "
            "rate falls along a cosine of their own, give --extend"
        )
    else:
        next_step = (
            f"to resume it, bind them as they were; to extend it, change {LENGTH_SETTING} alone and give --extend; or "
            "choose another --store"
        )
    return UsageError(
        "the run was begun with other settings; with these it cannot continue bit for bit",
        where=where,
        got="; ".join(map(str, all_differences)),
        next_step=next_step,
    )


def _settings_differences(recorded_text: str, current_text: str) -> Iterator[Difference]:
    try:
        recorded_fields = _values_by_setting(recorded_text)
        current_fields = _values_by_setting(current_text)
    except (ValueError, TypeError, AttributeError):  # written by another version of the plugin
        yield Difference("settings", *_excerpts(current_text, recorded_text))
        return
    for name in sorted(recorded_fields.keys() | current_fields.keys()):
        if recorded_fields.get(name) != current_fields.get(name):
            yield Difference(name, current_fields.get(name, ""), recorded_fields.get(name, ""))


def _values_by_setting(settings_json: str) -> dict[str, str]:
    run_settings, strategy_settings = json.loads(settings_json)
    strategy_class = _STRATEGY_CLASSES.get(run_settings.get("strategy"), "strategy")
    settings_by_class: list[tuple[str, dict[str, Any]]] = [
        ("Evolve", run_settings),
        (strategy_class, strategy_settings),
    ]
    return {f"{name}.{field}": repr(value) for name, fields in settings_by_class for field, value in fields.items()}


def _bindings_differences(recorded_text: str, current_text: str) -> Iterator[Difference]:
    if not recorded_text or not current_text:
        yield Difference("a binding of the cases", "another", "another")
        return
    recorded_bindings, current_bindings = (
        dict(line.partition(" = ")[::2] for line in text.splitlines()) for text in (recorded_text, current_text)
    )
    for name in sorted(recorded_bindings.keys() | current_bindings.keys()):
        if recorded_bindings.get(name) != current_bindings.get(name):
            yield Difference(
                name.replace("lobench.", ""), current_bindings.get(name, ""), recorded_bindings.get(name, "")
            )


def _excerpts(value: str, other_value: str) -> tuple[str, str]:
    """Returns excerpts of two long texts, starting shortly before their first difference."""
    num_same = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(value, other_value, strict=False))
    )
    start = max(num_same - 40, 0)
    excerpt = slice(start, start + _SHOWN_CHARACTERS)
    return tuple(("..." if start else "") + text[excerpt] for text in (value, other_value))  # type: ignore[return-value]  # two

"""Fields of settings, with help and bounds: command options and keyword arguments in Python are made from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lobench.core.errors import suggestion

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Option", "changed_fields", "check_keywords", "keywords_in", "option", "settings_from"]

S = TypeVar("S", bound="DataclassInstance")
K = TypeVar("K")  # type of a TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Command-line option of a field: `--name`, with the field's type.

    Attributes:
      help: Help text, one line.
      flag: Name of the option if it is not the field's: "--suite" for `suites`, "--quiet -q" for two names.
      metavar: Placeholder of the value in the help.
      least, above, most: Bounds of a number: inclusive lower, exclusive lower, inclusive upper.
      choices: The allowed values of a text. (): any.
      exists: Whether a path must exist.
      required: Whether the option must be given.
    """

    help: str
    flag: str = ""
    metavar: str | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    exists: bool = False
    required: bool = False


def option(default: Any, help: str, **words: Any) -> Any:
    """Returns a dataclass field with a command-line option; `words` are the other fields of `Option`."""
    return field(default=default, metadata={"option": Option(help=help, **words)})


def settings_from(kind: type[S], options: Mapping[str, object], **values: object) -> S:
    """Returns settings whose fields have the values of the options with the same names.

    A field for several texts or paths may be given as a list, or as a single text or path. A text may be given as a
    path.

    Args:
      kind: Dataclass of the settings.
      options: Keyword arguments of a function. Arguments without a field are ignored.
      values: Values of further fields. They take precedence over `options`.

    >>> from lobench.api.settings import CompareSettings
    >>> settings_from(CompareSettings, {"alpha": 0.1, "workers": 2}).alpha
    0.1
    """
    values_by_name = {**options, **values}
    return kind(
        **{
            field.name: _convert(field, values_by_name[field.name])
            for field in fields(kind)
            if field.name in values_by_name
        }
    )


def _convert(setting: Field[Any], value: Any) -> Any:
    if str(setting.type).startswith("tuple["):
        values = (value,) if isinstance(value, str | Path) else tuple(value)
        return tuple(map(str, values)) if setting.type == "tuple[str, ...]" else values
    return str(value) if setting.type == "str" and isinstance(value, Path) else value


def keywords_in(kind: type[K], options: Mapping[str, object]) -> K:
    """Returns the options whose names are keys of a TypedDict."""
    return cast("K", {name: value for name, value in options.items() if name in kind.__annotations__})


def check_keywords(function: str, options: Collection[str], kind: type) -> None:
    """Raises TypeError if a function was called with a keyword that is not a key of its TypedDict.

    >>> from lobench.api.settings import WatchKeywords
    >>> check_keywords("watch", {"worker": 2}, WatchKeywords)
    Traceback (most recent call last):
    TypeError: watch() got an unexpected keyword argument 'worker'; did you mean 'workers'?
    """
    for name in options:
        if name not in kind.__annotations__:
            problem = f"{function}() got an unexpected keyword argument {name!r}"
            raise TypeError("; ".join(filter(None, [problem, suggestion(name, kind.__annotations__)])))


def changed_fields(settings: DataclassInstance) -> dict[str, Any]:
    """Returns the values that differ from the defaults of their fields, by name."""
    return {
        field.name: value for field in fields(settings) if (value := getattr(settings, field.name)) != field.default
    }

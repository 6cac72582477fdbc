"""Identity of a training, from the bindings that determine its data and initial parameters."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable

__all__ = ["training_hash"]

_REFERENCE = re.compile(r"[@%]([\w./-]+)")
# Fields of a case that change its data, its initial parameters, or how they are drawn. The others are lengths,
# evaluations, metrics and resources.
_TRAINING_FIELDS = ("task", "num_tasks", "sessions", "num_lanes", "phases")


@functools.lru_cache(maxsize=4096)
def training_hash(bindings: str) -> str:
    """Returns a hash of the bindings that determine a training's data and initial parameters; "" without a task.

    >>> one = "a/lobench.Case.task = @T()\\na/lobench.Case.num_inner_steps = 100\\na/lobench.T.width = 8"
    >>> other = one.replace("a/", "b/").replace("100", "400")
    >>> training_hash(one) == training_hash(other), training_hash(one) == training_hash(one.replace("8", "32"))
    (True, False)

    Args:
      bindings: gin lines that the case and its optimizer reach, as in `Provenance.bindings`.
    """
    lines = [line.partition(" = ")[::2] for line in bindings.splitlines() if " = " in line]
    scope = next((name.rpartition("lobench.Case.task")[0] for name, _ in lines if name.endswith("Case.task")), "")
    own_lines = [(name.removeprefix(scope), value.replace(f"@{scope}", "@")) for name, value in lines]
    case_parameters = {f"lobench.Case.{field}" for field in _TRAINING_FIELDS}
    selected_lines = {(name, value) for name, value in own_lines if name in case_parameters}
    selected_lines |= {
        (name, value)
        for name, value in own_lines
        if "Phase." in name and not name.endswith((".num_inner_steps", "optimizer"))
    }
    if not any(name == "lobench.Case.task" for name, _ in selected_lines):
        return ""
    new_lines = set(selected_lines)
    while new_lines:
        references = {match for _, value in new_lines for match in _REFERENCE.findall(value)}
        new_lines = {
            line for line in own_lines if line not in selected_lines and _belongs_to_reference(line[0], references)
        }
        selected_lines |= new_lines
    return hashlib.sha256(
        "\n".join(f"{name} = {value}" for name, value in sorted(selected_lines)).encode()
    ).hexdigest()[:16]


def _belongs_to_reference(name: str, references: Iterable[str]) -> bool:
    """Returns whether a binding belongs to a referenced object: `lobench.T.width` for `@T`, `@s/T` or `%T`."""
    scope, _, selector = name.rpartition("/")
    owner = selector.rpartition(".")[0]
    for reference in references:
        reference_scope, _, reference_selector = reference.rpartition("/")
        if owner == "gin.macro" and scope == reference:
            return True
        if (owner == reference_selector or owner.endswith(f".{reference_selector}")) and scope in ("", reference_scope):
            return True
    return False

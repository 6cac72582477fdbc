"""Parses the layers of gin text around a case, and reads the number of cores that the case requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.core.case import CaseSpec
from lobench.core.checkpoint import OWN_BINDINGS
from lobench.core.subject import optimizer_bindings
from lobench.engine.config.axes import axis_macros
from lobench.engine.config.layers import Layers
from lobench.engine.config.learned_optimization import names_in_comments
from lobench.engine.config.python_cases import case_statements
from lobench.engine.config.run_configs import config_chain
from lobench.engine.config.space_syntax import without_searches
from lobench.engine.config.syntax import (
    Import,
    Statement,
    gin_file_text,
    parse_data,
    parse_file,
    parse_text,
    parse_trainer_config,
)

__all__ = ["ParsedLayers", "parse_layers", "parse_own_bindings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLayers:
    """Parsed statements of all layers, in order of precedence.

    Attributes:
      plugin_modules: Imports of the plugins' gin modules.
      trainer: Statements of the `config.gin` next to the checkpoints.
      trainer_comments: Names in its comments, in which gin lists all configured parameters, bound or not.
      checkpoint_bindings: Statements of the checkpoint.
      case: Statements of the case's own file.
      overrides: Statements of `--optimizer`, `--gin-file`, `--gin-param` and the variant, then the values of axes.
    """

    plugin_modules: Sequence[Statement]
    trainer: Sequence[Statement]
    trainer_comments: Sequence[str]
    checkpoint_bindings: Sequence[Statement]
    case: Sequence[Statement]
    overrides: Sequence[Statement]


def parse_layers(spec: CaseSpec | None, layers: Layers) -> ParsedLayers:
    """Parses all layers of gin text for a case, or for an optimizer alone. Imports nothing.

    Raises:
      ConfigError: A file cannot be read or has a syntax error, or a configuration of a run includes a file from
        elsewhere.
    """
    optimizer = "\n".join(optimizer_bindings(layers.optimizer)) if layers.optimizer else ""
    overrides = parse_text(optimizer, f"optimizer {layers.optimizer!r}")
    for path in layers.gin_files:
        overrides += parse_file(Path(path))
    for text in layers.gin_params:
        overrides += parse_text(text, f"binding {text!r}")
    for text in layers.variant.bindings:
        overrides += parse_text(text, f"binding {text.strip().splitlines()[0]!r}")
    trainer, comments = _trainer_statements(layers)
    return ParsedLayers(
        plugin_modules=[Import(module=module, where="gin modules of the plugins") for module in layers.gin_modules],
        trainer=trainer,
        trainer_comments=comments,
        checkpoint_bindings=parse_own_bindings(layers.own_bindings),
        case=[] if spec is None else without_searches(case_statements(spec)),
        overrides=[*overrides, *([] if spec is None else axis_macros(spec, overrides))],
    )


def parse_own_bindings(text: str) -> list[Statement]:
    """Parses the bindings that a checkpoint carries; "" for none.

    Raises:
      ConfigError: The text has a syntax error, or includes a file.
    """
    return parse_data(text, f"the checkpoint's {OWN_BINDINGS}") if text else []


def _trainer_statements(layers: Layers) -> tuple[Sequence[Statement], Sequence[str]]:
    """Returns the statements of the `config.gin` of the variant or else of the run, and the names in its comments."""
    text = layers.variant.trainer_config
    if text is not None:
        return parse_data(text, "config.gin", is_file=True), names_in_comments(text)
    if not layers.trainer_config:
        return [], []
    configs = config_chain(Path(layers.trainer_config))
    statements = [statement for config in configs for statement in parse_trainer_config(config)]
    return statements, [name for config in configs for name in names_in_comments(gin_file_text(config))]

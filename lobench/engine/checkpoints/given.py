"""Subjects given by text (`theta.npz; Case.learned_optimizer = @Celo()`, `adam()`) or by a method of an experiment."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from lobench.core.errors import UsageError
from lobench.core.experiment import Method
from lobench.core.subject import GivenCheckpoint, RequestedSubject, Subject, Variant
from lobench.engine.checkpoints.places import absolute_location, checkpoint_path
from lobench.engine.config.layers import Layers
from lobench.engine.config.run_configs import CONFIG_NAME, config_chain, trainer_config_at
from lobench.engine.config.suite_files import INCLUDE_PATTERN
from lobench.engine.config.syntax import gin_file_text, parse_file, parse_text, parse_trainer_config
from lobench.engine.paths import path_exists
from lobench.engine.retries import is_transient, retried
from lobench.plugins import PluginManager

__all__ = [
    "gin_layers_at",
    "given_checkpoint",
    "given_method",
    "given_methods",
    "given_optimizer",
    "given_subject",
    "has_run_configs",
    "optimizer_text",
    "run_variant",
]

_MAX_LEVELS = 4  # depth of the search for runs below a location


def given_subject(text: str) -> RequestedSubject:
    """Returns the subject that a text names: a checkpoint, with bindings after semicolons, or an optimizer.

    Raises:
      UsageError: The text names neither a checkpoint nor an optimizer.
      ConfigError: The gin text, or a file that the text names, has a syntax error.
    """
    name, *bindings = (piece.strip() for piece in text.split(";"))
    if not name.endswith(".gin") and (path_exists(name) or "://" in name):
        return given_checkpoint(name, [binding for binding in bindings if binding])
    if "(" in name or "=" in name or name.startswith("@") or name.endswith(".gin"):
        return given_optimizer(text)
    raise UsageError(
        "neither a checkpoint nor an optimizer", got=repr(text), expected="a path, or a call such as 'adam()'"
    )


def given_checkpoint(uri: str, bindings: Iterable[str] = (), *, label: str = "") -> GivenCheckpoint:
    """Returns a checkpoint with bindings that override the `config.gin` next to it.

    Args:
      uri: Path or URL of the checkpoint.
      bindings: Bindings, one line each.
      label: Label of the subject.
    Raises:
      ConfigError: A binding or the `config.gin` has a syntax error.
      CheckpointError: See `path_of`.
    """
    bindings = tuple(bindings)
    _check_syntax(bindings)
    checkpoint_path(uri)
    config = trainer_config_at(uri)
    text = "\n".join(_inlined_configs(config)) if config is not None else ""
    variant = Variant(bindings=bindings, trainer_config=text)
    return GivenCheckpoint(uri=absolute_location(uri), variant=variant, label=label)


def given_optimizer(text: str, *, label: str = "") -> Subject:
    """Returns an optimizer without a theta. If the text is the path of a gin file, the subject has the file's content.

    Raises:
      ConfigError: The text or the file has a syntax error.
    """
    subject = Subject.of_optimizer(text, label=label)
    if text.endswith(".gin"):
        variant = Variant(bindings=(_text_with_includes(Path(text), parse_file),), trainer_config="")
        subject = dataclasses.replace(subject, variant=variant)
    _check_syntax(subject.variant.bindings)
    return subject


def optimizer_text(method: Method) -> str:
    """Returns the text of a method without a theta, in the form of `--optimizer`: `adam(); adam.b1 = 0.8`."""
    return "; ".join((method.optimizer.lstrip("@"), *method.bindings))


def given_methods(methods: Sequence[Method]) -> dict[str, RequestedSubject]:
    """Returns the subjects of methods that are optimizers or checkpoints and have no search, by the methods' names.

    Raises:
      ConfigError: The `config.gin` next to a checkpoint has a syntax error.
    """
    return {
        method.name: given_method(method, label=method.title)
        for method in methods
        if method.kind not in ("command", "curves", "script") and method.search is None
    }


def given_method(method: Method, *, label: str, bindings: Sequence[str] = ()) -> RequestedSubject:
    """Returns the subject of a method that is an optimizer or a checkpoint and has no search.

    Args:
      method: The method.
      label: Label of the subject.
      bindings: Bindings added after the method's own.
    Raises:
      ConfigError: The `config.gin` next to a checkpoint has a syntax error.
    """
    if method.kind == "optimizer":
        return given_optimizer("; ".join((optimizer_text(method), *bindings)), label=label)
    return given_checkpoint(method.checkpoint, (*method.bindings, *bindings), label=label)


def gin_layers_at(
    location: str | Path,
    manager: PluginManager,
    *,
    optimizer: str = "",
    gin_files: Iterable[str | Path] = (),
    gin_params: Iterable[str] = (),
    variant: Variant = Variant(),  # noqa: B008  (frozen)
) -> Layers:
    """Returns the gin text that is bound before and after a case's own text, for a run or a checkpoint.

    Args:
      location: Path of a run's folder or of a checkpoint; "" for neither.
      manager: Plugin manager, whose gin modules are imported.
      optimizer: Text of `--optimizer`.
      gin_files: Paths of `--gin-file`.
      gin_params: Texts of `--gin-param`.
      variant: Bindings of the checkpoint.
    """
    config = trainer_config_at(str(location))
    trainer_config = None if config is None else str(config)
    return Layers(
        trainer_config=trainer_config,
        optimizer=optimizer,
        gin_files=tuple(str(Path(path).absolute()) for path in gin_files),
        gin_params=tuple(gin_params),
        gin_modules=tuple(manager.gin_modules()),
        variant=variant,
    )


def has_run_configs(location: str) -> bool:
    """Returns whether a folder below a location has a `config.gin`, so that it may be a separate run."""
    if not location or "://" in location or not retried(Path(location).is_dir):
        return False
    return retried(lambda: next(_configs_below(Path(location).absolute(), _MAX_LEVELS), None)) is not None


def _configs_below(folder: Path, levels: int) -> Iterator[Path]:
    try:
        folders = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir() and _is_run_name(entry.name)]
    except OSError as error:
        if is_transient(error, retries_forbidden=False):
            raise
        return
    for child in folders:
        if (child / CONFIG_NAME).is_file():
            yield child / CONFIG_NAME
        is_checkpoint = (child / "_METADATA").is_file() or (child / "_CHECKPOINT_METADATA").is_file()  # orbax's
        if levels > 1 and not is_checkpoint:
            yield from _configs_below(child, levels - 1)


def _is_run_name(name: str) -> bool:
    return not name.startswith((".", "_", "lobench"))


def run_variant(location: str, uri: str) -> Variant:
    """Returns the bindings of a checkpoint that a source found below a location.

    Each folder between the location and the checkpoint may have a `config.gin`. Inner ones override outer ones.

    Raises:
      ConfigError: A `config.gin` has a syntax error.
    """
    if not location or "://" in location:
        return Variant()
    root = Path(location).absolute()
    folder = Path(uri).absolute().parent
    if folder == root or not folder.is_relative_to(root):
        return Variant()
    folders = [*reversed([parent for parent in (folder, *folder.parents) if parent.is_relative_to(root)])][1:]
    configs = [folder / CONFIG_NAME for folder in folders if retried((folder / CONFIG_NAME).is_file)]
    if not configs:
        return Variant()
    config_path = trainer_config_at(location)
    texts = _inlined_configs(config_path) if config_path is not None else []
    texts += [_text_with_includes(config, parse_trainer_config) for config in configs]
    return Variant(trainer_config="\n".join(texts))


def _inlined_configs(config: Path) -> list[str]:
    """Returns the texts of a `config.gin` and of `config.gin` files in the folders above it, the outermost first."""
    return [_text_with_includes(path, parse_trainer_config) for path in config_chain(config)]


def _check_syntax(bindings: Iterable[str]) -> None:
    for binding in bindings:
        parse_text(binding, repr(binding))


def _text_with_includes(path: Path, parse: Callable[[Path], object]) -> str:
    """Returns the text of a gin file with its includes inlined, because workers receive content, not paths."""
    parse(path)  # checks that each file exists and none includes itself

    def text_of(file: Path) -> str:
        content = gin_file_text(file)
        return INCLUDE_PATTERN.sub(lambda match: text_of((file.parent / match[1]).resolve()), content)

    return text_of(path.resolve())

"""Subject: a checkpoint, an optimizer without theta, or imported curves, with gin bindings of its own."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from lobench.core.checkpoint import Checkpoint

__all__ = [
    "GivenCheckpoint",
    "RequestedSubject",
    "Subject",
    "SubjectKey",
    "SubjectKind",
    "Variant",
    "canonical_optimizer",
    "is_of_any_run",
    "optimizer_bindings",
    "optimizer_sha256",
]

SubjectKind: TypeAlias = Literal["checkpoint", "optimizer", "imported"]

_HASH_DIGITS = 12  # hex digits
_CALL = re.compile(r"(?P<at>@?)(?P<name>(?:\w+/)*[A-Za-z_][\w.]*)\s*(?P<call>\((?P<arguments>.*)\))?")
_IMPORTED_PREFIX = "imported:"  # prefix of the uri of imported methods


class SubjectKey(NamedTuple):
    """Identity of a subject: the hash of its theta or text, and its bindings. Labels and paths are not part of it."""

    sha256: str
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """gin text that subjects bind over the cases of a suite.

    It holds the content of files and no paths, so it means the same on every machine.

    Attributes:
      bindings: gin statements, bound after those of `--gin-param`.
      trainer_config: Content of the `config.gin` next to the checkpoint; "" without such a file. None: that of the
        watched run.

    >>> Variant(bindings=("sgd.learning_rate = 0.1",)).trainer_config is None
    True
    """

    bindings: tuple[str, ...] = ()
    trainer_config: str | None = None

    @property
    def key(self) -> str:
        """Content hash of the variant, 12 hex digits; "" if it has no bindings of its own."""
        return _variant_key(self.bindings, self.trainer_config)


@functools.lru_cache(maxsize=4096)  # asked for each evaluation
def _variant_key(bindings: tuple[str, ...], trainer_config: str | None) -> str:
    if not bindings and trainer_config is None:
        return ""
    hashed_texts = (*bindings, "\0", repr(trainer_config))
    return hashlib.sha256("\n".join(hashed_texts).encode()).hexdigest()[:_HASH_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Object of an evaluation on a case: a checkpoint, an optimizer, or a method with imported curves.

    Created by `of_checkpoint`, `of_optimizer`, `of_own_optimizers` and `of_imported`.

    Attributes:
      kind: "checkpoint", "optimizer" (without theta), or "imported" (not trained by lobench).
      sha256: Hash of the theta (`theta_sha256`), of the canonical gin text of an optimizer (`optimizer_sha256`), or of
        the name of an imported method.
      label: Name shown to people.
      variant: gin bindings with which cases are trained.
      uri: Path or URL of a checkpoint, gin text of an optimizer ("" for the optimizers that cases bind), or
        `imported:NAME`.
      outer_step, generation, run: Position of a checkpoint; 0 and "" for other subjects.
      is_numbered_by_arrival: Whether `outer_step` only counts the contents of a file without a step (`latest.npz`) that
        lies beside checkpoints with outer steps. It does not distinguish subjects.

    >>> Subject.of_checkpoint(Checkpoint(uri="run/theta_3.npz", sha256="1" * 64, outer_step=3)).outer_step
    3
    """

    kind: SubjectKind
    sha256: str
    label: str
    variant: Variant = Variant()
    uri: str
    outer_step: int = 0
    generation: int = 0
    run: str = ""
    is_numbered_by_arrival: bool = field(default=False, compare=False)

    def __hash__(self) -> int:
        """Returns a hash of two fields, because readers of a large store look up each subject many times."""
        return hash((self.sha256, self.uri))

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint, variant: Variant = Variant(), *, label: str = "") -> Subject:
        """Returns the subject of a checkpoint.

        Args:
          checkpoint: Checkpoint that was read.
          variant: gin bindings with which cases are trained.
          label: Name shown to people. "": the end of its path and its bindings.
        """
        return cls(
            kind="checkpoint",
            sha256=checkpoint.sha256,
            label=label or _checkpoint_label(checkpoint.uri, checkpoint.sha256, variant),
            variant=variant,
            uri=checkpoint.uri,
            outer_step=checkpoint.outer_step,
            generation=checkpoint.generation,
            run=checkpoint.run,
        )

    @classmethod
    def of_optimizer(cls, text: str, *, label: str = "") -> Subject:
        """Returns the subject of an optimizer without theta.

        Args:
          text: Optimizer as in `--optimizer`: a call and bindings (`adam(); adam.b1 = 0.8`), or the path of a gin file.
          label: Name shown to people. "": the text.
        """
        text = canonical_optimizer(text)
        return cls(
            kind="optimizer",
            sha256=optimizer_sha256(text),
            label=label or text,
            variant=Variant(bindings=optimizer_bindings(text), trainer_config=""),
            uri=text,
        )

    @classmethod
    def of_own_optimizers(cls) -> Subject:
        """Returns the subject used when no optimizer was given: every case uses its own."""
        return cls(
            kind="optimizer",
            sha256=optimizer_sha256(""),
            label="own optimizer",
            variant=Variant(trainer_config=""),
            uri="",
        )

    @classmethod
    def of_imported(cls, name: str) -> Subject:
        """Returns the subject of a method with imported curves, by its name in the file, such as `adam`."""
        uri = _IMPORTED_PREFIX + name
        return cls(
            kind="imported",
            sha256=hashlib.sha256(uri.encode()).hexdigest(),
            label=f"{name} (imported)",
            variant=Variant(trainer_config=""),
            uri=uri,
        )

    @property
    def key(self) -> SubjectKey:
        return SubjectKey(self.sha256, self.variant.key)

    @property
    def is_optimizer(self) -> bool:
        return self.kind == "optimizer"

    @property
    def is_imported(self) -> bool:
        return self.kind == "imported"

    @property
    def has_theta(self) -> bool:
        return self.kind == "checkpoint"

    @property
    def known_outer_step(self) -> int | None:
        """Outer step as tables and records show it; None if the subject has none."""
        return self.outer_step if self.has_theta and not self.is_numbered_by_arrival else None

    @property
    def has_given_label(self) -> bool:
        """Whether a checkpoint was given a label, as one that is a method of an experiment."""
        return self.has_theta and self.label != _checkpoint_label(self.uri, self.sha256, self.variant)

    @property
    def name(self) -> str:
        """Name of an imported method in its file; the label of other subjects."""
        return self.uri.removeprefix(_IMPORTED_PREFIX) if self.is_imported else self.label

    @property
    def checkpoint(self) -> Checkpoint:
        """Position for sinks. Subjects without theta are at outer step 0, with their text as the uri."""
        return Checkpoint(
            uri=self.uri,
            sha256=self.sha256,
            outer_step=self.outer_step,
            generation=self.generation,
            run=self.run,
        )


def is_of_any_run(subject: Subject) -> bool:
    """Returns True, for every subject: used where subjects are not told apart by their run."""
    return True


def _checkpoint_label(uri: str, sha256: str, variant: Variant) -> str:
    """Returns the label of a checkpoint that was given none: the end of its path and its bindings."""
    return "; ".join((uri.rstrip("/").rsplit("/", 1)[-1] or sha256[:_HASH_DIGITS], *variant.bindings))


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCheckpoint:
    """A checkpoint given by path or URL that was not read yet.

    Attributes:
      uri: Path or URL.
      variant: gin bindings with which cases are trained.
      label: Name shown to people. "": the end of its path and its bindings.
      sha256: Expected hash of the theta. If the file has another theta when it is read, it is not evaluated. "": any.
    """

    uri: str
    variant: Variant = Variant()
    label: str = ""
    sha256: str = ""

    def to_subject(self, checkpoint: Checkpoint) -> Subject:
        """Returns the subject for the checkpoint that was read."""
        return Subject.of_checkpoint(checkpoint, self.variant, label=self.label)


RequestedSubject: TypeAlias = GivenCheckpoint | Subject  # an optimizer without theta needs no reading


_REFERENCES = str.maketrans("%@", "__")  # gin's macros and references, as names that Python can parse


def canonical_optimizer(text: str) -> str:
    """Returns an optimizer's text as a call followed by bindings. A text that has this form is returned unchanged.

    >>> canonical_optimizer("adam(learning_rate=0.01, b1=0.8); adam.eps = 1e-6")
    'adam(); adam.learning_rate = 0.01; adam.b1 = 0.8; adam.eps = 1e-6'
    >>> canonical_optimizer("optax.adam")
    'optax.adam()'
    """
    call_text, separator, bindings_text = text.partition(";")
    match = None if text.endswith(".gin") else _CALL.fullmatch(call_text.strip())
    if match is None or (match["call"] and not match["arguments"].strip()):
        return text
    source = f"f({match['arguments'] or ''})"
    try:
        call = ast.parse(source.translate(_REFERENCES), mode="eval").body
    except (SyntaxError, ValueError):
        return text  # gin's parser reports the error
    if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
        return text
    bindings = [
        f"{match['name']}.{keyword.arg} = {ast.get_source_segment(source, keyword.value)}" for keyword in call.keywords
    ]
    return "; ".join([f"{match['at']}{match['name']}()", *bindings, *([bindings_text.strip()] if separator else [])])


def optimizer_sha256(text: str) -> str:
    """Returns the sha256 (hex) of an optimizer's gin text, with `;` and the end of a line treated alike."""
    text = canonical_optimizer(text)
    return hashlib.sha256("\n".join(part.strip() for part in text.split(";")).encode()).hexdigest()


def optimizer_bindings(text: str, parameter: str = "optimizer") -> tuple[str, ...]:
    """Returns an optimizer's gin text as statements.

    Args:
      text: `@adam()`, `adam()` or `adam`, with further bindings after semicolons; or the path of a gin file.
      parameter: Field of `Case` that the optimizer is bound to.
    """
    if text.endswith(".gin"):
        return (f"include {text!r}",)
    text = canonical_optimizer(text)
    lines = [line.strip() for line in text.replace(";", "\n").splitlines() if line.strip()]
    return tuple(f"Case.{parameter} = @{line.lstrip('@')}" if "=" not in line else line for line in lines)

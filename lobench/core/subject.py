"""Subject: a checkpoint, an optimizer without theta, or imported curves, with gin bindings of its own."""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from lobench.core.checkpoint import Checkpoint

__all__ = [
    "Given",
    "GivenCheckpoint",
    "Kind",
    "Subject",
    "SubjectKey",
    "Variant",
    "canonical_optimizer",
    "optimizer_bindings",
    "optimizer_sha256",
]

Kind: TypeAlias = Literal["checkpoint", "optimizer", "imported"]

_HASHED = 12  # hex digits
_CALL = re.compile(r"(?P<at>@?)(?P<name>(?:\w+/)*[A-Za-z_][\w.]*)\s*(?P<call>\((?P<arguments>.*)\))?")
_IMPORTED = "imported:"  # before the name, in the uri of what was trained elsewhere


class SubjectKey(NamedTuple):
    """What makes two subjects one: the same theta, or text, with the same bindings. Labels and places may differ."""

    sha256: str
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """gin text over a suite's cases, of the subjects that have it; in each variant a suite has cases of its own.

    It holds contents and no paths, so that it means the same on every machine.

    Attributes:
      bindings: gin statements, bound after `--gin-param`: what is a subject's own beats what all of them share.
      trainer_config: Content of the `config.gin` beside the checkpoint, "" where there is none; None: as `Layers` says,
        which is what a watched run has.
    """

    bindings: tuple[str, ...] = ()
    trainer_config: str | None = None

    @property
    def key(self) -> str:
        """A short name of it; "" of a run's own, without bindings."""
        if not self.bindings and self.trainer_config is None:
            return ""
        parts = (*self.bindings, "\0", repr(self.trainer_config))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_HASHED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What an evaluation is of. `Subject.of_checkpoint`, `of_optimizer`, `of_own_optimizers` and `of_imported` make
    them.

    Attributes:
      kind: "optimizer" says that there is no theta; "imported" that lobench trained nothing of it.
      sha256: Of theta's content (`theta_sha256`); of an optimizer, of its canonical gin text (`optimizer_sha256`); of
        what was imported, of its name: which file each of its curves comes from, the curve says.
      label: How people call it.
      variant: The bindings that its cases are trained with.
      uri: Where a checkpoint lies, or lay; the gin text of an optimizer, "" of those that cases insist on;
        `imported:NAME`.
      outer_step, generation, run: Where a checkpoint stands; 0 and "" of others.
    """

    kind: Kind
    sha256: str
    label: str
    variant: Variant = Variant()
    uri: str
    outer_step: int = 0
    generation: int = 0
    run: str = ""

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint, variant: Variant = Variant(), *, label: str = "") -> Subject:
        """Returns a checkpoint.

        Args:
          variant: The bindings that its cases are trained with.
          label: How people call it; "": by the end of its path, and its bindings.
        """
        name = checkpoint.uri.rstrip("/").rsplit("/", 1)[-1] or checkpoint.sha256[:_HASHED]
        return cls(
            kind="checkpoint",
            sha256=checkpoint.sha256,
            label=label or "; ".join((name, *variant.bindings)),
            variant=variant,
            uri=checkpoint.uri,
            outer_step=checkpoint.outer_step,
            generation=checkpoint.generation,
            run=checkpoint.run,
        )

    @classmethod
    def of_optimizer(cls, text: str, *, label: str = "") -> Subject:
        """Returns an optimizer without theta.

        Args:
          text: As `--optimizer` takes it: a call, bindings, or the path of a gin file (`adam(); adam.b1 = 0.8`).
          label: How people call it; "": by its text.
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
        """Returns what a session evaluates to which nobody gave an optimizer: what each case insists on."""
        return cls(
            kind="optimizer",
            sha256=optimizer_sha256(""),
            label="own optimizer",
            variant=Variant(trainer_config=""),
            uri="",
        )

    @classmethod
    def of_imported(cls, name: str) -> Subject:
        """Returns a method whose curves were made elsewhere; `name` is what its file calls it, `adam`."""
        uri = _IMPORTED + name
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
    def name(self) -> str:
        """What the file of an import calls it; of others their label."""
        return self.uri.removeprefix(_IMPORTED) if self.is_imported else self.label

    @property
    def checkpoint(self) -> Checkpoint:
        """Where it stands, as sinks place it; what has no theta stands at outer step 0, its text as the uri."""
        return Checkpoint(
            uri=self.uri,
            sha256=self.sha256,
            outer_step=self.outer_step,
            generation=self.generation,
            run=self.run,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCheckpoint:
    """A checkpoint that somebody names, before it is read.

    Attributes:
      uri: Its path or URL.
      variant: The bindings that its cases are trained with.
      label: How people call it; "": by the end of its path, and its bindings.
      sha256: Digest of the theta that is meant. If another one lies there when it is read, it is not evaluated.
    """

    uri: str
    variant: Variant = Variant()
    label: str = ""
    sha256: str = ""

    def read_as(self, checkpoint: Checkpoint) -> Subject:
        """Returns the subject that it is, once it is read."""
        return Subject.of_checkpoint(checkpoint, self.variant, label=self.label)


Given: TypeAlias = GivenCheckpoint | Subject  # an optimizer without theta needs no reading


def canonical_optimizer(text: str) -> str:
    """Returns an optimizer's text as a call with bindings after it; a text that is one already stays as it is.

    >>> canonical_optimizer("adam(learning_rate=0.01, b1=0.8); adam.eps = 1e-6")
    'adam(); adam.learning_rate = 0.01; adam.b1 = 0.8; adam.eps = 1e-6'
    >>> canonical_optimizer("optax.adam")
    'optax.adam()'
    """
    head, separator, rest = text.partition(";")
    match = None if text.endswith(".gin") else _CALL.fullmatch(head.strip())
    if match is None or (match["call"] and not match["arguments"].strip()):
        return text
    source = f"f({match['arguments'] or ''})"
    try:
        call = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError):
        return text  # gin's parser says what is wrong
    if not isinstance(call, ast.Call) or call.args or any(one.arg is None for one in call.keywords):
        return text
    bindings = [f"{match['name']}.{one.arg} = {ast.get_source_segment(source, one.value)}" for one in call.keywords]
    return "; ".join([f"{match['at']}{match['name']}()", *bindings, *([rest.strip()] if separator else [])])


def optimizer_sha256(text: str) -> str:
    """Returns the sha256 (hex) of an optimizer's gin text, in which `;` and the end of a line are the same."""
    text = canonical_optimizer(text)
    return hashlib.sha256("\n".join(part.strip() for part in text.split(";")).encode()).hexdigest()


def optimizer_bindings(text: str) -> tuple[str, ...]:
    """Returns an optimizer's gin text as statements: `@adam()` and `adam()` stand for a binding of `Case.optimizer`."""
    if text.endswith(".gin"):
        return (f"include {text!r}",)
    text = canonical_optimizer(text)
    lines = [line.strip() for line in text.replace(";", "\n").splitlines() if line.strip()]
    return tuple(f"Case.optimizer = @{line.lstrip('@')}" if "=" not in line else line for line in lines)

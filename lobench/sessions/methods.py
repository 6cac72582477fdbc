"""An experiment's methods as subjects, and what a store holds of them already."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from etils import epath

from lobench.core.case import SeedBlock
from lobench.core.errors import StoreError, UsageError
from lobench.core.experiment import Experiment, Method, SessionBlocks, same_subjects, session_blocks
from lobench.core.subject import Subject
from lobench.engine.checkpoints.readers import load_checkpoint
from lobench.engine.store.ledger import Ledger
from lobench.plugins import PluginManager

__all__ = ["GivenMethod", "blocks_of", "chosen_methods", "given_methods", "trainer_config_beside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenMethod:
    """A method whose subject is there before anything runs: an optimizer, or a checkpoint."""

    method: Method
    subject: Subject


def chosen_methods(experiment: Experiment, names: Sequence[str]) -> tuple[Method, ...]:
    """Returns the methods that are asked for; none: all.

    Raises:
      UsageError: there is no such method.
    """
    known = {method.name: method for method in experiment.methods}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"there is no method {name!r}",
                where="--method",
                expected="one of " + ", ".join(known),
                next_step=f"did you mean {close[0]!r}?" if close else "",
            )
    return tuple(method for method in experiment.methods if not names or method.name in names)


def given_methods(
    methods: Sequence[Method], manager: PluginManager, say: Callable[[str], None], *, allow_pickle: bool
) -> list[GivenMethod]:
    """Returns the methods that are optimizers and checkpoints; says which of them are computed once.

    Raises:
      CheckpointError: a checkpoint cannot be read.
    """
    given = []
    for method in methods:
        if method.kind == "optimizer":
            text = "; ".join((method.optimizer.lstrip("@"), *method.bindings))
            given.append(GivenMethod(method=method, subject=Subject.of_optimizer(text, label=method.title)))
        elif method.kind == "checkpoint":
            checkpoint, _ = load_checkpoint(method.checkpoint, manager, allow_pickle=allow_pickle)
            config = trainer_config_beside(method.checkpoint)
            subject = Subject.of_checkpoint(checkpoint, method.bindings, label=method.title, trainer_config=config)
            given.append(GivenMethod(method=method, subject=subject))
    for first, other in same_subjects({one.method.name: one.subject.key for one in given}):
        say(f"methods {first!r} and {other!r} are the same subject: it is computed once, and counts for both")
    return given


def trainer_config_beside(checkpoint: str) -> str:
    """Returns the text of the `config.gin` beside a checkpoint, "" where there is none."""
    path = epath.Path(checkpoint)
    for folder in (path, path.parent):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return str((folder / "config.gin").read_text())
    return ""


def blocks_of(experiment: Experiment, store: Path) -> SessionBlocks | None:
    """Returns how the sessions are cut into seed blocks, as far as the store has some already; None: as cases say."""
    if experiment.sessions is None:
        return None
    return session_blocks(experiment.sessions, held_blocks(experiment.name, store))


def held_blocks(name: str, store: Path) -> set[SeedBlock]:
    """Returns the seed blocks of an experiment's members, whichever of its forms they are of."""
    if not (store / "ledger.sqlite").is_file():
        return set()
    try:
        with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
            forms = [row.id for row in ledger.experiments() if row.name == name]
            return {member.evaluation.block for form in forms for member in ledger.memberships(form)}
    except StoreError:
        return set()  # who opens it to write says what is wrong with it

"""Methods as subjects: existing and missing evaluations of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from lobench.core.case import SeedBlock
from lobench.core.errors import StoreError, UsageError, suggestion
from lobench.core.experiment import Experiment, Method, SessionBlocks, session_blocks
from lobench.core.subject import Given
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.checkpoints.given import given_checkpoint, given_optimizer
from lobench.engine.store.bundle import has_ledger
from lobench.engine.store.ledger import Ledger

__all__ = [
    "blocks_of",
    "chosen_methods",
    "given_method",
    "given_methods",
    "looked_at",
    "member_blocks",
    "optimizer_text",
]


def chosen_methods(experiment: Experiment, names: Sequence[str]) -> tuple[Method, ...]:
    """Returns the methods that are asked for; none: all.

    Raises:
      UsageError: there is no such method.
    """
    known = {method.name: method for method in experiment.methods}
    for name in names:
        if name not in known:
            raise UsageError(
                f"there is no method {name!r}",
                where="--method",
                expected="one of " + ", ".join(known),
                next_step=suggestion(name, known),
            )
    return tuple(method for method in experiment.methods if not names or method.name in names)


def optimizer_text(method: Method) -> str:
    """Returns a method without theta as `--optimizer` and `lobench compare` take it: `adam(); adam.b1 = 0.8`."""
    return "; ".join((method.optimizer.lstrip("@"), *method.bindings))


def given_methods(methods: Sequence[Method]) -> dict[str, Given]:
    """Returns the subjects of the methods that are optimizers and checkpoints, and search nothing, by their names.

    Raises:
      ConfigError: the `config.gin` beside a checkpoint does not parse.
    """
    return {
        method.name: given_method(method, label=method.title)
        for method in methods
        if method.kind not in ("command", "curves", "script") and method.search is None
    }


def given_method(method: Method, *, label: str, bindings: Sequence[str] = ()) -> Given:
    """Returns the subject of a method that is an optimizer or a checkpoint, and has no search.

    Args:
      bindings: Bound after the method's own.
    Raises:
      ConfigError: the `config.gin` beside a checkpoint does not parse.
    """
    if method.kind == "optimizer":
        return given_optimizer("; ".join((optimizer_text(method), *bindings)), label=label)
    return given_checkpoint(method.checkpoint, (*method.bindings, *bindings), label=label)


def blocks_of(experiment: Experiment, store: Path) -> SessionBlocks | None:
    """Returns how the sessions are cut into seed blocks, as far as the store has some already; None: as cases say.

    Those of a race are the blocks of its rounds, whatever the store has.
    """
    if experiment.sessions is None:
        return None
    if experiment.race is not None:
        return SessionBlocks(
            first_seed=experiment.first_session, widths=(experiment.race.block,) * experiment.race.rounds
        )
    return session_blocks(experiment.sessions, _held_blocks(experiment.name, store))


def _held_blocks(name: str, store: Path) -> set[SeedBlock]:
    """Returns the seed blocks of an experiment's members, whichever of its forms they are of."""
    with looked_at(store, is_written=True) as ledger:
        if ledger is None:
            return set()
        return {block for block in member_blocks(ledger, name) if block.start < FIRST_REPORT_SEED}


def member_blocks(ledger: Ledger, name: str) -> set[SeedBlock]:
    """Returns the seed blocks of all members of an experiment, those of its searches' reports too."""
    forms = [row.id for row in ledger.experiments() if row.name == name]
    return {member.evaluation.block for form in forms for member in ledger.memberships(form)}


@contextlib.contextmanager
def looked_at(store: Path, *, is_written: bool = False) -> Iterator[Ledger | None]:
    """Opens a ledger to look on; None where there is none.

    Args:
      is_written: Whether it will be opened to write too, and what is wrong be said then: it is None here.
    Raises:
      StoreError: it cannot be read.
    """
    try:
        ledger = Ledger.open(store, read_only=True) if has_ledger(store) else None
    except StoreError:
        if not is_written:
            raise
        ledger = None
    try:
        yield ledger
    finally:
        if ledger is not None:
            ledger.close()

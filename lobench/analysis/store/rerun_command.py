"""Rerun command: the command line that recomputes one number of a store."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.subject import Subject, optimizer_bindings

__all__ = ["RERUN_STORE", "results_command", "seed_options", "subject_options", "training_command"]

RERUN_STORE = "again"  # name of the store that the command writes
_PICKLES = (".pkl", ".pickle")


def training_command(case: CaseInfo) -> str:
    """Returns the pytest command for a case, to be run in the folder that the store's paths are relative to.

    Append `subject_options` and `seed_options` to it. It then trains the case again, into the store AGAIN.
    """
    return f"pytest {shlex.quote(case.node_id)} --lobench-store {RERUN_STORE}"


def results_command(case: CaseInfo) -> str:
    """Returns the command that prints the results of `training_command` as JSON, with all digits."""
    name = shlex.quote(f"{case.suite}/{case.name}")
    return f"lobench results --store {RERUN_STORE} --case {name} --format json"


def subject_options(
    subject: Subject, *, gin_files: Sequence[str] = (), gin_params: Sequence[str] = (), allow_pickle: bool = False
) -> str:
    """Returns the options that select a subject; "" if its curves were imported, because lobench cannot train it.

    Args:
      subject: The subject.
      gin_files, gin_params: Bindings of the original command, added to the subject's own.
      allow_pickle: Whether the checkpoint may be a pickle. Always true if its name ends in `.pkl` or `.pickle`.
    """
    if subject.is_imported:
        return ""
    subject_words = [subject.uri] if subject.is_optimizer else [subject.uri or "CHECKPOINT"]
    arguments = (
        []
        if subject_words == [""]
        else ["--lobench-optimizer" if subject.is_optimizer else "--lobench-checkpoint", *subject_words]
    )
    further_bindings = subject.variant.bindings[len(optimizer_bindings(subject.uri)) if subject.is_optimizer else 0 :]
    arguments += [argument for path in gin_files for argument in ("--lobench-gin-file", path)]
    arguments += _gin_param_options([*gin_params, *further_bindings])
    return shlex.join([*arguments, *["--lobench-allow-pickle"] * (allow_pickle or subject.uri.endswith(_PICKLES))])


def seed_options(case: CaseInfo, blocks: Sequence[SeedBlock]) -> str:
    """Returns the options that select the seeds; "" if they are the case's default, or items.

    The width of a block affects the bits of its results, so the blocks keep their sizes. If the blocks are not
    contiguous, only the last one is selected.
    """
    sorted_blocks = sorted(blocks)
    if (
        case.has_items
        or not sorted_blocks
        or (sorted_blocks == case.blocks() and not case.block_sizes and not case.first_seed)
    ):
        return ""
    are_consecutive = all(
        block.start + block.size == next_block.start for block, next_block in itertools.pairwise(sorted_blocks)
    )
    kept_blocks = sorted_blocks if are_consecutive else sorted_blocks[-1:]
    sizes = ", ".join(str(block.size) for block in kept_blocks)
    return shlex.join(
        _gin_param_options([f"Case.first_seed = {kept_blocks[0].start}", f"Case.block_sizes = ({sizes},)"])
    )


def _gin_param_options(bindings: Sequence[str]) -> list[str]:
    return [argument for binding in bindings for argument in ("--lobench-gin-param", binding)]

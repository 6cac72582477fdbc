"""A case that was found, as files: gin, its tuned baseline, what was measured, and a test."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from lobench.engine.whole_file import write_whole
from lobench.tools.falsify.falsify import Falsified

__all__ = ["write_case"]

_TEST = '''"""{theta} loses here to {against}.

It is {gap:.3f} behind on the score, p = {p_value:.2g}. The test fails where a checkpoint is behind by more
than {margin:g}: pytest {file} --lobench-checkpoint PATH, and the checkpoint's bindings with --lobench-gin-param
"""

from pathlib import Path

from lobench import cases
from lobench.tools.falsify.replay import measured_loss


@cases("{name}.gin")
def test_{scope}_is_not_lost(case, evaluate):
    measured = measured_loss(Path(__file__).with_name("{name}.json"))
    gap = measured.gap(evaluate(case))
    assert gap <= measured.margin, f"{{gap:.3f}} behind {{measured.against}} on the score"
'''


def write_case(found: Falsified, folder: Path) -> tuple[Path, ...]:
    """Writes the smallest cell with a test that replays it; returns the files."""
    test = found.found.smallest
    assert test is not None and found.block is not None and found.measured is not None
    name = re.sub(r"\W+", "_", f"{Path(found.theta.split(';')[0]).stem}_{found.cells.scope}")
    files = tuple(folder / each for each in (f"{name}.gin", f"{name}.json", f"test_{name}.py"))
    folder.mkdir(parents=True, exist_ok=True)
    found.cells.copy_modules(folder)
    scope = found.cells.scope
    own = [line for line in found.cells.text(test.cell).splitlines() if not _is_of_seeds(line, scope)]
    seeds = (f"{scope}/Case.first_seed = {found.block.start}", f"{scope}/Case.num_seeds = {found.block.size}")
    comment = f"# {found.theta} loses to {found.against} here."
    write_whole(files[0], "\n".join([comment, *own, *seeds]) + "\n")
    found.measured.save(files[1])
    text = _TEST.format(
        theta=found.theta,
        against=found.against,
        gap=test.gap,
        margin=found.rules.margin,
        p_value=test.p_value,
        file=shlex.quote(str(files[2])),
        name=name,
        scope=re.sub(r"\W+", "_", scope),
    )
    write_whole(files[2], text)
    return files


def _is_of_seeds(line: str, scope: str) -> bool:
    names = ("num_seeds", "first_seed", "seed_block", "block_sizes")
    return line.split(" = ")[0] in [f"{scope}/Case.{name}" for name in names]

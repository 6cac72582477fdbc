"""Files of a found case: gin, its tuned baseline, the measured loss, and a test."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

from lobench.core.errors import StoreError
from lobench.core.wording import convert_errors
from lobench.engine.whole_file import require_folder, write_whole
from lobench.tools.falsify.falsify import FalsifyResult, block_sizes

__all__ = ["require_case_folder", "write_case"]

_TEST_TEMPLATE = '''"""{theta} loses here to {against}.

It is {gap:.3f} behind on the score, p = {p_value:.2g}. The test fails where {kind} is behind by more
than {margin:g}: pytest {file} {options}
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


def require_case_folder(folder: Path) -> None:
    """Checks before the search that a case can be written into a folder.

    Raises:
      StoreError: The folder cannot be written.
    """
    with convert_errors(
        OSError, StoreError, "cannot write the case", where=folder, next_step="choose another --output"
    ):
        require_folder(folder)


def write_case(result: FalsifyResult, folder: Path) -> tuple[Path, ...]:
    """Writes the smallest cell with a test that replays it. Returns the files.

    Files of another search's case are kept: the name of the new case then gets a number.

    Raises:
      StoreError: The files cannot be written.
    """
    stem = re.sub(r"\W+", "_", f"{Path(result.subject_label.split(';')[0]).stem}_{result.cells.scope}")
    next_step = "choose another --output; the same command trains nothing again"
    with convert_errors(OSError, StoreError, "cannot write the case", where=folder, next_step=next_step):
        folder.mkdir(parents=True, exist_ok=True)
        for name in itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2))):
            files = _case_files(result, name, folder)
            present_files = {path: path.read_text(encoding="utf-8") for path in files if path.is_file()}
            if present_files.items() <= files.items():
                break
        result.cells.copy_modules(folder)
        for path, text in files.items():
            write_whole(path, text)
    return tuple(files)


def _case_files(result: FalsifyResult, name: str, folder: Path) -> dict[Path, str]:
    """Returns the texts of a case's files by path."""
    test = result.search.smallest
    assert test is not None and result.block is not None and result.measured_loss is not None
    scope = result.cells.scope
    case_lines = [line for line in result.cells.cell_text(test.cell).splitlines() if not _binds_seeds(line, scope)]
    seeds = (
        f"{scope}/Case.first_seed = {result.block.start}",
        f"{scope}/Case.block_sizes = {block_sizes(result.block)}",
    )
    comment = f"# {result.subject_label} loses to {result.against} here."
    replay = folder / f"test_{name}.py"
    options = "--lobench-checkpoint PATH, and the checkpoint's bindings with --lobench-gin-param"
    if result.optimizer:
        options = f"--lobench-optimizer {shlex.quote(result.optimizer)}"
    text = _TEST_TEMPLATE.format(
        theta=result.subject_label,
        against=result.against,
        gap=test.gap,
        margin=result.rules.margin,
        p_value=test.p_value,
        file=shlex.quote(str(replay)),
        kind="an optimizer" if result.optimizer else "a checkpoint",
        options=options,
        name=name,
        scope=re.sub(r"\W+", "_", scope),
    )
    return {
        folder / f"{name}.gin": "\n".join([comment, *case_lines, *seeds]) + "\n",
        folder / f"{name}.json": result.measured_loss.to_json(),
        replay: text,
    }


def _binds_seeds(line: str, scope: str) -> bool:
    names = ("num_seeds", "first_seed", "seed_block", "block_sizes")
    return line.split(" = ")[0] in [f"{scope}/Case.{name}" for name in names]

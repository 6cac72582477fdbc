"""A suite whose evaluations wait for a file, so that tests act in the middle of them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["GatedSuite"]

_EVALUATOR = """
import json, os, pathlib, sys, time
folder, case, step, seed, out = sys.argv[1:]
pathlib.Path(folder, f"waits-{os.getpid()}").touch()
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.05)
pathlib.Path(out, "m.json").write_text(json.dumps({"valid/loss": int(step) + len(case) + int(seed) / 8}))
"""


class GatedSuite:
    """Suite whose cases are commands, which start in a moment.

    Args:
      folder: Folder of the suite and of the files that its evaluations write and wait for.
      cases: Names of the cases.
      num_seeds: Number of evaluations per case and checkpoint, one seed each.
    """

    def __init__(self, folder: Path, *cases: str, num_seeds: int = 1) -> None:
        self.folder = folder
        self.path = folder / "gated"
        self.path.mkdir(parents=True)
        (self.path / "evaluate.py").write_text(_EVALUATOR)
        gin = f'Case.num_seeds = {num_seeds}\nCase.seed_block = 1\nCase.primary_metric = "valid/loss"\n'
        gin += 'Case.curves = "{out}/m.json"\n'
        for case in cases:
            words = f"python evaluate.py {folder} {case} {{step}} {{seed}} {{out}}"
            gin += f'{case}/Case.command = "{words}"\n'
        (self.path / "gated.gin").write_text(gin)
        self.release()

    def hold(self) -> None:
        """Makes evaluations that begin from now on wait."""
        for path in (self.folder / "go", *self.folder.glob("waits-*")):
            path.unlink(missing_ok=True)

    def release(self) -> None:
        (self.folder / "go").touch()

    def num_begun(self) -> int:
        """Returns the number of evaluations that have begun since `hold`."""
        return len(list(self.folder.glob("waits-*")))

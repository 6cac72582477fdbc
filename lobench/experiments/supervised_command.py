"""Program that stops a command if it falls behind: `supervised_command PACE CURVES WORD...`.

CURVES is a pattern of paths. A command that has diverged, or is far behind the incumbent of a decision, is stopped. The
last line of standard error is then the reason.
"""

from __future__ import annotations

import glob
import subprocess
import sys
import time
from pathlib import Path

from lobench.core.errors import LobenchError
from lobench.engine.workers.process_tree import kill_tree
from lobench.tools.keep.pace import STOP_PREFIX, Pace, PaceCurve

_POLL_SECONDS = 0.25
_MIN_PAUSE_FACTOR = 19  # reading the curves takes at most a twentieth of the time


def main(arguments: list[str]) -> int | str:
    """Returns the exit code of the command, or a line for standard error if it was stopped or killed."""
    path, curves, *words = arguments
    pace = Pace.read(Path(path))
    try:
        process = subprocess.Popen(words)
    except OSError as error:
        return f"cannot run {words[0]}: {error.strerror}"
    try:
        reason = _wait_for_reason_to_stop(process, pace, curves)
    finally:
        if process.returncode is None:
            kill_tree(process.pid)
            process.wait()
    if reason:
        return f"{STOP_PREFIX}{reason}"
    return process.returncode if process.returncode >= 0 else f"killed by signal {-process.returncode}"


def _wait_for_reason_to_stop(process: subprocess.Popen[bytes], pace: Pace, curves_path: str) -> str:
    """Waits for a command, and returns the reason to stop it; "" if it has ended."""
    pause, reader_state = _POLL_SECONDS, None
    while True:
        try:
            process.wait(pause)
            return ""
        except subprocess.TimeoutExpired:
            pass
        started_at = time.monotonic()
        reader_state, run = _state_and_curve(curves_path, pace.metric, reader_state)
        if run is not None and (reason := pace.reason_to_stop(run)):
            return reason
        pause = max(_POLL_SECONDS, _MIN_PAUSE_FACTOR * (time.monotonic() - started_at))


def _state_and_curve(curves: str, metric: str, old_state: object) -> tuple[object, PaceCurve | None]:
    """Returns the state of the files, and the curve so far; None if it cannot be read yet, or is unchanged."""
    # Until there is a file, the modules that read curves, a third of a second, are not imported.
    if old_state is None and not glob.glob(curves, recursive=True):
        return None, None
    from lobench.api.settings import ImportSettings
    from lobench.core.metric import stored_spelling
    from lobench.tools.curve_import.growing import SessionFiles

    files = SessionFiles(curves)
    try:
        state = files.state
        if state == old_state:
            return state, None
        settings = ImportSettings(method="command", seed="0", last_counts=True)
        with files.read(settings) as session_curves:
            curves_by_name = {
                name: curve
                for _, curves_of_case in session_curves.points_by_run.curves()
                for name, curve in curves_of_case.items()
            }
        curve = curves_by_name.get(stored_spelling(metric, curves_by_name))
    except (LobenchError, OSError):
        return None, None
    return state, None if curve is None else (curve.steps.tolist(), curve.values.tolist())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

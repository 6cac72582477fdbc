"""What W&B is told: project, mode, and to do no more than to write what it is given."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from lobench.extend import PluginError, environment_with, headline

__all__ = ["WHERE", "checked_mode", "checked_project", "process_as_it_is", "run_settings"]

WHERE = "sink 'wandb'"
_OFFLINE = {"", "offline", "dryrun"}  # dryrun is W&B's former word
_FORBIDDEN = "/\\#?%:"  # what W&B takes in no name of a project
_VARIABLES = {
    "WANDB_ERROR_REPORTING": "false"
}  # when W&B is imported and when its service starts: a watch phones nobody
_FLUSH_SECONDS = 0.01  # W&B's own 15 s would be what a kill loses


def checked_mode(environment: Mapping[str, str]) -> str:
    """Returns W&B's mode: offline, unless WANDB_MODE says online.

    Raises:
      PluginError: no such mode; nobody is logged in; wandb is not installed.
    """
    try:
        with environment_with(_VARIABLES, as_defaults=True):
            from wandb.sdk.lib import wbauth
    except ImportError as error:
        raise PluginError(
            "wandb is not installed", where=WHERE, got=headline(error), next_step="pip install wandb"
        ) from error
    mode = environment.get("WANDB_MODE", "").strip().lower()
    if mode in _OFFLINE:
        return "offline"
    if mode != "online":
        raise PluginError(
            "WANDB_MODE",
            where=WHERE,
            got=repr(mode),
            expected="offline or online; a watch without the sink writes nothing",
        )
    host = environment.get("WANDB_BASE_URL", "https://api.wandb.ai")
    if not environment.get("WANDB_API_KEY") and wbauth.read_netrc_auth(host=host) is None:
        raise PluginError(
            "WANDB_MODE=online, and nobody is logged in",
            where=WHERE,
            got=f"no API key for {host}",
            next_step="`wandb login`; or WANDB_MODE=offline now, and `wandb sync` later",
        )
    return mode


def checked_project(argument: str) -> tuple[str, str]:
    """Returns the entity, "" for one's own, and the project.

    Raises:
      PluginError: W&B takes no such name.
    """
    entity, _, project = argument.rpartition("/")
    bad = sorted({char for char in project + entity if char in _FORBIDDEN or not char.isprintable()})
    if bad or not 0 < len(project.strip()) <= 128:
        raise PluginError(
            "no name of a W&B project",
            where=WHERE,
            got=repr(argument[:150]),
            expected=f"[ENTITY/]PROJECT, 128 characters at most, none of {' '.join(_FORBIDDEN)}",
        )
    return entity, project


@contextlib.contextmanager
def process_as_it_is() -> Iterator[None]:
    """Has W&B begin a run and leave the process as it was: its hooks of the end are for runs of the user's.

    Where it would take the service of who started us, it starts one of its own. That one outlives us, and keeps the
    files open that we began: who goes on with them would wait for its end.
    """
    hooks = sys.excepthook, sys.exit
    given = os.environ.get("WANDB_SERVICE", "")  # VERSION-PID-...
    with environment_with({**_VARIABLES, "WANDB_SERVICE": given}, as_defaults=True):
        if given.split("-")[1:2] != [str(os.getpid())]:
            del os.environ["WANDB_SERVICE"]
        try:
            yield
        finally:
            sys.excepthook, sys.exit = hooks


def run_settings(*, suffix: str) -> Any:
    """Returns settings with which W&B writes the history and neither watches this process nor prints.

    Args:
      suffix: Of the run's folder: two that begin in one second would have one name.
    """
    import wandb

    return wandb.Settings(
        silent=True,
        console="off",
        save_code=False,
        disable_code=True,
        disable_git=True,
        reinit="create_new",  # beside a run that the process may have itself
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        x_sync_dir_suffix=suffix,
        x_transaction_log_flush_interval=_FLUSH_SECONDS,
    )

"""Settings of W&B: project, mode, and no activity except writing the history."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from lobench.extend import PluginError, environment_with, headline

__all__ = ["WHERE", "checked_id", "checked_mode", "checked_project", "preserved_process_hooks", "run_settings"]

WHERE = "sink 'wandb'"
_OFFLINE_MODES = {"", "offline", "dryrun"}  # dryrun is a former name of offline
_FORBIDDEN = "/\\#?%:"  # characters that W&B does not allow in names of projects and ids of runs
# Set when W&B is imported and its service starts, so that W&B reports nothing to its authors.
_ENVIRONMENT = {"WANDB_ERROR_REPORTING": "false"}
_FLUSH_SECONDS = 0.01  # a kill loses this much; W&B's default is 15 s


def checked_mode(environment: Mapping[str, str]) -> str:
    """Returns W&B's mode: "offline", unless WANDB_MODE is "online".

    Raises:
      PluginError: The mode is unknown, no user is logged in, or wandb is not installed.
    """
    try:
        with environment_with(_ENVIRONMENT, as_defaults=True):
            from wandb.sdk.lib import wbauth
    except ImportError as error:
        raise PluginError(
            "wandb is not installed", where=WHERE, got=headline(error), next_step="pip install wandb"
        ) from error
    mode = environment.get("WANDB_MODE", "").strip().lower()
    if mode in _OFFLINE_MODES:
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
            "WANDB_MODE=online without a login",
            where=WHERE,
            got=f"no API key for {host}",
            next_step="`wandb login`; or WANDB_MODE=offline now, and `wandb sync` later",
        )
    return mode


def checked_project(argument: str) -> tuple[str, str]:
    """Returns the entity ("" for the user's own) and the project.

    Raises:
      PluginError: W&B does not accept the name.
    """
    entity, _, project = argument.rpartition("/")
    if not _is_valid_name(project + entity) or not 0 < len(project.strip()) <= 128:
        raise PluginError(
            "no name of a W&B project",
            where=WHERE,
            got=repr(argument[:150]),
            expected=f"[ENTITY/]PROJECT, 128 characters at most, none of {' '.join(_FORBIDDEN)}",
        )
    return entity, project


def checked_id(id: str) -> str:
    """Checks that W&B accepts the id of a run, and returns it.

    Raises:
      PluginError: W&B does not accept it.
    """
    if not _is_valid_name(id) or not 0 < len(id.strip()) <= 64:
        expected = f"the run's `id`, 64 characters at most, none of {' '.join(_FORBIDDEN)}"
        raise PluginError("no id of a W&B run", where=WHERE, got=repr(id[:150]), expected=expected)
    return id


def _is_valid_name(text: str) -> bool:
    return all(char not in _FORBIDDEN and char.isprintable() for char in text)


@contextlib.contextmanager
def preserved_process_hooks() -> Iterator[None]:
    """Restores the exit hooks that W&B installs when a run begins, because they are meant for the user's own runs.

    Within the context W&B does not use the service of our parent process, but starts its own. The parent's service
    would outlive us and keep our files open, so that a process that continues them would wait for its end.
    """
    hooks = sys.excepthook, sys.exit
    service = os.environ.get("WANDB_SERVICE", "")  # VERSION-PID-...
    with environment_with({**_ENVIRONMENT, "WANDB_SERVICE": service}, as_defaults=True):
        if service.split("-")[1:2] != [str(os.getpid())]:
            del os.environ["WANDB_SERVICE"]
        try:
            yield
        finally:
            sys.excepthook, sys.exit = hooks


def run_settings(*, suffix: str, owns_run: bool) -> Any:
    """Returns settings for writing the history, without watching the process or printing.

    Args:
      suffix: Suffix of the run's folder. Two runs that begin in the same second need different ones.
      owns_run: Whether no other process writes the run, so that its state and files are the sink's.
    """
    import wandb

    return wandb.Settings(
        silent=True,
        console="off",
        save_code=False,
        disable_code=True,
        disable_git=True,
        reinit="create_new",  # in addition to a run that the process may have
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        x_sync_dir_suffix=suffix,
        x_primary=owns_run,
        x_update_finish_state=owns_run,
        x_transaction_log_flush_interval=_FLUSH_SECONDS,
    )

"""Places of checkpoints: paths, URLs that etils opens, and files that are downloaded first."""

from __future__ import annotations

import functools
import importlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lobench.core.errors import CheckpointError
from lobench.core.wording import headline, shortened_list
from lobench.engine.environment import environment_with

if TYPE_CHECKING:
    from etils import epath

__all__ = ["absolute_location", "checkpoint_path", "is_below"]

_HUB_SCHEME = "hf://"
_HUB_URI = re.compile(r"hf://(?P<repository>[^/@]+/[^/@]+)(@(?P<revision>[^/@]+))?/(?P<file>[^@]+)")
_WANDB_SCHEME = "wandb-artifact://"
_WANDB_URI = re.compile(r"wandb-artifact://(?P<artifact>([^/:]+/){2}[^/:]+):(?P<version>[^/:]+)(/(?P<file>[^:]+))?")
_QUIET_ENV = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}


def absolute_location(location: str) -> str:
    """Returns a location that is independent of the working directory: an absolute path, or the URL."""
    return location if "://" in location else os.path.abspath(location)


def is_below(uri: str, folder: str) -> bool:
    """Returns whether a path or URL is a folder or lies below it. Symbolic links are followed.

    >>> is_below("/runs/a/theta_1.npz", "/runs/a"), is_below("/runs/b/theta_1.npz", "/runs/a")
    (True, False)
    """
    if "://" in uri or "://" in folder:
        return f"{uri}/".startswith(f"{folder.rstrip('/')}/")
    path = Path(uri)
    folder_path = Path(folder)
    return path.is_relative_to(folder_path.absolute()) or path.resolve().is_relative_to(folder_path.resolve())


def checkpoint_path(location: str) -> epath.Path:
    """Returns the path at which a checkpoint can be read.

    A file on the Hugging Face hub, `hf://OWNER/NAME@REVISION/FILE`, is downloaded to huggingface_hub's cache or found
    there. A file of a W&B artifact, `wandb-artifact://ENTITY/PROJECT/NAME:VERSION/FILE`, is downloaded by wandb. A
    process resolves each name once, so its meaning does not change while the process runs.

    Args:
      location: Path or URL. The default revision is `main`; a slash in a revision is written `%2F`. An artifact with a
        single file needs no file name.
    Raises:
      CheckpointError: The name is incomplete, the library is not installed, or the file cannot be downloaded.
    """
    if location.startswith(_WANDB_SCHEME):
        return _download_from_wandb(location)
    if location.startswith(_HUB_SCHEME):
        return _download_from_hub(location)
    try:
        return _epath(location)
    except KeyError as error:  # etils knows no such scheme
        scheme = location.partition("://")[0]
        raise CheckpointError(
            f"nothing reads {scheme}:// here", where=location, next_step="--source NAME, of the plugin that has it"
        ) from error


def _epath(path: str | Path) -> epath.Path:
    from etils import epath  # imports unittest and asyncio, and a worker that trains opens no path

    return epath.Path(path)


@functools.cache
def _download_from_hub(uri: str) -> epath.Path:
    match = _HUB_URI.fullmatch(uri)
    if match is None or ".." in match["file"].split("/"):
        raise CheckpointError("no file of the hub", got=uri, expected="hf://OWNER/NAME@REVISION/FILE")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        next_step = "pip install 'lobench[hub]'"
        raise CheckpointError(
            "huggingface_hub is not installed", where=uri, got=str(error), next_step=next_step
        ) from error
    revision = unquote(match["revision"] or "main")
    try:
        return _epath(hf_hub_download(match["repository"], match["file"], revision=revision))
    except Exception as error:
        raise CheckpointError("not to be had from the hub", where=uri, got=headline(error)) from error


@functools.cache
def _download_from_wandb(uri: str) -> epath.Path:
    match = _WANDB_URI.fullmatch(uri)
    if match is None or ".." in uri.split("/"):
        expected = "wandb-artifact://ENTITY/PROJECT/NAME:VERSION/FILE"
        raise CheckpointError("no file of an artifact of W&B", got=uri, expected=expected)
    with environment_with(_QUIET_ENV, as_defaults=True):
        try:
            wandb = importlib.import_module("wandb")
        except ImportError as error:
            next_step = "pip install wandb"
            raise CheckpointError("wandb is not installed", where=uri, got=str(error), next_step=next_step) from error
        folder_name = "files" if match["file"] else "only_files"
        cache_folder = Path(
            wandb.env.get_cache_dir(), "lobench", folder_name, *match["artifact"].split("/"), match["version"]
        )
        is_offline = os.environ.get("WANDB_MODE", "") in ("offline", "dryrun")
        if is_offline or re.fullmatch(r"v\d+", match["version"]):  # such a version never changes
            cached_files = [cache_folder / match["file"]] if match["file"] else list(cache_folder.rglob("*"))
            cached_files = [path for path in cached_files if path.is_file()]
            if cached_files:
                return _epath(cached_files[0])
        if is_offline:
            next_step = "ask for it once without WANDB_MODE=offline"
            raise CheckpointError("not in wandb's cache", where=uri, got="WANDB_MODE=offline", next_step=next_step)
        try:
            artifact = wandb.Api().artifact(f"{match['artifact']}:{match['version']}")
            names = sorted(artifact.manifest.entries)
            file = match["file"] or (names[0] if len(names) == 1 else "")
            if file not in names:
                raise CheckpointError(
                    "no such file in the artifact" if match["file"] else "the artifact has several files",
                    where=uri,
                    got=match["file"] or shortened_list(names, 4),
                    expected=f"one of {shortened_list(names, 8)}",
                )
            return _epath(artifact.get_entry(file).download(str(cache_folder)))
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError("not to be had from W&B", where=uri, got=headline(error)) from error

"""Places of checkpoints: paths, URLs of stores that etils opens, and files that are fetched first."""

from __future__ import annotations

import functools
import re
from urllib.parse import unquote

from etils import epath

from lobench.core.errors import CheckpointError
from lobench.core.wording import headline

__all__ = ["path_of"]

_HUB = "hf://"
_IN_HUB = re.compile(r"hf://(?P<repository>[^/@]+/[^/@]+)(@(?P<revision>[^/@]+))?/(?P<file>[^@]+)")


def path_of(place: str) -> epath.Path:
    """Returns where a checkpoint can be read.

    A file of the Hugging Face hub, `hf://OWNER/NAME@REVISION/FILE`, is fetched into huggingface_hub's cache, or found
    there. A process asks for one once: what the name means does not change while it runs.

    Args:
      place: A path, or a URL. Without a revision it is `main`; a slash in one is written `%2F`.
    Raises:
      CheckpointError: such a name lacks a part, huggingface_hub is not installed, or the file cannot be had.
    """
    return _from_hub(place) if place.startswith(_HUB) else epath.Path(place)


@functools.cache
def _from_hub(place: str) -> epath.Path:
    found = _IN_HUB.fullmatch(place)
    if found is None or ".." in found["file"].split("/"):
        raise CheckpointError("no file of the hub", got=place, expected="hf://OWNER/NAME@REVISION/FILE")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        how = "pip install 'lobench[hub]'"
        raise CheckpointError("huggingface_hub is not installed", where=place, got=str(error), next_step=how) from error
    revision = unquote(found["revision"] or "main")
    try:
        return epath.Path(hf_hub_download(found["repository"], found["file"], revision=revision))
    except Exception as error:
        raise CheckpointError("not to be had from the hub", where=place, got=headline(error)) from error

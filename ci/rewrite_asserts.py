"""Writes pytest's cache of modules with rewritten assertions, on all cores.

Usage: python ci/rewrite_asserts.py FOLDER...

pytest writes it as well, but each worker of xdist rewrites every module anew, because all of them start at once; and
if PYTHONDONTWRITEBYTECODE is set, each session of pytest does.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from pathlib import Path

from _pytest.assertion import AssertionState, rewrite
from _pytest.config import Config, get_config


def main(folders: list[str]) -> None:
    files = [path.resolve() for folder in folders for path in Path(folder).rglob("*.py")]
    with multiprocessing.Pool() as pool:
        pool.map(_write, files, chunksize=16)


@functools.cache
def _config() -> Config:
    return get_config()


def _write(path: Path) -> None:
    cache = rewrite.get_cache_dir(path)
    compiled = cache / (path.name.removesuffix(".py") + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, compiled) is None:
        source_hash, code = rewrite._rewrite_test(path, _config())
        cache.mkdir(exist_ok=True)
        rewrite._write_pyc(AssertionState(_config(), "rewrite"), code, source_hash, compiled)


if __name__ == "__main__":
    main(sys.argv[1:])

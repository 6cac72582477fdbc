"""Checkpoints in the Hugging Face hub: a server that answers as it does, and the library that people have."""

from __future__ import annotations

import http.server
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from commands import Done, lobench
from reference import ROOT
from tiny import make_suite

from lobench import CheckpointError
from lobench.engine.checkpoints.places import path_of

CELO2 = ROOT / "tests/data/reference/pylo/celo2_theta0.npz"
COMMIT = "5" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """One repository, me/celo2, with the weights in the branch `from/pylo`."""

    def do_HEAD(self) -> None:
        content = CELO2.read_bytes()
        known = self.path in (f"/me/celo2/resolve/{name}/theta/celo2.npz" for name in ("from%2Fpylo", COMMIT))
        self.send_response(200 if known else 404)
        if known:
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{"7" * 40}"')
        else:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", str(len(content) if known else 0))
        self.end_headers()
        if known and self.command == "GET":
            self.wfile.write(content)

    do_GET = do_HEAD

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


MAIN = [sys.executable, "-c", "import sys; from lobench.cli import main; sys.argv[0] = 'lobench'; main()"]
needs_hub = pytest.mark.skipif(importlib.util.find_spec("huggingface_hub") is None, reason="pip install 'lobench[hub]'")
PLACE = "hf://me/celo2@from%2Fpylo/theta/celo2.npz"


def run(*arguments: str, cwd: Path, **environment: str) -> Done:
    """Runs `lobench` in a process of its own: the library reads where the hub and its cache are when it is imported."""
    names = {"HF_HOME": str(cwd / "hub"), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1", **environment}
    done = subprocess.run(
        [*MAIN, *arguments], capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **names}
    )
    return Done(done.returncode, done.stdout, done.stderr)


@needs_hub
def test_weights_of_the_hub_are_read_and_then_without_a_network(hub: str, tmp_path: Path) -> None:
    asked = [run("convert", PLACE, "--output", "celo2.npz", cwd=tmp_path, HF_ENDPOINT=hub)]
    asked += [run("convert", PLACE, "--output", "again.npz", cwd=tmp_path, HF_ENDPOINT=hub, HF_HUB_OFFLINE="1")]
    assert [done.returncode for done in asked] == [0, 0], asked
    expected = np.load(CELO2)
    for name in ("celo2.npz", "again.npz"):
        found = np.load(tmp_path / name)
        assert {leaf: found[leaf].tobytes() for leaf in found} == {leaf: expected[leaf].tobytes() for leaf in expected}


@needs_hub
def test_a_comparison_names_a_checkpoint_by_its_place_in_the_hub(hub: str, tmp_path: Path) -> None:
    make_suite(tmp_path)
    who = f"{PLACE}; Case.learned_optimizer = @Celo2()"
    done = run("compare", "adam()", who, "--suite", "tiny", "--format", "json", cwd=tmp_path, HF_ENDPOINT=hub)
    assert done.returncode == 0, done.stderr
    assert PLACE in done.stdout


@needs_hub
@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("hf://me/celo2@from%2Fpylo/theta/none.npz", "EntryNotFoundError"),
        ("hf://me/celo2@none/theta/celo2.npz", "NotFoundError"),
    ],
)
def test_what_the_hub_lacks_is_one_line(place: str, expected: str, hub: str, tmp_path: Path) -> None:
    done = run("convert", place, "--output", "x.npz", cwd=tmp_path, HF_ENDPOINT=hub)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"lobench: {place}: not to be had from the hub; got ") and expected in line
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.parametrize("place", ["hf://", "hf://me/celo2", "hf://me/celo2@main", "hf://me/celo2@main/../x.npz"])
def test_half_a_name_is_none(place: str) -> None:
    with pytest.raises(CheckpointError, match=r"no file of the hub; got .*; expected hf://OWNER/NAME@REVISION/FILE"):
        path_of(place)


def test_without_the_library_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as where it is not installed
    done = lobench("convert", "hf://me/celo2/theta/other.npz", "--output", "x.npz", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "huggingface_hub is not installed" in line
    assert line.endswith("pip install 'lobench[hub]'")

"""Checkpoints in the Hugging Face hub and in W&B: servers that answer as they do, and the libraries people have."""

from __future__ import annotations

import base64
import hashlib
import http.server
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from commands import Done, lobench
from reference import ROOT
from shown import texts_of
from tiny import ONE_CASE, make_suite

from lobench import CheckpointError
from lobench.engine.checkpoints.places import checkpoint_path

SHOWN = texts_of("checkpoints")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")

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


class Weights(http.server.BaseHTTPRequestHandler):
    """W&B with one artifact, me/learned/celo2:v0, of some files."""

    files = ("theta/celo2.npz",)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = re.search(r"query\s+(\w+)", asked["query"])
        viewer = {"id": "1", "entity": "me", "username": "me", "email": "", "flags": "{}", "teams": {"edges": []}}
        found: dict[str, object] = {"viewer": viewer}
        if operation is not None and operation[1] == "ArtifactMembershipByName":
            is_known = [asked["variables"][key] for key in ("entity", "project", "name")] == [
                "me",
                "learned",
                "celo2:v0",
            ]
            found = {"project": {"artifactCollectionMembership": self.membership() if is_known else None}}
        elif operation is not None and operation[1] == "FetchArtifactManifest":
            url = f"http://{self.headers['Host']}/manifest.json"
            found = {"artifact": {"currentManifest": {"file": {"directUrl": url}}}}
        self.answer(json.dumps({"data": found}).encode())

    def do_GET(self) -> None:
        content = CELO2.read_bytes()
        if self.path == "/manifest.json":
            digest = base64.b64encode(hashlib.md5(content).digest()).decode()
            entries = {name: {"digest": digest, "size": len(content)} for name in type(self).files}
            policy = {"storagePolicy": "wandb-storage-policy-v1", "storagePolicyConfig": {"storageLayout": "V2"}}
            content = json.dumps({"version": 1, **policy, "contents": entries}).encode()
        self.answer(content)

    def membership(self) -> dict[str, object]:
        project = {"id": "p", "name": "learned", "internalId": "p", "entity": {"id": "e", "name": "me"}}
        named = {"__typename": "ArtifactSequence", "id": "c", "name": "celo2", "project": project}
        day = "2026-01-01T00:00:00Z"
        artifact = {
            "__typename": "Artifact",
            "id": "a",
            "artifactSequence": named,
            "versionIndex": 0,
            "artifactType": {"id": "t", "name": "model"},
            "metadata": "{}",
            "state": "COMMITTED",
            "digest": "d",
            "commitHash": "h",
            "createdAt": day,
            **dict.fromkeys(("size", "fileCount", "ttlDurationSeconds"), 1),
            **dict.fromkeys(("description", "updatedAt", "historyStep")),
            "ttlIsInherited": True,
            "aliases": [],
            "tags": [],
        }
        held = {"artifactCollection": named, "artifact": artifact}
        return {"id": "m", "createdAt": day, "versionIndex": 0, "aliases": [], **held}

    def answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class TwoWeights(Weights):
    files = ("theta/celo2.npz", "notes.npz")


@pytest.fixture(params=[Hub])
def hub(request: pytest.FixtureRequest) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), request.param) as server:
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
    make_suite(tmp_path, ONE_CASE)
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
    assert line.startswith(SHOWN["lobench-not-to-be-had"].format(place=place)) and expected in line
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.parametrize("place", ["hf://", "hf://me/celo2", "hf://me/celo2@main", "hf://me/celo2@main/../x.npz"])
def test_half_a_name_is_none(place: str) -> None:
    with pytest.raises(CheckpointError, match=SHOWN["no-file-of-the-hub"]):
        checkpoint_path(place)


def test_without_the_library_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as where it is not installed
    done = lobench("convert", "hf://me/celo2/theta/other.npz", "--output", "x.npz", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert SHOWN["huggingface-hub-is-not-installed"] in line
    assert line.endswith(SHOWN["pip-install-lobench-hub"])


needs_wandb = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="pip install wandb")
of_wandb = pytest.mark.parametrize("hub", [Weights], indirect=True)
ARTIFACT = "wandb-artifact://me/learned/celo2:v0"


def logged_in(folder: Path, **environment: str) -> dict[str, str]:
    """Returns the variables of somebody who has an account, and whatever wandb keeps in a folder."""
    folders = {name: str(folder / "wandb") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    return {"WANDB_API_KEY": "a" * 40, "HOME": str(folder), **folders, **environment}


@needs_wandb
@of_wandb
def test_an_artifact_is_read_and_then_without_a_network(hub: str, tmp_path: Path) -> None:
    urls, places = (hub, "http://127.0.0.1:9"), {"celo2.npz": f"{ARTIFACT}/theta/celo2.npz", "only.npz": ARTIFACT}
    for url in urls:
        for output, place in places.items():
            known = logged_in(tmp_path, WANDB_BASE_URL=url)
            done = run("convert", place, "--output", output, cwd=tmp_path, **known)
            assert done.returncode == 0, done
    expected = np.load(CELO2)
    for name in places:
        found = np.load(tmp_path / name)
        assert {leaf: found[leaf].tobytes() for leaf in found} == {leaf: expected[leaf].tobytes() for leaf in expected}


@needs_wandb
@pytest.mark.parametrize(
    ("hub", "place", "environment", "expected"),
    [
        (Weights, "wandb-artifact://me/learned/none:v0", {}, SHOWN["not-to-be-had-from"]),
        (Weights, f"{ARTIFACT}/none.npz", {}, SHOWN["no-such-file-in-the"]),
        (TwoWeights, ARTIFACT, {}, SHOWN["artifact-has-several-files-got"]),
        (Weights, ARTIFACT, {"WANDB_MODE": "offline"}, SHOWN["not-in-wandb-s-cache"]),
        (Weights, ARTIFACT, {"WANDB_API_KEY": ""}, SHOWN["not-to-be-had-from-w"]),
    ],
    ids=["no artifact", "no file", "which file", "offline", "nobody is logged in"],
    indirect=["hub"],
)
def test_what_w_and_b_lacks_is_one_line(
    hub: str, place: str, environment: dict[str, str], expected: str, tmp_path: Path
) -> None:
    known = logged_in(tmp_path, WANDB_BASE_URL=hub, **environment)
    done = run("convert", place, "--output", "x.npz", cwd=tmp_path, **known)
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"lobench: {place}: ") and expected in line
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.parametrize("name", ["", "me/learned", "me/learned/celo2", "celo2:v0", "me/learned/celo2:v0/../x.npz"])
def test_half_a_name_is_no_artifact(name: str) -> None:
    with pytest.raises(CheckpointError, match=SHOWN["no-file-of-an-artifact"]):
        checkpoint_path(f"wandb-artifact://{name}")


def test_without_wandb_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as where it is not installed
    done = lobench("convert", "wandb-artifact://me/learned/other:v0", "--output", "x.npz", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert SHOWN["wandb-is-not-installed"] in line and line.endswith(SHOWN["pip-install-wandb"])

"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from shown import texts_of

from lobench.extend import write_whole

SHOWN = texts_of("engine")


def test_content_replaces_what_was_there_and_makes_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / ("n" * 255)  # the longest name that there is
    for content in ("first é", b"\x00second", ""):
        write_whole(path, content, durable=isinstance(content, bytes))
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"before")
    # A file may have 64 KiB in this process, as on a disk that is full.
    write = f"write_whole(Path({str(path)!r}), bytes(1 << 20))"
    code = f"from pathlib import Path; from lobench.extend import write_whole; {write}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)),
    )
    assert SHOWN["file-too-large"] in done.stderr, done.stderr
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]


def test_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([number]) * 100_000 for number in range(4)]
    threads = [
        threading.Thread(target=lambda content=content: [write_whole(path, content) for _ in range(20)])
        for content in contents
    ]
    write_whole(path, contents[0])
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "a line\n", "\r\n stays"])
def test_text_is_written_as_it_is(tmp_path: Path, text: str) -> None:
    write_whole(tmp_path / "file", text)
    assert (tmp_path / "file").read_bytes() == text.encode()


def test_what_is_no_file_is_written_to_and_a_link_stays_a_link(tmp_path: Path) -> None:
    link, target, pipe = tmp_path / "latest", tmp_path / "there" / "file", tmp_path / "pipe"
    target.parent.mkdir()
    link.symlink_to(target)
    for content in (b"first", b"second"):
        write_whole(link, content)
        assert link.is_symlink() and target.read_bytes() == content
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"through")
    assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    os.close(reader)
    code = "from pathlib import Path; from lobench.extend import write_whole; write_whole(Path('/dev/fd/1'), 'said')"
    with (tmp_path / "said").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "said").read_bytes() == b"said" and Path("/dev/fd/1").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "pipe", "said", "there"]

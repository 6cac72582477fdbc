"""Edited code: which commands evaluate again after which edits."""

from __future__ import annotations

from pathlib import Path

import pytest
from edited_world import COMMANDS, EDITS, edit, make_world, notebook_losses, num_trained

WITHOUT_EFFECT = ("comment", "docstring", "script's comment", "unrelated file")
OF_SCRIPTS = ("script", "script's helper in Method.files", "script's comment")
CHEAP = (("run", "helper two imports away"), ("run", "docstring"), ("script", "script"), ("watch", "task"))


def edits_of(command: str) -> list[str]:
    return [name for name in EDITS if (name in OF_SCRIPTS) == (command == "script")]


def params() -> list[object]:
    return [
        pytest.param(command, name, marks=[] if (command, name) in CHEAP else [pytest.mark.long])
        for command in COMMANDS
        for name in edits_of(command)
    ]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders in which a command ran, by the command; each is made when a test asks for it."""
    return {}


@pytest.mark.parametrize(("command", "name"), params())
def test_command_after_edit_evaluates_again_what_the_code_makes(
    evaluated: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, command: str, name: str
) -> None:
    if command not in evaluated:
        folder = make_world(tmp_path_factory.mktemp(command))
        assert num_trained(folder, command) > 0
        assert num_trained(folder, command) == 0, "unchanged code"
        evaluated[command] = folder
    edit(evaluated[command], name)  # over the edits before it
    assert (num_trained(evaluated[command], command) > 0) == (name not in WITHOUT_EFFECT)
    assert num_trained(evaluated[command], command) == 0


@pytest.mark.parametrize(
    "name", ["helper two imports away", *(pytest.param(one, marks=pytest.mark.long) for one in ("task", "docstring"))]
)
def test_notebook_after_edit_in_its_session_has_todays_values(tmp_path: Path, name: str) -> None:
    before, after = notebook_losses(make_world(tmp_path), name)
    assert (before != after) == (name not in WITHOUT_EFFECT)

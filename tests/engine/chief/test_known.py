"""What a worker said of a suite is remembered until something that it hangs on changes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stores import case_info

from lobench.core.experiment import SessionBlocks
from lobench.core.subject import Variant
from lobench.engine.chief import case_cache as module
from lobench.engine.chief.case_cache import RecordedCases
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite_files import SuiteFiles
from lobench.engine.store.ledger import Ledger
from lobench.engine.workers.pool import WorkerConfig
from lobench.engine.workers.protocol import Described, FileMark

CASES = (case_info("a"), case_info("b"))
ADAM = Variant(bindings=("Case.optimizer = @adam()",), trainer_config="")


class World:
    """A suite, a module that it imports from elsewhere, a trainer's configuration."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self.folder, self.ledger = folder, ledger
        for name in ("project/suite/s.gin", "project/suite/test_s.py", "elsewhere/tasks.py", "run/config.gin"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"# {name}\n")
        self.layers = Layers(trainer_config=str(folder / "run" / "config.gin"), gin_params=("Case.num_seeds = 2",))

    def start(self) -> RecordedCases:
        suite = str(self.folder / "project" / "suite")
        config = WorkerConfig(
            arguments=(suite,), layers=self.layers, serve="", log_folder=self.folder, compilation_cache=self.folder
        )
        return RecordedCases(self.ledger, lambda: config, SuiteFiles([suite]))

    def describe(self, variant: Variant = ADAM) -> None:
        """A worker starts, and says which cases there are."""
        known, file = self.start(), self.folder / "elsewhere" / "tasks.py"
        known.record_stamps()
        found = file.stat()
        mark = FileMark(path=str(file), size=found.st_size, changed_ns=found.st_ctime_ns)
        known.record_description(variant, Described(variant_key=variant.key, cases=CASES, files=(mark,)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ledger = Ledger.open(tmp_path / "store")
    world = World(tmp_path, ledger)
    world.describe()
    yield world
    ledger.close()


def test_while_nothing_changes_the_cases_are_known(world: World) -> None:
    assert world.start().unchanged_cases(ADAM) == CASES
    assert world.start().unchanged_cases(Variant()) is None, "another variant has other cases"


def test_what_is_no_part_of_it_may_change(world: World) -> None:
    (world.folder / "project" / "suite" / "data.npz").write_bytes(b"x")
    (world.folder / "elsewhere" / "other.py").write_text("x = 1\n")
    assert world.start().unchanged_cases(ADAM) == CASES


def test_other_blocks_of_an_experiments_seeds_are_cut_anew(world: World) -> None:
    own = Variant(bindings=(*ADAM.bindings, "Case.first_seed = 1000"))
    for first, widths in ((0, (4,)), (0, (1, 1, 2))):
        blocks = SessionBlocks(first_seed=first, widths=widths)
        world.layers = dataclasses.replace(world.layers, gin_params=("Case.eval_every = 5", *blocks.bindings))
        if widths == (4,):
            assert world.start().unchanged_cases(ADAM) is None, "the cases were described with seeds of their own"
            world.describe()
            world.describe(own)
    cases = world.start().unchanged_cases(ADAM)
    assert cases is not None and [str(block) for block in cases[0].blocks()] == ["0+1", "1+1", "2+2"]
    assert [dataclasses.replace(one, block_sizes=()) for one in cases] == list(CASES)
    beaten = world.start().unchanged_cases(own)
    assert beaten is not None and beaten[0].first_seed == CASES[0].first_seed and beaten[0].block_sizes == (1, 1, 2)


def rewrite(name: str) -> Callable[[World], None]:
    return lambda world: (world.folder / name).write_text("# it is another one now\n") and None


def remove(name: str) -> Callable[[World], None]:
    return lambda world: (world.folder / name).unlink()


def touch(name: str) -> Callable[[World], None]:
    return lambda world: os.utime(world.folder / name, ns=(1, 1))


def rewrite_with_time(name: str) -> Callable[[World], None]:
    """Returns what edits a file as `rsync -a` and `cp -p` do: other content, the same size and time of the edit."""

    def change(world: World) -> None:
        file = world.folder / name
        then = file.stat()
        file.write_bytes(bytes(reversed(file.read_bytes())))
        os.utime(file, ns=(then.st_atime_ns, then.st_mtime_ns))

    return change


def set_param(world: World) -> None:
    world.layers = dataclasses.replace(world.layers, gin_params=("Case.num_seeds = 3",))


CHANGES = {
    "a case": rewrite("project/suite/s.gin"),
    "the same size at another time": touch("project/suite/s.gin"),
    "the same size and time": rewrite_with_time("project/suite/s.gin"),
    "a module of the same size and time": rewrite_with_time("elsewhere/tasks.py"),
    "a new test": rewrite("project/suite/test_new.py"),
    "a test that is gone": remove("project/suite/test_s.py"),
    "a new conftest above": rewrite("project/conftest.py"),
    "pytest's configuration": rewrite("project/pytest.ini"),
    "a module from elsewhere": rewrite("elsewhere/tasks.py"),
    "a module from elsewhere that is gone": remove("elsewhere/tasks.py"),
    "config.gin": rewrite("run/config.gin"),
    "--gin-param": set_param,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_a_worker_is_asked_again(world: World, change: Callable[[World], None]) -> None:
    change(world)
    assert world.start().unchanged_cases(ADAM) is None
    if (world.folder / "elsewhere" / "tasks.py").exists():
        world.describe()
        assert world.start().unchanged_cases(ADAM) == CASES


def test_another_version_of_a_plugin_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed_plugins", lambda groups: [("some-plugin", "2.0")])
    assert world.start().unchanged_cases(ADAM) is None


def test_a_row_that_cannot_be_read_is_asked_for_again(world: World) -> None:
    world.ledger.connection.execute("UPDATE described SET cases_json = '[{}]'")
    assert world.start().unchanged_cases(ADAM) is None

"""Fingerprints of the user's code over trees of files."""

import hashlib
import importlib.machinery
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.code import CodeFingerprint, canonical_fingerprints, changed_code_line, is_same_code
from lobench.engine.config.user_code import code_fingerprint, tree_sha256

SHOWN = texts_of("config")

TREE = {
    "optimizer.py": '''
        """An optimizer."""
        import numpy
        from package import middle

        RATE = 0.1

        class Rule:
            """Steps."""

            def update(self, x, rate=0.5):
                return middle.scaled(x, rate)  # the step
        ''',
    "package/__init__.py": "",
    "package/middle.py": """
        from .inner.deep import SCALE
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import only_for_types

        def scaled(x, rate):
            return SCALE * rate * x
        """,
    "package/inner/__init__.py": "from ..cyclic import back\n",
    "package/inner/deep.py": "SCALE = 2\n",
    "package/cyclic.py": "import package.middle\nback = None\n",
    "only_for_types.py": "X = 1\n",
    "unrelated.py": "Y = 1\n",
    "test_rule.py": "from package.middle import scaled\ndef test_rule(evaluate, fixture): ...\n",
    "conftest.py": 'pytest_plugins = ["fixtures"]\n',
    "fixtures.py": "FACTOR = 1\n",
}


def written(folder: Path, **changed: str) -> Path:
    for name, text in {**TREE, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def code_of(folder: Path, *names: str) -> CodeFingerprint:
    return code_fingerprint([folder / name for name in names or ("optimizer.py",)])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return written(tmp_path / "tree")


def replaced(folder: Path, name: str, before: str, after: str) -> None:
    text = (folder / name).read_text()
    assert before in text
    (folder / name).write_text(text.replace(before, after))


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("optimizer.py", "RATE = 0.1", "RATE = 0.0"),
        ("optimizer.py", "rate=0.5", "rate=0.6"),
        ("package/middle.py", "SCALE * rate", "SCALE + rate"),
        ("package/inner/deep.py", "2", "3"),
        ("package/inner/deep.py", "2", "2.0"),
        ("package/inner/deep.py", "2", "True"),
        ("package/cyclic.py", "None", "1"),
        ("package/__init__.py", "", "import sys\n"),
    ],
)
def test_fingerprint_after_edit_of_reached_code_differs(tree: Path, name: str, before: str, after: str) -> None:
    then = code_of(tree)
    if before:
        replaced(tree, name, before, after)
    else:
        (tree / name).write_text(after)
    assert code_of(tree).id != then.id


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("optimizer.py", "# the step", "# another comment"),
        ("optimizer.py", '"""An optimizer."""', '"""Another text."""'),
        ("optimizer.py", '"""Steps."""', ""),
        ("optimizer.py", "(self, x, rate=0.5)", "(\n        self,\n        x,\n        rate=(0.5),\n    )"),
        ("optimizer.py", "RATE", "\n\nRATE"),
        ("only_for_types.py", "1", "2"),
        ("unrelated.py", "1", "2"),
    ],
)
def test_fingerprint_after_edit_without_effect_is_the_same(tree: Path, name: str, before: str, after: str) -> None:
    then = code_of(tree)
    replaced(tree, name, before, after)
    assert code_of(tree).id == then.id


def test_fingerprint_of_moved_folder_is_the_same_and_holds_no_path(tree: Path, tmp_path: Path) -> None:
    then, then_of_test = code_of(tree), code_of(tree, "test_rule.py", "conftest.py")
    tree.rename(tmp_path / "elsewhere")
    assert code_of(tmp_path / "elsewhere") != then  # the files have other paths
    assert code_of(tmp_path / "elsewhere").id == then.id
    assert code_of(tmp_path / "elsewhere", "test_rule.py", "conftest.py").parts == then_of_test.parts
    assert not [name for name in then.parts if str(tmp_path) in name]


def test_fingerprint_of_conftest_reaches_its_pytest_plugins(tree: Path) -> None:
    then = code_of(tree, "conftest.py")
    replaced(tree, "fixtures.py", "1", "2")
    assert code_of(tree, "conftest.py").id != then.id


def test_fingerprint_names_files_from_the_folder_they_are_imported_from(tree: Path) -> None:
    names = ["optimizer.py", "package/__init__.py", "package/cyclic.py", "package/inner/__init__.py"]
    names += ["package/inner/deep.py", "package/middle.py"]
    parts = code_of(tree).parts
    assert sorted(name for name in parts if name.endswith(".py")) == names
    assert parts["numpy"] == __import__("numpy").__version__
    assert code_of(tree, "package/inner/deep.py").parts.keys() >= {"package/__init__.py", "package/inner/deep.py"}


def test_fingerprint_of_two_files_of_one_name_has_both(tree: Path) -> None:
    (tree / "below").mkdir()
    (tree / "below/conftest.py").write_text("A = 1\n")
    parts = code_of(tree, "below/conftest.py", "conftest.py").parts
    assert {"conftest.py", "tree/conftest.py"} <= parts.keys()


def test_fingerprint_with_missing_module_differs_once_the_module_exists(tree: Path) -> None:
    (tree / "lazy.py").write_text("try:\n    import fast_path\nexcept ImportError:\n    fast_path = None\n")
    then = code_of(tree, "lazy.py")
    assert str(tree / "fast_path.py") in then.missing_files
    (tree / "fast_path.py").write_text("X = 1\n")
    assert code_of(tree, "lazy.py").id != then.id


@pytest.mark.parametrize("module", ["package/cyclic", "package/middle", "optimizer"])
@pytest.mark.parametrize("winner", ["/__init__.py", importlib.machinery.EXTENSION_SUFFIXES[0]])
def test_fingerprint_differs_once_python_would_import_a_package_or_a_compiled_module_instead(
    tree: Path, module: str, winner: str
) -> None:
    then = code_of(tree)
    file = tree / f"{module}{winner}"
    assert str(file) in then.missing_files
    file.parent.mkdir(exist_ok=True)
    file.write_text("X = 1\n")
    now = code_of(tree)
    assert str(file) not in now.missing_files
    if module != "optimizer":  # it is the file that was asked for, so it stays the one that is read
        assert now.id != then.id and str(file) in now.files


def test_fingerprint_differs_once_python_would_import_a_package_instead_of_a_compiled_module(tree: Path) -> None:
    (tree / "package/cyclic.py").rename(tree / f"package/cyclic{importlib.machinery.EXTENSION_SUFFIXES[-1]}")
    then = code_of(tree)
    better, package = f"package/cyclic{importlib.machinery.EXTENSION_SUFFIXES[0]}", "package/cyclic/__init__.py"
    assert {str(tree / better), str(tree / package)} <= then.missing_files
    (tree / package).parent.mkdir()
    (tree / package).write_text("X = 1\n")
    assert code_of(tree).id != then.id


@pytest.mark.parametrize(
    "content", [b"def (\n", b"x = '\xff'\n", b"x = 1\0\n", b"x = " + b"(" * 500 + b"1" + b")" * 500]
)
def test_fingerprint_of_file_that_does_not_parse_is_of_its_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.py").write_bytes(content)
    then = code_of(tmp_path, "broken.py")
    (tmp_path / "broken.py").write_bytes(content + b"# more\n")
    assert then.id
    assert code_of(tmp_path, "broken.py").id != then.id


def test_fingerprint_of_deep_expression_ignores_its_comment(tmp_path: Path) -> None:
    deep = "x = " + " + ".join(map(str, range(900)))
    assert tree_sha256(deep.encode()) == tree_sha256(f"{deep}  # a sum".encode())


def test_fingerprint_of_latin_1_source_is_of_its_tree() -> None:
    text = "# -*- coding: latin-1 -*-\nx = 'ü'\n"
    assert tree_sha256(text.encode("latin-1")) == tree_sha256("x = 'ü'  # utf-8\n".encode())


def test_fingerprint_of_dynamic_import_of_constant_name_reaches_the_module(tree: Path) -> None:
    (tree / "lazy.py").write_text("import importlib\nX = importlib.import_module('unrelated').Y\n")
    then = code_of(tree, "lazy.py")
    replaced(tree, "unrelated.py", "1", "2")
    assert code_of(tree, "lazy.py").id != then.id


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nX = importlib.import_module(f'package.inner.{NAME}').SCALE\n",
        "from importlib import import_module\nX = import_module('package.inner.' + NAME).SCALE\n",
        "import importlib\nX = importlib.import_module('package.{}'.format(NAME))\n",
        "import importlib\nX = importlib.import_module(NAME)\n",
        "import pkgutil, package\nX = [one for one in pkgutil.iter_modules(package.__path__)]\n",
        "import runpy\nX = runpy.run_path('package/inner/deep.py')\n",
        "exec(open('package/inner/deep.py').read())\n",
        "import sys, os\nHERE = os.path.dirname(__file__)\n"
        "sys.path.insert(0, os.path.join(HERE, 'package', 'inner'))\nimport deep\n",
        "import sys\nsys.path.append('package/inner')\nfrom deep import SCALE\n",
        "import sys as system\nsystem.path.append('package/inner')\nfrom deep import SCALE\n",
        "from importlib import import_module as load\nX = load('package.inner.deep')\n",
        "import importlib\nload = importlib.import_module\nX = load('package.inner.deep')\n",
        "import importlib\nX = importlib.import_module(name='package.inner.deep')\n",
        "X = __import__('package.inner', fromlist=['deep']).deep\n",
        "import pkgutil\nX = pkgutil.resolve_name('package.inner.deep:SCALE')\n",
        "import pydoc\nX = pydoc.locate('package.inner.deep.SCALE')\n",
        "import runpy\nX = runpy.run_module('package.inner.deep')\n",
        "exec('from package.inner import deep')\n",
        "RULES = {'slow': 'package.inner.deep:SCALE'}\n",
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent / 'package' / 'inner'))\n"
        "import deep\n",
        "import paths\npaths.add('package/inner')\nimport deep\n",
        "import inner_of\nX = inner_of.deep\n",
        "import os\nexec(open(os.path.join(os.path.dirname(__file__), 'package', 'inner', 'deep.py')).read())\n",
        "from pathlib import Path\nX = [*map(Path.read_text, Path(__file__).parent.glob('package/inner/*.py'))]\n",
        "from pathlib import Path\nexec((Path(__file__).parent / 'package' / 'inner' / f'{NAME}.py').read_text())\n",
        "import os\nNAMES = [one for one in os.listdir('package/inner') if one.endswith('.py')]\n",
        "X = open('package/inner/%04s.py' % NAME).read()\n",
        "X = open('package/%(folder)s/deep.py' % SETTINGS).read()\n",
        "from importlib import import_module\nNAME = 'package.inner.deep'\nX = import_module(NAME)\n",
        "from pathlib import Path\nHERE = Path(__file__).resolve().parent\n"
        "INNER = HERE / 'package' / 'inner'\nexec(INNER.joinpath('deep').with_suffix('.py').read_text())\n",
        "from pathlib import Path\nX = [*Path(__file__).parent.joinpath('package').rglob('*.py')]\n",
        "RULES = {'_target_': 'package.inner.deep.Scale'}\n",
        "import os\nos.system('python package/inner/deep.py ' + NAME)\n",
        "from package.lazily import deep\n",
        "import lazy_loader\nX = lazy_loader.load('package.inner.deep')\n",
        "import subprocess\nsubprocess.run(f'cd {NAME} && python -m package.inner.deep', shell=True)\n",
        "import os\nos.system(f'{NAME} \"{os.path.dirname(__file__)}/package/inner/deep.py\"')\n",
    ],
)
def test_fingerprint_of_import_by_a_computed_name_or_path_reaches_the_module(tree: Path, text: str) -> None:
    (tree / "lazy.py").write_text(text)
    (tree / "paths.py").write_text("import sys\ndef add(name):\n    sys.path.insert(0, name)\n")
    (tree / "package/lazily").mkdir()
    text = (
        "import lazy_loader\n__getattr__, __dir__, _ = lazy_loader.attach(__name__, submod_attrs={'all': ['deep']})\n"
    )
    (tree / "package/lazily/__init__.py").write_text(text)
    (tree / "package/lazily/all.py").write_text("from ..inner import deep\n")
    (tree / "inner_of").mkdir()
    (tree / "inner_of/__init__.py").write_text("__path__.append('package/inner')\nfrom inner_of import deep\n")
    then = code_of(tree, "lazy.py")
    assert code_of(tree, "lazy.py").id == then.id
    replaced(tree, "package/inner/deep.py", "2", "3")
    assert code_of(tree, "lazy.py").id != then.id


def test_fingerprint_of_module_in_an_added_folder_counts_beside_its_namesake(tree: Path) -> None:
    (tree / "deep.py").write_text("SCALE = 1\n")
    (tree / "lazy.py").write_text("import sys\nsys.path.insert(0, 'package/inner')\nimport deep\n")
    then = code_of(tree, "lazy.py")
    replaced(tree, "package/inner/deep.py", "2", "3")
    assert code_of(tree, "lazy.py").id != then.id


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_fingerprint_of_folders_added_one_from_another_does_not_depend_on_the_order_of_imports(
    tree: Path, order: tuple[str, str]
) -> None:
    for name in ("one", "far"):
        (tree / name).mkdir()
    (tree / "lazy.py").write_text(
        "import sys\nsys.path.insert(0, 'one')\n" + "".join(f"import {one}\n" for one in order)
    )
    added = "os.path.join(os.path.dirname(__file__), '..', 'far')"
    (tree / "one/first.py").write_text(f"import sys, os\nsys.path.insert(0, {added})\n")
    (tree / "far/second.py").write_text("X = 1\n")
    assert code_of(tree, "lazy.py").parts.keys() == {"lazy.py", "first.py", "second.py"}


def test_fingerprint_of_import_by_a_computed_name_reaches_all_of_the_outermost_package(tree: Path) -> None:
    (tree / "package/rules.py").write_text("RATE = 1\n")
    (tree / "package/inner/pick.py").write_text("import importlib\nX = importlib.import_module(NAME)\n")
    then = code_of(tree, "package/inner/pick.py")
    replaced(tree, "package/rules.py", "1", "2")
    assert code_of(tree, "package/inner/pick.py").id != then.id


# Other projects lie beside the folder of this one, and modules of theirs have names that are texts in it.
NAMES_OF_NEIGHBOURS = (
    "import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'below'))\n"
    "WORDS = ['main', 'other', 'main.rule', 'other.main', 'main:rule', 'rule.py', '*.py', 'other/*.py']\n"
    "PATHS = ['../other/main.py', '../../other/main.py', '../main', '..']\n"
)


def test_fingerprint_of_texts_does_not_look_at_neighbouring_checkouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = tmp_path / "projects" / "mine" / "suite"
    suite.mkdir(parents=True)
    (suite / "lazy.py").write_text(NAMES_OF_NEIGHBOURS)
    for folder in ("projects/mine/main", "projects/mine/other", "projects/main", "projects/other", "other"):
        (tmp_path / folder).mkdir()
        for name in ("main.py", "rule.py"):
            (tmp_path / folder / name).write_text("X = 1\n")
    listed: list[str] = []
    monkeypatch.setattr(os, "listdir", lambda folder, of=os.listdir: listed.append(str(folder)) or of(folder))
    found = code_fingerprint([suite / "lazy.py"], folders=[str(suite)])
    assert [*found.files] == [str(suite / "lazy.py")]
    assert not [folder for folder in listed if not folder.startswith((str(suite), *sys.path)) and "projects" in folder]


def test_fingerprint_of_a_text_without_a_dot_takes_no_folder_of_that_name(tree: Path) -> None:
    (tree / "main").mkdir()
    (tree / "main/rule.py").write_text("X = 1\n")
    (tree / "lazy.py").write_text("import sys\nsys.path.append(NAME)\nMODE = 'main'\n")
    assert [*code_of(tree, "lazy.py").parts] == ["lazy.py"]


def test_fingerprint_of_a_pattern_stays_within_its_bounds(tmp_path: Path) -> None:
    for folder in (".hidden", "__pycache__", "env", "store", "own"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rule.py").write_text("X = 1\n")
    (tmp_path / "env/pyvenv.cfg").write_text("")
    (tmp_path / "store/ledger.sqlite").write_text("")
    for index in range(1001):
        (tmp_path / f"own/r{index}.py").write_text("")
    (tmp_path / "lazy.py").write_text("from pathlib import Path\nX = [*Path(__file__).parent.rglob('*.py')]\n")
    files = code_of(tmp_path, "lazy.py").files
    assert {Path(file).parent.name for file in files} == {tmp_path.name, "own"}
    assert len(files) == 1000


def test_fingerprint_of_a_pattern_after_a_file_was_added_differs(tree: Path) -> None:
    (tree / "lazy.py").write_text("from glob import glob\nX = glob('package/inner/*.py')\n")
    then = code_of(tree, "lazy.py")
    (tree / "package/inner/new.py").write_text("X = 1\n")
    assert code_of(tree, "lazy.py").id != then.id


def test_fingerprint_names_data_of_code_and_of_bindings(tree: Path) -> None:
    (tree / "data").mkdir()
    for name in ("rates.toml", "data/a.csv", "data/b.csv", "bound.npz", "unnamed.csv"):
        (tree / name).write_text("1")
    (tree / "lazy.py").write_text("open('rates.toml')\nfrom glob import glob\nX = glob('data/*.csv')\n")
    found = code_fingerprint([tree / "lazy.py"], texts=["bound.npz", "unrelated.py"], folders=[str(tree)])
    assert {Path(file).name for file in found.data_files} == {"rates.toml", "a.csv", "b.csv", "bound.npz"}
    assert {"lazy.py", "unrelated.py"} == {*found.parts}


def test_fingerprint_names_the_configurations_of_hydra_as_data(tree: Path) -> None:
    (tree / "conf/model").mkdir(parents=True)
    for name in ("conf/config.yaml", "conf/model/big.yaml", "other.yaml"):
        (tree / name).write_text("rate: 1\n")
    text = (
        'import hydra\n@hydra.main(version_base=None, config_path="conf", config_name="config")\ndef main(cfg): ...\n'
    )
    (tree / "lazy.py").write_text(text)
    found = {os.path.relpath(file, tree) for file in code_of(tree, "lazy.py").data_files}
    assert found == {"conf/config.yaml", "conf/model/big.yaml"}
    (tree / "lazy.py").write_text(text.replace('"conf"', "None"))
    assert not code_of(tree, "lazy.py").data_files, "without a folder of configurations"


@pytest.mark.parametrize(
    "text", ["attach(__name__, ['rule'])", "attach(__name__, submodules=NAMES)", "attach_stub(__name__, __file__)"]
)
def test_fingerprint_of_package_with_lazy_modules_reaches_them(tree: Path, text: str) -> None:
    (tree / "package/rule.py").write_text("RATE = 1\n")
    (tree / "package/__init__.py").write_text(f"import lazy_loader as lazy\n__getattr__, __dir__, _ = lazy.{text}\n")
    (tree / "user.py").write_text("import package\nX = package.rule.RATE\n")
    then = code_of(tree, "user.py")
    replaced(tree, "package/rule.py", "1", "2")
    assert code_of(tree, "user.py").id != then.id


def test_fingerprint_of_notebook_is_of_its_code_and_what_it_imports(tree: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": "A rule."},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "if True:\n", "    !ls\n"], "outputs": []},
        {"cell_type": "code", "source": "from package.inner import deep  # slow"},
    ]

    def code() -> str:
        (tree / "rule.ipynb").write_text(json.dumps({"cells": cells}))
        return code_of(tree, "rule.ipynb").id

    first = code()
    cells[0]["source"], cells[1]["outputs"], cells[2]["source"] = "B", ["1"], "from package.inner import deep"
    assert code() == first
    replaced(tree, "package/inner/deep.py", "2", "3")
    assert code() != first
    replaced(tree, "package/inner/deep.py", "3", "2")
    cells[2]["source"] = "from package.inner import deep as rule"
    assert code() != first


@pytest.mark.parametrize("name", ["kernel.cu", "kernel.cuh", "statistics.py"])
def test_fingerprint_of_code_reaches_sources_that_are_compiled_and_a_namesake_of_python(tree: Path, name: str) -> None:
    (tree / "kernel.cu").write_text('#include "kernel.cuh"\n')
    (tree / "kernel.cuh").write_text("#define RATE 1\n")
    (tree / "statistics.py").write_text("RATE = 1\n")
    (tree / "lazy.py").write_text("import statistics\nload(name='kernel', sources=['kernel.cu'])\n")
    then = code_of(tree, "lazy.py")
    (tree / name).write_text((tree / name).read_text() + "\nX = 2\n")
    assert code_of(tree, "lazy.py").id != then.id


def test_fingerprint_of_an_archive_has_the_hash_of_its_content(tree: Path) -> None:
    (tree / "rules.zip").write_bytes(b"PK" * 100_000)
    (tree / "lazy.py").write_text("import sys\nsys.path.insert(0, 'rules.zip')\nopen('rules.zip', 'rb')\n")
    assert code_of(tree, "lazy.py").parts["rules.zip"] == hashlib.sha256(b"PK" * 100_000).hexdigest()


def test_fingerprint_of_cython_with_sentences_that_look_like_imports_has_the_modules_that_exist(tree: Path) -> None:
    (tree / "fast.pyx").write_text('"""Rules.\n\nimport package.\nimport package..inner\n"""\n')
    (tree / "lazy.py").write_text("import fast\n")
    assert {"fast.pyx", "package/__init__.py"} == code_of(tree, "lazy.py").parts.keys() - {"lazy.py"}


def test_fingerprint_of_text_that_names_an_installed_module_does_not_hold_its_version(tree: Path) -> None:
    (tree / "lazy.py").write_text("KIND = 'numpy.float32'\nX = 'a.b'\nY = 'import numpy'\n")
    assert [*code_of(tree, "lazy.py").parts] == ["lazy.py"]


def test_fingerprint_of_namespace_package_reaches_its_modules(tree: Path) -> None:
    (tree / "space").mkdir()
    (tree / "space/part.py").write_text("A = 1\n")
    (tree / "user.py").write_text("from space.part import A\n")
    then = code_of(tree, "user.py")
    (tree / "space/part.py").write_text("A = 2\n")
    assert code_of(tree, "user.py").id != then.id


def test_fingerprint_of_linked_module_reaches_what_lies_beside_the_link(tmp_path: Path) -> None:
    (library := tmp_path / "library").mkdir()
    (suite := tmp_path / "suite").mkdir()
    (library / "rule.py").write_text("import helper\n")
    (library / "helper.py").write_text("X = 1\n")
    (suite / "helper.py").write_text("X = 1\n")
    (suite / "rule.py").symlink_to(library / "rule.py")
    then = code_fingerprint([suite / "rule.py"]).id
    (suite / "helper.py").write_text("X = 2\n")
    assert code_fingerprint([suite / "rule.py"]).id != then


def test_fingerprint_of_script_that_is_not_python_is_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo 1\n")
    then = code_of(tmp_path, "run.sh")
    (tmp_path / "run.sh").write_text("echo 1  # comment\n")
    assert code_of(tmp_path, "run.sh").id != then.id


def test_fingerprint_of_lobench_and_the_standard_library_is_empty(tmp_path: Path) -> None:
    assert code_fingerprint(modules=["lobench.core.case", "json", "jax"]).id == ""
    (tmp_path / "plain.py").write_text("import json, lobench, jax\nfrom lobench.core import case\n")
    assert [*code_of(tmp_path, "plain.py").parts] == ["plain.py"]


_PROBE = "from lobench.engine.config.user_code import code_fingerprint as f; import sys; print(f(sys.argv[1:]).parts)"


def probed(file: Path, *folders: Path) -> str:
    """Returns the parts that a fresh process with further folders on its path finds, without jax."""
    script = f"import sys; sys.path += {[*map(str, folders)]!r}\n{_PROBE}\nassert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True)
    return done.stdout


def test_fingerprint_of_installed_package_is_its_version(tmp_path: Path) -> None:
    site = tmp_path / "lib/site-packages"
    written_package(site, "1.0")
    (tmp_path / "rule.py").write_text("import steps\n")
    then = probed(tmp_path / "rule.py", site)
    assert "'steps': '1.0'" in then
    (site / "steps/__init__.py").write_text("RATE = 2\n")
    assert probed(tmp_path / "rule.py", site) == then
    (site / "steps-1.0.dist-info").rename(site / "steps-1.1.dist-info")
    (site / "steps-1.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: steps\nVersion: 1.1\n")
    assert "'steps': '1.1'" in probed(tmp_path / "rule.py", site)


def test_fingerprint_of_package_installed_from_a_repository_is_of_its_version_and_content(tmp_path: Path) -> None:
    site = tmp_path / "lib/site-packages"
    written_package(site, "1.0")
    (tmp_path / "rule.py").write_text("import steps\n")
    about = site / "steps-1.0.dist-info"
    (about / "direct_url.json").write_text("{}")
    found = set()
    for sha256 in ("aa", "bb", "bb"):
        lines = (f"steps/__init__.py,sha256={sha256},9", f"../../bin/steps,sha256={len(found)},9")
        (about / "RECORD").write_text("\n".join(lines))
        found.add(probed(tmp_path / "rule.py", site))
    assert len(found) == 2 and all("'steps': '1.0 " in one for one in found)


def test_fingerprint_of_editable_install_is_of_its_content(tmp_path: Path) -> None:
    site, source = tmp_path / "lib/site-packages", tmp_path / "checkout"
    written_package(site, "1.0")
    (site / "steps").rename(tmp_path / "moved")
    source.mkdir()
    (tmp_path / "moved").rename(source / "steps")
    (tmp_path / "rule.py").write_text("import steps\n")
    then = probed(tmp_path / "rule.py", site, source)
    assert "steps/__init__.py" in then
    (source / "steps/__init__.py").write_text("RATE = 2\n")
    assert probed(tmp_path / "rule.py", site, source) != then


def written_package(site: Path, version: str) -> None:
    (site / "steps").mkdir(parents=True)
    (site / "steps/__init__.py").write_text("RATE = 1\n")
    about = site / f"steps-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: steps\nVersion: {version}\n")


def test_is_same_code_takes_unknown_parts_for_any() -> None:
    assert (
        is_same_code("", "a:b") and is_same_code("a:b", "") and is_same_code(":b", "a:b") and is_same_code("a:", "a:b")
    )
    assert not is_same_code("a:b", "a:c") and not is_same_code("c:b", "a:b")


def test_is_same_code_follows_what_was_accepted() -> None:
    same = canonical_fingerprints([("b", "c"), ("c", "d"), ("x", "y")])
    assert is_same_code("a:b", "a:d", same) and not is_same_code("a:b", "a:x", same)


def test_changed_code_line_names_the_files() -> None:
    known = {"b": {"signs.py": "1", "numpy": "2.1"}, "c": {"signs.py": "2", "numpy": "2.1"}}
    assert changed_code_line([("a:b", "a:c")] * 12, known.get) == SHOWN["results-were-made-by-other"]
    assert changed_code_line([("a:b", "a:e")], known.get) == SHOWN["result-was-made-by-other"]

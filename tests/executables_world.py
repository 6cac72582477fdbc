"""Edits of a user's package in every way in which tracing can reach code and data; run as a script, in one process.

For each edit it prints whether the key of a kept executable is another one then ("miss"), the same ("hit"), or whether
there is none ("refused: why").
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path

_OWN = ("pkg", "alone", "tool", "plug", "plugged")
# What the package is before an edit. `task.make()` returns what is traced.
FILES = {
    "pkg/__init__.py": "VERSION = 1\n",
    "pkg/helper.py": "from pkg.deep import rate\n\ndef scale(x):\n    return x * 2 * rate()\n",
    "pkg/deep.py": "from . import deeper\n\ndef rate():\n    return deeper.BASE + 1\n",
    "pkg/deeper.py": "BASE = 3\n",
    "pkg/starred.py": "def starred(x):\n    return x + 1\n",
    "pkg/dynamic.py": "def dynamic(x):\n    return x - 1\n",
    "pkg/by_name.py": "def found(x):\n    return x / 3\n",
    "pkg/lazily.py": "def lazily(x):\n    return x\n",
    "pkg/registry.py": "REGISTRY = {}\n\ndef register(f):\n    REGISTRY[f.__name__] = f\n    return f\n",
    "pkg/registered.py": "from pkg.registry import register\n\n@register\ndef act(x):\n    return x + 4\n",
    "pkg/base.py": """
class Base:
    factor = 2

    def loss(self, x):
        return x * self.factor

class Mixin:
    def more(self):
        return 5
""",
    "pkg/meta.py": "class Meta(type):\n    def made(cls):\n        return 7\n",
    "pkg/decorated.py": """
import functools

def twice(f):
    @functools.wraps(f)
    def inner(x):
        return 2 * f(x)
    return inner
""",
    "pkg/executed.txt": "def executed(x):\n    return x + 9\n",
    "pkg/expression.txt": "x * 11",
    "pkg/table.csv": "1,2,3\n",
    "pkg/late.csv": "4,5\n",
    "pkg/settings.json": '{"width": 3}',
    "plug.py": "from plugged import act\n\ndef plug(x):\n    return act(x) + 51\n",
    "plugged.py": "def act(x):\n    return x + 52\n",
    "plug-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n",
    "plug-1.0.dist-info/entry_points.txt": "[a_group]\nplug = plug:plug\n",
    "alone.py": "def alone(x):\n    return x + 1\n",
    "tool.py": """
import collections
import enum

class Kind(enum.Enum):
    A = 1

Pair = collections.namedtuple('Pair', 'first second')
""",
    "pkg/task.py": """
import dataclasses, functools, importlib, json, os, pathlib, re, runpy, sys
import jax, jax.numpy as jnp, numpy as np
import pkg.helper
import alone as renamed
from pkg.base import Base, Mixin
from pkg.decorated import twice
from pkg.starred import *
from pkg import registered, registry
from pkg.meta import Meta
from tool import Kind, Pair
HERE = pathlib.Path(__file__).parent
dynamic = importlib.import_module("pkg.dynamic")
importlib.import_module("pkg.by_name")
TABLE = np.loadtxt(HERE / "table.csv", delimiter=",")
SETTINGS = json.loads((HERE / "settings.json").read_text())
space = {}
exec((HERE / "executed.txt").read_text(), space)
compiled = eval("lambda x: " + (HERE / "expression.txt").read_text())
WIDTH = int(os.environ.get("PKG_WIDTH", "4"))
PATTERN = re.compile("a+")
COUNTS = {"a": [1, 2, {"b": (3, 4)}]}
NAMES = {"x", "y"}
ON_DEVICE = jnp.arange(3.0)

def outer(n):
    m = n + 1
    def inner(x):
        return x * m
    return inner

def with_default(x, by=3, *, more={"z": 1}):
    return x * by + more["z"]

@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 8
    names: tuple = ("p", "q")

class Slotted:
    __slots__ = ("value",)
    def __init__(self, value):
        self.value = value

class Static:
    @staticmethod
    def s(x): return x + 21
    @classmethod
    def c(cls, x): return x + 22
    @property
    def p(self): return 23
    def __call__(self, x): return x + 24

@functools.lru_cache(maxsize=None)
def cached(n):
    return n + 25

@jax.jit
def jitted(x):
    return x + 26

@jax.custom_jvp
def custom(x):
    return x + 27
@custom.defjvp
def custom_jvp(primals, tangents):
    return custom(*primals), tangents[0] * 28

class Task(Base, Mixin, metaclass=Meta):
    def __init__(self):
        self.closure = outer(5)
        self.partial = functools.partial(with_default, by=6)
        self.lambdas = [lambda x: x + 31, lambda x: x + 32]
        self.method = Static().s
        self.config = Config()
        self.slotted = Slotted(33)
        self.pair = Pair(1, 34)
        self.kind = Kind.A
        self.data = np.loadtxt(HERE / "late.csv", delimiter=",")
        self.wrapped = twice(renamed.alone)
        self.nested = {"deep": [{"deeper": np.float32(35)}]}

def make():
    return Task()
""",
}


def edits() -> dict[str, tuple[str, str, str]]:
    """Returns file, old and new text by what the edit is of; the file "" is the environment."""
    task = "pkg/task.py"
    return {
        "a module two imports away": ("pkg/deep.py", "+ 1", "+ 2"),
        "a constant three imports away": ("pkg/deeper.py", "BASE = 3", "BASE = 4"),
        "import": ("pkg/helper.py", "x * 2", "x * 3"),
        "import as": ("alone.py", "x + 1", "x + 2"),
        "from-import of a class": ("pkg/base.py", "x * self.factor", "x + self.factor"),
        "an attribute of a base class": ("pkg/base.py", "factor = 2", "factor = 3"),
        "a mixin": ("pkg/base.py", "return 5", "return 6"),
        "a metaclass": ("pkg/meta.py", "return 7", "return 8"),
        "import of all names": ("pkg/starred.py", "x + 1", "x + 2"),
        "importlib": ("pkg/dynamic.py", "x - 1", "x - 2"),
        "importlib, nothing held": ("pkg/by_name.py", "x / 3", "x / 4"),
        "a package's own file": ("pkg/__init__.py", "VERSION = 1", "VERSION = 2"),
        "a decorator's registry": ("pkg/registered.py", "x + 4", "x + 5"),
        "a decorator": ("pkg/decorated.py", "2 * f(x)", "3 * f(x)"),
        "executed text": ("pkg/executed.txt", "x + 9", "x + 8"),
        "an evaluated expression": ("pkg/expression.txt", "x * 11", "x * 12"),
        "data read at import": ("pkg/table.csv", "1,2,3", "1,2,4"),
        "data of another shape": ("pkg/table.csv", "1,2,3", "1,2,3,4"),
        "data read by a constructor": ("pkg/late.csv", "4,5", "4,6"),
        "settings in a file": ("pkg/settings.json", "3", "4"),
        "an environment variable read at import": ("", "PKG_WIDTH", "5"),
        "an environment variable that nothing has read": ("", "PKG_OTHER", "1"),
        "an environment variable of XLA": ("", "XLA_FLAGS", "--xla_cpu_enable_fast_math=true"),
        "an enumeration": ("tool.py", "A = 1", "A = 2"),
        "a named tuple's fields": ("tool.py", "first second", "first third"),
        "a closure's cell": (task, "outer(5)", "outer(6)"),
        "a closure's code": (task, "return x * m", "return x + m"),
        "what a closure was made from": (task, "m = n + 1", "m = n + 2"),
        "a default": (task, "by=3,", "by=4,"),
        "a keyword's default": (task, '{"z": 1}', '{"z": 2}'),
        "a function's body": (task, 'more["z"]', '2 * more["z"]'),
        "a partial's argument": (task, "by=6", "by=7"),
        "the first lambda of two": (task, "x + 31", "x + 30"),
        "the second lambda of two": (task, "x + 32", "x + 30"),
        "a static method": (task, "x + 21", "x + 20"),
        "a class method": (task, "x + 22", "x + 20"),
        "a property": (task, "return 23", "return 20"),
        "a call operator": (task, "x + 24", "x + 20"),
        "a cached function": (task, "n + 25", "n + 20"),
        "a jitted function": (task, "x + 26", "x + 20"),
        "a function with a derivative of its own": (task, "x + 27", "x + 20"),
        "that derivative": (task, "* 28", "* 29"),
        "a dataclass's default": (task, "width: int = 8", "width: int = 9"),
        "a tuple in it": (task, '("p", "q")', '("p", "r")'),
        "a slot": (task, "Slotted(33)", "Slotted(34)"),
        "a named tuple": (task, "Pair(1, 34)", "Pair(1, 35)"),
        "a number of numpy": (task, "np.float32(35)", "np.float32(36)"),
        "its type": (task, "np.float32(35)", "np.float64(35)"),
        "an array on the device": (task, "arange(3.0)", "arange(4.0)"),
        "its type alone": (task, "arange(3.0)", "arange(3)"),
        "a pattern": (task, '"a+"', '"b+"'),
        "a dictionary's depth": (task, "(3, 4)", "(3, 5)"),
        "a set": (task, '{"x", "y"}', '{"x", "z"}'),
        "the order of bases": (task, "Base, Mixin,", "Mixin, Base,"),
        "another name for a module": (
            task,
            "import alone as renamed",
            "import pkg.dynamic as renamed; renamed.alone = renamed.dynamic",
        ),
        "a new method": (task, "def make", "Task.loss = lambda self, x: x\n\ndef make"),
        "a replaced function of jax": (task, "def make", "jnp.tanh = outer(3)\n\ndef make"),
        "a replaced constant of lobench": (
            task,
            "def make",
            "import lobench.inner.training.streams as st\nst._MOST_AHEAD = 3\n\ndef make",
        ),
        "an open file": (task, "def make", "HELD = open(__file__)\n\ndef make"),
        "a generator": (task, "def make", "HELD = (n for n in [1, 2])\n\ndef make"),
        "numpy's generator": (task, "def make", "HELD = np.random.default_rng()\n\ndef make"),
        "results that are cached": (task, "def make", "cached(3)\n\ndef make"),
        "what an entry point names": ("plug.py", "+ 51", "+ 50"),
        "what an entry point's module imports": ("plugged.py", "+ 52", "+ 50"),
        "an entry point": ("plug-1.0.dist-info/entry_points.txt", "plug:plug", "plugged:act"),
        "one seed more": (task, "return Task()", "return Task(), 2"),
        "a comment": (task, "HERE =", "# here\nHERE ="),
        "a setting of jax": (
            task,
            "def make",
            "jax.config.update('jax_default_matmul_precision', 'highest')\n\ndef make",
        ),
    }


def main(folder: str) -> None:
    from lobench.inner.backend import claim_backend
    from lobench.inner.executables.reach import are_outlined, outlines, reach
    from lobench.inner.executables.state import Unhashable

    sys.dont_write_bytecode = True
    assert claim_backend(1)
    sys.path.insert(0, folder)
    import jax
    import jax.numpy as jnp

    import lobench.inner.training.streams as streams

    outlined = outlines()

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            os.utime(path, (time.time() - 3600,) * 2)  # before this process began

    def key() -> str:
        for name in [name for name in sys.modules if name.partition(".")[0] in _OWN]:
            del sys.modules[name]
        importlib.invalidate_caches()
        for point in importlib.metadata.entry_points(group="a_group"):
            point.load()
        try:
            found = reach(importlib.import_module("pkg.task").make())
        except Unhashable as error:
            return f"refused: {error}"
        return found if are_outlined(outlined) else f"other lobench than {found}"

    write(FILES)
    first, found = key(), {}
    found["nothing"] = "hit" if key() == first else "miss"
    for name, (file, old, new) in edits().items():
        tanh, most, precision = jnp.tanh, streams._MOST_AHEAD, jax.config.jax_default_matmul_precision
        before = dict(os.environ)
        if file:
            assert old in FILES[file], name
            write({file: FILES[file].replace(old, new)})
        else:
            os.environ[old] = new
        edited = key()
        found[name] = edited if edited.startswith("refused") else "hit" if edited == first else "miss"
        jnp.tanh, streams._MOST_AHEAD = tanh, most
        jax.config.update("jax_default_matmul_precision", precision)
        os.environ.clear()
        os.environ.update(before)
        write({file: FILES[file]} if file else {})
    found["all as before"] = "hit" if key() == first else "miss"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])

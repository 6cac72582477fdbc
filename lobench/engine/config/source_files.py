"""Source files: the hash of a file of code, and the modules and files that its text names. Nothing is imported."""

from __future__ import annotations

import ast
import hashlib
import re
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["CODE_SUFFIXES", "ImportedNames", "SourceFile", "source_file"]

# Suffixes of files that count as code where code names them: Python, what it compiles or loads, and archives of it.
CODE_SUFFIXES = frozenset(
    (
        *(".py", ".pyx", ".pxd", ".sh", ".so", ".pyd", ".dll", ".dylib", ".zip", ".egg", ".whl"),
        *(".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".cu", ".cuh", ".ptx", ".cl", ".metal"),
        *(".f", ".f90", ".jl"),
    )
)
_INCLUDES = frozenset((".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".cu", ".cuh", ".cl", ".metal", ".pyx"))
_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_HAS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_IS_PATH = re.compile(r"[\w./+~*-]{1,200}")
_IS_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+(:[^\W\d]\w*)?|[^\W\d]\w*:[^\W\d]\w*")
_INCLUDED = re.compile(rb'^\s*#\s*include\s+"([^"\n]+)"', re.MULTILINE)
_IMPORTERS = ("import_module", "__import__")
_IMPORTERS_OF_OBJECTS = ("run_module", "resolve_name", "locate")  # given a module, or an object in one
_LISTERS = ("iter_modules", "walk_packages")
_IMPORTS = re.compile(r"^\s*(from\s+[\w.]+\s+import|import)\s+\w", re.MULTILINE)
_LONGEST_NAME = 200


class ImportedNames(NamedTuple):
    """Import statement: `from ..a import b, c` has level 2, module "a" and the names "b" and "c".

    `import_module(f"a.{name}")` has the module "a" and `has_all`, because any module below it may be imported. If the
    name has no constant beginning, any module of the file's outermost package may be, or of its folder. `is_text` is a
    text such as "a.b:c", which is an import only if the user has such a module.
    """

    level: int
    module: str
    names: tuple[str, ...] = ()
    has_all: bool = False
    is_text: bool = False


class SourceFile(NamedTuple):
    """Parsed content of a code file.

    Attributes:
      sha256: Hash of its syntax tree.
      imports: Its import statements.
      texts: Constants that may be paths of code files or of folders, patterns, or the suffix of code files alone.
      extends_path: Whether it adds to `sys.path`, or to the path of a package.
      names_files: Whether one of the texts may name a file of code.
    """

    sha256: str
    imports: tuple[ImportedNames, ...] = ()
    texts: tuple[str, ...] = ()
    extends_path: bool = False
    names_files: bool = False


_known: dict[str, SourceFile] = {}  # by the sha256 of the content


def source_file(content: bytes, suffix: str = ".py") -> SourceFile:
    """Returns what a file of code names. A file that is not Python, or cannot be parsed, counts by its bytes."""
    digest = hashlib.sha256(content).hexdigest()
    if suffix != ".py":
        found = _INCLUDED.findall(content) if suffix in _INCLUDES else ()
        texts = tuple(dict.fromkeys(one.decode("utf-8", "replace") for one in found))
        return SourceFile(digest, texts=texts, names_files=bool(texts))
    if digest not in _known:
        try:
            tree = ast.parse(content)
            _known[digest] = SourceFile(_sha256_of(tree), tuple(dict.fromkeys(_imports_in(tree))), *_paths_in(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # not parsable: compare the bytes
            _known[digest] = SourceFile(digest)
    return _known[digest]


def _sha256_of(tree: ast.AST) -> str:
    """Returns a hash of a syntax tree that is equal in all versions of Python: fields by name, without empty ones.

    It uses a stack instead of recursion, because long expressions are deep trees.
    """
    words: list[str] = []
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            words.append(node)
        elif isinstance(node, ast.AST):
            words.append(f"({type(node).__name__}")
            stack.append(")")
            for name in sorted(node._fields, reverse=True):
                value = getattr(node, name, None)
                if name == "body" and isinstance(node, _HAS_DOCSTRING):
                    value = _without_docstring(value)
                if value is not None and value != [] and name not in _IGNORED_FIELDS:
                    stack += [value if isinstance(value, ast.AST | list) else _word(value), f"{name}="]
        else:
            words.append("[")
            stack.append("]")
            stack += [one if isinstance(one, ast.AST | list) else _word(one) for one in reversed(node)]
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()


def _word(value: object) -> str:
    text = hex(value) if type(value) is int else repr(value)
    return f"{type(value).__name__} {text}"


def _without_docstring(body: Any) -> Any:
    first = body[0] if isinstance(body, list) and body else None
    is_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_docstring else body


def _imports_in(tree: ast.AST) -> Iterator[ImportedNames]:
    """Yields the imports of a module, at any depth, except those for type checkers only."""
    importers, called = {*_IMPORTERS, *_aliases_in(tree)}, set[int]()
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            yield from (ImportedNames(0, one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ImportedNames(node.level, node.module or "", tuple(one.name for one in node.names))
        elif isinstance(node, ast.Call):
            called.add(id(node.func))
            yield from _imported_by_call(node, importers)
        elif isinstance(node, ast.Name | ast.Attribute):
            if id(node) not in called and isinstance(node.ctx, ast.Load) and _name(node) in importers:
                yield ImportedNames(0, "", has_all=True)  # it may be called under another name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _imported_by_text(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from _pytest_plugins(node)
        if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
            stack += node.orelse
        else:
            stack += ast.iter_child_nodes(node)


def _aliases_in(tree: ast.AST) -> Iterator[str]:
    """Yields the names of `from importlib import import_module as NAME`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (one.asname for one in node.names if one.asname and one.name in _IMPORTERS)


def _imported_by_call(node: ast.Call, importers: Collection[str]) -> Iterator[ImportedNames]:
    """Yields the imports made by `importlib.import_module("a.b")`, `__import__("a")` and calls with computed names."""
    called = _name(node.func)
    if called in _LISTERS:
        yield ImportedNames(0, "", has_all=True)
    given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "name")]
    first = given[0] if given else None
    text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    if called in _IMPORTERS_OF_OBJECTS and text:
        module, _, name = text.partition(":")
        yield ImportedNames(0, module, (name,) if name else (), is_text=True)
    if first is None or called not in importers:
        return
    if isinstance(first, ast.Constant):
        if name := text.lstrip("."):
            names = [one.value for other in (*node.args[3:], *_fromlist_of(node)) for one in ast.walk(other)
                     if isinstance(one, ast.Constant) and isinstance(one.value, str)]  # fmt: skip
            yield ImportedNames(len(text) - len(name), name, tuple(names))
        return
    beginning = first.values[0] if isinstance(first, ast.JoinedStr) and first.values else first
    while isinstance(beginning, ast.BinOp):  # "a." + name, "a.%s" % name
        beginning = beginning.left
    if isinstance(beginning, ast.Call) and isinstance(beginning.func, ast.Attribute):  # "a.{}".format(name)
        beginning = beginning.func.value
    text = beginning.value if isinstance(beginning, ast.Constant) and isinstance(beginning.value, str) else ""
    name = text.lstrip(".")
    package = name.rpartition(".")[0]
    yield ImportedNames(len(text) - len(name), package, has_all=True)


def _fromlist_of(node: ast.Call) -> list[ast.expr]:
    return [one.value for one in node.keywords if one.arg == "fromlist"]


def _imported_by_text(text: str) -> Iterator[ImportedNames]:
    """Yields the module that a text may name, or the imports of a text that is Python, as `exec` gets it."""
    if len(text) <= _LONGEST_NAME and _IS_MODULE.fullmatch(text):
        module, _, name = text.partition(":")
        yield ImportedNames(0, module, (name,) if name else (), is_text=True)
    elif _IMPORTS.search(text):
        try:
            tree = ast.parse(textwrap.dedent(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        yield from (one._replace(is_text=True) for one in _imports_in(tree) if not one.level and not one.has_all)


def _paths_in(tree: ast.AST) -> tuple[tuple[str, ...], bool, bool]:
    """Returns constants that may be paths, whether the code extends an import path, and whether it may name files."""
    texts, extends_path = dict[str, None](), False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of_path = node.attr in ("path", "addsitedir") and _name(node.value) in ("sys", "site")
            extends_path |= of_path or (node.attr in ("append", "insert", "extend") and _name(node.value) == "__path__")
        elif isinstance(node, ast.Name):
            extends_path |= node.id == "__path__" and isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.Call) and _name(node.func) in _LISTERS:
            texts["*.py"] = None
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _IS_PATH.fullmatch(node.value):
            texts[node.value] = None
    return tuple(texts), extends_path, any(one in CODE_SUFFIXES or Path(one).suffix in CODE_SUFFIXES for one in texts)


def _pytest_plugins(node: ast.Assign | ast.AnnAssign) -> Iterator[ImportedNames]:
    """Yields the modules of `pytest_plugins = ["helpers.fixtures"]`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if node.value is not None and any(_name(target) == "pytest_plugins" for target in targets):
        for one in ast.walk(node.value):
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value:
                yield ImportedNames(0, one.value)


def _name(node: ast.AST) -> str:
    """Returns the name of a variable, or the last name of an attribute."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""

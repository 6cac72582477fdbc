"""Source files: the hash of a file of code, and the modules, files and folders that it names.

Nothing is imported. Paths are computed from the syntax tree as far as that is possible. For example,
`Path(__file__).parent / "rules" / f"{name}.py"` becomes a pattern, in which a star stands for the unknown value.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = [
    "CODE_SUFFIXES",
    "FILE_FOLDER",
    "IMPORT_PATTERN",
    "ImportedNames",
    "SourceFile",
    "parse_source",
    "parse_source_file",
    "suffix_of",
]

# Suffixes of files that count as code if code names them: Python, files that it compiles or loads, and archives.
_COMPILED_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".cu", ".cuh", ".cl", ".metal", ".pyx", ".pxd")
_BINARIES = (".so", ".pyd", ".dll", ".dylib", ".zip", ".egg", ".whl", ".ptx")
_SCRIPTS = (".sh", ".jl", ".r", ".R", ".js", ".mjs", ".cjs", ".lua", ".rb", ".pl")
CODE_SUFFIXES = frozenset((".py", ".pxi", ".f", ".f90", ".ipynb", *_SCRIPTS, *_COMPILED_SOURCES, *_BINARIES))
# Suffixes of files whose content names other files.
_SCANNED_SUFFIXES = frozenset((".py", ".pxi", ".ipynb", *_SCRIPTS, *_COMPILED_SOURCES))
FILE_FOLDER = "\0here"  # beginning of a path: the folder of the file of code
_FILE_ITSELF = "\0file"  # the file of code itself
_UNKNOWN = "*"
_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_HAS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FOLDER_PATTERN = re.compile(r"[\w./+~*\0-]+")
_MODULE_PATTERN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+(:[^\W\d]\w*)?|[^\W\d]\w*:[^\W\d]\w*")
_SUFFIX = re.compile(r"[^/]\.([A-Za-z]\w{0,9}|\w*\*)$")
_FILE_NAME = re.compile(rb"[\w./+-]+\.(?:%s)\b" % b"|".join(suffix[1:].encode() for suffix in sorted(CODE_SUFFIXES)))
_CYTHON = re.compile(rb"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w.]+))", re.MULTILINE)
IMPORT_PATTERN = re.compile(r"^\s*(from\s+[\w.]+\s+import|import)\s+\w", re.MULTILINE)  # in a text that is Python
_STARTED_MODULE = re.compile(r"\s-m\s+([^\W\d]\w*(?:\.[^\W\d]\w*)*)")  # `python -m package.module` in a text
_WORD = re.compile(r"[^\s\"'`;&|()<>]+")
_SPACE = re.compile(r"\s")
_MAGIC = re.compile(r"^(\s*)[%!].*", re.MULTILINE)  # line of a notebook that is not Python
_IMPORTERS = ("import_module", "__import__")
_IMPORTERS_OF_OBJECTS = ("run_module", "resolve_name", "locate")  # given a module, or an object in one
_LAZY_LOADERS = ("lazy", "lazy_loader")  # names of the module `lazy_loader`
_MODULE_LISTERS = ("iter_modules", "walk_packages")
_FOLDER_LISTERS = ("listdir", "scandir", "walk")
_IDENTITY_FUNCTIONS = ("abspath", "realpath", "normpath", "expanduser", "str", "fspath")  # return the same path
_IDENTITY_METHODS = ("resolve", "absolute", "as_posix", "expanduser", "__str__")
_PATH_CLASSES = ("Path", "PurePath", "PosixPath", "PurePosixPath")
_EXTENDING_METHODS = ("insert", "append", "extend")
# Placeholders of texts such as "%02d" % number.
_PLACEHOLDER = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[a-zA-Z%]")
_MAX_LENGTH = 300  # characters of a path or of a module's name
_MAX_VALUES = 8  # limit for the possible values of one expression
_MAX_DEPTH = 20  # expressions within each other


class ImportedNames(NamedTuple):
    """Import statement: `from ..a import b, c` has level 2, module "a" and the names "b" and "c".

    `import_module(f"a.{name}")` has the module "a" and `has_all`, because any module below it may be imported. If the
    name has no constant beginning, any module of the file's outermost package or folder may be imported. `is_text`
    marks a text such as "a.b:c", which is an import only if the user has such a module.
    """

    level: int
    module: str
    names: tuple[str, ...] = ()
    has_all: bool = False
    is_text: bool = False


class SourceFile(NamedTuple):
    """Parsed content of a code file.

    Paths begin with `HERE`, the file's folder, or are relative to an unknown folder. A star is an unknown part.

    Attributes:
      sha256: Hash of its syntax tree.
      imports: Its import statements.
      paths: Paths of code, data or folders that the file names, except for `folders`.
      folders: Folders that it adds to `sys.path`, or to the path of its package.
      extends_path: Whether it adds to `sys.path`, or to the path of its package.
    """

    sha256: str
    imports: tuple[ImportedNames, ...] = ()
    paths: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    extends_path: bool = False


_parsed_files: dict[str, SourceFile] = {}  # by the sha256 of the content


def parse_source_file(path: str) -> SourceFile:
    """Returns the hash of a file on the disk and the names in it. Archives and data need not fit into memory.

    Raises:
      OSError: The file cannot be read.
    """
    suffix = os.path.splitext(path)[1]
    with open(path, "rb") as source:
        if suffix in _SCANNED_SUFFIXES:
            return parse_source(source.read(), suffix)
        return SourceFile(hashlib.file_digest(source, "sha256").hexdigest())


def parse_source(content: bytes, suffix: str = ".py") -> SourceFile:
    """Parses a file of code. A file that is not Python, or cannot be parsed, is hashed by its bytes."""
    digest = hashlib.sha256(content).hexdigest()
    if suffix != ".py":
        return _non_python_file(digest, content, suffix)
    if digest not in _parsed_files:
        try:
            _parsed_files[digest] = _python_file(ast.parse(content))
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # not parsable: compare the bytes
            _parsed_files[digest] = SourceFile(digest)
    return _parsed_files[digest]


def suffix_of(path: str) -> str:
    """Returns the suffix of a path, which may be a pattern; "" if it has none.

    >>> suffix_of("rules/fast.py"), suffix_of("*.py"), suffix_of("rules"), suffix_of(".py")
    ('.py', '.py', '', '')
    """
    match = _SUFFIX.search(path)
    return f".{match[1]}" if match else ""


def _non_python_file(digest: str, content: bytes, suffix: str) -> SourceFile:
    """Parses a file that is not Python: finds the paths of files that it includes, starts or imports."""
    if suffix not in _SCANNED_SUFFIXES:
        return SourceFile(digest)
    if suffix == ".ipynb":
        return _notebook(digest, content)
    paths = dict.fromkeys(name.decode("utf-8", "replace") for name in _FILE_NAME.findall(content))
    imports = list[ImportedNames]()
    if suffix in (".pyx", ".pxd"):
        modules = dict.fromkeys((cimported or imported).decode() for cimported, imported in _CYTHON.findall(content))
        imports = [
            ImportedNames(len(module) - len(module.lstrip(".")), module.strip("."), is_text=not module.startswith("."))
            for module in modules
        ]
    return SourceFile(digest, tuple(imports), tuple(paths))


def _notebook(digest: str, content: bytes) -> SourceFile:
    """Parses the Python in the code cells of a notebook, without magics and outputs."""
    try:
        cells = [cell["source"] for cell in json.loads(content)["cells"] if cell["cell_type"] == "code"]
        text = "\n".join(cell if isinstance(cell, str) else "".join(cell) for cell in cells)
        return _python_file(ast.parse(_MAGIC.sub(r"\1pass", text)))
    except (SyntaxError, ValueError, LookupError, TypeError, RecursionError, MemoryError):
        return SourceFile(digest)


def _python_file(tree: ast.Module) -> SourceFile:
    names = _CodeReferences(tree)
    imports = dict.fromkeys(names.imports())
    return SourceFile(_tree_sha256(tree), tuple(imports), *names.paths())


def _tree_sha256(tree: ast.AST) -> str:
    """Returns a hash of a syntax tree that is equal in all versions of Python: fields by name, without empty ones.

    It uses a stack instead of recursion, because long expressions are deep trees.
    """
    tokens: list[str] = []
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            tokens.append(node)
        elif isinstance(node, ast.AST):
            tokens.append(f"({type(node).__name__}")
            stack.append(")")
            for name in sorted(node._fields, reverse=True):
                value = getattr(node, name, None)
                if name == "body" and isinstance(node, _HAS_DOCSTRING):
                    value = _without_docstring(value)
                if value is not None and value != [] and name not in _IGNORED_FIELDS:
                    stack += [value if isinstance(value, ast.AST | list) else _constant_text(value), f"{name}="]
        else:
            tokens.append("[")
            stack.append("]")
            stack += [item if isinstance(item, ast.AST | list) else _constant_text(item) for item in reversed(node)]
    return hashlib.sha256("\0".join(tokens).encode("utf-8", "surrogatepass")).hexdigest()


def _constant_text(value: object) -> str:
    text = hex(value) if type(value) is int else repr(value)
    return f"{type(value).__name__} {text}"


def _without_docstring(body: Any) -> Any:
    first_statement = body[0] if isinstance(body, list) and body else None
    return body[1:] if _is_text_alone(first_statement) else body


def _is_text_alone(node: object) -> bool:
    """Returns whether a statement is only a string, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class _CodeReferences:
    """Modules and paths that the syntax tree of a file names.

    Args:
      tree: Syntax tree of the file.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._nodes: list[ast.AST] = []  # parents before children, without docstrings and imports for type checkers
        self._assigned_expressions: dict[str, list[ast.expr]] = {}
        self._importers = {*_IMPORTERS}
        self._import_path_names = set[str]()  # names of `sys.path`, by `from sys import path`
        self._sys_names = {"sys", "site"}  # names of the modules that have the import path
        self._values: dict[int, tuple[str, ...]] = {}  # possible values of expressions, by the id of their nodes
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            self._nodes.append(node)
            if isinstance(node, ast.ImportFrom):
                self._note_aliases(node)
            elif isinstance(node, ast.Import):
                self._sys_names.update(
                    alias.asname for alias in node.names if alias.asname and alias.name in ("sys", "site")
                )
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self._note_assignment(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                self._note_assignment(node.target, node.value)
            if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
                stack += node.orelse
            else:
                stack += [child for child in ast.iter_child_nodes(node) if not _is_text_alone(child)]

    def _note_aliases(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.asname and alias.name in _IMPORTERS:
                self._importers.add(alias.asname)
            if node.module == "sys" and alias.name == "path":
                self._import_path_names.add(alias.asname or alias.name)

    def _note_assignment(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._assigned_expressions.setdefault(target.id, []).append(value)
            if _last_name(value) in _IMPORTERS:
                self._importers.add(target.id)

    # Modules.

    def imports(self) -> Iterator[ImportedNames]:
        """Yields the imports of a module, at any depth, except those for type checkers only."""
        called_ids = {id(node.func) for node in self._nodes if isinstance(node, ast.Call)}
        assigned_ids = {id(value) for values in self._assigned_expressions.values() for value in values}
        for node in self._nodes:
            if isinstance(node, ast.Import):
                yield from (ImportedNames(0, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield ImportedNames(node.level, node.module or "", tuple(alias.name for alias in node.names))
            elif isinstance(node, ast.Call):
                yield from self._imported_by_call(node)
            elif isinstance(node, ast.Name | ast.Attribute):
                is_passed = (
                    id(node) not in called_ids and id(node) not in assigned_ids and isinstance(node.ctx, ast.Load)
                )
                if is_passed and _last_name(node) in self._importers:
                    yield ImportedNames(0, "", has_all=True)  # `map(import_module, names)`
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from _imported_by_text(node.value)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                yield from _pytest_plugins(node)

    def _imported_by_call(self, node: ast.Call) -> Iterator[ImportedNames]:
        """Yields the imports made by `importlib.import_module("a.b")`, `__import__("a")` and similar calls."""
        function_name = _last_name(node.func)
        name_arguments = [*node.args[:1], *(argument.value for argument in node.keywords if argument.arg == "name")]
        if function_name in _MODULE_LISTERS:
            yield ImportedNames(0, "", has_all=True)
            for argument in (*node.args[:1], *(argument.value for argument in node.keywords if argument.arg == "path")):
                if (
                    isinstance(argument, ast.Attribute)
                    and argument.attr == "__path__"
                    and isinstance(argument.value, ast.Name)
                ):
                    yield ImportedNames(0, argument.value.id, has_all=True)
        yield from self._imported_lazily(node)
        if function_name in _IMPORTERS_OF_OBJECTS and name_arguments:
            for text in self._possible_values(name_arguments[0]):
                module, _, name = text.partition(":")
                if _MODULE_PATTERN.fullmatch(text) or module.isidentifier():
                    yield ImportedNames(0, module, (name,) if name else (), is_text=True)
        if function_name not in self._importers or not name_arguments:
            return
        fromlist = [*node.args[3:4], *(argument.value for argument in node.keywords if argument.arg == "fromlist")]
        fromlist_names = [
            argument.value
            for fromlist_node in fromlist
            for argument in ast.walk(fromlist_node)
            if isinstance(argument, ast.Constant)
        ]
        for text in self._possible_values(name_arguments[0]):
            name = text.lstrip(".")
            if _UNKNOWN in name:
                known_prefix = name.partition(_UNKNOWN)[0]
                yield ImportedNames(len(text) - len(name), known_prefix.rpartition(".")[0], has_all=True)
            elif name:
                yield ImportedNames(
                    len(text) - len(name),
                    name,
                    tuple(argument for argument in fromlist_names if isinstance(argument, str)),
                )

    def _imported_lazily(self, node: ast.Call) -> Iterator[ImportedNames]:
        """Yields the imports of `lazy_loader.attach(__name__, submodules, submod_attrs)` and similar calls.

        If the modules are in a stub, or in a table of unknown form, any module of the package may be imported.
        """
        function_name = _last_name(node.func)
        is_lazy_loader = isinstance(node.func, ast.Attribute) and _last_name(node.func.value) in _LAZY_LOADERS
        if function_name == "load" and is_lazy_loader and node.args:
            yield from (
                ImportedNames(0, argument)
                for argument in self._possible_values(node.args[0])
                if _UNKNOWN not in argument
            )
        elif function_name in ("attach_stub", "_LazyModule"):
            yield ImportedNames(1, "", has_all=True)
        elif function_name == "attach" and node.args and _last_name(node.args[0]) == "__name__":
            for argument in (*node.args[1:3], *(argument.value for argument in node.keywords)):
                names = argument.keys if isinstance(argument, ast.Dict) else getattr(argument, "elts", None)
                if names is None:
                    yield ImportedNames(1, "", has_all=True)
                    continue
                texts = [name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)]
                yield from (ImportedNames(1, text) for text in texts)

    # Paths.

    def paths(self) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Returns the paths that the file names, the folders that it adds to an import path, and whether it does so."""
        paths = dict[str, None]()
        folders = dict[str, None]()
        used_ids = set[int]()
        extends_path = False
        for node in self._nodes:
            for folder in self._added_folders(node):
                folders.update(dict.fromkeys(self._possible_values(folder)))
                used_ids.update(map(id, ast.walk(folder)))
            extends_path |= self._extends_path(node)
        for node in self._nodes:
            if id(node) in used_ids or not isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call):
                continue
            if isinstance(node, ast.Call) and (written_path := _written_path(node)) is not None:
                used_ids.update(map(id, ast.walk(written_path)))
            values = self._possible_values(node)
            paths.update(dict.fromkeys(values))
            paths.update(dict.fromkeys(word for value in values for word in _scripts_in(value)))
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg == "config_path":  # an argument of hydra, relative to the file of code
                    # An unknown value, such as None, names no folder.
                    named_folders = (folder for folder in self._possible_values(keyword.value) if folder != _UNKNOWN)
                    names = (_joined_path((FILE_FOLDER, value)) for value in named_folders)
                    paths.update(dict.fromkeys(f"{name}/**/*.yaml" for name in names))
            if isinstance(node, ast.Call) and _last_name(node.func) in _MODULE_LISTERS and node.args:
                folder_nodes = node.args[0].elts if isinstance(node.args[0], ast.List | ast.Tuple) else node.args[:1]
                paths.update(
                    dict.fromkeys(f"{value}/*.py" for folder in folder_nodes for value in self._possible_values(folder))
                )
            if values and all(value.startswith(FILE_FOLDER) for value in values):
                used_ids.update(map(id, ast.walk(node)))  # its parts alone are not paths
        return (
            tuple(folder for folder in map(_normalized_path, paths) if _is_path(folder)),
            tuple(folder for folder in map(_normalized_path, folders) if _is_path(folder)),
            extends_path,
        )

    def _extends_path(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            is_of_module = node.attr in ("path", "addsitedir") and _last_name(node.value) in self._sys_names
            return is_of_module or node.attr == "syspath_prepend"
        return isinstance(node, ast.Name) and (node.id in self._import_path_names or node.id == "__path__")

    def _added_folders(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yields the expressions of folders that a statement or call adds to an import path."""
        pending_expressions: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("addsitedir", "syspath_prepend"):
                pending_expressions = node.args[:1]
            elif node.func.attr in _EXTENDING_METHODS and self._is_import_path(node.func.value):
                pending_expressions = node.args[-1:]
        elif isinstance(node, ast.AugAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pending_expressions = [node.value] if any(map(self._is_import_path, targets)) else []
        while pending_expressions:
            expression = pending_expressions.pop()
            if isinstance(expression, ast.List | ast.Tuple):
                pending_expressions += expression.elts
            elif (
                isinstance(expression, ast.BinOp)
                and isinstance(expression.op, ast.Add)
                and isinstance(expression.left, ast.List)
            ):
                pending_expressions += [expression.left, expression.right]
            elif not isinstance(expression, ast.Starred) and not self._is_import_path(expression):
                yield expression

    def _is_import_path(self, node: ast.AST) -> bool:
        """Returns whether an expression is `sys.path`, a part of it, or `__path__`."""
        if isinstance(node, ast.Subscript):
            return self._is_import_path(node.value)
        if isinstance(node, ast.Attribute):
            return node.attr == "path" and _last_name(node.value) in self._sys_names
        return isinstance(node, ast.Name) and (node.id in self._import_path_names or node.id == "__path__")

    # Values of expressions.

    def _possible_values(self, node: ast.AST, depth: int = 0) -> tuple[str, ...]:
        """Returns the possible values of an expression that is a text or a path, with a star for unknown parts."""
        if id(node) not in self._values:
            if depth > _MAX_DEPTH:
                return (_UNKNOWN,)
            self._values[id(node)] = (_UNKNOWN,)  # found if the expression contains itself, as in `path = path / "a"`
            values = dict.fromkeys(self._evaluate_node(node, depth + 1))
            self._values[id(node)] = tuple(value for value in values if len(value) <= _MAX_LENGTH)[:_MAX_VALUES]
        return self._values[id(node)]

    def _evaluate_node(self, node: ast.AST, depth: int) -> Iterable[str]:
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else [_UNKNOWN]
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return [_FILE_ITSELF]
            expressions = self._assigned_expressions.get(node.id, [])[:_MAX_VALUES]
            return [value for expression in expressions for value in self._possible_values(expression, depth)] or [
                _UNKNOWN
            ]
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            return map(_folder_of, self._possible_values(node.value, depth))
        if isinstance(node, ast.Subscript):
            return self._subscript_values(node, depth)
        if isinstance(node, ast.BinOp):
            return self._operator_values(node, depth)
        if isinstance(node, ast.JoinedStr):
            text_parts = [
                text_part.value if isinstance(text_part, ast.FormattedValue) else text_part for text_part in node.values
            ]
            return self._combinations("".join, text_parts, depth)
        if isinstance(node, ast.IfExp):
            return [*self._possible_values(node.body, depth), *self._possible_values(node.orelse, depth)]
        if isinstance(node, ast.BoolOp):
            return [value for operand in node.values for value in self._possible_values(operand, depth)]
        return self._call_values(node, depth) if isinstance(node, ast.Call) else [_UNKNOWN]

    def _subscript_values(self, node: ast.Subscript, depth: int) -> Iterable[str]:
        """Returns the possible values of a subscript. Only expressions like `path.parents[1]` are evaluated."""
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(node.value, ast.Attribute) and node.value.attr == "parents" and isinstance(index, int):
            values = self._possible_values(node.value.value, depth)
            for _ in range(min(abs(index), _MAX_DEPTH) + 1):
                values = tuple(map(_folder_of, values))
            return values
        return [_UNKNOWN]

    def _operator_values(self, node: ast.BinOp, depth: int) -> Iterable[str]:
        if isinstance(node.op, ast.Div):
            return self._combinations(_joined_path, [node.left, node.right], depth)
        if isinstance(node.op, ast.Add):
            return self._combinations("".join, [node.left, node.right], depth)
        if isinstance(node.op, ast.Mod):
            return [_PLACEHOLDER.sub(_UNKNOWN, value) for value in self._possible_values(node.left, depth)]
        return [_UNKNOWN]

    def _call_values(self, node: ast.Call, depth: int) -> Iterable[str]:
        function_name = _last_name(node.func)
        args = node.args
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_text_method = isinstance(owner, ast.Constant)
        if function_name in _PATH_CLASSES or (function_name == "join" and not is_text_method):
            return self._combinations(_joined_path, args, depth) if args else [""]
        if function_name == "files" and args:  # `importlib.resources.files("package")`
            return [value.replace(".", "/") for value in self._possible_values(args[0], depth)]
        if function_name == "dirname" and args:
            return map(_folder_of, self._possible_values(args[0], depth))
        if function_name in _IDENTITY_FUNCTIONS and len(args) == 1:
            return self._possible_values(args[0], depth)
        is_environment = function_name == "get" and owner is not None and _last_name(owner) == "environ"
        if len(args) == 2 and (function_name == "getenv" or is_environment):
            return self._possible_values(args[1], depth)  # the default
        if function_name in ("getcwd", "cwd"):
            return [""]
        if function_name in _FOLDER_LISTERS and (args or function_name != "walk"):
            return self._combinations(_joined_path, [*args[:1], None], depth) if args else [_UNKNOWN]
        if owner is None:
            return self._possible_values(args[0], depth) if function_name in ("glob", "iglob") and args else [_UNKNOWN]
        if function_name in _IDENTITY_METHODS:
            return self._possible_values(owner, depth)
        if function_name in ("glob", "iglob") and _last_name(owner) == "glob" and args:
            return self._possible_values(args[0], depth)
        if function_name in ("joinpath", "glob"):
            return self._combinations(_joined_path, [owner, *args], depth)
        if function_name == "rglob" and args:
            return [f"{folder}/**/{name}" for folder in self._possible_values(owner, depth)
                    for name in self._possible_values(args[0], depth)]  # fmt: skip
        if function_name == "iterdir":
            return self._combinations(_joined_path, [owner, None], depth)
        if function_name == "with_name" and args:
            folders = map(_folder_of, self._possible_values(owner, depth))
            return [
                _joined_path((folder, name)) for folder in folders for name in self._possible_values(args[0], depth)
            ]
        if function_name == "with_suffix" and args:
            return [os.path.splitext(path)[0] + suffix for path in self._possible_values(owner, depth)
                    for suffix in self._possible_values(args[0], depth)]  # fmt: skip
        if function_name == "format":
            return [re.sub(r"\{[^{}]*\}", _UNKNOWN, value) for value in self._possible_values(owner, depth)]
        return [_UNKNOWN]

    def _combinations(
        self, combine: Callable[[tuple[str, ...]], str], expressions: Iterable[ast.AST | None], depth: int
    ) -> Iterable[str]:
        """Returns the combinations of the possible values of several expressions. None: unknown expression."""
        combinations: list[tuple[str, ...]] = [()]
        for expression in expressions:
            values = self._possible_values(expression, depth) if expression is not None else (_UNKNOWN,)
            combinations = [(*combination, value) for combination in combinations for value in values][:_MAX_VALUES]
        return map(combine, combinations)


def _written_path(node: ast.Call) -> ast.expr | None:
    """Returns the path of a file that a call writes, by `open(path, "w")` or `path.write_text(...)`."""
    function_name = _last_name(node.func)
    if function_name in ("write_text", "write_bytes") and isinstance(node.func, ast.Attribute):
        return node.func.value
    is_method = isinstance(node.func, ast.Attribute) and bool(node.args) and isinstance(node.args[0], ast.Constant)
    index = 0 if is_method and len(node.args) == 1 else 1
    modes = [*node.args[index : index + 1], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else None
    if function_name != "open" or not isinstance(mode, str) or not mode.startswith(("w", "a", "x")) or len(mode) > 3:
        return None
    if index == 0 and isinstance(node.func, ast.Attribute):
        return node.func.value
    return node.args[0] if node.args else None


def _joined_path(path_parts: Collection[str]) -> str:
    path = ""
    for path_part in path_parts:
        path = path_part if not path or path_part.startswith(("/", "\0")) else f"{path}/{path_part}"
    return path


def _folder_of(path: str) -> str:
    """Returns the folder of a path. The path may be that of the code file itself, or unknown.

    >>> _folder_of(_FILE_ITSELF) == HERE, _folder_of(HERE) == HERE + "/..", _folder_of("a/b.py"), _folder_of("*")
    (True, True, 'a', '*')
    """
    if path == _FILE_ITSELF:
        return FILE_FOLDER
    if path in (FILE_FOLDER, "", "..") or path.endswith("/.."):
        return f"{path}/.." if path else ".."
    return path if path == _UNKNOWN else path.rpartition("/")[0]


def _normalized_path(path: str) -> str:
    """Returns a path in its shortest form: `a***b` becomes `a*b`, and unknown folders at its start (`*/`) are removed.

    A path that starts with an unknown folder is searched in all of the user's folders.
    """
    path = "/".join(
        path_part if path_part == "**" else re.sub(r"\*+", _UNKNOWN, path_part) for path_part in path.split("/")
    )
    while path.startswith(("*/", "./")):
        path = path[2:]
    return path


def _is_path(path: str) -> bool:
    """Returns whether a value may be the path of a file with a suffix, or a plain path of a folder."""
    if not path.strip("*./") or "\n" in path or path == _FILE_ITSELF:
        return False
    return bool(suffix_of(path)) or _FOLDER_PATTERN.fullmatch(path) is not None


def _scripts_in(line: str) -> Iterator[str]:
    """Yields the code files named in a shell command, such as `train.py` in `python train.py --fast`."""
    if _SPACE.search(line):
        yield from (word for word in _WORD.findall(line) if suffix_of(word) in CODE_SUFFIXES)


def _imported_by_text(text: str) -> Iterator[ImportedNames]:
    """Yields the modules in a text: a module name, modules after `python -m`, or imports if the text is code."""
    for module in _STARTED_MODULE.findall(text):
        yield from (ImportedNames(0, name, is_text=True) for name in (module, f"{module}.__main__"))
    if len(text) <= _MAX_LENGTH and _MODULE_PATTERN.fullmatch(text):
        module, _, name = text.partition(":")
        yield ImportedNames(0, module, (name,) if name else (), is_text=True)
    elif IMPORT_PATTERN.search(text):
        try:
            tree = ast.parse(textwrap.dedent(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        imports = _CodeReferences(tree).imports()
        yield from (
            imported._replace(is_text=True) for imported in imports if not imported.level and not imported.has_all
        )


def _pytest_plugins(node: ast.Assign | ast.AnnAssign) -> Iterator[ImportedNames]:
    """Yields the modules of `pytest_plugins = ["helpers.fixtures"]`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if node.value is not None and any(_last_name(target) == "pytest_plugins" for target in targets):
        for child in ast.walk(node.value):
            if isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value:
                yield ImportedNames(0, child.value)


def _last_name(node: ast.AST) -> str:
    """Returns the name of a variable, or the last name of an attribute."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""

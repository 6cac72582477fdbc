"""The plugin manager: built-ins, entry points in the group "lobench", modules of conftest files."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from lobench import hookspecs
from lobench.core.containment import contain_plugins, convert_plugin_errors
from lobench.core.errors import (
    ConfigError,
    LobenchError,
    PluginError,
    PluginFailure,
    UsageError,
    suggestion,
    with_parts,
)
from lobench.core.wording import describe_value, headline
from lobench.hookspecs import Declaration, Executor, ExecutorEvent

__all__ = [
    "CASE_WORKER",
    "COMMAND_WORKER",
    "EXECUTOR_RESULTS",
    "BrokenPlugin",
    "GuardedPlugin",
    "PluginManager",
    "Registered",
    "installed_entry_points",
    "load_plugins",
]

# Entry point of worker processes that evaluate cases; see `lobench.engine.workers.protocol.Configure.serve`.
# It is the only name of a higher layer in this module.
CASE_WORKER = "lobench.pytest_plugin.worker:serve"
COMMAND_WORKER = "lobench.engine.workers.command:serve"


EXECUTOR_RESULTS: Mapping[str, Callable[[Any], bool]] = {
    "start": lambda _: True,
    "send": lambda _: True,
    "kill": lambda _: True,
    "wait": lambda result: isinstance(result, Sequence) and all(isinstance(event, ExecutorEvent) for event in result),
    "close": lambda _: True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenPlugin:
    """An entry point or plugin that failed to import, or has wrong hooks. It is skipped.

    Attributes:
      name: Name of the entry point or plugin.
      distribution: Package that provides it, or the hook that failed.
      cause: The error, in one line.
      imports: Whether it was imported.
    """

    name: str
    distribution: str
    cause: str
    imports: bool = False

    def __str__(self) -> str:
        reason = "takes no part" if self.imports else "does not import"
        return f"{self.name} ({self.distribution}) {reason}: {self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A declaration with the plugin that made it."""

    declaration: Declaration
    plugin: str
    module: object = None

    def load(self) -> Any:
        """Imports the factory.

        Raises:
          PluginError: The import failed. The message names plugin, declaration and cause.
        """
        module, _, attribute = self.declaration.factory.partition(":")
        problem = f"cannot load {self.declaration.name!r} from {self.declaration.factory!r}"
        where = f"plugin {self.plugin!r}"
        with (
            convert_plugin_errors(lambda error: PluginFailure(problem, where=where, got=headline(error))),
            self._suite_importable(),
        ):
            loaded_module = importlib.import_module(module) if module else self.module
            return getattr(loaded_module, attribute) if attribute else loaded_module

    def make(self, *arguments: object, where: str, **keywords: object) -> Any:
        """Calls the factory with arguments from the user.

        Raises:
          LobenchError: The factory raised a LobenchError.
          ConfigError: The factory does not accept a keyword.
          PluginError: The factory raised another exception. The message is one line, with the user's text in `where`.
        """
        factory = self.load()
        parameters = inspect.signature(factory).parameters if keywords else {}
        is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        for name in keywords:
            if name not in parameters and not is_open:
                expected = "one of " + ", ".join(parameters) if parameters else "nothing"
                raise ConfigError(
                    f"{self.declaration.name!r} takes no {name!r}",
                    where=where,
                    expected=expected,
                    next_step=suggestion(name, parameters),
                )
        try:
            with contain_plugins():
                return factory(*arguments, **keywords)
        except LobenchError as error:
            if error.where or type(error) is not ConfigError:
                raise
            raise with_parts(error, ConfigError, where=where) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Errors that a factory raises for unsuitable arguments of the user.
            is_refusal = isinstance(error, ValueError | TypeError | LookupError | OSError)
            kind = PluginError if is_refusal else PluginFailure
            raise kind(
                f"{self.declaration.name!r} of plugin {self.plugin!r} cannot be made", where=where, got=headline(error)
            ) from error

    def make_guarded(
        self,
        *arguments: object,
        where: str,
        hook: str,
        results: Mapping[str, Callable[[Any], bool]],
        fallbacks: Mapping[str, object] = {},
        failure: type[PluginFailure] = PluginFailure,
        keywords: Mapping[str, object] = {},
        passes: tuple[type[Exception], ...] = (),
    ) -> Any:
        """Calls the factory, and guards the calls of the object's methods and their results.

        Args:
          arguments: Arguments of the factory.
          where: The user's text, for errors.
          hook: Hook that declares the object, for errors.
          results: Checks of the results of methods, by the names of the methods.
          fallbacks: Results to use for methods that fail, by name, if the command can continue. The failure is printed
            once.
          failure: Class of the errors of the other methods.
          keywords: Keywords of the factory, from the user.
          passes: Exceptions besides `LobenchError` that the methods may raise.

        Raises:
          LobenchError: The factory failed, as in `make`.
          PluginFailure: The object lacks one of these methods.
        """
        instance = self.make(*arguments, where=where, **keywords)
        if self.plugin.startswith("lobench."):
            return instance
        location = f"plugin {self.plugin!r}, hook {hook}, {self.declaration.name!r}"
        if missing_methods := [name for name in results if not callable(getattr(instance, name, None))]:
            raise PluginFailure(
                "the factory returned something else",
                where=location,
                got=describe_value(instance),
                expected=f"{missing_methods[0]}()",
            )
        guarded_class = type(type(instance).__name__, (GuardedPlugin,), {})  # errors name the plugin's class
        return guarded_class(instance, location, results, fallbacks, failure, passes)

    @contextlib.contextmanager
    def _suite_importable(self) -> Iterator[None]:
        """Makes modules next to a declaring conftest.py importable."""
        old_path = list(sys.path)
        if Path(self.plugin).name == "conftest.py":
            sys.path.insert(0, str(Path(self.plugin).parent))
        try:
            yield
        finally:
            sys.path[:] = old_path


class GuardedPlugin:
    """Wrapper of a plugin's object. Errors in its methods, and results of the wrong type, raise errors that name it.

    `LobenchError` and the exceptions that the methods may raise pass unchanged.
    """

    def __init__(
        self,
        wrapped: object,
        where: str,
        results: Mapping[str, Callable[[Any], bool]],
        fallbacks: Mapping[str, object],
        failure: type[PluginFailure],
        passes: tuple[type[Exception], ...],
    ) -> None:
        self._wrapped = wrapped
        self._where = where
        self._results = results
        self._fallbacks = fallbacks
        self._failure = failure
        self._passes = passes
        self._printed: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        if name not in self._results:
            return value

        passes: tuple[type[BaseException], ...] = (LobenchError, KeyboardInterrupt, *self._passes)

        @functools.wraps(value)
        def call_guarded(*arguments: Any, **keywords: Any) -> Any:
            cause: BaseException | None = None
            try:
                with contain_plugins():
                    result = value(*arguments, **keywords)
                if self._results[name](result):
                    return result
                problem = f"{name}() returned something of another type"
                got = describe_value(result)
            except passes:
                raise
            except BaseException as error:  # noqa: BLE001  (a plugin boundary: raised below, or printed)
                problem = f"{name}() failed"
                got = headline(error)
                cause = error
            failure = self._failure(problem, where=self._where, got=got)
            if name not in self._fallbacks:
                raise failure from cause
            if name not in self._printed:
                self._printed.add(name)
                print(f"lobench: {failure}; going on", file=sys.stderr)
            return self._fallbacks[name]

        setattr(self, name, call_guarded)
        return call_guarded


class PluginManager(pluggy.PluginManager):
    """pluggy's manager for "lobench". A plain `def lobench_...` counts as an implementation, as in pytest.

    >>> PluginManager().declarations("lobench_result_sinks")
    {}
    """

    def __init__(self) -> None:
        super().__init__("lobench")
        self.add_hookspecs(hookspecs.HookSpecs)
        self.broken: list[BrokenPlugin] = []

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith("lobench_") and inspect.isroutine(getattr(plugin, name, None)):
            options = pluggy.HookimplOpts(
                wrapper=False, hookwrapper=False, optionalhook=False, tryfirst=False, trylast=False, specname=None
            )
        return options

    def take(self, plugin: object, name: str) -> None:
        """Registers a plugin, completely or not at all.

        Raises:
          PluginError: It implements an unknown hook, or one with unknown arguments.
        """
        where = f"plugin {name!r}"
        try:
            self.register(plugin, name=name)
        except pluggy.PluginValidationError as error:
            self.unregister(name=name)
            got = str(error).splitlines()[-1]
            raise PluginError("a hook does not match its specification", where=where, got=got) from error
        for caller in self.get_hookcallers(plugin) or ():
            implementations = [
                implementation
                for implementation in caller.get_hookimpls()
                if implementation.plugin is plugin and not implementation.optionalhook
            ]
            if implementations and not caller.has_spec():
                self.unregister(name=name)
                hook_names = [hook for hook in vars(hookspecs.HookSpecs) if hook.startswith("lobench_")]
                next_step = suggestion(caller.name, hook_names)
                raise PluginError(f"unknown hook {caller.name}", where=where, next_step=next_step)

    def declarations(self, hook: str) -> dict[str, Registered]:
        """Returns the declarations of a hook, by name.

        Implementations that raise, or return something else than declarations, are left out and added to `broken`.

        Raises:
          PluginError: Two plugins declare one name (both are named).
        """
        declarations_by_name, problems = self._collect_declarations(hook)
        for problem in problems.values():
            raise problem
        return declarations_by_name

    def usable_declarations(self, hook: str) -> dict[str, Registered]:
        """Returns the valid declarations of a hook, and adds the faults of the others to `broken`.

        Use it in commands that need all declarations, because a conflict between two plugins must not stop them.
        """
        declarations, problems = self._collect_declarations(hook)
        for problem in problems.values():
            self._note_broken(hook, hook, str(problem))
        return declarations

    def _collect_declarations(self, hook: str) -> tuple[dict[str, Registered], dict[str, PluginError]]:
        """Returns the declarations of a hook by name, and the errors of names that two plugins declare."""
        declarations: dict[str, Registered] = {}
        problems: dict[str, PluginError] = {}
        for implementation in reversed(getattr(self.hook, hook).get_hookimpls()):
            plugin = implementation.plugin_name
            try:
                declarations_of_plugin = self._call_hook(hook, implementation.function, plugin)
            except PluginFailure as error:  # `find` names it if a name is missing
                self._note_broken(plugin, hook, str(error))
                continue
            for declaration in declarations_of_plugin:
                earlier_declaration = declarations.get(declaration.name)
                if earlier_declaration is not None:
                    problems[declaration.name] = PluginError(
                        f"{hook}: two plugins declare {declaration.name!r}: {earlier_declaration.plugin!r} "
                        f"({earlier_declaration.declaration.factory}) and {plugin!r} ({declaration.factory})",
                        next_step="remove or rename one",
                    )
                else:
                    declarations[declaration.name] = Registered(
                        declaration=declaration, plugin=plugin, module=implementation.plugin
                    )
        return {
            name: registered_declaration
            for name, registered_declaration in sorted(declarations.items())
            if name not in problems
        }, problems

    def _note_broken(self, plugin: str, hook: str, cause: str) -> None:
        broken_plugin = BrokenPlugin(name=plugin, distribution=hook, cause=cause, imports=True)
        if broken_plugin not in self.broken:
            self.broken.append(broken_plugin)

    def _call_hook(self, hook: str, function: Callable[[], Any], plugin: str) -> list[Declaration]:
        problem, where = f"hook {hook} failed", f"plugin {plugin!r}"
        with convert_plugin_errors(lambda error: PluginFailure(problem, where=where, got=headline(error))):
            returned_value: Any = function()
            declarations = list(returned_value) if isinstance(returned_value, Iterable) else [returned_value]
        for declaration in declarations:
            if not isinstance(declaration, Declaration):
                raise PluginFailure(
                    f"hook {hook} returned something else than declarations",
                    where=f"plugin {plugin!r}",
                    got=type(declaration).__name__,
                    expected="lobench.hookspecs.Declaration",
                )
            name = declaration.name
            shown_name = repr(name) if isinstance(name, str) else describe_value(name)
            for field_name in ("name", "factory", "summary"):
                if not isinstance(text := getattr(declaration, field_name), str) or (field_name == "name" and not text):
                    raise PluginFailure(
                        f"hook {hook} declares {shown_name} with a {field_name} that is not a text",
                        where=f"plugin {plugin!r}",
                        got=describe_value(text),
                    )
        return declarations

    def gin_modules(self) -> list[str]:
        """Returns the modules that plugins declare for gin, by the names of their declarations.

        Faults of declarations are added to `broken`.
        """
        registered_declarations = self.usable_declarations("lobench_gin_modules").values()
        return [
            registered_declaration.declaration.factory.partition(":")[0]
            for registered_declaration in registered_declarations
        ]

    def make_executor(self, name: str, *arguments: object) -> Executor:
        """Makes an executor for a command with its own workers. Calls are guarded as by `make_guarded`.

        Args:
          name: Name of its declaration.
          arguments: Arguments of its factory: the configuration of workers, and the connection that wakes it, or None.
        Raises:
          LobenchError: There is no such executor, or it cannot be made.
        """
        hook = "lobench_executors"
        registered_executor = self.find(hook, name, kind="executor")
        executor: Executor = registered_executor.make_guarded(
            *arguments, where=f"--executor {name}", hook=hook, results=EXECUTOR_RESULTS
        )
        return executor

    def find(self, hook: str, name: str, *, kind: str, where: str = "") -> Registered:
        """Returns one declaration.

        Args:
          hook: Name of the hook.
          name: Name of the declaration.
          kind: Kind of object, for the error message.
          where: The user's text, for errors.

        Raises:
          UsageError: No plugin declares this name.
          PluginError: Two plugins declare this name.
        """
        declarations, problems = self._collect_declarations(hook)
        if name in problems:
            raise problems[name]
        if name in declarations:
            return declarations[name]
        broken_text = "".join(f"; plugin {plugin}" for plugin in self.broken)
        expected = "one of " + ", ".join(declarations) if declarations else ""
        raise UsageError(
            f"unknown {kind} {name!r}",
            where=where,
            expected=expected,
            next_step=(suggestion(name, declarations) or "is its plugin installed? see `lobench plugins`")
            + broken_text,
        )

    def register_conftest(self, module: ModuleType) -> None:
        """Registers a conftest module that defines `lobench_*` hooks, once, under its file's path.

        Raises:
          PluginError: It has wrong hooks, as in `take`.
        """
        name = getattr(module, "__file__", None) or module.__name__
        has_hooks = any(attribute.startswith("lobench_") for attribute in vars(module))
        if has_hooks and not self.has_plugin(name):
            self.take(module, name)

    def plugins(self) -> Iterator[tuple[str, list[str]]]:
        """Yields each plugin's name and the hooks that it implements."""
        for name, plugin in self.list_name_plugin():
            if plugin is not None:
                yield name, sorted(caller.name for caller in self.get_hookcallers(plugin) or ())


@functools.cache
def _built_in_modules() -> list[str]:
    """Returns lobench's own plugins: all modules `builtin*.py` of its packages."""
    root = Path(__file__).parent
    paths = sorted(path.relative_to(root.parent).with_suffix("") for path in root.rglob("builtin*.py"))
    return [".".join(path.parts) for path in paths]


def installed_entry_points(group: str) -> metadata.EntryPoints:
    """Returns the entry points of installed packages in a group.

    Packages are read once, and again after a change of a folder of `sys.path`.
    """
    entry_points: metadata.EntryPoints = _entry_points_in(_stamped_folders()).select(group=group)
    return entry_points


def installed_plugins(groups: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the names and versions of the installed packages that have entry points in some groups, sorted."""
    return _plugins_in(_stamped_folders(), tuple(groups))


@functools.lru_cache(maxsize=1)
def _plugins_in(folders: tuple[tuple[str, int], ...], groups: tuple[str, ...]) -> list[tuple[str, str]]:
    entry_points = itertools.chain.from_iterable(_entry_points_in(folders).select(group=group) for group in groups)
    packages = [entry_point.dist.metadata for entry_point in entry_points if entry_point.dist is not None]
    return sorted((package["Name"], package["Version"]) for package in packages)


def _stamped_folders() -> tuple[tuple[str, int], ...]:
    return tuple((folder, _modification_ns(folder)) for folder in sys.path)


@functools.lru_cache(maxsize=1)
def _entry_points_in(folders: tuple[tuple[str, int], ...]) -> Any:  # its type depends on the version of Python
    return metadata.entry_points()


def _modification_ns(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def load_plugins() -> PluginManager:
    """Returns a manager with the built-ins and every entry point that can be imported.

    >>> "npz" in load_plugins().declarations("lobench_checkpoint_readers")
    True
    """
    manager = PluginManager()
    for name in _built_in_modules():
        manager.register(importlib.import_module(name), name=name)
    for entry_point in sorted(installed_entry_points("lobench"), key=lambda point: point.name):
        plugin = None
        try:
            with contain_plugins():
                plugin = entry_point.load()
            manager.take(plugin, entry_point.name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (a plugin boundary: named below, and the rest goes on)
            distribution = entry_point.dist.name if entry_point.dist else "unknown"  # reads the package's metadata
            broken_plugin = BrokenPlugin(
                name=entry_point.name, distribution=distribution, cause=headline(error), imports=plugin is not None
            )
            manager.broken.append(broken_plugin)
    return manager

"""Load a plug-in: a Python file, an installed module, or an entry point of the group `harmony_conformance.checks`.

Loading executes the code. So nothing is loaded that the user did not name: neither what a report names, nor what happens to be installed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import cast

from harmony_conformance.checks import FAMILIES
from harmony_conformance.errors import UsageError
from harmony_conformance.judge.check import Check, CheckBase, Comparison
from harmony_conformance.plugins.own_checks import InvalidCheckError, Literals, own_checks
from harmony_conformance.plugins.registry import (
    Plugin,
    PluginSource,
    plugin_sources,
    plugins_in_use,
    set_plugins,
)

GROUP = "harmony_conformance.checks"
"""The group of entry points by which installed packages name their modules."""
_FILES = "harmony_conformance_plugins"
"""The package name of modules from files. No such package exists, so none of them hides another module."""
_FAMILIES = frozenset(family.__name__.rpartition(".")[2] for family in FAMILIES)
_PREFIX = re.compile(r"[a-z][a-z0-9_]*")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


class InvalidPluginError(UsageError):
    """A plug-in that cannot be used. The message has one line with its name."""


def use_plugins(names: Sequence[str]) -> AbstractContextManager[None]:
    """Load plug-ins for the time of a context.

    Raises:
        InvalidPluginError: One is invalid.
    """
    return plugins_in_use(load_plugins(names))


def load_plugins(names: Sequence[str]) -> tuple[Plugin, ...]:
    """Load plug-ins by their names. One that is named twice is loaded once.

    Raises:
        InvalidPluginError: One is invalid, or two have the same prefix.
    """
    plugins: dict[str, Plugin] = {}
    for name in dict.fromkeys(names):
        loaded = _load(_find(name))
        if (other := plugins.setdefault(loaded.source.prefix, loaded)) is not loaded:
            prefix = loaded.source.prefix
            raise _invalid(name, f"a name that no other plug-in has, got {prefix!r}, which {other.source.name} has too")
    return tuple(plugins.values())


def restore_plugins(sources: Sequence[PluginSource]) -> None:
    """Load the plug-ins of the parent process, unless this process has them.

    Raises:
        InvalidPluginError: One cannot be loaded here, or is another version.
    """
    if plugin_sources() != tuple(sources):
        set_plugins([_load(_found_again(source)) for source in sources])


def _found_again(source: PluginSource) -> PluginSource:
    """Return the source. A module is looked for in this process, and has to be that of the parent process."""
    if source.module and _find_module(source.name, source.module) != source:
        raise _invalid(source.name, f"the files of the parent process (sha256 {source.sha256[:12]}), got others")
    return source


def _find(name: str) -> PluginSource:
    """Return the source of a named plug-in."""
    if name.endswith(".py") or "/" in name or os.sep in name:
        return _find_file(name)
    points = sorted(entry_points(group=GROUP, name=name), key=lambda point: point.value)
    if len({point.value for point in points}) > 1:
        values = " and ".join(point.value for point in points)
        raise _invalid(name, f"one entry point of this name, got {values}")
    return _find_module(name, points[0].module if points else name)


def _find_file(name: str) -> PluginSource:
    path = Path(name)
    if path.suffix != ".py" or path.is_dir():
        raise _invalid(name, f"a Python file (.py), got {'a folder' if path.is_dir() else 'another file'}")
    try:
        code = path.read_bytes()
    except (OSError, ValueError) as problem:  # ValueError: a null character
        raise _invalid(name, f"a readable file, got {getattr(problem, 'strerror', None) or problem}") from None
    return PluginSource(
        name=name, module="", prefix=_prefix(name, path.stem), sha256=sha256(code).hexdigest(), code=code
    )


def _find_module(name: str, module: str) -> PluginSource:
    """Import a module and return its source, with the hash of the files of its package."""
    if not _MODULE.fullmatch(module):
        raise _invalid(name, f"a file (.py), a module, or an entry point, got {name!r}")
    prefix = _prefix(name, module.partition(".")[0])
    try:
        import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise _import_error(name, problem) from None
        hint = "; the name of a file ends with .py" if Path(name).exists() or Path(f"{name}.py").exists() else ""
        raise _invalid(
            name, f"an installed module, or an entry point of the group {GROUP}, got no such name{hint}"
        ) from None
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt):
            raise
        raise _import_error(name, problem) from None
    digest = sha256()
    for place, content in _package_files(name, sys.modules[prefix]):
        digest.update(f"{place}\0{len(content)}\0".encode())
        digest.update(content)
    return PluginSource(name=name, module=module, prefix=prefix, sha256=digest.hexdigest())


def _package_files(name: str, package: ModuleType) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files of a package or module, by their path in it."""
    folders = [Path(folder) for folder in getattr(package, "__path__", ())]
    file = Path(package.__file__ or "") if getattr(package, "__file__", None) else None
    found = {path.relative_to(folder).as_posix(): path for folder in folders for path in folder.rglob("*.py")}
    if not folders and file is not None and file.suffix == ".py":
        found = {file.name: file}
    if not found:
        raise _invalid(name, "a module with Python files, got one without")
    yield from ((place, found[place].read_bytes()) for place in sorted(found))


def _prefix(name: str, prefix: str) -> str:
    """Return the prefix of the checks: the name of the file, or of the package."""
    if not _PREFIX.fullmatch(prefix):
        raise _invalid(
            name, f"a name of lower-case letters, digits and _, as it begins the ids of checks, got {prefix!r}"
        )
    if prefix in _FAMILIES or prefix == "harmony_conformance":
        raise _invalid(name, f"a name that no family of checks of this package has, got {prefix!r}")
    return prefix


def _load(source: PluginSource) -> Plugin:
    """Execute a file, or take an imported module, and return its checks."""
    if source.module:
        module = sys.modules[source.module]
        literals = Literals.of_sources(
            content for _, content in _package_files(source.name, sys.modules[source.prefix])
        )
        owner = source.prefix
    else:
        module = _execute(source)
        literals = Literals.of_sources((source.code,))
        owner = module.__name__
    members: Iterable[object] = vars(module).values()
    found = [cast("Check | Comparison", value) for value in members if isinstance(value, CheckBase)]
    try:
        checks = own_checks({id(rule): rule for rule in found}.values(), source.prefix, owner, literals)
    except InvalidCheckError as problem:
        raise _invalid(source.name, str(problem)) from None
    return Plugin(source=source, checks=checks)


def _execute(source: PluginSource) -> ModuleType:
    """Execute the content of a file as a module. It is the content that was hashed, also if the file has changed since."""
    name = f"{_FILES}.{source.prefix}"
    module = ModuleType(name)
    module.__file__ = source.name
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look for their module there
    try:
        exec(compile(source.code, source.name, "exec", dont_inherit=True), vars(module))  # noqa: S102 - the user named it
    except BaseException as problem:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        if isinstance(problem, KeyboardInterrupt):
            raise
        raise _import_error(source.name, problem) from None
    return module


def _import_error(name: str, problem: BaseException) -> InvalidPluginError:
    """Return the error of code that raised, with its last line within the plug-in if there is one."""
    text = " ".join(str(problem).split())
    place = ""
    if not isinstance(problem, SyntaxError):  # which names its own line
        lines = [line for frame, line in walk_tb(problem.__traceback__) if frame.f_code.co_filename == name]
        place = f" (line {lines[-1]})" if lines else ""
    return _invalid(name, f"Python that can be imported, got {type(problem).__name__}{text and f': {text}'}{place}")


def _invalid(name: str, rest: str) -> InvalidPluginError:
    return InvalidPluginError(f"invalid plug-in {name}: expected {rest}")

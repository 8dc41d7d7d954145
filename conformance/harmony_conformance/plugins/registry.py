"""The checks of this process: those of this package, and those of the plug-ins that a command loaded."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from harmony_conformance.checks import CHECKS
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.check import Check, Comparison


@dataclass(frozen=True, kw_only=True)
class PluginSource:
    """The source of a plug-in. It can be sent to another process, which loads the same checks.

    Attributes:
        name: The file, module or entry point, as the user named it.
        module: The name of the module, empty for a file.
        prefix: The part of each id before the point.
        sha256: The hash of the file, or of all files of the package.
        code: The content of the file, empty for a module.
    """

    name: str
    module: str
    prefix: str
    sha256: str
    code: bytes = b""

    def to_json(self) -> JsonObject:
        """Return what a report says of it."""
        module: JsonObject = {"module": self.module} if self.module else {}
        return {"name": self.name, **module, "prefix": self.prefix, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A loaded plug-in: its source and its checks."""

    source: PluginSource
    checks: tuple[Check | Comparison, ...]


_loaded: list[Plugin] = []


def loaded_plugins() -> tuple[Plugin, ...]:
    """Return the plug-ins of this process."""
    return tuple(_loaded)


def plugin_sources() -> tuple[PluginSource, ...]:
    """Return the sources of the plug-ins of this process."""
    return tuple(one.source for one in _loaded)


def plugin_header() -> JsonObject:
    """Return the member of a report's header that names the plug-ins. Empty without a plug-in."""
    sources: list[Json] = [one.to_json() for one in plugin_sources()]
    return {"plugins": sources} if sources else {}


def set_plugins(plugins: Sequence[Plugin]) -> None:
    """Replace the plug-ins of this process."""
    _loaded[:] = plugins


@contextmanager
def plugins_in_use(plugins: Sequence[Plugin]) -> Generator[None]:
    """Use these plug-ins within the context."""
    before = loaded_plugins()
    set_plugins(plugins)
    try:
        yield
    finally:
        set_plugins(before)


def all_checks() -> tuple[Check | Comparison, ...]:
    """Return the checks of this package, then those of the plug-ins. Between two changes of the plug-ins it is the same tuple."""
    return _all_checks(loaded_plugins()) if _loaded else CHECKS


@lru_cache(maxsize=8)
def _all_checks(plugins: tuple[Plugin, ...]) -> tuple[Check | Comparison, ...]:
    return (*CHECKS, *(check for one in plugins for check in one.checks))


def find_check(id_: str) -> Check | Comparison | None:
    """Return the check with this id, None without one."""
    return _by_id(loaded_plugins()).get(id_)


@lru_cache(maxsize=8)
def _by_id(plugins: tuple[Plugin, ...]) -> dict[str, Check | Comparison]:
    return {check.id: check for check in (*CHECKS, *(check for one in plugins for check in one.checks))}


def plugin_of(id_: str) -> PluginSource | None:
    """Return the source of the plug-in that has this check, None for a check of this package."""
    return next((one.source for one in _loaded if one.source.prefix == id_.partition(".")[0]), None)


def plugin_arguments(id_: str) -> tuple[str, ...]:
    """Return the arguments with which a command knows this check. A check of this package needs none."""
    source = plugin_of(id_)
    return ("--plugin", source.name) if source is not None else ()

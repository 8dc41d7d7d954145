"""The figures of a finished load, read from its `load.json`."""

from __future__ import annotations

import re
from pathlib import Path

from harmony_conformance.json_value import InvalidJsonError, JsonObject, items, loads, members, text, value_at

_ONE = re.compile(r"(?<![\d.])(1 (?:client|request|token))s\b")

LOAD = "load.json"
"""File name of the figures in the folder of a run."""
LOAD_PAGE = "load.html"
"""File name of the page with them."""


class InvalidLoadError(ValueError):
    """A file that is no `load.json`. The message has its path."""


def read_loads(path: Path) -> tuple[JsonObject, ...]:
    """Read the figures of each load.

    Raises:
        InvalidLoadError: It cannot be read, or is no `load.json`.
    """
    try:
        document = loads(path.read_bytes())
    except OSError as problem:
        raise InvalidLoadError(f"{path}: {problem.strerror}") from None
    except InvalidJsonError as problem:
        raise InvalidLoadError(f"{path}: {problem}") from None
    found = tuple(members(load) for load in items(value_at(document, "loads")))
    if not found or not all(isinstance(value_at(load, "metrics"), dict) for load in found):
        raise InvalidLoadError(f"{path}: expected loads with metrics, got none")
    return tuple({**load, "load": _current_name(text(value_at(load, "load")))} for load in found)


def _current_name(name: str) -> str:
    """Return the name of a load as this version writes it. Version 0.1.0 wrote `1 clients`."""
    return _ONE.sub(r"\1", name)

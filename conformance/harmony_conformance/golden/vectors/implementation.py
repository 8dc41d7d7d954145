"""An implementation: its name, and how it answers each kind of vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from harmony_conformance.json_value import JsonObject

Answer: TypeAlias = Callable[[JsonObject], JsonObject]
"""The input of a vector to what the implementation says: an object of the kind's form, or one with an `error`."""


class UnsupportedVectorError(Exception):
    """An implementation can not answer this vector here: what it is about is not at hand. Says what."""


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """What takes part in a check, kind by kind."""

    name: str
    version: str
    answers: Mapping[str, Answer]


@dataclass(frozen=True, kw_only=True)
class Absent:
    """An implementation that can not take part, and why."""

    name: str
    reason: str


def error(kind: str, text: str) -> JsonObject:
    """The answer of an implementation that refuses: `message`, `render` or `parse`, and the library's own words."""
    return {"error": {"kind": kind, "text": text}}

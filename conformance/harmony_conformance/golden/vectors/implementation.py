"""Interface of an implementation of Harmony: its name, and a function for each kind of vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harmony_conformance.json_value import Json, JsonObject

AnswerFunction: TypeAlias = Callable[[JsonObject], JsonObject]
"""Function from the input of a vector to the answer: an object in the form of its kind, or one with an `error`."""


class UnsupportedVectorError(Exception):
    """An implementation cannot answer a vector because a source is not available. The message names the source."""


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """An implementation with its answers by kind of vector."""

    name: str
    version: str
    answers: Mapping[str, AnswerFunction]


@dataclass(frozen=True, kw_only=True)
class UnavailableImplementation:
    """An implementation that cannot take part, and the reason."""

    name: str
    reason: str


def stream_answer(before: JsonObject, steps: Sequence[JsonObject], end: JsonObject, messages: Json) -> JsonObject:
    """Build the answer to a stream vector: the values before and after each token and at the end, the first error before them."""
    errors: list[JsonObject] = [{"error": step["error"]} for step in (*steps, end) if "error" in step]
    return {**(errors[0] if errors else {}), "before": before, "steps": [*steps], "end": end, "messages": messages}


def error_answer(kind: str, text: str) -> JsonObject:
    """Build the answer for an error: its kind (`message`, `render` or `parse`) and the library's text."""
    return {"error": {"kind": kind, "text": text}}

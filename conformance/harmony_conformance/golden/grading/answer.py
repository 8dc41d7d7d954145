"""The answer of an implementation to a vector: its rules, and the form in which it is compared.

    {"tokens": […], "text": "…"}              render; one of both is enough
    {"messages": […]}                         parse
    {"steps": […], "before", "end", "messages"}   stream
    {"typescript": "…"}                       typescript
    {"error": {"kind", "position"}}           any kind: the input is refused; `error` may be a text

An answer is compared in the members that it has. The text of an error is never compared: the wording is the implementation's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from harmony_conformance.golden.vectors.vector_file import Vector, VectorFile
from harmony_conformance.json_value import Json, JsonObject, integers, items, members, text

KINDS: Final = ("render", "parse", "stream", "typescript")
"""The kinds of vectors that an implementation of Harmony is asked for."""

_REQUIRED: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {"render": ("tokens", "text"), "parse": ("messages",), "stream": ("steps",), "typescript": ("typescript",)}
)
_OPTIONAL: Final[Mapping[str, Sequence[str]]] = MappingProxyType({"stream": ("before", "end", "messages")})
_TYPES: Final[Mapping[str, tuple[type, str]]] = MappingProxyType(
    {
        "tokens": (list, "a list of token ids"),
        "text": (str, "a string"),
        "messages": (list, "a list of messages"),
        "before": (dict, "an object"),
        "end": (dict, "an object"),
        "steps": (list, "a list of objects, one for each token"),
        "typescript": (str, "a string"),
    }
)


class InvalidAnswerError(ValueError):
    """An answer is not in the form of its kind. The message has the reason in one line."""


def vector_kind(vector: Vector) -> str:
    """Return the kind of a vector, the first part of its id."""
    return vector.id.partition("/")[0]


def is_unsupported(answer: JsonObject) -> bool:
    """Return True if the implementation does not offer what the vector asks for."""
    return answer.get("unsupported") is True


def normalized_answer(kind: str, answer: JsonObject) -> JsonObject:
    """Return the answer in its compared form: without ids, nulls in messages, wordings of errors, and split texts.

    Raises:
        InvalidAnswerError: A member is missing or has another type.
    """
    required = _REQUIRED[kind]
    refusal = _error(answer)
    if refusal is None and not any(name in answer for name in required):
        got = ", ".join(answer) or "no member"
        raise InvalidAnswerError(f"invalid answer: expected {' or '.join(required)}, or error, got {got[:80]}")
    for name in (*required, *_OPTIONAL.get(kind, ())):
        expected_type, description = _TYPES[name]
        if name in answer and not isinstance(answer[name], expected_type):
            raise InvalidAnswerError(f"invalid {name}: expected {description}, got {_shown(answer[name])}")
    if kind == "render" and integers(items(answer.get("tokens"))) is None:
        raise InvalidAnswerError("invalid tokens: expected a list of token ids, got other values in it")
    if not all(isinstance(step, dict) for step in items(answer.get("steps"))):
        raise InvalidAnswerError("invalid steps: expected a list of objects, one for each token")
    normal: JsonObject = {name: value for name, value in answer.items() if name not in ("id", "error")}
    if "messages" in answer:
        normal["messages"] = [_normalized_message(message) for message in items(answer["messages"])]
    if "steps" in answer:
        normal["steps"] = [_normalized_step(members(step)) for step in items(answer["steps"])]
    for name in ("before", "end"):
        if name in answer:
            normal[name] = _normalized_step(members(answer[name]))
    return normal if refusal is None else {"error": refusal, **normal}


def is_reported_correction(answer: JsonObject) -> bool:
    """Return True if the implementation read malformed input and lists the faults that it corrected."""
    return bool(items(answer.get("faults")))


def select_vectors(files: Sequence[VectorFile], kinds: Sequence[str]) -> list[Vector]:
    """Return the vectors of these kinds, in the order of the files."""
    return [vector for file in files if file.kind in kinds for vector in file.vectors]


def _error(answer: JsonObject) -> JsonObject | None:
    """Return the error without its text. A stream may have it in a step only."""
    refusal = answer.get("error")
    if refusal is None:
        steps = [*items(answer.get("steps")), answer.get("end")]
        refusal = next((step["error"] for step in map(members, steps) if step.get("error") is not None), None)
    if refusal is None or refusal is False:
        return None
    return {name: value for name, value in members(refusal).items() if name in ("kind", "position")}


def _normalized_step(step: JsonObject) -> JsonObject:
    refusal = step.get("error")
    if refusal is None:
        return {name: value for name, value in step.items() if name != "error"}
    return {**step, "error": {name: value for name, value in members(refusal).items() if name in ("kind", "position")}}


def _normalized_message(message: Json) -> Json:
    """Return a message without null members, and with one text part written as its text."""
    if not isinstance(message, dict):
        return message
    present: JsonObject = {name: value for name, value in message.items() if value is not None}
    match present.get("content"):
        case [{"type": "text", "text": str(content), **rest}] if not rest:
            present["content"] = content
        case _:
            pass
    return present


def _shown(value: Json) -> str:
    return repr(text(value) or value)[:40]

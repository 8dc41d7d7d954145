"""Parsed inputs of golden vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from harmony_conformance.golden.vectors.vector_file import InvalidVectorsError
from harmony_conformance.json_value import Json, JsonObject, items
from harmony_ref import Role, encode_with_special_tokens

OBSERVABLE: Final = ("state", "role", "channel", "recipient", "content_type", "delta", "content", "finished", "data")
"""Values that a stream vector may observe after each token.

Attributes of the library's StreamableParser, and the number of finished messages (`finished`).
"""

_LARGEST_TOKEN: Final = 2**32 - 1
"""Largest token id that the library accepts."""


class Mode(StrEnum):
    """The render function of the library."""

    MESSAGE = "message"
    CONVERSATION = "conversation"
    COMPLETION = "completion"
    TRAINING = "training"


class Strictness(StrEnum):
    """Treatment of malformed tokens."""

    STRICT = "strict"
    NON_STRICT = "non_strict"
    LENIENT = "lenient"


@dataclass(frozen=True, kw_only=True)
class RenderInput:
    """Messages in their wire form, and the options of the renderer.

    Attributes:
        spelled_out: The same messages for a library without response formats: that section is written out as text.
    """

    messages: list[Json]
    mode: Mode
    next_role: Role
    auto_drop_analysis: bool
    conversation_has_function_tools: bool
    spelled_out: list[Json] | None


@dataclass(frozen=True, kw_only=True)
class ParseInput:
    """Tokens, the role of the header before them, and the treatment of malformed tokens. Only streams have `observe`."""

    tokens: Sequence[int]
    role: Role | None
    strictness: Strictness
    observe: Sequence[str] = ()

    @property
    def strict(self) -> bool:
        """True if the library parses in strict mode. It has no lenient mode, so lenient vectors are strict too."""
        return self.strictness is not Strictness.NON_STRICT


def read_render(vector_input: JsonObject) -> RenderInput:
    """Parse the input of a render vector.

    Raises:
        InvalidVectorsError: a member is missing or invalid.
    """
    _reject_unknown_members(vector_input, {field.name for field in fields(RenderInput)})
    mode = Mode(_choice(vector_input.get("mode"), list(Mode), "mode"))
    messages = vector_input.get("messages")
    spelled_out = vector_input.get("spelled_out")
    if not isinstance(messages, list) or (mode is Mode.MESSAGE and len(messages) != 1):
        one = " of one message" if mode is Mode.MESSAGE else ""
        raise InvalidVectorsError(f"invalid messages: expected a list{one}")
    return RenderInput(
        messages=messages,
        mode=mode,
        next_role=Role(_choice(vector_input.get("next_role", "assistant"), list(Role), "next_role")),
        auto_drop_analysis=_flag(vector_input, "auto_drop_analysis", default=True),
        conversation_has_function_tools=_flag(vector_input, "conversation_has_function_tools", default=False),
        spelled_out=None if spelled_out is None else items(spelled_out),
    )


def read_parse(vector_input: JsonObject) -> ParseInput:
    """Parse the input of a parse vector. Raises as `read_render`."""
    _reject_unknown_members(vector_input, {"text", "tokens", "role", "strictness"})
    return _parse_input(vector_input)


def read_stream(vector_input: JsonObject) -> ParseInput:
    """Parse the input of a stream vector. Raises as `read_render`."""
    _reject_unknown_members(vector_input, {"text", "tokens", "role", "strictness", "observe"})
    if not (names := items(vector_input.get("observe"))):
        raise InvalidVectorsError("invalid observe: expected a list of names")
    return _parse_input(vector_input, [_choice(name, list(OBSERVABLE), "observe") for name in names])


def read_schema(vector_input: JsonObject) -> Json:
    """Return the JSON schema of a typescript vector. Raises as `read_render`."""
    _reject_unknown_members(vector_input, {"schema"})
    if "schema" not in vector_input:
        raise InvalidVectorsError("schema is missing")
    return vector_input["schema"]


def with_tokens(vector_input: JsonObject) -> JsonObject:
    """Return the input with the tokens of its text. An input without text is returned unchanged."""
    text = vector_input.get("text")
    if not isinstance(text, str):
        return vector_input
    rest = {name: vector_input[name] for name in vector_input if name not in ("text", "tokens")}
    return {"text": text, "tokens": [*encode_with_special_tokens(text)], **rest}


def _parse_input(vector_input: JsonObject, observe: Sequence[str] = ()) -> ParseInput:
    tokens = vector_input.get("tokens")
    if not isinstance(tokens, list):
        raise InvalidVectorsError("invalid tokens: expected a list")
    role = vector_input.get("role")
    if "text" not in vector_input or "role" not in vector_input:
        raise InvalidVectorsError("text and role are required; each may be null")
    return ParseInput(
        tokens=[_token(token) for token in tokens],
        role=None if role is None else Role(_choice(role, list(Role), "role")),
        strictness=Strictness(_choice(vector_input.get("strictness"), list(Strictness), "strictness")),
        observe=observe,
    )


def _reject_unknown_members(vector_input: JsonObject, names: set[str]) -> None:
    if unknown := [name for name in vector_input if name not in names]:
        raise InvalidVectorsError(f"unknown member {unknown[0]!r} in input")


def _choice(value: Json, known: Sequence[str], name: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidVectorsError(f"invalid {name}: expected one of {', '.join(known)}, got {value!r}")
    return value


def _flag(vector_input: JsonObject, name: str, *, default: bool) -> bool:
    if not isinstance(value := vector_input.get(name, default), bool):
        raise InvalidVectorsError(f"invalid {name}: expected true or false")
    return value


def _token(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_TOKEN:
        raise InvalidVectorsError(f"invalid token id {value!r}: expected an integer from 0 to {_LARGEST_TOKEN}")
    return value

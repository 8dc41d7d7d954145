"""What the inputs of the vectors say, read once for every implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harmony_conformance.golden.vectors.vector_file import InvalidVectorsError
from harmony_conformance.json_value import Json, JsonObject, items
from harmony_ref import Role, encode_with_special_tokens

OBSERVABLE: Final = ("state", "role", "channel", "recipient", "content_type", "delta", "content", "finished", "data")
"""What a stream vector may ask for after each token: attributes of the library's StreamableParser, and the number of finished messages."""

_LARGEST_TOKEN: Final = 2**32 - 1
"""Of the numbers that the library takes for an id."""


class Mode(StrEnum):
    """Which of the library's renderers."""

    MESSAGE = "message"
    CONVERSATION = "conversation"
    COMPLETION = "completion"
    TRAINING = "training"


class Strictness(StrEnum):
    """How malformed tokens are met."""

    STRICT = "strict"
    NON_STRICT = "non_strict"
    LENIENT = "lenient"


@dataclass(frozen=True, kw_only=True)
class RenderInput:
    """Messages in their wire form, and how they are rendered.

    Attributes:
        spelled_out: the same messages for a library without response formats: the section stands in a text. Written by hand.
    """

    messages: list[Json]
    mode: Mode
    next_role: Role
    auto_drop_analysis: bool
    conversation_has_function_tools: bool
    spelled_out: list[Json] | None


@dataclass(frozen=True, kw_only=True)
class ParseInput:
    """Tokens, the role that stood before them, and how malformed ones are met. `observe` is a stream's."""

    tokens: Sequence[int]
    role: Role | None
    strictness: Strictness
    observe: Sequence[str] = ()

    @property
    def strict(self) -> bool:
        """Whether the library is to be strict: it knows no lenient parsing."""
        return self.strictness is not Strictness.NON_STRICT


def read_render(given: JsonObject) -> RenderInput:
    """The input of a render vector.

    Raises:
        BadVectors: a member is missing, of another type, or not among the known values.
    """
    _only(
        given, {"messages", "mode", "next_role", "auto_drop_analysis", "conversation_has_function_tools", "spelled_out"}
    )
    mode = Mode(_choice(given.get("mode"), list(Mode), "mode"))
    messages = given.get("messages")
    spelled_out = given.get("spelled_out")
    if not isinstance(messages, list) or (mode is Mode.MESSAGE and len(messages) != 1):
        raise InvalidVectorsError(
            "messages is no list" if mode is not Mode.MESSAGE else "messages is no list of one message"
        )
    return RenderInput(
        messages=messages,
        mode=mode,
        next_role=Role(_choice(given.get("next_role", "assistant"), list(Role), "next_role")),
        auto_drop_analysis=_flag(given.get("auto_drop_analysis", True), "auto_drop_analysis"),
        conversation_has_function_tools=_flag(
            given.get("conversation_has_function_tools", False), "conversation_has_function_tools"
        ),
        spelled_out=None if spelled_out is None else items(spelled_out),
    )


def read_parse(given: JsonObject) -> ParseInput:
    """The input of a parse vector.

    Raises:
        BadVectors: as `read_render`.
    """
    _only(given, {"text", "tokens", "role", "strictness"})
    return _parse_input(given)


def read_stream(given: JsonObject) -> ParseInput:
    """The input of a stream vector.

    Raises:
        BadVectors: as `read_render`.
    """
    _only(given, {"text", "tokens", "role", "strictness", "observe"})
    wanted = items(given.get("observe"))
    if not wanted:
        raise InvalidVectorsError("observe names nothing")
    return _parse_input(given, [_choice(name, list(OBSERVABLE), "observe") for name in wanted])


def read_schema(given: JsonObject) -> Json:
    """The JSON schema of a typescript vector.

    Raises:
        BadVectors: as `read_render`.
    """
    _only(given, {"schema"})
    if "schema" not in given:
        raise InvalidVectorsError("schema is missing")
    return given["schema"]


def completed(given: JsonObject) -> JsonObject:
    """The input with the tokens that its text stands for; as it is where it has no text."""
    match given:
        case {"text": str(text)}:
            tokens: list[Json] = list(encode_with_special_tokens(text))
            return {
                "text": text,
                "tokens": tokens,
                **{name: given[name] for name in given if name not in ("text", "tokens")},
            }
        case _:
            return given


def _parse_input(given: JsonObject, observe: Sequence[str] = ()) -> ParseInput:
    tokens = given.get("tokens")
    if not isinstance(tokens, list):
        raise InvalidVectorsError("tokens is no list")
    role = given.get("role")
    if "text" not in given or "role" not in given:
        raise InvalidVectorsError("text and role have to be there; each may be null")
    return ParseInput(
        tokens=[_token(token) for token in tokens],
        role=None if role is None else Role(_choice(role, list(Role), "role")),
        strictness=Strictness(_choice(given.get("strictness"), list(Strictness), "strictness")),
        observe=observe,
    )


def _only(given: JsonObject, names: set[str]) -> None:
    unknown = [name for name in given if name not in names]
    if unknown:
        raise InvalidVectorsError(f"input has a member {unknown[0]!r}")


def _choice(value: Json, known: Sequence[str], name: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidVectorsError(f"{name} is {value!r}, not one of {', '.join(known)}")
    return value


def _flag(value: Json, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidVectorsError(f"{name} is neither true nor false")
    return value


def _token(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_TOKEN:
        raise InvalidVectorsError(f"tokens holds {value!r}, which is no token id")
    return value

"""List every text of a response that reaches a client, with its location.

The texts are read from the JSON, not from a `Turn`, since a leak may be in any member (an id, a refusal, an annotation).
Deltas of a stream are joined member by member, so that text split between them is complete again.
Token ids and log probabilities are no texts: they show the model's tokens on request, special ones included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harmony_conformance.apis.chat_completion import Turn
from harmony_conformance.apis.stream_choices import ChunkChoice
from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    integer,
    items,
    loads,
    member_names,
    members,
    text,
    value_at,
)
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.runtime.caching import cached_property
from harmony_ref import tokens


class FieldKind(StrEnum):
    """The kind of text in a field. INPUT: what the model wrote for a tool that is no function, such as a patch, a command or a query."""

    CONTENT = "content"
    REASONING = "reasoning"
    NAME = "name"
    ARGUMENTS = "arguments"
    INPUT = "input"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class TextField:
    """A text of a response. `where` is its path in the message (`tool_calls/0/function/name`), `kind` its kind."""

    where: str
    text: str
    kind: FieldKind = FieldKind.CONTENT


@dataclass(frozen=True, kw_only=True)
class AnswerTexts:
    """The texts of one choice, its emitted token ids (None if unknown), and the tokens that its log probabilities name."""

    fields: tuple[TextField, ...]
    ids: tuple[int, ...] | None = None
    logprobs: tuple[str, ...] = ()

    def longest_text(self, kind: FieldKind) -> str:
        """Return the longest text of a kind, or an empty one: a server may repeat the same text in several members."""
        return self._longest.get(kind, "")

    @cached_property
    def _longest(self) -> dict[FieldKind, str]:
        longest: dict[FieldKind, str] = {}
        for field in self.fields:
            if len(field.text) > len(longest.get(field.kind, "")):
                longest[field.kind] = field.text
        return longest


def turn_fields(turn: Turn) -> Iterator[TextField]:
    """Yield the texts that a typical client reads: content, reasoning, function names and arguments."""
    if turn.content:
        yield TextField(where="content", text=turn.content)
    if turn.reasoning:
        yield TextField(where=turn.reasoning_field or "reasoning", text=turn.reasoning, kind=FieldKind.REASONING)
    for index, call in enumerate(turn.tool_calls):
        yield TextField(where=f"tool_calls/{index}/function/name", text=call.name, kind=FieldKind.NAME)
        yield TextField(where=f"tool_calls/{index}/function/arguments", text=call.arguments, kind=FieldKind.ARGUMENTS)


def read_answers(body: Json) -> tuple[AnswerTexts, ...]:
    """Return the texts of each choice of a `chat.completion` object."""
    return tuple(
        AnswerTexts(
            fields=tuple(_texts(value_at(choice, "message"))),
            ids=_harmony_ids(items(value_at(choice, "token_ids"))),
            logprobs=tuple(_logprob_tokens(choice)),
        )
        for choice in items(value_at(body, "choices"))
    )


def read_streamed_answers(choices: Iterable[ChunkChoice]) -> tuple[AnswerTexts, ...]:
    """Return the texts of each choice of a stream, by its index, deltas joined."""
    deltas: dict[int, _JoinedDeltas] = defaultdict(_JoinedDeltas)
    ids: dict[int, list[Json]] = defaultdict(list)
    logprobs: dict[int, list[str]] = defaultdict(list)
    for part in choices:
        index = part.choice_index or 0
        deltas[index].add(part.delta)
        if "token_ids" in part.choice:
            ids[index] += items(part.choice["token_ids"])
        if part.choice.get("logprobs") is not None:
            logprobs[index] += _logprob_tokens(part.choice)
    return tuple(
        AnswerTexts(fields=tuple(_texts(joined.value())), ids=_harmony_ids(ids[index]), logprobs=tuple(logprobs[index]))
        for index, joined in sorted(deltas.items())
    )


def _logprob_tokens(choice: Json) -> list[str]:
    """Return the chosen tokens of a choice's log probabilities, without the alternatives of `top_logprobs`."""
    return [text(value_at(entry, "token")) for entry in items(value_at(choice, "logprobs", "content"))]


class _JoinedDeltas:
    """A value that arrives in deltas. Texts are concatenated, members and elements are joined by name and `index`."""

    def __init__(self) -> None:
        self._members: dict[str, _JoinedDeltas] = {}
        self._elements: dict[int, _JoinedDeltas] = {}
        self._pieces: list[str] = []
        self._other: Json = None

    def add(self, piece: Json) -> None:
        """Add a delta."""
        match piece:
            case str():
                self._pieces.append(piece)
            case dict():
                for name, member in piece.items():
                    joined = self._members.get(name)
                    if joined is None:
                        joined = self._members[name] = _JoinedDeltas()
                    if isinstance(member, str):
                        joined._pieces.append(member)  # a call for each delta costs more
                    else:
                        joined.add(member)
            case list():
                for position, item in enumerate(piece):
                    index = integer(value_at(item, "index"))
                    self._elements.setdefault(position if index is None else index, _JoinedDeltas()).add(item)
            case _:
                self._other = piece if self._other is None else self._other

    def value(self) -> Json:
        """Return the joined value. If deltas had several types, an object wins over an array, and that over a text."""
        if self._members:
            return {name: member.value() for name, member in self._members.items()}
        if self._elements:
            return [self._elements[place].value() for place in sorted(self._elements)]
        return "".join(self._pieces) if self._pieces else self._other


_KINDS: Mapping[str, FieldKind] = {
    **dict.fromkeys(("content", "refusal"), FieldKind.CONTENT),
    **dict.fromkeys((*REASONING_FIELDS, "reasoning_details"), FieldKind.REASONING),
    "role": FieldKind.NAME,
}


def _texts(message: Json) -> Iterator[TextField]:
    for name, value in members(message).items():
        if name == "tool_calls":
            for index, call in enumerate(items(value)):
                yield from _call(call, f"{name}/{index}")
        elif name == "function_call":
            yield from _call({"function": value}, name)
        elif name in _PARTS_OF_CALLS and isinstance(value, list):
            for index, item in enumerate(value):
                yield from _item(item, f"{name}/{index}", _PARTS_OF_CALLS[name])
        else:
            yield from _walk(value, name, _KINDS.get(name, FieldKind.OTHER))


def _call(call: Json, where: str) -> Iterator[TextField]:
    function = value_at(call, "function")
    for name in ("id", "type"):
        yield from _walk(value_at(call, name), f"{where}/{name}", FieldKind.NAME)
    yield from _walk(value_at(function, "name"), f"{where}/function/name", FieldKind.NAME)
    arguments = value_at(function, "arguments")
    place = f"{where}/function/arguments"
    yield from _walk(arguments, place, FieldKind.ARGUMENTS)
    yield from (TextField(where=place, text=key, kind=FieldKind.NAME) for key in member_names(parse_text(arguments)))


_PARTS_OF_CALLS: Mapping[str, Mapping[str, FieldKind]] = {
    "output": {
        **dict.fromkeys(("name", "namespace", "call_id"), FieldKind.NAME),
        **dict.fromkeys(("input", "code", "action", "operation"), FieldKind.INPUT),
        "arguments": FieldKind.ARGUMENTS,
    },
    "blocks": {**dict.fromkeys(("name", "id"), FieldKind.NAME), "input": FieldKind.ARGUMENTS},
}
"""The members of a call by kind of text: of an item of Responses, and of a block of Messages. Calls of functions are translated."""
_CALLS = ("_call", "_tool_use", "mcp_approval_request")


def _item(item: Json, where: str, parts: Mapping[str, FieldKind]) -> Iterator[TextField]:
    """Yield the texts of an item or a block. Those of a call have their kinds, and a result of a tool is of the kind OTHER."""
    is_call = text(value_at(item, "type")).endswith(_CALLS)
    if not isinstance(item, dict):
        yield from _walk(item, where, FieldKind.OTHER)
    for name, value in members(item).items():
        kind = parts.get(name, FieldKind.OTHER) if is_call else FieldKind.OTHER
        yield from _walk(value, f"{where}/{name}", kind)
        if kind is FieldKind.ARGUMENTS:
            names = member_names(parse_text(value))
            yield from (TextField(where=f"{where}/{name}", text=key, kind=FieldKind.NAME) for key in names)


def _walk(value: Json, where: str, place: FieldKind) -> Iterator[TextField]:
    """Yield all texts in a value. Members that only describe a content part (`type`, `id`, …) are of the kind OTHER."""
    match value:
        case str():
            if value:
                yield TextField(where=where, text=value, kind=place)
        case list():
            for index, item in enumerate(value):
                yield from _walk(item, f"{where}/{index}", place)
        case dict():
            for name, member in value.items():
                yield from _walk(member, f"{where}/{name}", FieldKind.OTHER if name in _PART_DESCRIPTION else place)
        case _:
            return


_PART_DESCRIPTION = frozenset({"type", "format", "id", "signature", "data"})


def parse_text(value: Json) -> Json:
    """Return the value, or the JSON value of its text, None if the text is invalid."""
    if not isinstance(value, str):
        return value
    try:
        return loads(value)
    except InvalidJsonError:
        return None


def _harmony_ids(ids: list[Json]) -> tuple[int, ...] | None:
    """Return the ids of a choice, or None if the list is empty or one is not a Harmony token."""
    known = tuple(one for item in ids if (one := integer(item)) is not None and tokens.is_known(one))
    return known if known and len(known) == len(ids) else None

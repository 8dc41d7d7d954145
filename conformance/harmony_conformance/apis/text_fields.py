"""Every text of an answer that reaches a client, and the place it stands in.

Read from the JSON itself, not from a `Turn`: a leak may stand in a member that no client of ours reads (an id, a refusal, an annotation, a member of
the server's own). Deltas of a stream are joined member by member, so that what is cut over them is whole again. Ids and log probabilities are no text
for a client: they show the model's tokens on request, special ones too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from harmony_conformance.apis.chat_completion import Turn
from harmony_conformance.apis.chat_stream import ChunkChoice
from harmony_conformance.json_value import InvalidJsonError, Json, at, items, loads, members, number, text
from harmony_conformance.prompts.chat_request import REASONING_FIELDS
from harmony_conformance.runtime.caching import cached_property
from harmony_ref import tokens


class FieldKind(StrEnum):
    """What kind of text may stand in a field."""

    CONTENT = "content"
    REASONING = "reasoning"
    NAME = "name"
    ARGUMENTS = "arguments"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class TextField:
    """A text of an answer, and where it stands."""

    where: str
    text: str
    place: FieldKind = FieldKind.CONTENT


@dataclass(frozen=True, kw_only=True)
class AnswerTexts:
    """One choice: its fields, the ids the model emitted for it (None where they are not known), and the tokens that its log probabilities name."""

    fields: tuple[TextField, ...]
    ids: tuple[int, ...] | None = None
    logprobs: tuple[str, ...] = ()

    def text_of(self, place: FieldKind) -> str:
        """The longest text of a place: a server may tell the same one in several members."""
        return self._longest.get(place, "")

    @cached_property
    def _longest(self) -> dict[FieldKind, str]:
        longest: dict[FieldKind, str] = {}
        for field in self.fields:
            if len(field.text) > len(longest.get(field.place, "")):
                longest[field.place] = field.text
        return longest


def fields(turn: Turn) -> Iterator[TextField]:
    """The texts of an answer as a client reads it: content, reasoning, names and arguments."""
    if turn.content:
        yield TextField(where="content", text=turn.content)
    if turn.reasoning:
        yield TextField(where=turn.reasoning_field or "reasoning", text=turn.reasoning, place=FieldKind.REASONING)
    for index, call in enumerate(turn.tool_calls):
        yield TextField(where=f"tool_calls/{index}/function/name", text=call.name, place=FieldKind.NAME)
        yield TextField(where=f"tool_calls/{index}/function/arguments", text=call.arguments, place=FieldKind.ARGUMENTS)


def read_answers(body: Json) -> tuple[AnswerTexts, ...]:
    """The choices of a `chat.completion` object."""
    return tuple(
        AnswerTexts(
            fields=tuple(_texts(at(choice, "message"))),
            ids=_known(items(at(choice, "token_ids"))),
            logprobs=tuple(_named(choice)),
        )
        for choice in items(at(body, "choices"))
    )


def read_streamed_answers(choices: Iterable[ChunkChoice]) -> tuple[AnswerTexts, ...]:
    """The choices of a stream by their index, deltas joined."""
    deltas: dict[int, _Joined] = defaultdict(_Joined)
    ids: dict[int, list[Json]] = defaultdict(list)
    logprobs: dict[int, list[str]] = defaultdict(list)
    for told in choices:
        index = told.number or 0
        deltas[index].add(told.delta)
        if (shown := told.choice.get("token_ids")) is not None:
            ids[index] += items(shown)
        if told.choice.get("logprobs") is not None:
            logprobs[index] += _named(told.choice)
    return tuple(
        AnswerTexts(fields=tuple(_texts(joined.value())), ids=_known(ids[index]), logprobs=tuple(logprobs[index]))
        for index, joined in sorted(deltas.items())
    )


def _named(choice: Json) -> list[str]:
    """The tokens that the log probabilities of a choice are about; what else might have come is no part of the answer."""
    return [text(at(entry, "token")) for entry in items(at(choice, "logprobs", "content"))]


class _Joined:
    """State: the pieces of a value that came in deltas: texts one after the other, members and elements each in their place."""

    def __init__(self) -> None:
        self._members: dict[str, _Joined] = {}
        self._elements: dict[int, _Joined] = {}
        self._pieces: list[str] = []
        self._other: Json = None

    def add(self, piece: Json) -> None:
        """One more delta."""
        match piece:
            case str():
                self._pieces.append(piece)
            case dict():
                for name, member in piece.items():
                    joined = self._members.get(name)
                    if joined is None:
                        joined = self._members[name] = _Joined()
                    joined.add(member)
            case list():
                for position, item in enumerate(piece):
                    index = number(at(item, "index"))
                    self._elements.setdefault(position if index is None else index, _Joined()).add(item)
            case _:
                self._other = piece if self._other is None else self._other

    def value(self) -> Json:
        """The whole. Where a member had several types, the one that holds most."""
        if self._members:
            return {name: member.value() for name, member in self._members.items()}
        if self._elements:
            return [self._elements[place].value() for place in sorted(self._elements)]
        return "".join(self._pieces) if self._pieces else self._other


def _texts(message: Json) -> Iterator[TextField]:
    for name, value in members(message).items():
        if name in ("content", "refusal"):
            yield from _walk(value, name, FieldKind.CONTENT)
        elif name in REASONING_FIELDS or name == "reasoning_details":
            yield from _walk(value, name, FieldKind.REASONING)
        elif name == "role":
            yield from _walk(value, name, FieldKind.NAME)
        elif name == "tool_calls":
            for index, call in enumerate(items(value)):
                yield from _call(call, f"{name}/{index}")
        elif name == "function_call":
            yield from _call({"function": value}, name)
        else:
            yield from _walk(value, name, FieldKind.OTHER)


def _call(call: Json, where: str) -> Iterator[TextField]:
    function = at(call, "function")
    for name in ("id", "type"):
        yield from _walk(at(call, name), f"{where}/{name}", FieldKind.NAME)
    yield from _walk(at(function, "name"), f"{where}/function/name", FieldKind.NAME)
    arguments = at(function, "arguments")
    place = f"{where}/function/arguments"
    yield from _walk(arguments, place, FieldKind.ARGUMENTS)
    yield from (TextField(where=place, text=key, place=FieldKind.NAME) for key in _keys(_parsed(arguments)))


def _walk(value: Json, where: str, place: FieldKind) -> Iterator[TextField]:
    """The texts of a value. What part of a content it is, `type`, tells nothing."""
    match value:
        case str():
            if value:
                yield TextField(where=where, text=value, place=place)
        case list():
            for index, item in enumerate(value):
                yield from _walk(item, f"{where}/{index}", place)
        case dict():
            for name, member in value.items():
                yield from _walk(member, f"{where}/{name}", FieldKind.OTHER if name in _OF_A_PART else place)
        case _:
            return


_OF_A_PART = frozenset({"type", "format", "id", "signature", "data"})


def _keys(value: Json) -> Iterator[str]:
    match value:
        case list():
            for item in value:
                yield from _keys(item)
        case dict():
            for name, member in value.items():
                yield name
                yield from _keys(member)
        case _:
            return


def _parsed(arguments: Json) -> Json:
    if not isinstance(arguments, str):
        return arguments
    try:
        return loads(arguments)
    except InvalidJsonError:
        return None


def _known(ids: list[Json]) -> tuple[int, ...] | None:
    """The ids of a choice, None where it has none, or one that is no token of Harmony."""
    known = tuple(one for item in ids if (one := number(item)) is not None and tokens.is_known(one))
    return known if known and len(known) == len(ids) else None

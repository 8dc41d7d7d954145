"""Every text of an answer that reaches a client, and the place it stands in.

Read from the JSON itself, not from a `Turn`: a leak may stand in a member that no client of ours reads (an id, a refusal, an annotation, a member of
the server's own). Deltas of a stream are joined member by member, so that what is cut over them is whole again. Ids and log probabilities are no text
for a client: they show the model's tokens on request, special ones too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from harmony_conformance.engines import REASONING_FIELDS
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import Json, NotJson, at, items, loads, members, number, text
from harmony_conformance.turn import Turn
from harmony_ref import tokens


class Place(StrEnum):
    """What kind of text may stand in a field."""

    CONTENT = "content"
    REASONING = "reasoning"
    NAME = "name"
    ARGUMENTS = "arguments"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Field:
    """A text of an answer, and where it stands."""

    where: str
    text: str
    place: Place = Place.CONTENT


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One choice: its fields, the ids the model emitted for it (None where they are not known), and the tokens that its log probabilities name."""

    fields: tuple[Field, ...]
    ids: tuple[int, ...] | None = None
    logprobs: tuple[str, ...] = ()

    def text_of(self, place: Place) -> str:
        """The longest text of a place: a server may tell the same one in several members."""
        return max((field.text for field in self.fields if field.place is place), key=len, default="")


def fields(turn: Turn) -> Iterator[Field]:
    """The texts of an answer as a client reads it: content, reasoning, names and arguments."""
    if turn.content:
        yield Field(where="content", text=turn.content)
    if turn.reasoning:
        yield Field(where=turn.reasoning_field or "reasoning", text=turn.reasoning, place=Place.REASONING)
    for index, call in enumerate(turn.tool_calls):
        yield Field(where=f"tool_calls/{index}/function/name", text=call.name, place=Place.NAME)
        yield Field(where=f"tool_calls/{index}/function/arguments", text=call.arguments, place=Place.ARGUMENTS)


def answers(x: Exchange) -> tuple[Answer, ...]:
    """Each choice of an answer, whole or streamed, with every text in it."""
    if x.turn is None:
        return ()
    streamed = x.stream is not None
    choices = _joined(x) if streamed else dict(enumerate(items(at(x.body, "choices"))))
    return tuple(
        Answer(
            fields=tuple(_texts(at(choice, "delta" if streamed else "message"))),
            ids=x.output.ids if position == 0 else _known(at(choice, "token_ids")),
            logprobs=tuple(map(text, items(at(choice, "logprobs")) if streamed else _named(choice))),
        )
        for position, choice in choices.items()
    )


def _joined(x: Exchange) -> dict[int, Json]:
    """The choices of a stream by their index, deltas joined."""
    found: dict[int, Json] = {}
    for chunk in x.chunks:
        for choice in items(at(chunk, "choices")):
            index = number(at(choice, "index")) or 0
            piece: Json = {
                "delta": at(choice, "delta"),
                "token_ids": at(choice, "token_ids"),
                "logprobs": _named(choice),
            }
            found[index] = _join(found[index], piece) if index in found else _join({}, piece)
    return dict(sorted(found.items()))


def _named(choice: Json) -> list[Json]:
    """The tokens that the log probabilities of a choice are about; what else might have come is no part of the answer."""
    return [at(entry, "token") for entry in items(at(choice, "logprobs", "content"))]


def _join(one: Json, other: Json) -> Json:
    """Two pieces of a delta as one: texts one after the other, members and elements in their places."""
    match one, other:
        case str(), str():
            return one + other
        case dict(), dict():
            return {name: _join(one.get(name), other.get(name)) for name in dict.fromkeys((*one, *other))}
        case list(), list() if any(isinstance(item, dict) for item in (*one, *other)):
            return _join_items(one, other)
        case list(), list():
            return [*one, *other]
        case None, list() if any(isinstance(item, dict) for item in other):
            return _join_items([], other)
        case _:
            return one if other is None else other


def _join_items(one: list[Json], other: list[Json]) -> Json:
    """Elements of the same `index` are one; without an index, elements in the same place."""
    found = {_place(item, position): item for position, item in enumerate(one)}
    for position, item in enumerate(other):
        place = _place(item, position)
        found[place] = _join(found.get(place), item)
    return [found[place] for place in sorted(found)]


def _place(item: Json, position: int) -> int:
    index = number(at(item, "index"))
    return position if index is None else index


def _texts(message: Json) -> Iterator[Field]:
    for name, value in members(message).items():
        if name in ("content", "refusal"):
            yield from _walk(value, name, Place.CONTENT)
        elif name in REASONING_FIELDS or name == "reasoning_details":
            yield from _walk(value, name, Place.REASONING)
        elif name == "role":
            yield from _walk(value, name, Place.NAME)
        elif name == "tool_calls":
            for index, call in enumerate(items(value)):
                yield from _call(call, f"{name}/{index}")
        elif name == "function_call":
            yield from _call({"function": value}, name)
        else:
            yield from _walk(value, name, Place.OTHER)


def _call(call: Json, where: str) -> Iterator[Field]:
    function = at(call, "function")
    for name in ("id", "type"):
        yield from _walk(at(call, name), f"{where}/{name}", Place.NAME)
    yield from _walk(at(function, "name"), f"{where}/function/name", Place.NAME)
    arguments = at(function, "arguments")
    place = f"{where}/function/arguments"
    yield from _walk(arguments, place, Place.ARGUMENTS)
    yield from (Field(where=place, text=key, place=Place.NAME) for key in _keys(_parsed(arguments)))


def _walk(value: Json, where: str, place: Place) -> Iterator[Field]:
    """The texts of a value. What part of a content it is, `type`, tells nothing."""
    match value:
        case str() if value:
            yield Field(where=where, text=value, place=place)
        case list():
            for index, item in enumerate(value):
                yield from _walk(item, f"{where}/{index}", place)
        case dict():
            for name, member in value.items():
                yield from _walk(member, f"{where}/{name}", Place.OTHER if name in _OF_A_PART else place)
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
    except NotJson:
        return None


def _known(ids: Json) -> tuple[int, ...] | None:
    """The ids of a choice, None where it has none, or one that is no token of Harmony."""
    found = [number(item) for item in items(ids)]
    known = tuple(one for one in found if one is not None and tokens.is_known(one))
    return known if known and len(known) == len(found) else None

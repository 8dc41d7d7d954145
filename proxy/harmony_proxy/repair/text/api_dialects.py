"""How an answer is spelled in each API: where its texts, calls and finish reason stand, and how they are told anew. Whole answers and streams alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, object_in, text
from harmony_conformance.prompts.chat_request import REASONING_FIELDS
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError, ParsedText, TextKind
from harmony_ref import encode


@dataclass(kw_only=True, slots=True)
class ChoiceContent:
    """What one choice says in an answer, or in one event of it: a message or a delta."""

    choice: int
    said: JsonObject
    finish: str | None = None
    ids: Sequence[Json] = ()


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One API.

    Attributes:
        content: the member with the text for the user.
        reasoning: the members that may carry the reasoning; the first is written where the answer has none yet.
        parts: what each choice says in a value.
        told: the values that take the place of one: for each of its choices the parts that it says now (none: nothing), and its finish reason.
        delta: an event of a stream in which a choice goes on, with the ids of its tokens.
        calls_are_whole: whether arguments are an object, and a call comes in one piece.
        finishes_with_calls: whether the finish reason of calls is `tool_calls`.
        entries: the log probabilities that a value has of the content of a choice, by its number.
        with_entries: the value with others.
    """

    content: str
    reasoning: tuple[str, ...]
    parts: Callable[[Json], tuple[ChoiceContent, ...]]
    told: Callable[[Json, Mapping[int, Sequence[JsonObject]], Mapping[int, str]], list[Json]]
    delta: Callable[[int, JsonObject, Sequence[Json]], JsonObject]
    calls_are_whole: bool
    finishes_with_calls: bool
    entries: Callable[[Json, int], list[Json]] = lambda _value, _choice: []
    with_entries: Callable[[Json, int, list[Json]], Json] = lambda value, _choice, _entries: value

    def texts(self, part: ChoiceContent) -> Iterator[tuple[str, str]]:
        """The members of a part that hold text of the model, but those of calls."""
        for name, value in part.said.items():
            if isinstance(value, str) and (name == self.content or name in self.reasoning):
                yield name, value

    def ended(self, value: Json) -> Iterator[JsonObject]:
        """What an event says but for texts, calls and ids: how choices ended, and the usage."""
        for one in self.told(value, {part.choice: [{}] for part in self.parts(value)}, {}):
            bare = {name: member for name, member in members(one).items() if name != "token_ids"}
            if "choices" in bare:
                choices = (members(choice) for choice in items(bare["choices"]))
                bare["choices"] = [{name: own for name, own in one.items() if name != "token_ids"} for one in choices]
            yield bare


def home_of(dialect: Dialect, member: str) -> TextKind:
    """Where a text belongs that stands in a member."""
    return TextKind.CONTENT if member == dialect.content else TextKind.REASONING


def called(name: str, arguments: str, *, index: int | None, identity: str) -> JsonObject:
    """A call of Chat Completions; with `index`, one of a stream."""
    place: JsonObject = {} if index is None else {"index": index}
    return {**place, "id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def object_called(name: str, arguments: str) -> JsonObject:
    """A call of an API whose arguments are an object.

    Raises:
        NoPlace: the arguments are none.
    """
    read = object_in(arguments)
    if read is None:
        raise NoDestinationError("arguments that are no object, for which the API has no place")
    return {"function": {"name": name, "arguments": read}}


def join(said: Sequence[ParsedText]) -> list[ParsedText]:
    """The same with neighbours of one kind joined."""
    joined: list[ParsedText] = []
    for one in said:
        if joined and one.name is None and joined[-1].kind is one.kind:
            joined[-1] = ParsedText(kind=one.kind, text=joined[-1].text + one.text, name=joined[-1].name)
        else:
            joined.append(one)
    return joined


# Chat Completions, and TGI's


def _chat_parts(value: Json) -> tuple[ChoiceContent, ...]:
    return tuple(_chat_part(members(choice)) for choice in items(at(value, "choices")))


def _chat_part(choice: JsonObject) -> ChoiceContent:
    return ChoiceContent(
        choice=number(choice.get("index")) or 0,
        said=members(choice["delta"] if "delta" in choice else choice.get("message")),
        finish=text(choice.get("finish_reason")) or None,
        ids=items(choice.get("token_ids")),
    )


def _chat_told(value: Json, parts: Mapping[int, Sequence[JsonObject]], finish: Mapping[int, str]) -> list[Json]:
    """Each event has as many choices as the first one; what a choice says in several parts takes an event for each."""
    body = members(value)
    choices = items(body.get("choices"))
    slices = [_slices(choice, parts, finish) for choice in choices]
    if all(len(one) == 1 for one in slices):
        return [{**body, "choices": [one[0] for one in slices]}]
    envelope = {name: member for name, member in body.items() if name != "usage" or member is None}
    events: list[Json] = [{**envelope, "choices": [choice]} for one in slices for choice in one]
    if not events:
        return [] if not body.get("usage") else [{**body, "choices": []}]
    if body.get("usage") is not None:
        events[-1] = {**members(events[-1]), "usage": body["usage"]}
    return events


_OF_THE_FIRST = frozenset({"token_ids", "logprobs", "stop_reason"})


def _slices(choice: Json, parts: Mapping[int, Sequence[JsonObject]], finish: Mapping[int, str]) -> list[Json]:
    """A choice as the choices that take its place: what belongs to its tokens is told with the first, its end with the last."""
    held = members(choice)
    index = number(held.get("index")) or 0
    name = "delta" if "delta" in held else "message"
    said = parts.get(index)
    mended: JsonObject = {"finish_reason": finish[index]} if index in finish else {}
    if said is None:
        return [{**held, **mended}]
    ends = held.get("finish_reason") is not None
    if not said and not ends and not any(held.get(one) for one in _OF_THE_FIRST):
        return []
    deltas = list(said) or [{}]
    told: list[Json] = []
    for place, delta in enumerate(deltas):
        own = held if not place else {one: member for one, member in held.items() if one not in _OF_THE_FIRST}
        end: JsonObject = (
            mended if place == len(deltas) - 1 else {"finish_reason": None} if "finish_reason" in held else {}
        )
        told.append({**own, name: delta, **end})
    return told


def _chat_delta(choice: int, said: JsonObject, ids: Sequence[Json]) -> JsonObject:
    shown: JsonObject = {"token_ids": [*ids]} if ids else {}
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": choice, "delta": said, "finish_reason": None, **shown}],
    }


def _chat_entries(value: Json, choice: int) -> list[Json]:
    held = (one for one in items(at(value, "choices")) if (number(at(one, "index")) or 0) == choice)
    return [entry for one in held for entry in items(at(one, "logprobs", "content"))]


def _with_chat_entries(value: Json, choice: int, entries: list[Json]) -> Json:
    """The same; no entries are a null, as of an answer of which none were asked for."""

    def put(one: JsonObject) -> JsonObject:
        if (number(one.get("index")) or 0) != choice:
            return one
        return {**one, "logprobs": {**members(one.get("logprobs")), "content": entries} if entries else None}

    told: list[Json] = [put(members(one)) for one in items(at(value, "choices"))]
    return {**members(value), "choices": told}


def counted(value: Json, reasoning: str) -> Json:
    """The value with the tokens of its reasoning counted, where its usage says that it has none: to a server that read none there was none."""
    usage = at(value, "usage")
    for name, of in _DETAILS.items():
        details = at(usage, of)
        if reasoning and number(at(details, "reasoning_tokens")) == 0:
            most, tokens = number(at(usage, name)), len(encode(reasoning))
            told: JsonObject = {**members(details), "reasoning_tokens": tokens if most is None else min(tokens, most)}
            return {**members(value), "usage": {**members(usage), of: told}}
    return value


_DETAILS: Mapping[str, str] = MappingProxyType(
    {"completion_tokens": "completion_tokens_details", "output_tokens": "output_tokens_details"}
)
"""Counts of tokens, and where of what they are."""


# Ollama


def _held_in_message(value: Json) -> JsonObject | None:
    said = at(value, "message")
    return said if isinstance(said, dict) else None


_SAID_BY_GENERATE = frozenset({"response", "thinking", "tool_calls"})


def _held_itself(value: Json) -> JsonObject | None:
    """Without the rest of the line: `done` would be told with each part of it."""
    if not isinstance(at(value, "response"), str):
        return None
    return {name: one for name, one in members(value).items() if name in _SAID_BY_GENERATE}


def _in_message(value: JsonObject, said: JsonObject) -> JsonObject:
    return {**value, "message": {"role": "assistant", "content": "", **said}}


def _in_itself(value: JsonObject, said: JsonObject) -> JsonObject:
    return {**{name: one for name, one in value.items() if name not in _SAID_BY_GENERATE}, "response": "", **said}


def _ollama(
    held: Callable[[Json], JsonObject | None], put: Callable[[JsonObject, JsonObject], JsonObject], content: str
) -> Dialect:
    def parts(value: Json) -> tuple[ChoiceContent, ...]:
        said = held(value)
        if said is None:
            return ()
        done = at(value, "done_reason") if at(value, "done") is True else None
        return (ChoiceContent(choice=0, said=said, finish=text(done) or None, ids=items(at(value, "token_ids"))),)

    def told(value: Json, parts: Mapping[int, Sequence[JsonObject]], finish: Mapping[int, str]) -> list[Json]:
        line = members(value)
        mended: JsonObject = {**line, "done_reason": finish[0]} if 0 in finish else line
        said = parts.get(0)
        if said is None:
            return [mended]
        if not said:
            return [put(mended, {})] if line.get("done") is True else []
        earlier = {name: one for name, one in line.items() if name in ("model", "created_at", "message", "response")}
        *before, last = said
        return [*(put({**earlier, "done": False}, one) for one in before), put(mended, last)]

    return Dialect(
        content=content,
        reasoning=("thinking",),
        parts=parts,
        told=told,
        delta=lambda _choice, said, ids: put({"done": False, **({"token_ids": [*ids]} if ids else {})}, said),
        calls_are_whole=True,
        finishes_with_calls=False,
        entries=lambda value, _choice: items(at(value, "logprobs")),
        with_entries=lambda value, _choice, entries: _with_own_entries(members(value), entries),
    )


def _with_own_entries(line: JsonObject, entries: list[Json]) -> JsonObject:
    bare = {name: one for name, one in line.items() if name != "logprobs"}
    return {**bare, "logprobs": entries} if entries else bare


_CHAT = Dialect(
    content="content",
    reasoning=REASONING_FIELDS,
    parts=_chat_parts,
    told=_chat_told,
    delta=_chat_delta,
    calls_are_whole=False,
    finishes_with_calls=True,
    entries=_chat_entries,
    with_entries=_with_chat_entries,
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "chat": _CHAT,
        "tgi": replace(_CHAT, finishes_with_calls=False),
        "ollama": _ollama(_held_in_message, _in_message, "content"),
        "ollama-generate": _ollama(_held_itself, _in_itself, "response"),
    }
)
"""The APIs whose answers are repaired, by their name."""

"""Member names and message forms of each API: how texts, calls and finish reasons are read and replaced, in whole answers and in streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

from harmony_conformance.json_value import Json, JsonObject, integer, items, members, parse_object, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError, ParsedText, TextKind
from harmony_ref import encode


@dataclass(kw_only=True, slots=True)
class ChoiceContent:
    """Content of one choice in an answer (a message), or in one event (a delta)."""

    choice: int
    message: JsonObject
    finish: str | None = None
    ids: Sequence[Json] = ()


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """Forms of one API.

    Attributes:
        content: Member with the text for the user.
        reasoning: Members that may have the reasoning; the first one is used if the answer has none of them.
        parts: Returns the content of each choice in a JSON value.
        rewrite: Returns the values that replace a value. Arguments: the new messages or deltas of the changed choices, and new finish reasons.
        delta: Returns an event with a delta of a choice and its token ids.
        calls_are_whole: True if arguments are an object, and a call is never split.
        finishes_with_calls: True if the finish reason of calls is `tool_calls`.
        entries: Returns the log probabilities of the content of a choice.
        with_entries: Returns the value with other log probabilities.
    """

    content: str
    reasoning: tuple[str, ...]
    parts: Callable[[Json], tuple[ChoiceContent, ...]]
    rewrite: Callable[[Json, Mapping[int, Sequence[JsonObject]], Mapping[int, str]], list[Json]]
    delta: Callable[[int, JsonObject, Sequence[Json]], JsonObject]
    calls_are_whole: bool
    finishes_with_calls: bool
    entries: Callable[[Json, int], list[Json]] = lambda _value, _choice: []
    with_entries: Callable[[Json, int, list[Json]], Json] = lambda value, _choice, _entries: value

    def texts(self, part: ChoiceContent) -> Iterator[tuple[str, str]]:
        """Yield name and value of the members with text of the model, without those of calls."""
        for name, value in part.message.items():
            if isinstance(value, str) and (name == self.content or name in self.reasoning):
                yield name, value

    def end_events(self, value: Json) -> Iterator[JsonObject]:
        """Yield an event without texts, calls and ids: finish reasons and usage."""
        for one in self.rewrite(value, {part.choice: [{}] for part in self.parts(value)}, {}):
            bare = {name: member for name, member in members(one).items() if name != "token_ids"}
            if "choices" in bare:
                choices = (members(choice) for choice in items(bare["choices"]))
                bare["choices"] = [{name: own for name, own in one.items() if name != "token_ids"} for one in choices]
            yield bare


def default_kind(dialect: Dialect, member: str) -> TextKind:
    """Return the destination of a text by its member."""
    return TextKind.CONTENT if member == dialect.content else TextKind.REASONING


def tool_call(name: str, arguments: str, *, index: int | None, identity: str) -> JsonObject:
    """Return a call in the form of Chat Completions; with `index`, in that of its streams."""
    position: JsonObject = {} if index is None else {"index": index}
    return {**position, "id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def object_tool_call(name: str, arguments: str) -> JsonObject:
    """Return a call of an API whose arguments are an object.

    Raises:
        NoDestinationError: the arguments are not a JSON object.
    """
    parsed = parse_object(arguments)
    if parsed is None:
        raise NoDestinationError("arguments that are not a JSON object, which the API cannot express")
    return {"function": {"name": name, "arguments": parsed}}


def join(texts: Sequence[ParsedText]) -> list[ParsedText]:
    """Return the texts with adjacent ones of one kind joined."""
    joined: list[ParsedText] = []
    for one in texts:
        if joined and one.name is None and joined[-1].kind is one.kind:
            joined[-1] = ParsedText(kind=one.kind, text=joined[-1].text + one.text, name=joined[-1].name)
        else:
            joined.append(one)
    return joined


# Chat Completions, and TGI's


def _chat_parts(value: Json) -> tuple[ChoiceContent, ...]:
    return tuple(
        ChoiceContent(
            choice=integer(choice.get("index")) or 0,
            message=members(choice["delta"] if "delta" in choice else choice.get("message")),
            finish=text(choice.get("finish_reason")) or None,
            ids=items(choice.get("token_ids")),
        )
        for choice in map(members, items(value_at(value, "choices")))
    )


def _rewrite_chat(value: Json, parts: Mapping[int, Sequence[JsonObject]], finish: Mapping[int, str]) -> list[Json]:
    """Return one value if each choice has one part; else one event per choice and part, the last one with the usage."""
    body = members(value)
    choices = items(body.get("choices"))
    slices = [_split_choice(choice, parts, finish) for choice in choices]
    if all(len(one) == 1 for one in slices):
        return [{**body, "choices": [one[0] for one in slices]}]
    envelope = {name: member for name, member in body.items() if name != "usage" or member is None}
    events: list[Json] = [{**envelope, "choices": [choice]} for one in slices for choice in one]
    if not events:
        return [] if not body.get("usage") else [{**body, "choices": []}]
    if body.get("usage") is not None:
        events[-1] = {**members(events[-1]), "usage": body["usage"]}
    return events


_ONLY_FIRST = frozenset({"token_ids", "logprobs", "stop_reason"})


def _split_choice(choice: Json, parts: Mapping[int, Sequence[JsonObject]], finish: Mapping[int, str]) -> list[Json]:
    """Return the choices that replace a choice. Token data stays with the first one, the finish reason with the last one."""
    source = members(choice)
    index = integer(source.get("index")) or 0
    name = "delta" if "delta" in source else "message"
    last_end: JsonObject = {"finish_reason": finish[index]} if index in finish else {}
    if index not in parts:
        return [{**source, **last_end}]
    has_end = source.get("finish_reason") is not None
    if not parts[index] and not has_end and not any(source.get(one) for one in _ONLY_FIRST):
        return []
    *earlier, last = parts[index] or [{}]
    no_end: JsonObject = {"finish_reason": None} if "finish_reason" in source else {}
    slices: list[JsonObject] = [*({name: delta, **no_end} for delta in earlier), {name: last, **last_end}]
    bare = {one: member for one, member in source.items() if one not in _ONLY_FIRST}
    return [{**(bare if position else source), **one} for position, one in enumerate(slices)]


def _chat_delta(choice: int, message: JsonObject, ids: Sequence[Json]) -> JsonObject:
    token_ids: JsonObject = {"token_ids": [*ids]} if ids else {}
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": choice, "delta": message, "finish_reason": None, **token_ids}],
    }


def _chat_entries(value: Json, choice: int) -> list[Json]:
    choices = (one for one in items(value_at(value, "choices")) if (integer(value_at(one, "index")) or 0) == choice)
    return [entry for one in choices for entry in items(value_at(one, "logprobs", "content"))]


def _with_chat_entries(value: Json, choice: int, entries: list[Json]) -> Json:
    """Return the value with these entries; without entries `logprobs` is null, as in an answer without log probabilities."""

    def put(one: JsonObject) -> JsonObject:
        if (integer(one.get("index")) or 0) != choice:
            return one
        return {**one, "logprobs": {**members(one.get("logprobs")), "content": entries} if entries else None}

    return {**members(value), "choices": [put(members(one)) for one in items(value_at(value, "choices"))]}


def with_reasoning_tokens(value: Json, reasoning: str) -> Json:
    """Return the value with its reasoning tokens counted from the reasoning, if its usage reports 0 because the server parsed none."""
    usage = value_at(value, "usage")
    for (name, details_name), counter in product(_DETAILS.items(), ("reasoning_tokens", "thinking_tokens")):
        details = value_at(usage, details_name)
        if reasoning and integer(value_at(details, counter)) == 0:
            total, tokens = integer(value_at(usage, name)), len(encode(reasoning))
            counted_details: JsonObject = {
                **members(details),
                counter: tokens if total is None else min(tokens, total),
            }
            return {**members(value), "usage": {**members(usage), details_name: counted_details}}
    return value


_DETAILS: Mapping[str, str] = MappingProxyType(
    {"completion_tokens": "completion_tokens_details", "output_tokens": "output_tokens_details"}
)
"""Names of token counts, each with the member that has its details."""


# Ollama


def _chat_message(value: Json) -> JsonObject | None:
    message = value_at(value, "message")
    return message if isinstance(message, dict) else None


_GENERATE_MEMBERS = frozenset({"response", "thinking", "tool_calls"})


def _generate_message(value: Json) -> JsonObject | None:
    """Return the text members of a line of `/api/generate`. Others, such as `done`, must not be repeated with each part."""
    if not isinstance(value_at(value, "response"), str):
        return None
    return {name: one for name, one in members(value).items() if name in _GENERATE_MEMBERS}


def _with_chat_message(value: JsonObject, message: JsonObject) -> JsonObject:
    return {**value, "message": {"role": "assistant", "content": "", **message}}


def _with_generate_message(value: JsonObject, message: JsonObject) -> JsonObject:
    return {**{name: one for name, one in value.items() if name not in _GENERATE_MEMBERS}, "response": "", **message}


def _ollama(
    read: Callable[[Json], JsonObject | None], put: Callable[[JsonObject, JsonObject], JsonObject], content: str
) -> Dialect:
    def parts(value: Json) -> tuple[ChoiceContent, ...]:
        message = read(value)
        if message is None:
            return ()
        reason = text(value_at(value, "done_reason")) if value_at(value, "done") is True else ""
        return (
            ChoiceContent(choice=0, message=message, finish=reason or None, ids=items(value_at(value, "token_ids"))),
        )

    def rewrite(value: Json, parts: Mapping[int, Sequence[JsonObject]], finish: Mapping[int, str]) -> list[Json]:
        line = members(value)
        last_line: JsonObject = {**line, "done_reason": finish[0]} if 0 in finish else line
        messages = parts.get(0)
        if messages is None:
            return [last_line]
        if not messages:
            return [put(last_line, {})] if line.get("done") is True else []
        bare = {name: one for name, one in line.items() if name in ("model", "created_at", "message", "response")}
        *earlier, last = messages
        return [*(put({**bare, "done": False}, one) for one in earlier), put(last_line, last)]

    return Dialect(
        content=content,
        reasoning=("thinking",),
        parts=parts,
        rewrite=rewrite,
        delta=lambda _choice, message, ids: put({"done": False, **({"token_ids": [*ids]} if ids else {})}, message),
        calls_are_whole=True,
        finishes_with_calls=False,
        entries=lambda value, _choice: items(value_at(value, "logprobs")),
        with_entries=lambda value, _choice, entries: _with_line_entries(members(value), entries),
    )


def _with_line_entries(line: JsonObject, entries: list[Json]) -> JsonObject:
    bare = {name: one for name, one in line.items() if name != "logprobs"}
    return {**bare, "logprobs": entries} if entries else bare


_CHAT = Dialect(
    content="content",
    reasoning=REASONING_FIELDS,
    parts=_chat_parts,
    rewrite=_rewrite_chat,
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
        "ollama": _ollama(_chat_message, _with_chat_message, "content"),
        "ollama-generate": _ollama(_generate_message, _with_generate_message, "response"),
    }
)
"""Forms of the APIs whose streams are repaired, by API name."""

"""The answers of `harmony_ref`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TypeAlias

import harmony_ref
from harmony_conformance.golden.vectors.implementation import Implementation, error
from harmony_conformance.golden.vectors.inputs import (
    Mode,
    ParseInput,
    RenderInput,
    Strictness,
    read_parse,
    read_render,
    read_schema,
    read_stream,
)
from harmony_conformance.json_value import Json, JsonObject
from harmony_ref import Conversation, HarmonyError, Header, Message, MessageError, ParseError, StreamParser
from harmony_ref.lenient.parse import parse_leniently

Attribute: TypeAlias = Callable[[StreamParser], harmony_ref.Json]

_ATTRIBUTES: Mapping[str, Attribute] = {
    "state": lambda parser: parser.state.value,
    "role": lambda parser: None if parser.current_role is None else parser.current_role.value,
    "channel": lambda parser: parser.current_channel,
    "recipient": lambda parser: parser.current_recipient,
    "content_type": lambda parser: parser.current_content_type,
    "delta": lambda parser: parser.last_content_delta,
    "content": lambda parser: parser.current_content,
    "finished": lambda parser: len(parser.messages),
    "data": lambda parser: parser.state_data,
}
"""By the names of `inputs.OBSERVABLE`."""


def implementation() -> Implementation:
    """This project's own."""
    return Implementation(
        name="harmony_ref",
        version=version("harmony-conformance"),
        answers={"render": render, "parse": parse, "stream": stream, "typescript": typescript},
    )


def render(given: JsonObject) -> JsonObject:
    """`{text, tokens}` of a render vector."""
    asked = read_render(given)
    try:
        rendered = _rendered(asked)
    except MessageError as problem:
        return error("message", str(problem))
    except HarmonyError as problem:
        return error("render", str(problem))
    return {"text": harmony_ref.decode(rendered), "tokens": [*rendered]}


def parse(given: JsonObject) -> JsonObject:
    """`{messages}` of a parse vector; after an error those that were finished before it. A lenient one adds `{remainder, faults}`."""
    asked = read_parse(given)
    if asked.strictness is Strictness.LENIENT:
        return _leniently(asked)
    parser = StreamParser(asked.role, strict=asked.strict)
    try:
        parser.feed(asked.tokens)
        parser.finish()
    except ParseError as problem:
        return {**_refused(problem), "messages": _messages(parser.messages)}
    return {"messages": _messages(parser.messages)}


def stream(given: JsonObject) -> JsonObject:
    """`{before, steps, end, messages}` of a stream vector; the first error, if there is one, is the answer's."""
    asked = read_stream(given)
    parser = StreamParser(asked.role, strict=asked.strict)

    def seen(problem: JsonObject) -> JsonObject:
        return {**{name: as_json(_ATTRIBUTES[name](parser)) for name in asked.observe}, **problem}

    before = seen({})
    steps = [seen(_refusal(parser.process, token)) for token in asked.tokens]
    end = seen(_refusal(lambda _: parser.finish(), 0))
    first = next((step["error"] for step in [*steps, end] if "error" in step), None)
    trace: JsonObject = {"before": before, "steps": [*steps], "end": end, "messages": _messages(parser.messages)}
    return trace if first is None else {"error": first, **trace}


def typescript(given: JsonObject) -> JsonObject:
    """`{typescript}` of a typescript vector."""
    try:
        return {"typescript": harmony_ref.json_schema_to_typescript(read_schema(given))}
    except MessageError as problem:
        return error("message", str(problem))


def _rendered(asked: RenderInput) -> list[int]:
    if asked.mode is Mode.MESSAGE:
        message = Message.from_dict(asked.messages[0])
        return harmony_ref.render(message, conversation_has_function_tools=asked.conversation_has_function_tools)
    conversation = Conversation.from_dict({"messages": asked.messages})
    drop = asked.auto_drop_analysis
    if asked.mode is Mode.COMPLETION:
        return harmony_ref.render_conversation_for_completion(conversation, asked.next_role, auto_drop_analysis=drop)
    if asked.mode is Mode.TRAINING:
        return harmony_ref.render_conversation_for_training(conversation, auto_drop_analysis=drop)
    return harmony_ref.render_conversation(conversation, auto_drop_analysis=drop)


def _leniently(asked: ParseInput) -> JsonObject:
    found = parse_leniently(asked.tokens, asked.role)
    left = found.remainder
    return {
        "messages": _messages(found.messages),
        "remainder": None
        if left is None
        else {
            "state": left.state.value,
            "header": None if left.header is None else _header(left.header),
            "text": left.text,
            "start": left.start,
        },
        "faults": [{"rule": fault.rule.value, "span": [*fault.span]} for fault in found.errors],
    }


def _header(header: Header) -> JsonObject:
    """The members of a message without content."""
    fields: JsonObject = {
        "role": header.author.role.value,
        "name": header.author.name,
        "recipient": header.recipient,
        "channel": header.channel,
        "content_type": header.content_type,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _refusal(step: Callable[[int], object], token: int) -> JsonObject:
    try:
        step(token)
    except ParseError as problem:
        return _refused(problem)
    return {}


def _refused(problem: ParseError) -> JsonObject:
    return {"error": {"kind": "parse", "text": str(problem), "position": problem.position}}


def _messages(messages: Sequence[Message]) -> Json:
    return [as_json(message.to_dict()) for message in messages]


def as_json(value: harmony_ref.Json) -> Json:
    """The value with lists and dicts where it has other sequences and mappings."""
    if isinstance(value, Mapping):
        return {name: as_json(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(item) for item in value]
    return value

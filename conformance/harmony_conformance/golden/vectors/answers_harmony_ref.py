"""Answers of `harmony_ref` to golden vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TypeAlias

import harmony_ref
from harmony_conformance.golden.vectors import input_reader
from harmony_conformance.golden.vectors.implementation import Implementation, error_answer, stream_answer
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
"""Parser attributes by the names in `inputs.OBSERVABLE`."""


def implementation() -> Implementation:
    """Return harmony_ref as an implementation."""
    return Implementation(
        name="harmony_ref",
        version=version("harmony-conformance"),
        answers={"render": render, "parse": parse, "stream": stream, "typescript": typescript},
    )


def render(vector_input: JsonObject) -> JsonObject:
    """Return `{text, tokens}` of a render vector."""
    parsed = input_reader.read_render(vector_input)
    try:
        ids = _render(parsed)
    except MessageError as problem:
        return error_answer("message", str(problem))
    except HarmonyError as problem:
        return error_answer("render", str(problem))
    return {"text": harmony_ref.decode(ids), "tokens": [*ids]}


def parse(vector_input: JsonObject) -> JsonObject:
    """Return `{messages}` of a parse vector; after an error, the messages that were complete. Lenient parsing adds `{remainder, faults}`."""
    parsed = input_reader.read_parse(vector_input)
    if parsed.strictness is input_reader.Strictness.LENIENT:
        return _parse_leniently(parsed)
    parser = StreamParser(parsed.role, strict=parsed.strict)
    try:
        parser.feed(parsed.tokens)
        parser.finish()
    except ParseError as problem:
        return {**_parse_error(problem), "messages": _messages(parser.messages)}
    return {"messages": _messages(parser.messages)}


def stream(vector_input: JsonObject) -> JsonObject:
    """Return `{before, steps, end, messages}` of a stream vector, with the first `error` if there is one."""
    parsed = input_reader.read_stream(vector_input)
    parser = StreamParser(parsed.role, strict=parsed.strict)

    def observe(problem: JsonObject) -> JsonObject:
        return {**{name: as_json(_ATTRIBUTES[name](parser)) for name in parsed.observe}, **problem}

    before = observe({})
    steps = [observe(_run_step(parser.process, token)) for token in parsed.tokens]
    return stream_answer(before, steps, observe(_run_step(lambda _: parser.finish(), 0)), _messages(parser.messages))


def typescript(vector_input: JsonObject) -> JsonObject:
    """Return `{typescript}` of a typescript vector."""
    try:
        return {"typescript": harmony_ref.json_schema_to_typescript(input_reader.read_schema(vector_input))}
    except MessageError as problem:
        return error_answer("message", str(problem))


def _render(parsed: input_reader.RenderInput) -> list[int]:
    if parsed.mode is input_reader.Mode.MESSAGE:
        message = Message.from_dict(parsed.messages[0])
        return harmony_ref.render(message, conversation_has_function_tools=parsed.conversation_has_function_tools)
    conversation = Conversation.from_dict({"messages": parsed.messages})
    drop = parsed.auto_drop_analysis
    if parsed.mode is input_reader.Mode.COMPLETION:
        return harmony_ref.render_conversation_for_completion(conversation, parsed.next_role, auto_drop_analysis=drop)
    if parsed.mode is input_reader.Mode.TRAINING:
        return harmony_ref.render_conversation_for_training(conversation, auto_drop_analysis=drop)
    return harmony_ref.render_conversation(conversation, auto_drop_analysis=drop)


def _parse_leniently(parsed: input_reader.ParseInput) -> JsonObject:
    result = parse_leniently(parsed.tokens, parsed.role)
    remainder: Json = None
    if (rest := result.remainder) is not None:
        header = None if rest.header is None else _header(rest.header)
        remainder = {"state": rest.state.value, "header": header, "text": rest.text, "start": rest.start}
    faults: list[Json] = [{"rule": fault.rule.value, "span": [*fault.span]} for fault in result.errors]
    return {"messages": _messages(result.messages), "remainder": remainder, "faults": faults}


def _header(header: Header) -> JsonObject:
    """Return the wire form of a message without its content."""
    fields: JsonObject = {
        "role": header.author.role.value,
        "name": header.author.name,
        "recipient": header.recipient,
        "channel": header.channel,
        "content_type": header.content_type,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _run_step(step: Callable[[int], object], token: int) -> JsonObject:
    try:
        step(token)
    except ParseError as problem:
        return _parse_error(problem)
    return {}


def _parse_error(problem: ParseError) -> JsonObject:
    return {"error": {"kind": "parse", "text": str(problem), "position": problem.position}}


def _messages(messages: Sequence[Message]) -> Json:
    return [as_json(message.to_dict()) for message in messages]


def as_json(value: harmony_ref.Json) -> Json:
    """Convert all sequences and mappings in the value to lists and dicts."""
    if isinstance(value, Mapping):
        return {name: as_json(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(item) for item in value]
    return value
